//! Names of archives and of their files.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use pmapi::Error;

use crate::error::{ArchiveError, Result};

/// Suffixes of compressed files, in the order in which they are tried.
pub(super) const SUFFIXES: [&str; 8] = [".xz", ".lzma", ".bz2", ".bz", ".gz", ".Z", ".z", ".zst"];

/// Files of an archive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Files {
    /// Directory and base name.
    pub(crate) base: PathBuf,
    pub(crate) meta: PathBuf,
    pub(crate) index: Option<PathBuf>,
    /// Volumes by number.
    pub(crate) volumes: BTreeMap<u32, PathBuf>,
}

/// Kind of a file of an archive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Meta,
    Index,
    Volume(Option<u32>),
}

/// Splits the name of a file into the base name of its archive, its kind, and the rank of its compression.
fn split(name: &[u8]) -> Option<(&[u8], Kind, usize)> {
    let compression = SUFFIXES.iter().position(|suffix| name.ends_with(suffix.as_bytes()));
    let plain = match compression.and_then(|at| SUFFIXES.get(at)) {
        Some(suffix) => &name[..name.len() - suffix.len()],
        None => name,
    };
    let dot = plain.iter().rposition(|b| *b == b'.')?;
    let (base, suffix) = (&plain[..dot], &plain[dot + 1..]);
    let kind = match suffix {
        b"meta" => Kind::Meta,
        b"index" => Kind::Index,
        _ if !suffix.is_empty() && suffix.iter().all(u8::is_ascii_digit) => {
            Kind::Volume(std::str::from_utf8(suffix).ok().and_then(|digits| digits.parse().ok()))
        }
        _ => return None,
    };
    Some((base, kind, compression.map_or(0, |rank| rank + 1)))
}

/// Finds the files of an archive by its base name, or by the name of any of its files.
///
/// # Errors
/// `PM_ERR_LOGFILE` if there is no metadata or no volume, `-ENOENT` if there is no file at all.
pub(crate) fn find(name: &Path) -> Result<Files> {
    if name.as_os_str().is_empty() {
        return Err(ArchiveError::file(name, Error::LOGFILE, "an archive needs a name"));
    }
    let dir = name.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let file = name.file_name().unwrap_or_default().as_bytes();
    let base = if exists(name) { split(file).map_or(file, |(base, ..)| base) } else { file };
    let entries = fs::read_dir(dir).map_err(|e| ArchiveError::io(dir, &e))?;
    collect(dir, base, entries.map(|entry| entry.map(|entry| entry.file_name()).map_err(|e| ArchiveError::io(dir, &e))))
}

/// Selects the files of an archive from names of files in its directory.
fn collect(dir: &Path, base: &[u8], entries: impl Iterator<Item = Result<OsString>>) -> Result<Files> {
    let mut found: BTreeMap<(u8, u32), (usize, PathBuf)> = BTreeMap::new();
    for entry in entries {
        let entry = entry?;
        let Some((_, kind, rank)) = split(entry.as_bytes()).filter(|(of, ..)| *of == base) else { continue };
        let key = match kind {
            Kind::Meta => (0, 0),
            Kind::Index => (1, 0),
            Kind::Volume(Some(number)) => (2, number),
            Kind::Volume(None) => continue,
        };
        let path = dir.join(&entry);
        let best = found.entry(key).or_insert_with(|| (rank, path.clone()));
        if rank < best.0 {
            *best = (rank, path);
        }
    }
    let base = dir.join(OsStr::from_bytes(base));
    if found.is_empty() {
        return Err(ArchiveError::file(&base, Error::from_errno(ENOENT), "no file of such an archive exists"));
    }
    let volumes = found.split_off(&(2, 0));
    let volumes: BTreeMap<u32, PathBuf> = volumes.into_iter().map(|((_, n), (_, path))| (n, path)).collect();
    let index = found.remove(&(1, 0)).map(|(_, path)| path);
    let Some((_, meta)) = found.remove(&(0, 0)) else {
        return Err(ArchiveError::file(&base, Error::LOGFILE, "the archive has no metadata (file .meta)"));
    };
    if volumes.is_empty() {
        return Err(ArchiveError::file(&base, Error::LOGFILE, "the archive has no volume of values (file .0)"));
    }
    Ok(Files { base, meta, index, volumes })
}

