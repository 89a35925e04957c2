//! The file of a cache in PCP's format: a line for the domain, then one for each instance.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::str;

use nix::fcntl::OFlag;
use pcp_base::file::Dir;

use super::error::CacheFileError;
use super::{Cache, CacheInstance, Entry, now};

pub(super) const MAX: u32 = i32::MAX as u32;

impl<T> Cache<T> {
    /// Reads the file again, and adds its new instances, hidden (`PMDA_CACHE_LOAD`). Does nothing for a memory-only
    /// cache or when there is no file.
    ///
    /// # Errors
    /// [`CacheFileError::Io`] when the file cannot be read, or has over 64 MiB. [`CacheFileError::Damaged`] names the
    /// first invalid line. Valid lines are loaded, but none after an invalid line 1. [`Cache::write`] then keeps a
    /// damaged or too long file as `FILE.damaged`.
    pub fn load(&mut self) -> Result<(), CacheFileError> {
        let Some(path) = self.file() else { return Ok(()) };
        let bytes = match read(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            read => read.map_err(|source| {
                // The next write would destroy it.
                self.damaged |= source.kind() == io::ErrorKind::FileTooLarge;
                CacheFileError::Io { path: path.clone(), source }
            })?,
        };
        // Install creates an empty file for the agent.
        let mut wrong = None;
        let lines = bytes.strip_suffix(b"\n").unwrap_or(&bytes).split(|b| *b == b'\n');
        for (line, text) in (1..).zip(lines).filter(|_| !bytes.is_empty()) {
            let loaded = if line == 1 {
                Head::parse(text).map(|head| self.head = head)
            } else {
                Line::parse(text).map(|line| self.load_line(line))
            };
            if let Err(reason) = loaded {
                self.damaged = true;
                wrong.get_or_insert_with(|| CacheFileError::Damaged { path: path.clone(), line, reason });
                if line == 1 {
                    // The format of the other lines depends on a valid head.
                    break;
                }
            }
        }
        wrong.map_or(Ok(()), Err)
    }

    /// Adds an instance of the file. As in C, of two entries with the same number or name the first is kept.
    fn load_line(&mut self, line: Line<'_>) {
        let Line { number, name, key, stamp } = line;
        let present = self.table.numbers.get(&number).map(|slot| *slot as usize).or(self.table.named(name));
        match present.map(|slot| self.table.instance(slot)) {
            None => _ = self.table.insert(Entry { number, stamp, name: name.into(), key: key.into() }),
            Some(other) if other.inst.word() == number && other.name == name => {}
            Some(CacheInstance { inst, name: first, .. }) => tracing::warn!(
                "instance cache {}: ignoring instance {number} {name:?}: the earlier line {inst} {first:?} has its number or name",
                self.indom
            ),
        }
    }

    /// Writes the file if instances have been added or removed since it was read or written (`PMDA_CACHE_SAVE`).
    ///
    /// # Errors
    /// The errors of [`Cache::write`].
    pub fn save(&mut self) -> Result<(), CacheFileError> {
        if self.changed { self.write() } else { Ok(()) }
    }

    /// Writes the file if instances have been stored since it was read or written, which records that they were seen
    /// (`PMDA_CACHE_SYNC`).
    ///
    /// # Errors
    /// The errors of [`Cache::write`].
    pub fn sync(&mut self) -> Result<(), CacheFileError> {
        if self.changed || self.touched { self.write() } else { Ok(()) }
    }

    /// Writes the file (`PMDA_CACHE_WRITE`); does nothing for a memory-only cache. The file has the old content or the
    /// new one at any time, and the new content is on the disk when this returns.
    ///
    /// # Errors
    /// [`CacheFileError::Io`] when the directory or the file cannot be written, or the file would have over 64 MiB.
    pub fn write(&mut self) -> Result<(), CacheFileError> {
        let Some(path) = self.file() else { return Ok(()) };
        // PCP may not have created the last part of `$PCP_VAR_DIR/config/pmda` yet. Without PCP, numbers need not be
        // kept.
        if let [dir, _, var] = path.ancestors().skip(1).take(3).collect::<Vec<_>>()[..] {
            if !var.exists() {
                return Ok(());
            }
            Dir::create(dir).map_err(|source| CacheFileError::Io { path: dir.to_owned(), source })?;
        }
        let mut text = String::new();
        self.head.write(&mut text);
        let now = u32::try_from(now()).unwrap_or(u32::MAX);
        self.table.entries.iter_mut().filter(|entry| entry.stamp == 0).for_each(|entry| entry.stamp = now);
        self.table.iter().for_each(|(entry, _)| entry.write(&mut text));
        if text.len() as u64 > self.longest {
            let source = io::Error::new(io::ErrorKind::FileTooLarge, format!("longer than {} bytes", self.longest));
            return Err(CacheFileError::Io { path, source });
        }
        if self.damaged {
            let aside = keep_aside(&path).map_err(|source| CacheFileError::Io { path: path.clone(), source })?;
            tracing::warn!("instance cache: {}: the damaged file is kept as {}", path.display(), aside.display());
            self.damaged = false;
        }
        pcp_base::file::replace(&path, text.as_bytes()).map_err(|source| CacheFileError::Io { path, source })?;
        (self.changed, self.touched) = (false, false);
        Ok(())
    }
}

