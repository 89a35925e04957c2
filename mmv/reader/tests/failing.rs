//! Files that cannot be read again: the cost does not depend on the number of their values.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use mmv::{Counter, Family, Registry, Text};
use mmv_reader::collection::Collection;
use pmapi::{Atom, Error, Item};

const COUNT: u32 = 6000;

/// Writes a file with instances of item 1, copied so that no application maps it.
fn write(path: &Path, room: u32, fill: impl FnOnce(&Registry)) {
    let dir = tempfile::tempdir().unwrap();
    let builder = Registry::builder("app").directory(dir.path()).cluster(7).persistent();
    let registry = builder.most_instances(COUNT as usize).room(room).build().unwrap();
    fill(&registry);
    registry.try_start().unwrap();
    registry.flush();
    fs::copy(registry.path().unwrap(), path).unwrap();
}

/// Returns the number of system calls of this thread that read.
fn reads() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/io").unwrap();
    text.lines().find_map(|line| line.strip_prefix("syscr:")).unwrap().trim().parse().unwrap()
}

#[test]
fn values_of_a_truncated_file_are_read_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("app");
    write(&path, COUNT, |registry| {
        let rows = registry.indom("rows").serial(1).register().unwrap();
        let family: Family<Counter> = registry.counter("count").item(1).over(&rows).unwrap();
        for row in 0..COUNT {
            rows.add_numbered(row, &format!("row {row}")).unwrap();
            family.instance(&format!("row {row}")).unwrap().add(1);
        }
    });
    let mut collection = Collection::new("mmv", dir.path());
    while collection.refresh() {}
    let fetch = |collection: &mut Collection| {
        let (before, mut values) = (reads(), Vec::new());
        let put = |_, value: Result<Atom<'_>, Error>| values.push(value.map(|value| format!("{value:?}")));
        collection.fetch(Item::new(7, 1), |_| true, put).unwrap();
        let calls = reads() - before;
        assert_eq!(values.len(), COUNT as usize);
        values.dedup();
        (values, calls)
    };
    let (values, calls) = fetch(&mut collection);
    assert_eq!(values, [Ok("U64(1)".to_owned())]);
    assert!(calls < 50, "{calls} calls");
    // Once the time of the directory is reliable, a request reads no file again that is only shorter.
    std::thread::sleep(Duration::from_millis(60));
    while collection.refresh() {}
    collection.refresh();
    File::options().write(true).open(&path).unwrap().set_len(4096).unwrap();
    // The file is checked, but still has its header.
    collection.refresh_for(&mut [Item::new(7, 1)].into_iter());
    let (values, calls) = fetch(&mut collection);
    assert_eq!(values, [Err(Error::GENERIC)]);
    assert!(calls < 50, "{calls} calls");
}

#[test]
fn a_file_that_is_not_kept_open_is_opened_once_for_the_strings_of_a_metric() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("app");
    write(&path, 16, |registry| {
        let rows = registry.indom("rows").serial(1).instances(["a", "b", "c"]).register().unwrap();
        let family: Family<Text> = registry.text("text").item(1).over(&rows).unwrap();
        ["a", "b", "c"].iter().for_each(|row| family.instance(row).unwrap().set(row));
    });
    let mut collection = Collection::new("mmv", dir.path());
    collection.keep_open(0);
    while collection.refresh() {}
    let mut texts = Vec::new();
    let put = |_, value: Result<Atom<'_>, Error>| {
        if let Ok(Atom::String(text)) = value {
            texts.push(text.to_vec());
        }
        // If the next string opened the file again, it would not find it.
        _ = fs::remove_file(&path);
    };
    collection.fetch(Item::new(7, 1), |_| true, put).unwrap();
    assert_eq!(texts, [b"a", b"b", b"c"]);
    let open = fs::read_dir("/proc/self/fd").unwrap().flatten().filter_map(|fd| fs::read_link(fd.path()).ok());
    assert_eq!(open.filter(|target| target.parent() == Some(dir.path())).count(), 0, "it is closed again");
}