const ENOENT: i32 = 2;

fn exists(name: &Path) -> bool {
    let is_compressed = SUFFIXES.iter().any(|suffix| {
        let mut name = name.as_os_str().to_owned();
        name.push(suffix);
        Path::new(&name).exists()
    });
    name.exists() || is_compressed
}

/// Name of an archive in a list.
#[derive(Debug)]
pub(crate) struct Named {
    /// Name in the list, or directory and base name.
    pub(crate) name: PathBuf,
    pub(crate) path: PathBuf,
    /// Names of the files of an archive from a directory: thousands of archives in a directory must not read it as
    /// often.
    entries: Option<Vec<OsString>>,
}

impl Named {
    /// Finds the files of the archive.
    ///
    /// # Errors
    /// Errors of [`find`].
    pub(crate) fn files(self) -> Result<Files> {
        match (self.entries, self.path.parent().zip(self.path.file_name())) {
            (Some(entries), Some((dir, base))) => collect(dir, base.as_bytes(), entries.into_iter().map(Ok)),
            _ => find(&self.path),
        }
    }
}

/// Expands a list of names, separated by commas, in which a directory stands for all archives in it. A directory
/// without an archive, or that cannot be read, gives an error in its place.
pub(crate) fn expand(list: &Path) -> Vec<Result<Named>> {
    let mut names = Vec::new();
    let parts = list.as_os_str().as_bytes().split(|b| *b == b',').filter(|part| !part.is_empty());
    for part in parts.map(|part| Path::new(OsStr::from_bytes(part))) {
        if !part.is_dir() {
            names.push(Ok(Named { name: part.to_owned(), path: part.to_owned(), entries: None }));
            continue;
        }
        let before = names.len();
        match inside(part) {
            Ok(found) => names.extend(found.map(Ok)),
            Err(e) => names.push(Err(e)),
        }
        if names.len() == before {
            names.push(Err(ArchiveError::file(part, Error::LOGFILE, "there is no archive in the directory")));
        }
    }
    names
}

/// Returns the archives in a directory, by name.
fn inside(dir: &Path) -> Result<impl Iterator<Item = Named>> {
    // A volume alone may belong to another program.
    let mut by_base: BTreeMap<Vec<u8>, (bool, Vec<OsString>)> = BTreeMap::new();
    for entry in fs::read_dir(dir).map_err(|e| ArchiveError::io(dir, &e))? {
        let entry = entry.map_err(|e| ArchiveError::io(dir, &e))?.file_name();
        let Some((base, kind, _)) = split(entry.as_bytes()) else { continue };
        let (is_archive, entries) = by_base.entry(base.to_owned()).or_default();
        *is_archive |= matches!(kind, Kind::Meta | Kind::Index);
        entries.push(entry);
    }
    let archives = by_base.into_iter().filter(|(_, (is_archive, _))| *is_archive);
    Ok(archives.map(|(base, (_, entries))| {
        let base = OsStr::from_bytes(&base);
        // In the form of libpcp, even if the directory's name ends with a slash.
        let name = [dir.as_os_str(), OsStr::new("/"), base].into_iter().collect::<OsString>();
        Named { name: name.into(), path: dir.join(base), entries: Some(entries) }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files() {
        let split = |name: &'static str| split(name.as_bytes()).map(|(base, kind, rank)| (str(base), kind, rank));
        assert_eq!(split("a.b.meta"), Some(("a.b", Kind::Meta, 0)));
        assert_eq!(split("a.index.xz"), Some(("a", Kind::Index, 1)));
        assert_eq!(split("20180416.10.00.0"), Some(("20180416.10.00", Kind::Volume(Some(0)), 0)));
        assert_eq!(split("a.12.bz2"), Some(("a", Kind::Volume(Some(12)), 3)));
        assert_eq!(split("a.99999999999"), Some(("a", Kind::Volume(None), 0)));
        assert_eq!(split("a"), None);
        assert_eq!(split("a.config"), None);
        assert_eq!(split(".xz"), None);
    }

    fn str(bytes: &'static [u8]) -> &'static str {
        std::str::from_utf8(bytes).unwrap_or_default()
    }
}
