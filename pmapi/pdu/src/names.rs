//! PDUs about dynamic names, the part of the name space that an agent manages: `PMNS_IDS`, `PMNS_NAMES`, `PMNS_CHILD`
//! and `PMNS_TRAVERSE`.

use super::codec::{Decoded, Reader, Writer, words};
use super::{HEADER, PduType};
use pmapi::{OptionWord as _, PmId, Result};

/// `PMNS_IDS`: metrics; a request for the names of one metric, or the answer to names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ids<'a> {
    /// 0 in a request; the outcome of the look-up in an answer.
    pub status: i32,
    list: &'a [u8],
}

impl<'a> Ids<'a> {
    pub(super) fn decode(r: &mut Reader<'a>) -> Decoded<Self> {
        let status = r.i32("status")?;
        let n = r.count("number of PMIDs")?;
        Ok(Ids { status, list: r.records(n, 4, "PMIDs")? })
    }

    /// Iterates over the metrics; `None` for `PM_ID_NULL`.
    pub fn pmids(self) -> impl ExactSizeIterator<Item = Option<PmId>> + Clone + 'a {
        words(self.list).map(PmId::from_word)
    }
}

/// Appends a `PMNS_IDS` PDU.
///
/// # Errors
/// `PM_ERR_TOOBIG` for a PDU over [`MAX_LEN`](crate::MAX_LEN) bytes.
pub fn encode_ids(out: &mut Vec<u8>, from: i32, status: i32, pmids: &[Option<PmId>]) -> Result {
    let mut w = Writer::new(out, PduType::PMNS_IDS, from);
    w.i32(status).count(pmids.len());
    for pmid in pmids {
        w.u32(pmid.word());
    }
    w.finish()
}

/// Kind of a name in the name space.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Node {
    /// Name of a metric (`PMNS_LEAF_STATUS`).
    Leaf,
    /// Name with other names below it (`PMNS_NONLEAF_STATUS`).
    NonLeaf,
}

/// `PMNS_NAMES`: names; a request for their metrics, or the answer to a request for names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Names<'a> {
    count: usize,
    status: bool,
    list: &'a [u8],
}

impl<'a> Names<'a> {
    pub(super) fn decode(r: &mut Reader<'a>) -> Decoded<Self> {
        let total = r.count("bytes of names")?;
        let statuses = r.count("number of statuses")?;
        let count = r.count("number of names")?;
        if statuses != 0 && statuses != count {
            return Err(r.bad("number of statuses", statuses as i64, "differs from the number of names"));
        }
        let status = statuses != 0;
        let list = r.clone();
        let mut checked = r.clone();
        let mut sum = 0;
        for _ in 0..count {
            if status {
                checked.u32("status")?;
            }
            sum += checked.string("name")?.len() + 1;
        }
        if sum != total {
            return Err(r.bad("bytes of names", total as i64, "is not the sum of their lengths"));
        }
        let len = checked.pos() - list.pos();
        Ok(Names { count, status, list: r.bytes(len, "names")? })
    }

    /// Returns the number of names.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns whether there are no names.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Iterates over the names, with their kind if it was sent.
    pub fn iter(&self) -> impl Iterator<Item = (Option<Node>, &'a [u8])> + use<'a> {
        let mut rest = self.list;
        let has_status = self.status;
        std::iter::from_fn(move || {
            let mut node = None;
            if has_status {
                let (status, tail) = rest.split_first_chunk()?;
                node = Some(if u32::from_be_bytes(*status) == 0 { Node::Leaf } else { Node::NonLeaf });
                rest = tail;
            }
            let (len, tail) = rest.split_first_chunk()?;
            let len = u32::from_be_bytes(*len) as usize;
            let name = tail.get(..len)?;
            rest = tail.get(len.next_multiple_of(4)..)?;
            Some((node, name))
        })
    }
}

/// Whether a `PMNS_NAMES` PDU has the kind of each name, a metric or a node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Statuses {
    /// Names only.
    Omitted,
    /// Names and their kinds.
    Included,
}

