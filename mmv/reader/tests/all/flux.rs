//! Files that are being written while a collection reads them.

use std::fs;

use crate::raw::{METRICS, MetricV1, Raw, VALUES};
use mmv_reader::collection::Collection;
use pcp_pdu::print::Print;
use pmapi::Item;

/// A file of one metric with a value.
fn small(cluster: u32, generation: u64) -> Raw {
    let mut raw = Raw::new(72 + 104 + 32, 2);
    raw.u64(8, generation).u64(16, generation).u32(36, cluster).toc(0, METRICS, 1, 72).toc(1, VALUES, 1, 176);
    raw.metric(72, &MetricV1 { name: "x", item: 1, ..MetricV1::default() }).value(176, generation, 0, 72, 0);
    raw
}

fn value(collection: &mut Collection) -> Option<String> {
    let mut text = None;
    let fetched = collection.fetch(
        Item::new(7, 1),
        |_| true,
        |_, value| {
            text = value.ok().map(|value| Print::new(value, 0).to_string());
        },
    );
    fetched.ok().and(text)
}

/// A file that was being written is completed without a new change time, while other files are added and removed.
#[test]
fn a_file_that_is_completed_is_seen_in_a_directory_that_changes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("honest");
    let complete = small(7, 5);
    let mut raw = small(7, 5);
    raw.u64(16, 0);
    fs::write(&path, &raw.0).unwrap();
    let file = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let map = memmap2::MmapRaw::map_raw(&file).unwrap();
    let store = |word: &[u8]| (16..).zip(word).for_each(|(at, byte)| write_byte(&map, at, *byte));
    // The first store through the mapping changes the time. Later stores do not.
    store(&[0; 8]);
    let mut collection = Collection::new("mmv", dir.path());
    let changed = |i: u32| fs::write(dir.path().join(format!(".{i}")), "").unwrap();
    for i in 0..3 {
        changed(i);
        collection.refresh();
        assert_eq!(value(&mut collection), None);
    }
    store(complete.0.get(16..24).unwrap());
    let seen = (3..20).any(|i| {
        changed(i);
        collection.refresh();
        value(&mut collection).as_deref() == Some("5")
    });
    assert!(seen);
}

fn write_byte(map: &memmap2::MmapRaw, at: usize, byte: u8) {
    assert!(at < map.len());
    // SAFETY: the offset is within the mapping, which no other thread uses.
    unsafe { map.as_mut_ptr().add(at).write_volatile(byte) }
}
