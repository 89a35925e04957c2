//! Time that one request takes for the files of all users: each request does a part of the work.
#![allow(clippy::unwrap_used)]

#[path = "common/raw.rs"]
mod raw;

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use mmv_reader::collection::{Collection, Limit};
use pcp_pdu::print::Print;
use pmapi::Item;

/// Writes a file of one metric, whose value is the generation.
fn write(dir: &Path, name: &str, cluster: u32, generation: u64) {
    let mut raw = raw::Raw::new(72 + 104 + 32, 2);
    raw.u64(8, generation).u64(16, generation).u32(36, cluster);
    raw.toc(0, raw::METRICS, 1, 72).toc(1, raw::VALUES, 1, 176);
    raw.metric(72, &raw::MetricV1 { name: "x", item: 1, ..raw::MetricV1::default() });
    raw.value(176, generation, 0, 72, 0);
    fs::write(dir.join(".new"), &raw.0).unwrap();
    fs::rename(dir.join(".new"), dir.join(name)).unwrap();
}

/// Returns a collection whose requests have no time, except for the first one.
fn without_time(dir: &Path) -> Collection {
    let mut collection = Collection::new("mmv", dir);
    collection.refresh();
    let mut limits = collection.limits();
    (limits.work, limits.user_work) = (0, u64::MAX >> 1);
    collection.set_limits(limits);
    collection
}

/// Returns the number of calls of read functions, with the result of `work`.
fn reads<T>(work: impl FnOnce() -> T) -> (T, u64) {
    let calls = || {
        let text = fs::read_to_string("/proc/thread-self/io").unwrap();
        text.lines().find_map(|line| line.strip_prefix("syscr: ")).unwrap().parse::<u64>().unwrap()
    };
    let before = calls();
    let done = work();
    (done, calls() - before)
}

fn value(collection: &mut Collection, cluster: u16) -> String {
    let mut text = String::new();
    let item = Item::new(cluster, 1);
    collection.fetch(item, |_| true, |_, value| text = Print::new(value.unwrap(), 0).to_string()).unwrap();
    text
}

#[test]
fn a_request_reads_one_file_if_it_has_no_time_for_more() {
    let dir = tempfile::tempdir().unwrap();
    let clusters = 1..=20u16;
    clusters.clone().for_each(|cluster| write(dir.path(), &format!("f{cluster:02}"), cluster.into(), 1));
    let mut collection = without_time(dir.path());
    assert_eq!(collection.file_count(), 20, "the first request reads all files");
    clusters.clone().for_each(|cluster| write(dir.path(), &format!("f{cluster:02}"), cluster.into(), 2));
    let mut old = 20;
    for _ in 0..200 {
        collection.refresh();
        assert_eq!(collection.file_count(), 20, "a file that waits stays as it is");
        let now = clusters.clone().filter(|cluster| value(&mut collection, *cluster) == "1").count();
        assert!(old - now <= 1, "{old} files waited, and then {now}");
        old = now;
    }
    assert_eq!(old, 0);
    let delayed = collection.take_left_out();
    assert!(delayed.iter().all(|left_out| left_out.limit == Limit::Work && left_out.count > 0), "{delayed:?}");
    assert!(!delayed.is_empty());
    // New and removed files, too, are handled one by one.
    (1..=10u16).for_each(|cluster| fs::remove_file(dir.path().join(format!("f{cluster:02}"))).unwrap());
    (30..40).for_each(|cluster| write(dir.path(), &format!("g{cluster}"), cluster, 1));
    let mut new = 0;
    for _ in 0..200 {
        collection.refresh();
        let now = collection.metrics().filter(|(name, _)| name.starts_with("mmv.g")).count();
        assert!(now - new <= 1, "{new} new files, and then {now}");
        new = now;
    }
    assert_eq!((new, collection.file_count()), (10, 20));
}

#[test]
fn a_request_checks_some_files_and_the_next_one_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let clusters = 1..=300u16;
    let name = |cluster: u16| format!("f{cluster:03}");
    clusters.clone().for_each(|cluster| write(dir.path(), &name(cluster), cluster.into(), 1));
    let mut collection = without_time(dir.path());
    // Changed in place: the name of the file's metric, and the generation. Only reading the file shows this.
    let change = |cluster: u16, metric: &[u8], generation: u64| {
        let file = fs::File::options().write(true).open(dir.path().join(name(cluster))).unwrap();
        file.write_all_at(metric, 72).unwrap();
        let generations = [generation.to_ne_bytes(), generation.to_ne_bytes()].concat();
        file.write_all_at(&generations, 8).unwrap();
    };
    let changed = [2, 40, 150, 300];
    changed.iter().for_each(|cluster| change(*cluster, b"y", 2));
    let is_seen = |collection: &Collection, cluster| collection.item(&format!("mmv.{}.y", name(cluster))).is_ok();
    let mut requests = 0;
    while !changed.iter().all(|cluster| is_seen(&collection, *cluster)) {
        requests += 1;
        assert!(requests < 2000);
        // The first file changes all the time.
        change(1, b"x", 2 + requests);
        let (_, calls) = reads(|| collection.refresh());
        assert!(calls < 120, "{calls} calls");
    }
    assert!(requests >= 4, "one file at each request");
    // A fetch always checks the files of its metrics.
    change(299, b"z", 2);
    collection.refresh_all(&mut [Item::new(299, 1)].into_iter());
    assert!(collection.item("mmv.f299.z").is_ok());
}

#[test]
#[ignore = "needs root"]
fn users_take_turns() {
    let dir = tempfile::tempdir().unwrap();
    let give = |name: &str, uid| std::os::unix::fs::chown(dir.path().join(name), Some(uid), None).unwrap();
    let mut collection = without_time(dir.path());
    // Two users change all their files before each request, and add others.
    let mut generation = 1;
    let mut change = || {
        generation += 1;
        for n in 0..30u32 {
            let name = format!("a{}", (n + generation as u32) % 60);
            write(dir.path(), &name, 100 + n, generation);
            give(&name, 2001 + n % 2);
        }
    };
    for _ in 0..20 {
        change();
        collection.refresh();
    }
    // Files of another user follow, by name and by time.
    for (n, name) in (0..).zip(["z1", "z2", "z3"]) {
        write(dir.path(), name, 300 + n, 1);
        give(name, 3000);
    }
    // They are read one by one, each in turn with a file of each other user. A listing also takes a request.
    for expected in 1..=3 {
        let exported =
            |collection: &Collection| collection.metrics().filter(|(name, _)| name.starts_with("mmv.z")).count();
        let mut requests = 0;
        while exported(&collection) < expected {
            requests += 1;
            assert!(requests < 10, "{expected}");
            change();
            collection.refresh();
        }
    }
}
