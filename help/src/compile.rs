//! The writer of compiled files.
//!
//! `base.pag` contains the texts, each terminated by a NUL, after a header line. `base.dir` is the index. Its records
//! have three words in native byte order: key, offset of the summary and offset of the text in `base.pag`. The first
//! record is a header: magic number, format, number of entries.

use crate::bytes::{trim_newlines_end, trim_space_start};
use crate::{Entry, Error, Target};
use pcp_base::file::NewFile;
use std::collections::HashSet;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// `PcPh`, in ASCII.
pub(crate) const MAGIC: u32 = 0x5063_5068;
/// `1` for an index and `2` for the version of the format, in ASCII; then two zero bytes.
pub(crate) const FORMAT: u32 = 0x3132_0000;
/// Bits of [`FORMAT`] that readers compare.
pub(crate) const FORMAT_MASK: u32 = 0xffff_0000;
/// Header line: magic number, `2` for texts, `2` for the version of the format.
const PAG_HEADER: &[u8] = b"PcPh22\n";
/// Bits of a key by which the index is sorted: cluster and item of a metric, serial of an instance domain.
const SERIAL: u32 = 0x3f_ffff;

/// The content of a pair of compiled files.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Files {
    /// Content of `base.dir`, the index.
    pub dir: Vec<u8>,
    /// Content of `base.pag`, the texts.
    pub pag: Vec<u8>,
}

impl Files {
    /// Writes `base.dir` and `base.pag`.
    ///
    /// Both are on the disk under temporary names before the first one is renamed. A full disk therefore leaves the old
    /// pair, and a running agent never reads an incomplete file.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when a file cannot be written or renamed.
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

/// Appends `suffix` to `base`. `Path::with_extension` would replace the text after a dot in `base`.
pub(crate) fn with_suffix(base: &Path, suffix: &str) -> std::path::PathBuf {
    let mut path = base.as_os_str().to_os_string();
    path.push(suffix);
    path.into()
}

/// Compiles entries to the same bytes that newhelp(1) writes for them.
///
/// # Errors
///
/// [`Error::Entry`] when
/// - two entries have the same target,
/// - a name is empty or contains white space,
/// - a summary contains a newline,
/// - a name, summary or text contains a NUL, or
/// - the texts exceed 4 GiB.
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
    // Metrics come before instance domains, each kind by the low 22 bits of its identifiers. The sort is stable: if
    // only the domains differ, the order of `entries` remains.
    index.sort_by_key(|[key, ..]| (key & Target::INDOM, key & SERIAL));
    let count = u32::try_from(index.len()).unwrap_or(u32::MAX);
    let header = [MAGIC, FORMAT, count];
    let dir = std::iter::once(&header).chain(&index).flatten().flat_map(|word| word.to_ne_bytes()).collect();
    Ok(Files { dir, pag })
}

fn offset(pag: &[u8], entry: &Entry) -> Result<u32, Error> {
    u32::try_from(pag.len()).map_err(|_| Error::entry(entry, "the texts before it fill 4 GiB"))
}
