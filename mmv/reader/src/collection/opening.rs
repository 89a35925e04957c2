//! Limits on files that one request checks, and on those that it opens because they do not stay open between requests.
//!
//! The agent in pmcd keeps few files open. Opening one takes some microseconds, and one metric may have values in all
//! files of a user. A check of an open file takes half as long.

use std::io;

use hashbrown::HashMap;

/// Number of files that a request checks before it reads values, for 1 to 2 ms. Files that have to be opened count twice.
const CHECKS: u32 = 1024;

/// Number of files of each user that a request may check, whatever the files of the others take.
const LEAST: u32 = 64;

/// Number of times that a request opens files of a user, for about 12 ms. A file is opened once for its numbers, and once
/// for each metric with strings. A user with 1000 applications needs less, unless a request is for very many strings.
pub(super) const OPENED: u32 = 3072;

/// Files that the present request has checked and opened.
#[derive(Debug, Default)]
pub(super) struct Opening {
    /// Number of checks of all files and, by user, of checks and opened files.
    checks: u32,
    users: HashMap<u32, (u32, u32)>,
}

impl Opening {
    /// Begins a new request.
    pub(super) fn begin(&mut self) {
        self.checks = 0;
        self.users.clear();
    }

    /// Returns whether a file of a user may be checked now. If so, counts the check. A file that may not is checked when
    /// its values are read, or by one of the next requests.
    pub(super) fn allows_check(&mut self, uid: u32, is_open: bool) -> bool {
        let (own, _) = self.users.entry(uid).or_default();
        let allows = self.checks < CHECKS || *own < LEAST;
        if allows {
            let count = if is_open { 1 } else { 2 };
            self.checks += count;
            *own += count;
        }
        allows
    }

    /// Counts a file of a user that is to be opened for its values.
    ///
    /// # Errors
    /// `WouldBlock` if the request may open no further file of the user.
    pub(super) fn count(&mut self, uid: u32) -> io::Result<()> {
        let (_, opened) = self.users.entry(uid).or_default();
        if *opened >= OPENED {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        *opened += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    use pcp_pdu::print::Print;
    use pmapi::{Error, Item};

    use super::*;
    use crate::collection::Collection;
    use crate::collection::tests::{one, write};

    /// Time in which a request reads all files, in nanoseconds.
    const AMPLE: u64 = 60_000_000_000;

    /// Number of files of the group, all of which one metric belongs to.
    const FILES: u32 = 600;

    /// Returns a collection of one group of files, each with a metric. None of them stays open.
    fn all_closed(dir: &std::path::Path) -> Collection {
        (1..=FILES).for_each(|item| write(dir, &format!("f{item:03}"), &one(7, item).bytes(1)));
        fs::File::open(dir).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
        let mut collection = Collection::new("mmv", dir);
        collection.keep_open(0);
        let mut limits = collection.limits();
        (limits.work, limits.user_work) = (AMPLE, AMPLE);
        collection.set_limits(limits);
        while collection.refresh() {}
        collection
    }

    fn reads() -> u64 {
        let text = fs::read_to_string("/proc/thread-self/io").unwrap();
        text.lines().find_map(|line| line.strip_prefix("syscr:")).unwrap().trim().parse().unwrap()
    }

    fn values(collection: &mut Collection, item: u16) -> Vec<Result<String, Error>> {
        let mut values = Vec::new();
        collection
            .fetch(
                Item::new(7, item),
                |_| true,
                |_, value| {
                    values.push(value.map(|value| Print::new(value, 0).to_string()));
                },
            )
            .unwrap();
        values
    }

    #[test]
    fn a_fetch_opens_a_part_of_a_large_group() {
        let dir = tempfile::tempdir().unwrap();
        let mut collection = all_closed(dir.path());
        let before = reads();
        assert!(!collection.refresh_for(&mut [Item::new(7, 1)].into_iter()));
        let reads = reads() - before;
        assert!(reads <= u64::from(CHECKS) / 2 + 10, "{reads} reads");
    }

    #[test]
    fn values_of_unchecked_files_are_exact() {
        let dir = tempfile::tempdir().unwrap();
        let mut collection = all_closed(dir.path());
        // Changes values in place.
        for item in 1..=FILES {
            let mut bytes = one(7, item).bytes(1);
            let at = bytes.len() - 32;
            bytes[at..at + 8].copy_from_slice(&77u64.to_ne_bytes());
            fs::write(dir.path().join(format!("f{item:03}")), bytes).unwrap();
        }
        collection.refresh_for(&mut [Item::new(7, 1)].into_iter());
        let all: Vec<_> = (1..=FILES as u16).flat_map(|item| values(&mut collection, item)).collect();
        assert_eq!(all, vec![Ok("77".to_owned()); FILES as usize]);
    }

    #[test]
    fn each_file_is_checked_by_one_of_several_requests() {
        let dir = tempfile::tempdir().unwrap();
        let mut collection = all_closed(dir.path());
        for item in [1, FILES / 2, FILES] {
            let generation = 2 + u64::from(item);
            fs::write(dir.path().join(format!("f{item:03}")), one(7, item).bytes(generation)).unwrap();
            let requests = (0..4).take_while(|_| !collection.refresh_for(&mut [Item::new(7, 1)].into_iter())).count();
            assert!(requests < 3, "{item}: {requests}");
            while collection.refresh() {}
            assert_eq!(values(&mut collection, item as u16), [Ok((generation * 10).to_string())]);
        }
    }

    #[test]
    fn an_unchecked_file_that_has_changed_gives_no_value_of_the_old_layout() {
        let dir = tempfile::tempdir().unwrap();
        let mut collection = all_closed(dir.path());
        (1..=FILES).for_each(|item| {
            fs::write(dir.path().join(format!("f{item:03}")), one(7, item).bytes(2)).unwrap();
        });
        // As if other groups had used up the request's checks.
        collection.request += 1;
        let uid = fs::metadata(dir.path()).unwrap().uid();
        collection.opening = Opening { checks: CHECKS, users: HashMap::from([(uid, (LEAST, 0))]) };
        let all: Vec<_> = (1..=FILES as u16).flat_map(|item| values(&mut collection, item)).collect();
        assert!(all.iter().all(|value| *value == Err(Error::GENERIC)), "{:?}", all.first());
        while collection.refresh() {}
        assert_eq!(values(&mut collection, FILES as u16), [Ok("20".to_owned())]);
    }

    #[test]
    fn users_do_not_use_up_what_others_may_open() {
        let mut opening = Opening::default();
        let mut checks = |uid, is_open| (0..2 * CHECKS).filter(|_| opening.allows_check(uid, is_open)).count() as u32;
        assert_eq!((checks(1, true), checks(2, true), checks(3, false)), (CHECKS, LEAST, LEAST / 2));
        let mut count = |uid| (0..2 * OPENED).filter(|_| opening.count(uid).is_ok()).count() as u32;
        assert_eq!((count(1), count(4)), (OPENED, OPENED));
        opening.begin();
        assert!(opening.allows_check(2, false) && opening.count(1).is_ok());
    }
}
