//! Reads the names of a directory in parts.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use hashbrown::{HashMap, HashSet};

use super::limits::{Accounts, Limit};
use crate::reader::Stamp;

/// Attributes of a directory when it was checked.
#[derive(Clone, Debug, Default)]
pub(super) struct Look {
    state: State,
    /// Whether the directory was changed so recently that another change could have the same time.
    is_racy: bool,
    /// When the directory was first seen with a change time in the future.
    since: Option<Instant>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
enum State {
    #[default]
    Unknown,
    /// The directory does not exist.
    Absent,
    /// Device, inode, modification time and change time.
    There(u64, u64, (i64, i64), (i64, i64)),
}

/// Longer than the resolution of file systems' time stamps.
pub(super) const COARSE: Duration = Duration::from_millis(50);

impl Look {
    /// Checks a directory, given its attributes at the last check.
    ///
    /// # Errors
    /// The error of stat(2), which says nothing about the files of the directory.
    pub(super) fn at(path: &Path, before: &Look) -> io::Result<Look> {
        let m = match fs::metadata(path) {
            Ok(m) => m,
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(Look { state: State::Absent, ..Look::default() });
            }
            Err(e) => return Err(e),
        };
        let state = State::There(m.dev(), m.ino(), (m.mtime(), m.mtime_nsec()), (m.ctime(), m.ctime_nsec()));
        let age = m.modified().ok().and_then(|changed| SystemTime::now().duration_since(changed).ok());
        Ok(match age {
            Some(age) => Look { state, is_racy: age < COARSE, since: None },
            // The clock was set back, or the time was set explicitly: a monotonic clock tells how long it has been
            // seen.
            None => {
                let since = before.since.filter(|_| before.state == state).unwrap_or_else(Instant::now);
                Look { state, is_racy: since.elapsed() < COARSE, since: Some(since) }
            }
        })
    }

    pub(super) fn is_absent(&self) -> bool {
        self.state == State::Absent
    }

    /// Returns whether the directory may have changed between the two checks.
    pub(super) fn may_differ(&self, now: &Look) -> bool {
        self.is_racy || self.state != now.state
    }
}

/// A name in the directory.
#[derive(Debug)]
pub(super) struct Found {
    pub name: OsString,
    /// For new files, the user to charge, and the attributes, which are unknown for a symbolic link.
    pub new: Option<(u32, Option<Stamp>)>,
}

/// A directory that has been read in part.
#[derive(Debug)]
pub(super) struct Listing {
    entries: fs::ReadDir,
    /// Attributes of the directory when reading began.
    pub look: Look,
    known: HashSet<OsString>,
    found: Vec<Found>,
    /// Number of new files by user to charge: those with and without room.
    users: HashMap<u32, (u64, u64)>,
}

impl Listing {
    /// Opens a directory. `known` has the names of known files.
    pub(super) fn begin(path: &Path, look: Look, known: impl Iterator<Item = OsString>) -> io::Result<Listing> {
        let entries = fs::read_dir(path)?;
        Ok(Listing { entries, look, known: known.collect(), found: Vec::new(), users: HashMap::new() })
    }

    /// Reads up to `names` further names. Returns whether the directory has been read to its end.
    pub(super) fn go_on(&mut self, names: u64, accounts: &mut Accounts) -> io::Result<bool> {
        for _ in 0..names {
            let Some(entry) = self.entries.next() else { return Ok(true) };
            let entry = entry?;
            let name = entry.file_name();
            if name.as_bytes().starts_with(b".") {
                continue;
            }
            if self.known.contains(&name) {
                self.found.push(Found { name, new: None });
                continue;
            }
            if !entry.file_type().is_ok_and(|ty| ty.is_file() || ty.is_symlink()) {
                continue;
            }
            // The file may be gone.
            let Ok(metadata) = entry.metadata() else { continue };
            let uid = accounts.payer(metadata.uid());
            let (found, without_room) = self.users.entry(uid).or_default();
            if accounts.has_room(uid, *found + 1) {
                *found += 1;
                let stamp = (!metadata.is_symlink()).then(|| Stamp::new(&metadata));
                self.found.push(Found { name, new: Some((uid, stamp)) });
            } else {
                *without_room += 1;
            }
        }
        Ok(false)
    }

    /// Returns the names in ascending order, and the number of files without room, by user.
    pub(super) fn finish(mut self) -> (Vec<Found>, HashMap<u32, u64>) {
        self.found.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        let crowd = self.users.into_iter().map(|(uid, (_, without_room))| (uid, without_room));
        (self.found, crowd.filter(|(_, without_room)| *without_room > 0).collect())
    }
}

impl Accounts {
    /// Counts the files without room that are new since the last time.
    pub(super) fn count_crowd(&mut self, before: &HashMap<u32, u64>, now: &HashMap<u32, u64>) {
        for (uid, count) in now {
            let known = before.get(uid).copied().unwrap_or_default();
            self.leave_out(*uid, Limit::Files, count.saturating_sub(known));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_of_the_future_comes_to_rest() {
        let dir = tempfile::tempdir().unwrap();
        let tomorrow = SystemTime::now() + Duration::from_secs(86_400);
        fs::File::open(dir.path()).unwrap().set_modified(tomorrow).unwrap();
        let first = Look::at(dir.path(), &Look::default()).unwrap();
        assert!(first.is_racy, "another change may come with the same time");
        let later = Look { since: Instant::now().checked_sub(2 * COARSE), ..first };
        let again = Look::at(dir.path(), &later).unwrap();
        assert!(!again.may_differ(&again));
        fs::write(dir.path().join("a"), "").unwrap();
        let changed = Look::at(dir.path(), &again).unwrap();
        assert!(again.may_differ(&changed));
    }

    #[test]
    fn only_a_directory_that_is_not_there_has_no_files() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Look::at(&dir.path().join("none"), &Look::default()).unwrap().is_absent());
        let long = "x".repeat(300);
        assert!(Look::at(&dir.path().join(long), &Look::default()).is_err());
    }
}
