//! The writer of compiled files.
//!
//! `base.pag` holds the texts, each ended by a NUL, after a header line. `base.dir` is an index of
//! records of three words in the machine's byte order: key, offset of the summary, offset of the
//! text. Its first record is a header: magic, format, number of entries.

use crate::bytes::{trim_newlines_end, trim_space_start};
use crate::{Entry, Error, Target};
use pmapi::file::NewFile;
use std::collections::HashSet;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// `PcPh`
pub(crate) const MAGIC: u32 = 0x5063_5068;
/// `1` (an index), `2` (the format's version), two bytes of zero.
pub(crate) const FORMAT: u32 = 0x3132_0000;
/// The bits of [`FORMAT`] that count.
pub(crate) const FORMAT_MASK: u32 = 0xffff_0000;
/// `2`: texts; `2`: the format's version.
const PAG_HEADER: &[u8] = b"PcPh22\n";
/// Bits of a key that the index is sorted by after the kind of the target.
const SERIAL: u32 = 0x3f_ffff;

/// The content of a pair of compiled files.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Files {
    /// Of `base.dir`, the index.
    pub dir: Vec<u8>,
    /// Of `base.pag`, the texts.
    pub pag: Vec<u8>,
}

impl Files {
    /// Writes `base.dir` and `base.pag`. Both are on the disk under temporary names before the first takes its place, so
    /// that a full disk leaves the old pair, and a running agent never sees half a file.
    ///
    /// # Errors
    /// [`Error::Io`] when one cannot be written.
    pub fn write(&self, base: &Path) -> Result<(), Error> {
        let pag = prepare(&with_suffix(base, ".pag"), &self.pag)?;
        let dir = prepare(&with_suffix(base, ".dir"), &self.dir)?;
        [pag, dir].into_iter().try_for_each(|(path, new)| new.commit().map_err(at(path)))
    }
}

fn prepare(path: &Path, content: &[u8]) -> Result<(PathBuf, NewFile), Error> {
    let prepared = NewFile::create(path).and_then(|mut new| {
        new.write_all(content)?;
        new.file().sync_all()?;
        Ok(new)
    });
    prepared.map(|new| (path.to_owned(), new)).map_err(at(path.to_owned()))
}

fn at(path: PathBuf) -> impl FnOnce(io::Error) -> Error {
    |source| Error::Io { path, source }
}

/// `base.dir` from `base`, also when `base` has a dot.
pub(crate) fn with_suffix(base: &Path, suffix: &str) -> std::path::PathBuf {
    let mut path = base.as_os_str().to_os_string();
    path.push(suffix);
    path.into()
}

/// The compiled files of entries, the same bytes that newhelp(1) writes for them.
///
/// Fails for two entries with one target, a name that is empty or has white space, a summary with a
/// newline, a NUL in any text, and over 4 GiB of text.
pub fn compile(entries: &[Entry]) -> Result<Files, Error> {
    let mut pag = PAG_HEADER.to_vec();
    let mut index = Vec::with_capacity(entries.len());
    let mut seen = HashSet::with_capacity(entries.len());
    for entry in entries {
        entry.check()?;
        if !seen.insert(entry.target.key()) {
            return Err(Error::entry(entry, "another entry has this identifier"));
        }
        pag.extend_from_slice(b"\n@ ");
        pag.extend_from_slice(&entry.name);
        pag.push(b' ');
        let oneline = offset(&pag, entry)?;
        pag.extend_from_slice(trim_space_start(&entry.oneline));
        pag.push(0);
        let text = offset(&pag, entry)?;
        pag.extend_from_slice(trim_newlines_end(&entry.text));
        pag.push(0);
        index.push([entry.target.key(), oneline, text]);
    }
    // Metrics before instance domains, each by serial; the order of the source decides between
    // domains.
    index.sort_by_key(|[key, ..]| (key & Target::INDOM, key & SERIAL));
    let count = u32::try_from(index.len()).unwrap_or(u32::MAX);
    let header = [MAGIC, FORMAT, count];
    let dir = std::iter::once(&header).chain(&index).flatten().flat_map(|word| word.to_ne_bytes()).collect();
    Ok(Files { dir, pag })
}

fn offset(pag: &[u8], entry: &Entry) -> Result<u32, Error> {
    u32::try_from(pag.len()).map_err(|_| Error::entry(entry, "the texts before it fill 4 GiB"))
}
