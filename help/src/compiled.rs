//! The reader of compiled files.

use crate::compile::{FORMAT, FORMAT_MASK, MAGIC, with_suffix};
use crate::{Error, Target};
use std::mem;
use std::path::Path;

/// Length of a record of the index, in bytes.
const RECORD: usize = 3 * mem::size_of::<u32>();

/// Longest file that is read, in bytes. The index of 10^6 entries has 12 MB.
const LONGEST: u64 = 1 << 28;

/// A pair of compiled files in memory (pmdaOpenHelp(3)).
///
/// [`Compiled::open`] reads both files and checks every offset, so that lookups cannot fail later. To see a new version
/// of the files, open them again.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// Records sorted by key, which is unique.
    index: Box<[Record]>,
    /// Positions in `index`, in the order of the file.
    order: Box<[u32]>,
    pag: Box<[u8]>,
}

#[derive(Clone, Debug)]
struct Record {
    key: u32,
    /// Offset of the summary in `pag`. The summary is terminated by a NUL.
    oneline: u32,
    /// Offset of the full text in `pag`. The text is terminated by a NUL.
    text: u32,
}

impl Compiled {
    /// Reads `base.dir` and `base.pag`.
    ///
    /// # Errors
    ///
    /// - [`Error::Io`] when a file cannot be read, is not a regular file, or has over 256 MiB,
    /// - [`Error::Version`] when `base.dir` is not an index of version 2,
    /// - [`Error::Format`] when a record or the end of a text is missing.
    pub fn open(base: &Path) -> Result<Compiled, Error> {
        let dir_path = with_suffix(base, ".dir");
        let dir = pcp_base::file::read(&dir_path, LONGEST).map_err(Error::io(&dir_path))?;
        let pag_path = with_suffix(base, ".pag");
        let pag = pcp_base::file::read(&pag_path, LONGEST).map_err(Error::io(&pag_path))?;
        Self::parse(&dir, pag, &dir_path, &pag_path)
    }

    /// Reads the contents of the two files. Errors have the names `help.dir` and `help.pag`.
    ///
    /// # Errors
    ///
    /// - [`Error::Version`] when `dir` is not an index of version 2,
    /// - [`Error::Format`] when a record or the end of a text is missing.
    pub fn from_bytes(dir: Vec<u8>, pag: Vec<u8>) -> Result<Compiled, Error> {
        Self::parse(&dir, pag, Path::new("help.dir"), Path::new("help.pag"))
    }

    fn parse(dir: &[u8], pag: Vec<u8>, dir_path: &Path, pag_path: &Path) -> Result<Compiled, Error> {
        let Some((header, records)) = dir.split_at_checked(RECORD) else {
            return Err(Error::Version { path: dir_path.to_path_buf() });
        };
        let [magic, format, count] = words(header);
        if magic != MAGIC || format & FORMAT_MASK != FORMAT {
            return Err(Error::Version { path: dir_path.to_path_buf() });
        }
        let len = usize::try_from(count).ok().and_then(|count| count.checked_mul(RECORD));
        let Some(records) = len.and_then(|len| records.get(..len)) else {
            let reason = format!("the header says {count} entries, the file has {}", records.len() / RECORD);
            return Err(Error::format(dir_path, reason));
        };

        let last_nul = pag.iter().rposition(|b| *b == 0);
        let mut index = Vec::with_capacity(records.len() / RECORD);
        for (position, record) in records.chunks_exact(RECORD).enumerate() {
            let [key, oneline, text] = words(record);
            for (what, offset) in [("summary", oneline), ("text", text)] {
                if last_nul.is_none_or(|last| offset as usize > last) {
                    let of = Target::from_key(key).map_or_else(String::new, |target| target.to_string());
                    let reason =
                        format!("the {what} of entry {} ({of}) is not terminated (offset {offset})", position + 1);
                    return Err(Error::format(pag_path, reason));
                }
            }
            index.push((position, Record { key, oneline, text }));
        }
        Ok(Self::sorted(index, pag))
    }

    /// Sorts records by key. Of several records with the same key, it keeps the one that C returns: the first for
    /// metrics (pmdaGetHelp(3)), the last for instance domains (pmdaGetInDomHelp(3)).
    fn sorted(mut index: Vec<(usize, Record)>, pag: Vec<u8>) -> Compiled {
        index.sort_by_key(|(_, record)| record.key);
        index.dedup_by(|later, kept| {
            let same = later.1.key == kept.1.key;
            if same && kept.1.key & Target::INDOM != 0 {
                mem::swap(later, kept);
            }
            same
        });
        let mut order: Vec<(usize, u32)> = index.iter().zip(0..).map(|((position, _), at)| (*position, at)).collect();
        order.sort_unstable();
        Compiled {
            index: index.into_iter().map(|(_, record)| record).collect(),
            order: order.into_iter().map(|(_, at)| at).collect(),
            pag: pag.into(),
        }
    }

    /// Returns the summary, which may be empty (pmdaGetHelp(3) and pmdaGetInDomHelp(3) with `PM_TEXT_ONELINE`).
    ///
    /// Returns `None` when the target has no entry. Does not allocate.
    pub fn oneline(&self, target: Target) -> Option<&[u8]> {
        self.string(self.record(target)?.oneline)
    }

    /// Returns the full text, which may be empty (pmdaGetHelp(3) and pmdaGetInDomHelp(3) with `PM_TEXT_HELP`).
    ///
    /// Returns `None` when the target has no entry. Does not allocate.
    pub fn text(&self, target: Target) -> Option<&[u8]> {
        self.string(self.record(target)?.text)
    }

    /// Returns the targets of all entries, in the order of the index file.
    pub fn targets(&self) -> impl Iterator<Item = Target> {
        self.order.iter().filter_map(|at| Target::from_key(self.index.get(*at as usize)?.key))
    }

    fn record(&self, target: Target) -> Option<&Record> {
        let at = self.index.binary_search_by_key(&target.key(), |record| record.key).ok()?;
        self.index.get(at)
    }

    /// Returns the string at an offset, without the NUL that terminates it.
    fn string(&self, offset: u32) -> Option<&[u8]> {
        let rest = self.pag.get(offset as usize..)?;
        rest.get(..rest.iter().position(|b| *b == 0)?)
    }
}

fn words(record: &[u8]) -> [u32; 3] {
    let word = |at: usize| record.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |word| u32::from_ne_bytes(*word));
    [word(0), word(4), word(8)]
}
