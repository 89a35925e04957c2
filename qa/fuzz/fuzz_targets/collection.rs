//! Reads arbitrary bytes as two files of a directory: `cargo +nightly fuzz run --fuzz-dir . collection` in `qa/fuzz`.
#![no_main]

use std::cell::RefCell;
use std::fs;

use libfuzzer_sys::fuzz_target;
use mmv_reader::TextKind;
use mmv_reader::collection::{Collection, LabelSubject, MetricDesc};
use tempfile::TempDir;

thread_local!(static DIR: RefCell<TempDir> = RefCell::new(tempfile::tempdir().expect("a directory")));

fuzz_target!(|files: (&[u8], &[u8])| {
    DIR.with_borrow(|dir| {
        for (name, bytes) in [("a", files.0), ("b", files.1)] {
            fs::write(dir.path().join(name), bytes).expect("a file");
        }
        let mut collection = Collection::new("mmv", dir.path());
        collection.refresh();
        let metrics: Vec<(String, MetricDesc)> = collection.metrics().collect();
        for (name, desc) in metrics {
            assert_eq!(collection.item(&name), Ok(desc.item));
            assert_eq!(collection.name(desc.item).as_deref(), Ok(&*name));
            _ = collection.help(desc.item, TextKind::Help);
            let mut instances = Vec::new();
            _ = collection.fetch(desc.item, |_| true, |inst, _| instances.push(inst));
            assert!(desc.indom.is_some() || instances.len() <= 1);
            collection.labels(LabelSubject::Item(desc.item));
        }
        for indom in collection.indoms().collect::<Vec<_>>() {
            let instances: Vec<_> = collection.instances(indom).expect("a known domain").map(|(id, _)| id).collect();
            instances.into_iter().for_each(|id| _ = collection.labels(LabelSubject::Instance(indom, id)));
            _ = collection.indom_help(indom, TextKind::OneLine);
        }
    });
});