/// Writer of a `PMNS_NAMES` PDU, one name at a time, with or without the kind of each.
#[derive(Debug)]
pub struct NamesWriter<'a> {
    w: Writer<'a>,
    statuses: Statuses,
    count: usize,
    /// Length of the names in bytes, with a NUL after each.
    total: usize,
}

impl<'a> NamesWriter<'a> {
    /// Starts the PDU at the end of `out`.
    pub fn new(out: &'a mut Vec<u8>, from: i32, statuses: Statuses) -> Self {
        let mut w = Writer::new(out, PduType::PMNS_NAMES, from);
        w.u32(0).u32(0).u32(0);
        NamesWriter { w, statuses, count: 0, total: 0 }
    }

    /// Adds a name.
    #[inline]
    pub fn push(&mut self, node: Node, name: &[u8]) {
        if self.statuses == Statuses::Included {
            self.w.u32(u32::from(node == Node::NonLeaf));
        }
        self.w.string(name);
        self.count += 1;
        self.total += name.len() + 1;
    }

    /// Completes the PDU.
    ///
    /// # Errors
    /// `PM_ERR_TOOBIG` for a PDU over [`MAX_LEN`](crate::MAX_LEN) bytes.
    pub fn finish(mut self) -> Result {
        let statuses = if self.statuses == Statuses::Included { self.count } else { 0 };
        // A number beyond a word's range occurs only in a PDU that `Writer::finish` refuses.
        for (offset, n) in (HEADER..).step_by(4).zip([self.total, statuses, self.count]) {
            self.w.patch(offset, n as u32);
        }
        self.w.finish()
    }
}

/// Appends a `PMNS_NAMES` PDU, with or without the kind of each name.
///
/// # Errors
/// `PM_ERR_TOOBIG` for a PDU over [`MAX_LEN`](crate::MAX_LEN) bytes.
pub fn encode_names<'n>(
    out: &mut Vec<u8>,
    from: i32,
    statuses: Statuses,
    names: impl IntoIterator<Item = (Node, &'n [u8])>,
) -> Result {
    let mut writer = NamesWriter::new(out, from, statuses);
    names.into_iter().for_each(|(node, name)| writer.push(node, name));
    writer.finish()
}

/// `PMNS_CHILD`: a request for the last components of the names right below a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Child<'a> {
    /// Whether the answer is to include the kind of each name.
    pub statuses: Statuses,
    /// Name whose children are requested.
    pub name: &'a [u8],
}

impl<'a> Child<'a> {
    pub(super) fn decode(r: &mut Reader<'a>) -> Decoded<Self> {
        let statuses = if r.i32("subtype")? == 0 { Statuses::Omitted } else { Statuses::Included };
        Ok(Child { statuses, name: r.string("name")? })
    }

    /// Appends the PDU.
    ///
    /// # Errors
    /// `PM_ERR_TOOBIG` for a PDU over [`MAX_LEN`](crate::MAX_LEN) bytes.
    pub fn encode(self, out: &mut Vec<u8>, from: i32) -> Result {
        let mut w = Writer::new(out, PduType::PMNS_CHILD, from);
        w.u32((self.statuses == Statuses::Included).into()).string(self.name);
        w.finish()
    }
}

/// `PMNS_TRAVERSE`: a request for the full names of all metrics below a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Traverse<'a> {
    /// Name below which metrics are requested.
    pub name: &'a [u8],
}

impl<'a> Traverse<'a> {
    pub(super) fn decode(r: &mut Reader<'a>) -> Decoded<Self> {
        r.u32("subtype")?;
        Ok(Traverse { name: r.string("name")? })
    }

    /// Appends the PDU.
    ///
    /// # Errors
    /// `PM_ERR_TOOBIG` for a PDU over [`MAX_LEN`](crate::MAX_LEN) bytes.
    pub fn encode(self, out: &mut Vec<u8>, from: i32) -> Result {
        let mut w = Writer::new(out, PduType::PMNS_TRAVERSE, from);
        w.u32(0).string(self.name);
        w.finish()
    }
}
