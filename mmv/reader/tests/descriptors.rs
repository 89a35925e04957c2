//! A process without free descriptors. This file has one test only, because the limit applies to the whole process.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::fd::AsRawFd;

use mmv::Registry;
use mmv_reader::collection::Collection;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

#[test]
fn what_is_known_stays_while_there_is_no_descriptor() {
    let dir = tempfile::tempdir().unwrap();
    let registries: Vec<Registry> = (0..10)
        .map(|i| {
            let name = format!("f{i}");
            let registry = Registry::builder(&name).directory(dir.path()).persistent().build().unwrap();
            registry.counter("x").register().unwrap();
            registry.try_start().unwrap();
            registry
        })
        .collect();
    // Once with files that stay open, and once with files that are opened for each access.
    for open in [Collection::OPEN_FILES, 3] {
        let mut collection = Collection::new("mmv", dir.path());
        collection.keep_open(open);
        while collection.refresh() {}
        assert_eq!(collection.file_count(), 10);
        fs::write(dir.path().join(".change"), "").unwrap();
        fs::remove_file(dir.path().join(".change")).unwrap();
        registries[0].counter(&format!("y{open}")).register().unwrap();
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        let lowest = fs::File::open("/dev/null").unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, lowest.as_raw_fd() as u64, hard).unwrap();
        drop(lowest);
        for _ in 0..5 {
            collection.refresh();
            assert_eq!((collection.file_count(), collection.metric_count() >= 10), (10, true));
        }
        setrlimit(Resource::RLIMIT_NOFILE, soft, hard).unwrap();
        let before = collection.metric_count();
        collection.refresh();
        assert_eq!((collection.file_count(), collection.metric_count()), (10, before + 1), "the change is seen");
    }
}
