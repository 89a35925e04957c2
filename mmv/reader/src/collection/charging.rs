//! Tests of what changes of files may cost: memory that is charged, and work of one request.

use std::fs;

use super::draft::Draft;
use super::source::Source;
use super::tests::{in_steps, sharing, write};
use crate::reader::{APART, STATS};

/// Changes all files between any two requests, whose time is enough for `work`, and returns the most memory that their
/// contents were charged with at once, the limit, and the memory of one file.
fn most_charged(large: u64, work: u64) -> (u64, u64, u64) {
    let dir = tempfile::tempdir().unwrap();
    let mut generation = 0;
    let mut change = || {
        generation += 1;
        (1..=30).for_each(|n| write(dir.path(), &format!("f{n:02}"), &sharing(n).bytes(generation)));
    };
    let mut collection = in_steps(dir.path());
    collection.large = large;
    change();
    while collection.file_count() == 0 {
        collection.refresh();
    }
    let of = |source: &Source| source.cost.memory;
    let one = collection.groups.sources().map(of).max().unwrap();
    let mut limits = collection.limits();
    (limits.user_memory, limits.work) = (16 * one, work);
    collection.set_limits(limits);
    let (mut most, mut least) = (0, usize::MAX);
    for request in 0..400 {
        change();
        collection.refresh();
        let drafted = collection.draft.iter().flat_map(Draft::sources);
        let charged = collection.groups.sources().chain(drafted).map(of).sum::<u64>();
        most = charged.max(most);
        // By then there are as many files as there is room for.
        if request >= 200 {
            least = collection.file_count().min(least);
        }
    }
    assert!(least >= 8, "{least} files");
    (most, limits.user_memory, one)
}

/// Time in which a request reads all files.
const AMPLE: u64 = 60_000_000_000;

#[test]
fn files_that_change_all_the_time_stay_within_the_limit() {
    for work in [0, AMPLE] {
        let (most, limit, _) = most_charged(u64::MAX, work);
        assert!(most <= limit, "{most} {limit}");
    }
}

/// The old contents of some files are still exported while the tables of the new ones are built: a quarter of the
/// limit, if requests have the time to read as much.
#[test]
fn files_whose_tables_are_built_in_parts_take_a_quarter_more_than_the_limit() {
    let (most, limit, one) = most_charged(0, AMPLE);
    let quarter = limit / 4;
    assert!((limit + quarter - one..=limit + quarter + one).contains(&most), "{most} {limit} {one}");
    let (most, ..) = most_charged(0, 0);
    assert!(most <= limit + quarter, "{most} {limit} {one}");
}

#[test]
fn a_request_reads_the_attributes_of_a_part_of_many_files() {
    let dir = tempfile::tempdir().unwrap();
    (1..=300).for_each(|n| write(dir.path(), &format!("f{n:03}"), &sharing(n).bytes(1)));
    let mut collection = in_steps(dir.path());
    let mut limits = collection.limits();
    (limits.names, limits.work) = (100, AMPLE);
    collection.set_limits(limits);
    let mut total = 0;
    write(dir.path(), "f150", &sharing(150).bytes(2));
    while {
        let before = STATS.get();
        let changed = collection.refresh();
        let files = STATS.get() - before;
        assert!(files <= 100, "{files}");
        total += files;
        !changed
    } {}
    assert!(total >= 300, "{total}");
}

#[test]
fn a_request_about_very_many_names_has_a_part_of_the_time() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "valid", &sharing(1).bytes(1));
    (0..1000).for_each(|n| fs::write(dir.path().join(format!("bad{n}")), "MMV?").unwrap());
    let mut collection = super::Collection::new("mmv", dir.path());
    while collection.skipped.len() < 1000 {
        collection.refresh();
    }
    collection.many = 0;
    let mut limits = collection.limits();
    limits.work = 100_000;
    collection.set_limits(limits);
    let mut change = 0;
    let mut stats = |refresh: fn(&mut super::Collection) -> bool| {
        while collection.listing.is_some() {
            collection.refresh();
        }
        change += 1;
        fs::write(dir.path().join(format!("new{change}")), "MMV?").unwrap();
        let before = STATS.get();
        refresh(&mut collection);
        STATS.get() - before
    };
    let (all, part) = (stats(super::Collection::refresh), stats(super::Collection::refresh_for_names));
    // Each request also checks some skipped files.
    assert!(all >= 1000 && (500..=700).contains(&part), "{all} {part}");
    assert!(stats(super::Collection::refresh) >= 1000);
}

/// The last process that closes a deleted file frees its memory, which would be the agent within a request.
#[test]
fn a_large_file_that_is_deleted_is_closed_by_another_thread() {
    let dir = tempfile::tempdir().unwrap();
    ["small", "large"].iter().zip(1..).for_each(|(name, n)| write(dir.path(), name, &sharing(n).bytes(1)));
    let mut collection = super::Collection::new("mmv", dir.path());
    collection.refresh();
    fs::File::options().write(true).open(dir.path().join("large")).unwrap().set_len(1 << 30).unwrap();
    ["small", "large"].iter().for_each(|name| fs::remove_file(dir.path().join(name)).unwrap());
    let before = APART.get();
    while collection.file_count() > 0 {
        collection.refresh();
    }
    assert_eq!(APART.get() - before, 1);
}
