//! Reading and writing the file of a cache.

use std::io;

use pcp_base::file::Dir;

use super::file::{CacheFileError, Head, Line};
use super::{Cache, CacheInstance, now};

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
        let bytes = match super::file::read(&path) {
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
                Line::parse(text).map(|line| self.load_line(&line))
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
    fn load_line(&mut self, line: &Line<'_>) {
        let Line { number, name, .. } = *line;
        let present = self.table.place(number).or(self.table.named(name));
        match present.and_then(|at| self.at(at)) {
            None => _ = self.table.insert(number, line.entry()),
            Some(other) if other.inst.word() == number && other.name == name => {}
            Some(other) => {
                let CacheInstance { inst, name: first, .. } = other;
                tracing::warn!(
                    "instance cache {}: ignoring instance {number} {name:?}: the earlier line {inst} {first:?} has its number or name",
                    self.indom
                );
            }
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
        let now = now();
        self.table.stamp(u32::try_from(now).unwrap_or(u32::MAX));
        self.table.iter().for_each(|(instance, entry)| entry.write(instance.number, &mut text));
        if text.len() as u64 > self.longest {
            let source = io::Error::new(io::ErrorKind::FileTooLarge, format!("longer than {} bytes", self.longest));
            return Err(CacheFileError::Io { path, source });
        }
        if self.damaged {
            let aside =
                super::file::keep_aside(&path).map_err(|source| CacheFileError::Io { path: path.clone(), source })?;
            tracing::warn!("instance cache: {}: the damaged file is kept as {}", path.display(), aside.display());
            self.damaged = false;
        }
        pcp_base::file::replace(&path, text.as_bytes()).map_err(|source| CacheFileError::Io { path, source })?;
        (self.changed, self.touched) = (false, false);
        Ok(())
    }
}
