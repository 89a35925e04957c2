//! The users that are charged for actions on the host.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Map of users to the users that are charged for them. The subordinate users of user namespaces (subuid(5)) are
/// charged to their owner.
///
/// A user with 65,536 subordinate users thus has one quota, instead of 65,537. Only `/etc/subuid` is read. If a host
/// keeps subordinate users elsewhere, for instance in LDAP, each is charged separately. Changed files are read again,
/// with a check once a second at most.
#[derive(Debug)]
pub struct Accounts {
    subuid: PathBuf,
    passwd: PathBuf,
    /// Disjoint ranges in ascending order.
    ranges: Vec<Range>,
    looked: Option<Instant>,
    state: [Option<State>; 2],
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Range {
    first: u32,
    last: u32,
    owner: u32,
}

/// State of a file, which changes with the file.
type State = (u64, u64, u64, i64, i64);

/// Longest time for which a change of the files may go unnoticed.
const REST: Duration = Duration::from_secs(1);
/// Largest part of a file that is read, in bytes.
const MOST: u64 = 4 << 20;

impl Default for Accounts {
    fn default() -> Self {
        Self::new()
    }
}

impl Accounts {
    /// Uses the host's `/etc/subuid` and `/etc/passwd`.
    pub fn new() -> Self {
        Self::of_files("/etc/subuid", "/etc/passwd")
    }

    /// Uses files in the formats of subuid(5) and passwd(5). A file that cannot be read counts as empty.
    pub fn of_files(subuid: impl Into<PathBuf>, passwd: impl Into<PathBuf>) -> Self {
        let (subuid, passwd) = (subuid.into(), passwd.into());
        Accounts { subuid, passwd, ranges: Vec::new(), looked: None, state: [None; 2] }
    }

    /// Returns the user that is charged for `uid`: the owner of a subordinate user, or otherwise `uid` itself.
    ///
    /// If `/etc/passwd` lacks the owner's name, the first user of its first range is charged for all its ranges.
    pub fn charged(&mut self, uid: u32) -> u32 {
        if self.looked.is_none_or(|looked| looked.elapsed() >= REST) {
            self.look();
        }
        let after = self.ranges.partition_point(|range| range.first <= uid);
        let range = after.checked_sub(1).map(|i| self.ranges[i]).filter(|range| uid <= range.last);
        range.map_or(uid, |range| range.owner)
    }

    fn look(&mut self) {
        let state = [&self.subuid, &self.passwd].map(|path| {
            let m = std::fs::metadata(path).ok()?;
            Some((m.dev(), m.ino(), m.size(), m.ctime(), m.ctime_nsec()))
        });
        if self.looked.is_none() || state != self.state {
            let text = |path| read(path).unwrap_or_default();
            self.ranges = ranges(&text(&self.subuid), &text(&self.passwd));
            self.state = state;
        }
        self.looked = Some(Instant::now());
    }
}

/// Reads the beginning of a file. Bytes that are not UTF-8 are replaced: such lines are invalid anyway.
fn read(path: &PathBuf) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MOST).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn ranges(subuid: &str, passwd: &str) -> Vec<Range> {
    let users = passwd.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let (name, _, uid) = (fields.next()?, fields.next()?, fields.next()?);
        Some((name, uid.parse::<u32>().ok()?))
    });
    let mut owners: HashMap<&str, u32> = users.collect();
    let line = |line| {
        let mut fields = str::split(line, ':').map(str::trim);
        let (owner, first, count) = (fields.next()?, fields.next()?, fields.next()?);
        let (first, count) = (first.parse::<u32>().ok()?, count.parse::<u32>().ok()?);
        let last = first.checked_add(count.checked_sub(1)?)?;
        // Root must not be charged as another user, or not at all.
        let first = first.max(1);
        let owner = owner.parse().ok().unwrap_or_else(|| *owners.entry(owner).or_insert(first));
        (first <= last).then_some(Range { first, last, owner })
    };
    let mut ranges: Vec<Range> = subuid.lines().filter_map(line).collect();
    ranges.sort_by_key(|range| range.first);
    // The range that begins first gets the common part of ranges that overlap.
    let mut before: Option<u32> = None;
    ranges.retain_mut(|range| {
        if before.is_some_and(|before| range.last <= before) {
            return false;
        }
        range.first = before.map_or(range.first, |before| range.first.max(before + 1));
        before = Some(range.last);
        true
    });
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn subordinate_users_are_charged_as_their_owner() {
        let passwd = "root:x:0:0::/:\nann:x:1000:1000::/:\nben:x:1001:1001::/:\nbad\nworse:x:y\n";
        let subuid = "ann:100000:65536\n1001:165536:65536\n ann : 300000 : 10 \ngone:400000:10\ngone:500000:10\n\
            # no range\nann:1:2:3:4\nann:x:1\nann:600000:0\nben:4294967295:1\nben:4294967295:2\n";
        let ranges = ranges(subuid, passwd);
        let mut accounts = Accounts::of_files("/nonexistent/subuid", "/nonexistent/passwd");
        assert_eq!(accounts.charged(100_000), 100_000);
        accounts.ranges = ranges;
        // A time in the future prevents another look, however slow the machine is.
        accounts.looked = Some(Instant::now() + Duration::from_secs(3600));
        for (uid, charged) in [
            (0, 0),
            (1000, 1000),
            (1, 1000),
            (3, 3),
            (99_999, 99_999),
            (100_000, 1000),
            (165_535, 1000),
            (165_536, 1001),
            (231_071, 1001),
            (231_072, 231_072),
            (300_009, 1000),
            (300_010, 300_010),
            (400_003, 400_000),
            (500_003, 400_000),
            (600_000, 600_000),
            (u32::MAX - 1, u32::MAX - 1),
            (u32::MAX, 1001),
        ] {
            assert_eq!(accounts.charged(uid), charged, "{uid}");
        }
    }

    #[test]
    fn ranges_that_overlap_or_begin_with_root_are_cut() {
        let range = |first, last, owner| Range { first, last, owner };
        assert_eq!(
            ranges("7:0:10\n8:5:10\n9:6:2\n5:4294967290:6\n6:4294967295:1", ""),
            [range(1, 9, 7), range(10, 14, 8), range(u32::MAX - 5, u32::MAX, 5)]
        );
    }

    #[test]
    fn a_file_that_changes_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let subuid = dir.path().join("subuid");
        let mut accounts = Accounts::of_files(&subuid, "/nonexistent");
        assert_eq!(accounts.charged(70_000), 70_000);
        fs::write(&subuid, "1000:70000:10\n").unwrap();
        // Without this, the change would be seen only within a second.
        accounts.looked = None;
        assert_eq!(accounts.charged(70_000), 1000);
        // A large file is read up to a limit.
        fs::write(&subuid, "1000:70000:10\n".repeat(1 << 19) + "1000:90000:1\n").unwrap();
        accounts.look();
        assert_eq!((accounts.charged(70_009), accounts.charged(90_000)), (1000, 90_000));
        assert_eq!(accounts.ranges.len(), 1);
    }
}
