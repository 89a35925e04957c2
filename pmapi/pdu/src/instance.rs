//! PDUs about instances: `INSTANCE_REQ` and `INSTANCE`.

use super::PduType;
use super::codec::{Decoded, Reader, Writer};
use pmapi::{InDom, Inst, OptionWord as _, Result};

/// `INSTANCE_REQ`: a request for the instances of a domain, or for one of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InstanceReq<'a> {
    /// Instance domain; `None` for `PM_INDOM_NULL`.
    pub indom: Option<InDom>,
    /// Instance whose name is requested.
    pub inst: Option<Inst>,
    /// Name whose instance is requested.
    pub name: Option<&'a [u8]>,
}

impl<'a> InstanceReq<'a> {
    pub(super) fn decode(r: &mut Reader<'a>) -> Decoded<Self> {
        let indom = InDom::from_word(r.u32("instance domain")?);
        r.bytes(8, "time")?;
        let inst = Inst::from_word(r.u32("instance")?);
        let name = r.string("name")?;
        Ok(InstanceReq { indom, inst, name: (!name.is_empty()).then_some(name) })
    }

    /// Appends the PDU.
    ///
    /// # Errors
    /// `PM_ERR_TOOBIG` for a PDU over [`MAX_LEN`](crate::MAX_LEN) bytes.
    pub fn encode(&self, out: &mut Vec<u8>, from: i32) -> Result {
        let mut w = Writer::new(out, PduType::INSTANCE_REQ, from);
        w.u32(self.indom.word()).bytes(&[0; 8]).u32(self.inst.word()).string(self.name.unwrap_or_default());
        w.finish()
    }
}

/// `INSTANCE`: instances and their names. If the request had a name, the answer has only the instance. If it had an
/// instance, the answer has only the name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InstancePdu<'a> {
    /// Instance domain; `None` for `PM_INDOM_NULL`.
    pub indom: Option<InDom>,
    count: usize,
    list: &'a [u8],
}

impl<'a> InstancePdu<'a> {
    pub(super) fn decode(r: &mut Reader<'a>) -> Decoded<Self> {
        let indom = InDom::from_word(r.u32("instance domain")?);
        let count = r.count("number of instances")?;
        let list = r.clone();
        let mut checked = r.clone();
        for _ in 0..count {
            checked.u32("instance")?;
            checked.string("instance name")?;
        }
        let len = checked.pos() - list.pos();
        Ok(InstancePdu { indom, count, list: r.bytes(len, "instances")? })
    }

    /// Returns the number of instances.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns whether there are no instances.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Iterates over the instances and their names.
    pub fn iter(&self) -> impl Iterator<Item = (Option<Inst>, &'a [u8])> + use<'a> {
        let mut rest = self.list;
        std::iter::from_fn(move || {
            let (inst, tail) = rest.split_first_chunk()?;
            let (len, tail) = tail.split_first_chunk()?;
            let len = u32::from_be_bytes(*len) as usize;
            let name = tail.get(..len)?;
            rest = tail.get(len.next_multiple_of(4)..)?;
            Some((Inst::from_word(u32::from_be_bytes(*inst)), name))
        })
    }
}

/// Writer of an `INSTANCE` PDU, one instance at a time.
#[derive(Debug)]
pub struct InstanceWriter<'a> {
    w: Writer<'a>,
    count: u32,
}

impl<'a> InstanceWriter<'a> {
    const COUNT: usize = 16;

    /// Starts the PDU at the end of `out`.
    pub fn new(out: &'a mut Vec<u8>, from: i32, indom: InDom) -> Self {
        let mut w = Writer::new(out, PduType::INSTANCE, from);
        w.u32(indom.word()).u32(0);
        InstanceWriter { w, count: 0 }
    }

    /// Adds an instance.
    #[inline]
    pub fn push(&mut self, inst: Option<Inst>, name: &[u8]) {
        // A length beyond a word's range occurs only in a PDU that `finish` refuses.
        self.w.pair(inst.word(), name.len() as u32).padded(name);
        self.count += 1;
    }

    /// Completes the PDU.
    ///
    /// # Errors
    /// `PM_ERR_TOOBIG` for a PDU over [`MAX_LEN`](crate::MAX_LEN) bytes.
    pub fn finish(mut self) -> Result {
        self.w.patch(Self::COUNT, self.count);
        self.w.finish()
    }
}