/// Reads the file. Does not follow a symbolic link: a user of the directory could make root read any file, and save a
/// copy for all to see.
///
/// # Errors
/// Errors of open(2) and read(2); `ELOOP` for a symbolic link, `FileTooLarge` beyond [`LONGEST`].
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let (dir, name) = Dir::of(path)?;
    let file = dir.file(name, OFlag::O_RDONLY | OFlag::O_NONBLOCK, 0)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    pcp_base::file::read_from(&file, LONGEST)
}

/// The first line of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Head {
    /// New instances take the lowest free number, instead of the one after the last.
    pub(super) reuse: bool,
    pub(super) max: u32,
}

impl Default for Head {
    fn default() -> Self {
        Head { reuse: false, max: MAX }
    }
}

impl Head {
    fn parse(line: &[u8]) -> Result<Head, &'static str> {
        const WRONG: &str = "not the head of an instance cache";
        let line = str::from_utf8(line).map_err(|_| WRONG)?;
        let fields: Vec<u32> = line.split_whitespace().map_while(|field| field.parse().ok()).collect();
        let (mode, max) = match fields[..] {
            [1, mode, ..] => (mode, MAX),
            [2, mode, max, ..] => (mode, max),
            _ => return Err(WRONG),
        };
        if mode > 1 || max > MAX {
            return Err(WRONG);
        }
        Ok(Head { reuse: mode == 1, max })
    }

    fn write(self, text: &mut String) {
        let _ = writeln!(text, "2 {} {}", u8::from(self.reuse), self.max);
    }
}

/// A line for an instance.
#[derive(Debug)]
struct Line<'a> {
    number: u32,
    name: &'a str,
    key: Vec<u8>,
    stamp: u32,
}

impl Line<'_> {
    fn parse(line: &[u8]) -> Result<Line<'_>, &'static str> {
        let line = str::from_utf8(line).map_err(|_| "not UTF-8")?;
        let (id, rest) = number(line).ok_or("no instance number")?;
        let (stamp, mut name) = number(rest).ok_or("no time")?;
        let mut key = Vec::new();
        if let Some(tail) = name.strip_prefix('[') {
            let (digits, tail) = tail.split_once(']').ok_or("key without its end")?;
            key = unhex(digits).ok_or("key is not hexadecimal")?;
            name = tail.trim_ascii_start();
        }
        let number = u32::try_from(id).ok().filter(|id| *id <= MAX).ok_or("instance number out of range")?;
        if name.is_empty() {
            return Err("no name");
        }
        if name.contains('\0') {
            return Err("name with a NUL");
        }
        // A time beyond 32 bits is invalid. It is replaced by the latest time that fits.
        Ok(Line { number, name, key, stamp: u32::try_from(stamp).unwrap_or(u32::MAX) })
    }
}

impl Entry {
    fn write(&self, text: &mut String) {
        let _ = write!(text, "{} {}", self.number, self.stamp);
        // A name in brackets would be read as a key. Without a key the name is the key (pmdaCacheStoreKey(3)).
        let key = if self.key.is_empty() && self.name.starts_with('[') { self.name.as_bytes() } else { &self.key };
        if !key.is_empty() {
            text.push_str(" [");
            key.iter().for_each(|b| _ = write!(text, "{b:02x}"));
            text.push(']');
        }
        let _ = writeln!(text, " {}", self.name);
    }
}

/// Splits off a number and the spaces after it.
fn number(text: &str) -> Option<(u64, &str)> {
    let text = text.trim_ascii_start();
    let end = text.find(|c: char| !c.is_ascii_digit())?;
    Some((text[..end].parse().ok()?, text[end..].trim_ascii_start()))
}

fn unhex(digits: &str) -> Option<Vec<u8>> {
    let digit = |c: u8| char::from(c).to_digit(16).map(|digit| digit as u8);
    digits
        .as_bytes()
        .chunks(2)
        .map(|pair: &[u8]| match pair {
            [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
            _ => None,
        })
        .collect()
}

/// Longest file that is read or written, in bytes. Its 4 million lines of minimal length take 5 s to read, and 500 MB
/// of memory. Group pcp may write the file, and the agent may be part of pmcd.
pub(super) const LONGEST: u64 = 1 << 26;

/// Largest number of damaged files that are kept for one cache.
const MOST_ASIDE: usize = 8;

/// Keeps a damaged file under another name, `FILE.damaged`, `FILE.damaged.2` and so on up to eight, before a new file
/// takes its place. If all eight exist, the eighth is replaced.
fn keep_aside(path: &Path) -> io::Result<PathBuf> {
    let (dir, name) = Dir::of(path)?;
    let aside = |n: usize| {
        let mut aside = name.to_owned();
        aside.push(".damaged");
        if n > 1 {
            aside.push(format!(".{n}"));
        }
        aside
    };
    for aside in (1..=MOST_ASIDE).map(aside) {
        let linked = match dir.link(name, &aside) {
            // The kernel may forbid a hard link to another user's file.
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied && dir.stat(&aside).is_err() => {
                dir.rename(name, &aside)
            }
            done => done,
        };
        match linked {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            done => return done.map(|()| path.with_file_name(aside)),
        }
    }
    let last = aside(MOST_ASIDE);
    dir.rename(name, &last)?;
    Ok(path.with_file_name(last))
}
