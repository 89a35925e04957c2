//! Records of instance domains as they are in the file.

use pcp_pdu::event::Stamp;
use pmapi::InDom;

use super::Metadata;
use crate::decode::Version;
use crate::decode::meta::{self, InstList, Meta, text_at};

/// Record of an instance domain as it is in the metadata file, for looking at the format.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct DiskInDom<'a> {
    /// Instance domain; `None` for `PM_INDOM_NULL`.
    pub indom: Option<InDom>,
    /// Time from which on the instances exist.
    pub time: Stamp,
    /// Whether the record has only what has changed.
    pub is_delta: bool,
    file: &'a [u8],
    list: InstList,
}

impl<'a> DiskInDom<'a> {
    /// Iterates over the instances in the order of the file, each with its name; `None` for one that a delta deletes.
    pub fn instances(&self) -> impl Iterator<Item = (u32, Option<&'a [u8]>)> + use<'a> {
        let file = self.file;
        self.list.iter(file).map(move |(inst, at)| (inst, at.map(|at| text_at(file, at))))
    }

    /// Returns the number of instances.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Returns whether there are no instances.
    pub fn is_empty(&self) -> bool {
        self.list.len() == 0
    }
}

impl Metadata {
    /// Iterates over the records of instance domains in the order of the first metadata file, of version `version`.
    pub fn disk_indoms(&self, version: Version) -> impl Iterator<Item = DiskInDom<'_>> {
        let file = self.file(0);
        let mut at = version.label_len();
        std::iter::from_fn(move || {
            loop {
                let (record, next) = meta::next(file, at).ok().flatten()?;
                at = next;
                if let Meta::InDom { indom, list } = record {
                    return Some(DiskInDom { indom, time: list.time, is_delta: list.is_delta, file, list });
                }
            }
        })
    }
}
