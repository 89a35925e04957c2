//! Opens an archive to continue it.

use std::path::{Path, PathBuf};

use pcp_pdu::event::Stamp;
use pmapi::Error;

use super::out::Out;
use super::state::{EINVAL, State};
use super::{Writer, file};
use crate::archive::Archive;
use crate::decode::index::entry_len;
use crate::error::{ArchiveError, Result};
use crate::window::Extent;

/// Checks an archive and opens it at its end.
///
/// # Errors
/// Errors of [`Writer::append`].
pub(super) fn append(name: &Path) -> Result<Writer> {
    let archive = Archive::open(name)?;
    let [log] = archive.logs.as_slice() else {
        return Err(ArchiveError::file(name, EINVAL, "several archives cannot be continued as one"));
    };
    let (volume, path) = log.files.volumes.last_key_value().ok_or_else(|| no_file(&log.files.base, ".0"))?;
    let index = log.files.index.as_ref().ok_or_else(|| no_file(&log.files.base, ".index"))?;
    for (path, suffix) in [(&log.files.meta, "meta"), (index, "index"), (path, &*volume.to_string())] {
        if *path != file(&log.files.base, suffix) {
            return Err(ArchiveError::file(path, EINVAL, "a compressed file cannot be continued"));
        }
    }
    check_volume(&archive, *volume)?;
    let open = |path: &PathBuf| Out::append(path);
    let files = [open(&log.files.meta)?, open(index)?, open(path)?];
    let [meta, index, _] = &files;
    check_meta(&archive, meta)?;
    let entries = index.len() - log.label.version.label_len() as u64;
    if entries % entry_len(log.label.version) as u64 != 0 {
        return Err(ArchiveError::file(index.path(), Error::LOGREC, "the file ends in the middle of an entry"));
    }
    let mut writer = Writer::with(&log.files.base, log.label.clone(), *volume, files, state(&archive)?);
    writer.last = Some(archive.end()?);
    writer.last_meta = latest(&archive);
    Ok(writer)
}

fn no_file(base: &Path, suffix: &str) -> ArchiveError {
    ArchiveError::file(base, Error::LOGFILE, format!("the archive has no file {suffix} to continue"))
}

/// Checks that the metadata ends with a whole record: readers ignore less than the head of one.
fn check_meta(archive: &Archive, meta: &Out) -> Result {
    let (end, len) = (archive.metadata().records_end(archive.label().version), meta.len());
    if end == len {
        return Ok(());
    }
    let reason = format!("the last whole record ends at byte {end} of {len}; pmlogcheck(1) shows the damage");
    Err(ArchiveError::file(meta.path(), Error::LOGREC, reason))
}

/// Checks that a volume ends with a whole record, by following the lengths of all records.
fn check_volume(archive: &Archive, volume: u32) -> Result {
    let [log, ..] = archive.logs.as_slice() else { return Ok(()) };
    let mut window = log.window(volume)?;
    let mut at = log.label.version.label_len() as u64;
    while let Some(span) = window.after(at, Extent::Few)? {
        at = span.end();
    }
    let len = window.source().len()?;
    if at == len {
        return Ok(());
    }
    let reason = format!("the last whole record ends at byte {at} of {len}; pmlogcheck(1) shows the damage");
    Err(ArchiveError::file(window.source().path(), Error::LOGREC, reason))
}

/// Returns the metadata of the archive. Leaves out labels and texts, which may therefore be written again.
fn state(archive: &Archive) -> Result<State> {
    let mut state = State::default();
    let meta = archive.metadata();
    let names = meta.names();
    for (pmid, desc) in meta.descs() {
        state.set_metric(pmid, desc, names.names(pmid));
    }
    let mut instances = meta.instance_names();
    for indom in meta.indoms() {
        let last = meta.indom_records(indom).map_err(|e| code(archive, e))?.last();
        let list = last.map(|record| instances.instances_of(indom, record)).unwrap_or_default();
        state.set_instances(indom, list.iter().map(|instance| (instance.inst, instance.name)));
    }
    Ok(state)
}

fn code(archive: &Archive, e: Error) -> ArchiveError {
    ArchiveError::file(archive.first().meta_path(), e, "the instance domains are damaged")
}

/// Returns the time of the latest metadata.
fn latest(archive: &Archive) -> Option<Stamp> {
    let meta = archive.metadata();
    let indoms = meta.indoms().filter_map(|indom| meta.indom_records(indom).ok()?.last()).map(|record| record.time);
    indoms.chain(meta.label_records().map(|record| record.time)).max()
}
