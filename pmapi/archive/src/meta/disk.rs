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
    /// Whether the record contains only changes.
    pub is_delta: bool,
    file: &'a [u8],
    list: InstList,
}

impl<'a> DiskInDom<'a> {
    /// Iterates over the instances and their names, in the order of the file. The name is `None` for an instance that a
    /// delta deletes.
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
    /// Iterates over the records of a metadata file, each with the offset after it. `version` is the version of its
    /// format.
    fn disk_records(&self, file: u32, version: Version) -> impl Iterator<Item = (Meta<'_>, usize)> {
        let file = self.file(file);
        let mut at = version.label_len();
        std::iter::from_fn(move || {
            let (record, next) = meta::next(file, at).ok().flatten()?;
            at = next;
            Some((record, next))
        })
    }

    /// Returns the offset after the last record of the first metadata file.
    pub(crate) fn records_end(&self, version: Version) -> u64 {
        self.disk_records(0, version).last().map_or(version.label_len(), |(_, end)| end) as u64
    }

    /// Iterates over the records of instance domains in a metadata file, in the order of the file. `version` is the
    /// version of its format.
    pub(crate) fn disk_indoms(&self, file: u32, version: Version) -> impl Iterator<Item = DiskInDom<'_>> {
        let bytes = self.file(file);
        self.disk_records(file, version).filter_map(move |(record, _)| match record {
            Meta::InDom { indom, list } => {
                Some(DiskInDom { indom, time: list.time, is_delta: list.is_delta, file: bytes, list })
            }
            _ => None,
        })
    }
}
