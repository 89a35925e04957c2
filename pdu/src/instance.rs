//! INSTANCE_REQ and INSTANCE.

use super::PduType;
use super::codec::{Decoded, Reader, Writer};
use pmapi::id::OptionWord as _;
use pmapi::{InDom, Inst, Result};

/// INSTANCE_REQ: asks for the instances of a domain, or for one of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InstanceReq<'a> {
    /// The instance domain; `None` when it is `PM_INDOM_NULL`.
    pub indom: Option<InDom>,
    /// The instance whose name is wanted.
    pub inst: Option<Inst>,
    /// The name whose instance is wanted.
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
    pub fn encode(&self, out: &mut Vec<u8>, from: i32) -> Result {
        let mut w = Writer::new(out, PduType::INSTANCE_REQ, from);
        w.u32(self.indom.word()).bytes(&[0; 8]).u32(self.inst.word()).string(self.name.unwrap_or_default());
        w.finish()
    }
}

/// INSTANCE: instances and their names. The answer to a name has the instance alone, the answer to
/// an instance has the name alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InstancePdu<'a> {
    /// The instance domain.
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

    /// How many.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The instances and their names.
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

/// Appends an INSTANCE PDU, one instance at a time.
#[derive(Debug)]
pub struct InstanceWriter<'a> {
    w: Writer<'a>,
    count: u32,
}

impl<'a> InstanceWriter<'a> {
    const COUNT: usize = 16;

    /// Starts the PDU.
    pub fn new(out: &'a mut Vec<u8>, from: i32, indom: InDom) -> Self {
        let mut w = Writer::new(out, PduType::INSTANCE, from);
        w.u32(indom.word()).u32(0);
        InstanceWriter { w, count: 0 }
    }

    /// Adds an instance.
    #[inline]
    pub fn push(&mut self, inst: Option<Inst>, name: &[u8]) {
        // A length beyond a word's range can only come with a PDU that is refused at its end.
        self.w.pair(inst.word(), name.len() as u32).padded(name);
        self.count += 1;
    }

    /// Ends the PDU.
    pub fn finish(mut self) -> Result {
        self.w.patch(Self::COUNT, self.count);
        self.w.finish()
    }
}
