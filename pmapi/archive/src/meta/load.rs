//! Loading of a metadata file.

use std::path::Path;

use pcp_pdu::desc::RawDesc;
use pmapi::{Error, PmId};

use super::{Metadata, Place, TextSubject};
use crate::decode::meta::{self, Meta};
use crate::error::{ArchiveError, Bad, Result};

/// Bits of the type of a help text.
const ONE_LINE: u32 = 1;
const HELP: u32 = 2;
const METRIC: u32 = 4;
const INDOM: u32 = 8;

/// Memory that names may always use, in bytes. Larger archives may use more.
const NAMES: usize = 16 << 20;

/// Returns the error for metadata without a metric.
pub(crate) fn no_metric(path: &Path) -> ArchiveError {
    ArchiveError::file(path, Error::LOGREC, "the metadata describes no metric")
}

impl Metadata {
    /// Adds a metadata file, whose records begin at `start`, and returns its index. [`Metadata::finish`] must follow.
    ///
    /// # Errors
    /// `PM_ERR_LOGREC` for a damaged record, `PM_ERR_RECTYPE` for one of unknown type, `PM_ERR_LOGCHANGE*` for a metric
    /// that another archive describes differently.
    pub(crate) fn load(&mut self, path: &Path, bytes: Vec<u8>, start: usize) -> Result<u32> {
        let file = self.files.len() as u32;
        self.files.push(bytes);
        let limit = NAMES + 4 * self.files.iter().map(Vec::len).sum::<usize>();
        let (mut at, mut metrics) = (start, 0);
        loop {
            // The files are moved out, because their records are added to other fields of `self`.
            let files = std::mem::take(&mut self.files);
            let bytes = files.get(file as usize).map_or(&[][..], Vec::as_slice);
            let next = meta::next(bytes, at).and_then(|found| {
                let Some((record, next)) = found else { return Ok(None) };
                metrics += usize::from(matches!(record, Meta::Desc { .. }));
                self.add(&files, file, record, limit)?;
                Ok(Some(next))
            });
            self.files = files;
            match next {
                Ok(Some(next)) => at = next,
                Ok(None) => break,
                Err(e) => return Err(ArchiveError::at(path, at as u64, e)),
            }
        }
        if metrics == 0 { Err(no_metric(path)) } else { Ok(file) }
    }

    /// Completes the tables after the last file.
    pub(crate) fn finish(&mut self) {
        self.names.finish();
        self.indoms.finish(&self.files);
        self.labels.finish(&self.files);
    }

    /// Adds a record of a file. `limit` is the memory that all names may use, in bytes.
    fn add(&mut self, files: &[Vec<u8>], file: u32, record: Meta<'_>, limit: usize) -> Result<(), Bad> {
        match record {
            Meta::Desc { desc, names } => {
                if let Some(pmid) = desc.pmid {
                    self.add_desc(pmid, desc)?;
                }
                if !names.iter().all(|name| self.names.add(name, desc.pmid, limit)) {
                    return Err(Bad::record(0, format!("the names of metrics need more than {limit} bytes of memory")));
                }
            }
            Meta::InDom { indom: Some(indom), list } if list.len() > 0 => self.indoms.add(indom, file, list),
            Meta::InDom { .. } => (),
            Meta::Labels { level, ident, time, sets } => self.labels.add(file, level, ident, time, sets),
            Meta::Text { kind, ident, text } => {
                let subject = match kind {
                    _ if kind & (ONE_LINE | HELP) == 0 => return Ok(()),
                    _ if kind & INDOM != 0 => TextSubject::InDom,
                    _ if kind & METRIC != 0 => TextSubject::Metric,
                    _ => return Ok(()),
                };
                let base = files.get(file as usize).map_or(0, |bytes| bytes.as_ptr().addr());
                let place = Place { file, at: (text.as_ptr().addr() - base) as u64 };
                self.texts.insert((subject, ident, kind & (ONE_LINE | HELP)), place);
            }
        }
        Ok(())
    }

    fn add_desc(&mut self, pmid: PmId, new: RawDesc) -> Result<(), Bad> {
        let Some(old) = self.descs.get(&pmid) else {
            self.descs.insert(pmid, new);
            return Ok(());
        };
        // Units are compared without their extra unit.
        let code = match () {
            () if old.ty != new.ty => Error::LOGCHANGETYPE,
            () if old.semantics != new.semantics => Error::LOGCHANGESEM,
            () if old.indom != new.indom => Error::LOGCHANGEINDOM,
            () if (old.units ^ new.units) & !0xff != 0 => Error::LOGCHANGEUNITS,
            () => return Ok(()),
        };
        Err(Bad { at: 8, code, reason: format!("metric {pmid} has another descriptor earlier in the archive").into() })
    }
}
