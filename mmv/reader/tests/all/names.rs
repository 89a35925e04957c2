//! Names that cost more than others: long names, names of many components, and names of control characters or of bytes
//! that are not UTF-8.

use std::fs;
use std::path::Path;

use crate::raw::{INDOMS, INSTANCES, METRICS, MetricV1, Raw, VALUES};
use mmv::Registry;
use mmv_reader::collection::{Collection, Limit, Limits};
use pmapi::Serial;

fn look(dir: &Path) -> Collection {
    let mut collection = Collection::new("mmv", dir);
    while collection.refresh() {}
    collection
}

#[test]
fn names_of_very_many_components_are_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let registry = Registry::builder("f").directory(dir.path()).build().unwrap();
    let (metrics, values) = (72, 72 + 4 * 104);
    let mut raw = Raw::new((values + 4 * 32) as usize, 2);
    raw.u32(36, 300).toc(0, METRICS, 4, metrics).toc(1, VALUES, 4, values);
    for (n, components) in (0..).zip([1, 24, 25, 32]) {
        let name = format!("m{n}{}", ".a".repeat(components - 1));
        let metric = metrics + 104 * n;
        raw.metric(metric, &MetricV1 { name: "", item: n as u32, ..MetricV1::default() }).put(metric, name.as_bytes());
        raw.value(values + 32 * n, n, 0, metric, 0);
        // The registry accepts the names that are shown, and refuses the others.
        assert_eq!(registry.counter(&name).register().is_ok(), n < 2, "{name}");
    }
    fs::write(dir.path().join("f"), &raw.0).unwrap();
    let collection = look(dir.path());
    let names: Vec<String> = collection.metrics().map(|(name, _)| name).collect();
    assert_eq!(names, ["mmv.f.m0".to_owned(), format!("mmv.f.m1{}", ".a".repeat(23))]);
}

/// A file whose instances have names of 63 bytes.
fn instances(count: u64, byte: u8) -> Raw {
    let (indom, at) = (104, 136);
    let metric = at + 80 * count;
    let mut raw = Raw::new((metric + 104 + 32) as usize, 4);
    raw.u32(36, 300).toc(0, INDOMS, 1, indom).toc(1, INSTANCES, count as i32, at);
    raw.toc(2, METRICS, 1, metric).toc(3, VALUES, 1, metric + 104).indom(indom, 1, count as i32, at);
    for i in 0..count {
        let instance = at + 80 * i;
        raw.instance(instance, indom, i as i32, &format!("{i:05}")).put(instance + 21, &[byte; 58]);
    }
    raw.metric(metric, &MetricV1 { name: "x", item: 1, indom: 1, ..MetricV1::default() });
    raw.value(metric + 104, 1, 0, metric, at);
    raw
}

#[test]
fn names_cost_what_clients_get() {
    let dir = tempfile::tempdir().unwrap();
    let count = 10_000;
    // Enough memory for the file if names consist of letters. As text for clients, each byte 0xff takes three bytes, and
    // a control character more.
    let most = 5 << 20;
    for (byte, is_shown) in [(b'a', true), (0xff, false), (0x1b, false), (b'a', true)] {
        fs::write(dir.path().join("f"), &instances(count, byte).0).unwrap();
        let mut collection = Collection::new("mmv", dir.path());
        collection.set_limits(Limits { user_memory: most, ..Limits::default() });
        while collection.refresh() {}
        let known = collection.instances(Serial::new(300 << 11 | 1)).map(|all| all.count());
        assert_eq!(known.ok(), is_shown.then_some(count as usize), "byte {byte}");
        let left_out = Limit::ALL.map(|limit| collection.left_out(limit));
        assert_eq!(left_out, [0, u64::from(!is_shown), 0]);
    }
}
