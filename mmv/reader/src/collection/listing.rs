//! Reads the names of a directory, and the attributes of its files, in parts.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use hashbrown::{HashMap, HashSet};

use super::limits::{Accounts, Limit, thread_time};
use crate::reader::{Directory, Stamp};

/// Attributes of a directory at a check.
#[derive(Clone, Debug, Default)]
pub(super) struct Look {
    state: State,
    /// Whether the directory was changed so recently that another change could have the same time.
    is_racy: bool,
    /// Time at which the directory was first seen with a change time in the future.
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

/// Time that is longer than the resolution of file systems' time stamps.
pub(super) const COARSE: Duration = Duration::from_millis(50);

impl Look {
    /// Checks a directory, given its attributes at the last check.
    ///
    /// # Errors
    /// The error of stat(2), which does not mean that the directory's files have changed.
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
            // The clock was set back, or the time was set explicitly: a monotonic clock measures how long that time has
            // been seen.
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
    /// Attributes of the file, after following a symbolic link.
    pub stamp: io::Result<Stamp>,
    /// User to charge for a new file.
    pub new: Option<u32>,
}

/// A directory that has been read in part.
#[derive(Debug)]
pub(super) struct Listing {
    entries: fs::ReadDir,
    /// The same directory, for the attributes of files.
    pub directory: Arc<Directory>,
    /// Attributes of the directory when reading began.
    pub look: Look,
    known: HashSet<OsString>,
    /// Known files that have been found.
    found: Vec<Found>,
    /// New files, by the user that they are charged to.
    new: HashMap<u32, New>,
    /// Number of new files with room.
    count: usize,
    /// Whether the last name has been read.
    is_read: bool,
    /// Whether an earlier request has read a part of the names.
    is_continued: bool,
}

/// New files of a user.
#[derive(Debug, Default)]
struct New {
    files: Vec<Found>,
    /// Number of further files.
    without_room: u64,
}

/// Number of names that each request reads, regardless of time.
const LEAST: u64 = 2048;
/// Number of names that are read between two checks of the time.
const NAMES: u64 = 256;

impl Listing {
    /// Opens a directory. `known` has the names of known files.
    pub(super) fn begin(
        path: &Path,
        directory: Arc<Directory>,
        look: Look,
        known: impl Iterator<Item = OsString>,
    ) -> io::Result<Listing> {
        let entries = fs::read_dir(path)?;
        let (found, new, known) = (Vec::new(), HashMap::new(), known.collect());
        let (is_read, is_continued) = (false, false);
        Ok(Listing { entries, directory, look, known, found, new, count: 0, is_read, is_continued })
    }

    /// Reads up to `names` further names. After [`LEAST`] `/ share` names, stops after `time` nanoseconds. Returns whether
    /// the names are complete and the present request has time left for the files.
    pub(super) fn go_on(&mut self, names: u64, time: u64, share: u64, accounts: &mut Accounts) -> io::Result<bool> {
        if self.is_read {
            return Ok(true);
        }
        let (start, least) = (thread_time(), LEAST / share);
        // A directory of few names is read in one request, which also reads the files.
        let is_small = !std::mem::replace(&mut self.is_continued, true);
        for number in 0..names {
            let is_due = number >= least && number % NAMES == 0;
            if is_due && thread_time().saturating_sub(start) > time {
                return Ok(false);
            }
            match self.entries.next() {
                Some(entry) => self.add(&entry?, accounts),
                None => {
                    self.is_read = true;
                    return Ok(is_small && number < least || thread_time().saturating_sub(start) < time / 2);
                }
            }
        }
        Ok(false)
    }

    /// Returns whether the last name has been read, so that the present request continues with the files.
    pub(super) fn is_read(&self) -> bool {
        self.is_read
    }

    fn add(&mut self, entry: &fs::DirEntry, accounts: &mut Accounts) {
        let name = entry.file_name();
        if name.as_bytes().starts_with(b".") {
            return;
        }
        if self.known.contains(&name) {
            // Here this counts as time for the name. In a directory of thousands of files, it takes most of the time.
            let stamp = self.directory.stat(&name);
            self.found.push(Found { name, stamp, new: None });
            return;
        }
        if !entry.file_type().is_ok_and(|ty| ty.is_file() || ty.is_symlink()) {
            return;
        }
        // The file may be gone.
        let Ok(metadata) = entry.metadata() else { return };
        let uid = accounts.payer(metadata.uid());
        let most = usize::try_from(accounts.most_files()).unwrap_or(usize::MAX);
        let share = most / self.new.len().max(1) + 1;
        let New { files, without_room } = self.new.entry(uid).or_default();
        let has_share = self.count < most || files.len() < share;
        if has_share && accounts.has_room(uid, files.len() as u64 + 1) {
            let stamp = if metadata.is_symlink() { self.directory.stat(&name) } else { Ok(Stamp::new(&metadata)) };
            files.push(Found { name, stamp, new: Some(uid) });
            self.count += 1;
        } else {
            *without_room += 1;
        }
        // Users who came first now have more than their share.
        if self.count > 2 * (most + self.new.len()) {
            self.shorten(share);
        }
    }

    /// Reduces each user's new files to a share.
    fn shorten(&mut self, share: usize) {
        self.count = 0;
        for New { files, without_room } in self.new.values_mut() {
            *without_room += files.len().saturating_sub(share) as u64;
            files.truncate(share);
            self.count += files.len();
        }
    }

    /// Returns the names in ascending order, and the number of files without room, by user.
    pub(super) fn finish(mut self) -> (Vec<Found>, HashMap<u32, u64>) {
        let mut crowd = HashMap::new();
        for (uid, New { files, without_room }) in self.new {
            self.found.extend(files);
            if without_room > 0 {
                crowd.insert(uid, without_room);
            }
        }
        self.found.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        (self.found, crowd)
    }
}

impl Accounts {
    /// Counts the files without room, beyond those of the last listing.
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

    #[test]
    fn users_without_number_have_shares_of_the_names() {
        let dir = tempfile::tempdir().unwrap();
        (0..600).for_each(|i| fs::write(dir.path().join(format!("a{i}")), "").unwrap());
        let mut accounts = Accounts::default();
        accounts.limits.files = 40;
        let all = |accounts: &mut Accounts| {
            let directory = Arc::new(Directory::open(dir.path()).unwrap());
            let mut listing = Listing::begin(dir.path(), directory, Look::default(), std::iter::empty()).unwrap();
            while !listing.go_on(100, 0, 1, accounts).unwrap() {}
            let (found, crowd) = listing.finish();
            assert_eq!(found.len() as u64 + crowd.values().sum::<u64>(), 600);
            let mut users: HashMap<u32, usize> = HashMap::new();
            found.iter().for_each(|found| *users.entry(found.new.unwrap()).or_default() += 1);
            users
        };
        // The owners of the names, in the order in which they are found: first a single owner, and then twenty others.
        let mut number = 0;
        accounts.charge(move |_| {
            number += 1;
            if number <= 300 { 0 } else { number % 20 + 1 }
        });
        let users = all(&mut accounts);
        assert_eq!(users.len(), 21);
        assert!(users.values().all(|files| (1..=42).contains(files)), "{users:?}");
        // Each name has another owner.
        let mut number = 0;
        accounts.charge(move |_| {
            number += 1;
            number
        });
        assert_eq!(all(&mut accounts).len(), 600);
    }
}
