//! Whether a directory has changed.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

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
