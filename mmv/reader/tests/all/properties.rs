//! Reading any file is safe, and a reader sees exactly what was registered.

use std::collections::BTreeMap;

use crate::raw::{self, MetricV1};
use mmv::{Counter, Family, Gauge, Registry, Text};
use mmv_reader::{File, TextKind};
use proptest::prelude::*;

/// Reads everything that a file offers.
fn ask_everything(bytes: &[u8]) {
    let mut text = Vec::new();
    mmv_reader::dump::dump(&mut text, b"name", bytes).unwrap();
    let Ok(file) = File::parse(bytes.to_vec()) else { return };
    let mut asked = 0;
    for metric in file.metrics() {
        asked += file.name(metric).len();
        for which in [TextKind::OneLine, TextKind::Help] {
            asked += file.help(metric, which).unwrap_or_default().len();
        }
        for value in metric.values() {
            let record = file.value(value.index).unwrap();
            asked += file.string(&record).unwrap_or_default().len();
        }
    }
    for indom in file.indoms() {
        asked += indom.instances().iter().map(|i| file.instance_name(i).len()).sum::<usize>();
        asked += file.indom_help(indom, TextKind::Help).unwrap_or_default().len();
    }
    asked += file.labels().iter().map(|label| file.payload(label).len()).sum::<usize>();
    assert!(file.value(file.value_count()).is_none());
    // Each record can refer to one string only.
    assert!(asked <= 256 * (bytes.len() / 16 + 1));
}

/// Returns a valid file of version 1, as other libraries write it.
fn valid_v1() -> Vec<u8> {
    let (indom, instances, metrics, values, strings) = (120, 152, 312, 520, 616);
    let mut raw = raw::Raw::new(strings as usize + 3 * 256, 5);
    raw.toc(0, raw::INDOMS, 1, indom).toc(1, raw::INSTANCES, 2, instances).toc(2, raw::METRICS, 2, metrics);
    raw.toc(3, raw::VALUES, 3, values).toc(4, raw::STRINGS, 3, strings);
    raw.indom(indom, 1, 2, instances).instance(instances, indom, 0, "a").instance(instances + 80, indom, 1, "b");
    let text = MetricV1 { name: "text", item: 1, ty: 6, short: strings, long: strings + 256, ..MetricV1::default() };
    raw.metric(metrics, &text).metric(metrics + 104, &MetricV1 { name: "family", item: 2, indom: 1, ..text });
    raw.value(values, 4, strings as i64 + 512, metrics, 0);
    raw.value(values + 32, 1, 0, metrics + 104, instances).value(values + 64, 2, 0, metrics + 104, instances + 80);
    raw.put(strings, b"one").put(strings + 256, b"two").put(strings + 512, b"text");
    raw.0
}

/// Returns a valid file of a version.
fn valid(version: u8) -> Vec<u8> {
    if version == 1 {
        let bytes = valid_v1();
        assert_eq!(File::parse(bytes.clone()).unwrap().problems().first(), []);
        return bytes;
    }
    let dir = tempfile::tempdir().unwrap();
    let registry = Registry::builder("f").directory(dir.path()).cluster(3).room(16).build().unwrap();
    let indom = registry.indom("i").instances(["a", "b"]).help("short").long_help("long").register().unwrap();
    let text: Text = registry.text("text").help("one").long_help("two").register().unwrap();
    text.set("some words");
    let family: Family<Gauge> = registry.gauge("family").over(&indom).unwrap();
    family.instance("a").unwrap().set(1.5);
    registry.counter(&"n".repeat(99)).register().unwrap().inc();
    if version == 3 {
        registry.label("tier", "web").unwrap();
        indom.label_instance("b", "rack", 4).unwrap();
    }
    registry.try_start().unwrap();
    let bytes = std::fs::read(dir.path().join("f")).unwrap();
    assert_eq!(bytes[4], version);
    bytes
}

/// Numbers at boundaries.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![any::<u64>(), 0..2000u64, (0..64u32).prop_map(|bit| 1 << bit), (0..600u64).prop_map(|n| u64::MAX - n)]
}

proptest! {
    #[test]
    fn arbitrary_bytes(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        ask_everything(&bytes);
    }

    #[test]
    fn arbitrary_bytes_behind_a_header(tocs in 2..20i32, bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        let mut file = crate::raw::Raw::new(40, tocs).0;
        file.extend(bytes);
        ask_everything(&file);
    }

    #[test]
    fn valid_files_with_changed_words(
        version in 1..=3u8,
        changes in prop::collection::vec((0..2000usize, number(), 1..=8usize), 1..12),
        end in prop::option::of(0..4000usize),
    ) {
        let mut bytes = valid(version);
        for (at, number, len) in changes {
            // Most fields are aligned.
            let at = at * 4 % bytes.len();
            for (place, byte) in bytes[at..].iter_mut().zip(number.to_ne_bytes()).take(len) {
                *place = byte;
            }
        }
        bytes.truncate(end.unwrap_or(usize::MAX));
        ask_everything(&bytes);
    }

    #[test]
    // Slow: many random registrations.
    fn what_is_registered_is_read(
        counters in prop::collection::btree_map("[a-z][a-z0-9_]{0,90}", any::<u64>(), 0..20),
        instances in prop::collection::btree_map("[A-Za-z0-9/_]{1,80}", any::<i32>(), 0..20),
        help in "[ -~]{0,255}",
        late in 0..30usize,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let registry = Registry::builder("f").directory(dir.path()).build().unwrap();
        let indom = registry.indom("i").register().unwrap();
        let family: Family<Gauge<i32>> = registry.metric("Family").help(&help).over(&indom).unwrap();
        // Some metrics are registered before the start, the others after it.
        for (i, (name, n)) in counters.iter().enumerate() {
            if i == late {
                registry.try_start().unwrap();
            }
            let counter: Counter = registry.counter(name).register().unwrap();
            counter.add(*n);
        }
        for (name, n) in &instances {
            family.instance(name).unwrap().set(*n);
        }
        registry.try_start().unwrap();

        let file = File::open(dir.path().join("f")).unwrap();
        prop_assert_eq!(file.problems().first(), []);
        let (families, others): (Vec<_>, Vec<_>) = file.metrics().iter().partition(|m| m.indom.is_some());
        let read: BTreeMap<String, u64> = others
            .iter()
            .map(|m| (text(file.name(m)), file.value(m.values()[0].index).unwrap().word))
            .collect();
        prop_assert_eq!(read, counters);
        prop_assert_eq!(text(file.help(families[0], TextKind::OneLine).unwrap_or_default()), help);
        let names: BTreeMap<i32, String> =
            file.indoms()[0].instances().iter().map(|i| (i.id, text(file.instance_name(i)))).collect();
        let values = families[0].values().iter();
        let read: BTreeMap<String, i32> = values
            .map(|v| (names[&v.instance].clone(), file.value(v.index).unwrap().half() as i32))
            .collect();
        prop_assert_eq!(read, instances);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}
