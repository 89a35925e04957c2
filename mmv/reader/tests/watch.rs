//! A thread that watches the directory. The tests count the threads of this process, so they run one after the other.
#![allow(clippy::unwrap_used)]

#[path = "common/raw.rs"]
mod raw;

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use mmv::{Counter, Registry};
use mmv_reader::collection::Collection;
use pcp_pdu::print::Print;
use pmapi::Item;

fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the number of threads that watch directories.
fn threads() -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.trim() == "mmv files").count()
}

/// Waits for the end of the threads: a thread is in the list for a moment after its last action.
#[track_caller]
fn assert_no_thread() {
    let begin = Instant::now();
    while threads() > 0 {
        assert!(begin.elapsed() < Duration::from_secs(60), "a thread goes on");
        sleep(Duration::from_millis(1));
    }
}

fn watched(dir: &Path) -> Collection {
    let mut collection = Collection::new("mmv", dir);
    collection.watch().unwrap();
    collection
}

/// Refreshes until something is true. On a busy machine that may take more than one request.
#[track_caller]
fn until(collection: &mut Collection, is_true: impl Fn(&mut Collection) -> bool) {
    let begin = Instant::now();
    loop {
        collection.refresh();
        if is_true(collection) {
            return;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "{collection:?}");
    }
}

fn value(collection: &mut Collection, name: &str) -> Option<String> {
    let mut text = None;
    let item = collection.item(name).ok()?;
    let print = |value: pmapi::Atom<'_>| Print::new(value, 0).to_string();
    collection.fetch(item, |_| true, |_, value| text = value.ok().map(print)).ok()?;
    text
}

#[test]
fn files_come_change_and_go_under_a_thread() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let files = dir.path().join("mmv");
    let mut collection = watched(&files);
    assert!(!collection.refresh(), "there is no directory");
    assert_eq!(threads(), 1);
    fs::create_dir(&files).unwrap();
    let registry = Registry::builder("a").directory(&files).build().unwrap();
    let x: Counter = registry.counter("x").register().unwrap();
    registry.try_start().unwrap();
    until(&mut collection, |now| value(now, "mmv.a.x").as_deref() == Some("0"));
    x.add(3);
    collection.refresh();
    assert_eq!(value(&mut collection, "mmv.a.x").as_deref(), Some("3"), "a value needs no thread");
    // A running application registers more.
    let item = collection.item("mmv.a.x").unwrap();
    let _y: Counter = registry.counter("y").register().unwrap();
    until(&mut collection, |now| now.item("mmv.a.y").is_ok());
    assert_eq!(collection.item("mmv.a.x"), Ok(item));
    // Another process writes a file in place: the directory does not change, nor does a request look at this file.
    let path = files.join("b");
    fs::write(&path, raw::one_metric("one").u32(36, 9).0.clone()).unwrap();
    until(&mut collection, |now| now.item("mmv.b.one").is_ok());
    fs::write(&path, raw::one_metric("two").u32(36, 9).u64(8, 2).u64(16, 2).0.clone()).unwrap();
    let begin = Instant::now();
    while collection.item("mmv.b.two").is_err() {
        collection.refresh_for(&mut [item].into_iter());
        assert!(begin.elapsed() < Duration::from_secs(60));
        sleep(Duration::from_millis(10));
    }
    drop(registry);
    fs::remove_dir_all(&files).unwrap();
    until(&mut collection, |now| now.file_count() == 0);
    // Another directory of the same name.
    fs::create_dir(&files).unwrap();
    fs::write(&path, raw::one_metric("one").0).unwrap();
    until(&mut collection, |now| now.item("mmv.b.one").is_ok());
    collection.set_reload(1);
    until(&mut collection, |now| now.reload() == 0);
    drop(collection);
    assert_no_thread();
}

#[test]
fn a_file_that_is_completed_without_an_event_is_seen() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    fs::write(&path, raw::one_metric("x").u64(16, 0).0.clone()).unwrap();
    let mut collection = watched(dir.path());
    until(&mut collection, |now| now.reload() == 1);
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.write_all_at(&1u64.to_ne_bytes(), 16).unwrap();
    until(&mut collection, |now| now.item("mmv.a.x").is_ok() && now.reload() == 0);
}

#[test]
fn a_file_that_is_not_open_is_checked_too() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    for (name, cluster) in [("a", 1), ("b", 2)] {
        fs::write(dir.path().join(name), raw::one_metric("x").u32(36, cluster).0.clone()).unwrap();
    }
    let mut collection = Collection::new("mmv", dir.path());
    collection.keep_open(0);
    collection.watch().unwrap();
    until(&mut collection, |now| now.file_count() == 2);
    // By the request, if it is about the file's metrics, and otherwise by the thread.
    for (metric, items) in [("y", vec![Item::new(2, 1)]), ("z", vec![])] {
        let file = fs::File::options().write(true).open(dir.path().join("b")).unwrap();
        file.write_all_at(metric.as_bytes(), 72).unwrap();
        let generation = u64::from(metric.as_bytes()[0]).to_ne_bytes();
        file.write_all_at(&[generation, generation].concat(), 8).unwrap();
        std::mem::forget(file);
        let begin = Instant::now();
        while collection.item(&format!("mmv.b.{metric}")).is_err() {
            collection.refresh_all(&mut items.iter().copied());
            assert!(begin.elapsed() < Duration::from_secs(60));
        }
    }
}

#[test]
fn the_thread_ends_though_the_directory_changes_all_the_time() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(".file"), raw::one_metric("x").0).unwrap();
    let mut changing = Command::new("sh");
    changing.args(["-c", "while :; do cp .file a; rm a; done"]).current_dir(dir.path());
    let mut changing = changing.spawn().unwrap();
    for _ in 0..20 {
        let mut collection = watched(dir.path());
        (0..20).for_each(|_| _ = collection.refresh());
        drop(collection);
        assert_no_thread();
    }
    changing.kill().unwrap();
    changing.wait().unwrap();
}
