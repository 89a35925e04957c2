//! Defects of PCP's own reader, one by one, and how this reader handles them.

use pcp_pdu::print::Print;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use crate::raw::{INDOMS, INSTANCES, LABELS, METRICS, MetricV1, Raw, VALUES};
use mmv::{Counter, Family, Registry};
use mmv_reader::TextKind;
use mmv_reader::collection::{Collection, LabelSubject};
use mmv_reader::{File, Problem, ReadError};
use pmapi::{Error, Inst, Item, Serial};

const LEN: u64 = 72 + 2 * 104 + 2 * 32;

/// A file with two metrics that have a value each.
fn two_metrics() -> Raw {
    let mut raw = Raw::new(LEN as usize, 2);
    raw.toc(0, METRICS, 2, 72).toc(1, VALUES, 2, 280).i32(36, 5);
    raw.metric(72, &MetricV1 { name: "first", item: 1, ..MetricV1::default() });
    raw.metric(176, &MetricV1 { name: "second", item: 2, ..MetricV1::default() });
    raw.value(280, 11, 0, 72, 0).value(312, 22, 0, 176, 0);
    raw
}

/// A file of version 2 with one metric over two instances.
fn version2() -> Raw {
    let (metrics, indoms, instances, values, strings) = (104, 152, 184, 232, 296);
    let mut raw = Raw::new(296 + 3 * 256, 4);
    raw.i32(4, 2).i32(36, 5).toc(0, INDOMS, 1, indoms).toc(1, INSTANCES, 2, instances);
    raw.toc(2, METRICS, 1, metrics).toc(3, VALUES, 2, values);
    raw.u64(metrics, strings).u32(metrics + 8, 1).i32(metrics + 12, 1).i32(metrics + 16, 1).u32(metrics + 24, 3);
    raw.indom(indoms, 3, 2, instances);
    for (i, name) in [(0, "one"), (1, "two")] {
        let at = instances + 24 * i;
        raw.u64(at, indoms).i32(at + 12, i as i32 + 1).u64(at + 16, strings + 256 * (i + 1));
        raw.put(strings + 256 * (i + 1), name.as_bytes()).value(values + 32 * i, 10 * (i + 1), 0, metrics, at);
    }
    raw.put(strings, b"metric");
    raw
}

fn parse(raw: &Raw) -> File {
    File::parse(raw.0.clone()).unwrap()
}

/// Writes files to a directory, and reads it.
fn collection(dir: &Path, files: &[(&str, &Raw)]) -> Collection {
    for (name, raw) in files {
        fs::write(dir.join(name), &raw.0).unwrap();
    }
    let mut collection = Collection::new("mmv", dir);
    collection.refresh();
    collection
}

type Fetched = Result<Vec<(Option<u32>, String)>, Error>;

fn fetch(collection: &mut Collection, item: Item) -> Fetched {
    let (mut values, mut missing) = (Vec::new(), Ok(()));
    collection.fetch(
        item,
        |_| true,
        |inst, value| match value {
            Ok(atom) => values.push((inst.map(Inst::word), Print::new(atom, 0).to_string())),
            Err(e) => missing = Err(e),
        },
    )?;
    if values.is_empty() { missing.map(|()| values) } else { Ok(values) }
}

fn one(value: &str) -> Fetched {
    Ok(vec![(None, value.to_owned())])
}

fn names(collection: &Collection) -> Vec<String> {
    collection.metrics().map(|(name, _)| name).collect()
}

#[test]
fn offsets_of_a_value_are_checked() {
    for metric in [LEN, LEN - 1, u64::MAX, 73, 0, 1 << 63] {
        let mut raw = two_metrics();
        raw.value(280, 11, 0, metric, 0);
        let file = parse(&raw);
        assert_eq!(file.problems().first(), [Problem::ValueMetric { index: 0 }], "{metric}");
        let dir = tempfile::tempdir().unwrap();
        let mut collection = collection(dir.path(), &[("a", &raw)]);
        assert_eq!(fetch(&mut collection, Item::new(5, 1)), Err(Error::INST));
        assert_eq!(fetch(&mut collection, Item::new(5, 2)), one("22"));
    }
    for instance in [296 + 3 * 256 - 23, u64::MAX, 1 << 63] {
        let mut raw = version2();
        raw.u64(232 + 24, instance);
        assert_eq!(parse(&raw).problems().first(), [Problem::ValueInstance { index: 0 }], "{instance}");
        let dir = tempfile::tempdir().unwrap();
        let mut collection = collection(dir.path(), &[("a", &raw)]);
        assert_eq!(fetch(&mut collection, Item::new(5, 1)), Ok(vec![(Some(2), "20".into())]));
    }
}

#[test]
fn offsets_of_names_are_checked() {
    assert_eq!(parse(&version2()).problems().first(), []);
    for at in [0, 296 + 2 * 256 + 1, u64::MAX, u64::MAX - 255, 1 << 63] {
        let mut raw = version2();
        raw.u64(184 + 16, at);
        assert_eq!(parse(&raw).problems().first(), [Problem::InstanceName { serial: 3, index: 0 }], "{at}");
        let mut raw = version2();
        raw.u64(104, at);
        assert_eq!(parse(&raw).problems().first(), [Problem::MetricName { index: 0 }], "{at}");
    }
}

#[test]
fn a_string_must_be_in_the_file_as_a_whole() {
    let mut raw = two_metrics();
    raw.metric(72, &MetricV1 { name: "first", item: 1, ty: 6, ..MetricV1::default() });
    raw.0.resize(LEN as usize + 256, b'x');
    let mut outcome = |extra: i64| {
        raw.value(280, 0, extra, 72, 0);
        let dir = tempfile::tempdir().unwrap();
        fetch(&mut collection(dir.path(), &[("a", &raw)]), Item::new(5, 1))
    };
    // Without a NUL, the whole field is text.
    assert_eq!(outcome(LEN as i64), one(&format!("\"{}\"", "x".repeat(256))));
    for extra in [LEN as i64 + 1, LEN as i64 + 252, LEN as i64 + 256, i64::MAX, -1, i64::MIN] {
        assert_eq!(outcome(extra), Err(Error::GENERIC), "{extra}");
    }
}

#[test]
fn sizes_do_not_wrap_round() {
    for (offset, count) in [(u64::MAX, 1), (u64::MAX - 207, 2), (u64::MAX - 103, 2), (1 << 63, 1023), (72, 4)] {
        let mut raw = two_metrics();
        raw.toc(0, METRICS, count, offset);
        let file = parse(&raw);
        assert!(matches!(file.problems().first()[0], Problem::BeyondEnd { .. }), "{offset} {count}");
        assert!(file.metrics().is_empty());
    }
    for count in [-1, i32::MIN, 1024, i32::MAX] {
        let mut raw = two_metrics();
        raw.toc(0, METRICS, count, 72);
        assert!(matches!(parse(&raw).problems().first()[0], Problem::Count { .. }), "{count}");
    }
    for tocs in [i32::MAX, 1 << 28, 1 << 20] {
        let raw = Raw::new(LEN as usize, tocs);
        assert!(matches!(File::parse(raw.0), Err(ReadError::ContentsBeyondEnd { .. })), "{tocs}");
    }
    for tocs in [i32::MIN, -1, 0, 1] {
        assert!(matches!(File::parse(Raw::new(LEN as usize, tocs).0), Err(ReadError::Contents(_))), "{tocs}");
    }
    for (count, offset) in [(u32::MAX, 184), (2, u64::MAX - 23), (1 << 31, 1 << 63), (2, u64::MAX)] {
        let mut raw = version2();
        raw.u32(152 + 4, count).u64(152 + 8, offset);
        let file = parse(&raw);
        assert_eq!(file.problems().first(), [Problem::Instances { index: 0, count }]);
    }
}

#[test]
fn memory_is_in_proportion_to_the_file() {
    // Overlapping instance domains, each of which claims the whole file as instances.
    let domains = 2000u64;
    let mut raw = Raw::new(72 + 32 * domains as usize, 2);
    raw.toc(0, INDOMS, domains as i32, 72).toc(1, INSTANCES, 0, 72);
    for i in 0..domains {
        raw.indom(72 + 32 * i, i as u32 + 1, 400, 72);
    }
    let file = parse(&raw);
    let instances: usize = file.indoms().iter().map(|indom| indom.instances().len()).sum();
    assert!(instances <= raw.0.len() / 80);
    assert!(file.problems().count() > 1900 && file.problems().first().len() < 100);

    // The table of contents has the same section many times.
    let sections = 1000;
    let mut raw = Raw::new(40 + 16 * sections + 104, sections as i32);
    for i in 0..sections {
        raw.toc(i as u64, METRICS, 1, 40 + 16 * sections as u64);
    }
    raw.metric(40 + 16 * sections as u64, &MetricV1::default());
    assert_eq!(parse(&raw).metrics().len(), 1);

    // A sparse file of a large length.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sparse");
    fs::write(&path, two_metrics().0).unwrap();
    OpenOptions::new().write(true).open(&path).unwrap().set_len(1 << 40).unwrap();
    assert!(matches!(File::open(&path), Err(ReadError::TooLong { .. })));
}

#[test]
fn a_name_without_an_end_ends_with_its_room() {
    let name = "n".repeat(64);
    let mut raw = two_metrics();
    // The bytes after the name would continue it.
    raw.put(72, name.as_bytes()).u32(72 + 64, 0x0000_0061);
    let dir = tempfile::tempdir().unwrap();
    let collection = collection(dir.path(), &[("a", &raw)]);
    assert_eq!(names(&collection), [format!("mmv.a.{name}"), "mmv.a.second".to_owned()]);
    assert_eq!(collection.item(&format!("mmv.a.{name}")), Ok(Item::new(5, 0x61)));
}

#[test]
fn a_file_cut_short_is_no_signal() {
    let dir = tempfile::tempdir().unwrap();
    for (len, metrics, then) in [(LEN - 8, 2, Error::INST), (100, 0, Error::PMID), (20, 0, Error::PMID)] {
        let mut collection = collection(dir.path(), &[("a", &two_metrics())]);
        assert_eq!(fetch(&mut collection, Item::new(5, 2)), one("22"));
        let file = OpenOptions::new().write(true).open(dir.path().join("a")).unwrap();
        file.set_len(len).unwrap();
        // Within a request, the values are those of its start.
        assert_eq!(fetch(&mut collection, Item::new(5, 2)), one("22"), "{len}");
        collection.refresh();
        let outcome = fetch(&mut collection, Item::new(5, 2));
        assert!([Error::GENERIC, then].contains(&outcome.unwrap_err()), "{len}");
        collection.refresh();
        assert_eq!(fetch(&mut collection, Item::new(5, 2)), Err(then), "{len}");
        assert_eq!((collection.metric_count(), collection.file_count()), (metrics, usize::from(len > 40)), "{len}");
        fs::remove_file(dir.path().join("a")).unwrap();
    }
}

#[test]
fn a_file_that_changes_all_the_time_is_read_or_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    fs::write(&path, two_metrics().0).unwrap();
    let running = AtomicBool::new(true);
    thread::scope(|scope| {
        scope.spawn(|| {
            let whole = two_metrics().0;
            let mut round = 0u64;
            while running.load(Relaxed) {
                let file = OpenOptions::new().write(true).create(true).truncate(round % 2 == 0).open(&path);
                let file = file.unwrap();
                file.set_len(round * 37 % (2 * LEN)).unwrap();
                file.write_all_at(&whole, 0).unwrap();
                file.write_all_at(&(round + 1).to_ne_bytes(), 8).unwrap();
                file.write_all_at(&(round + 1).to_ne_bytes(), 16).unwrap();
                if round % 7 == 0 {
                    fs::rename(&path, dir.path().join(".old")).unwrap();
                    fs::write(&path, &whole).unwrap();
                }
                round += 1;
            }
        });
        let mut collection = Collection::new("mmv", dir.path());
        let mut seen = 0;
        for _ in 0..3000 {
            collection.refresh();
            if let Ok(values) = fetch(&mut collection, Item::new(5, 2)) {
                seen += values.len();
            }
        }
        running.store(false, Relaxed);
        assert!(seen > 0);
    });
}

#[test]
// Slow: 20,000 values are rewritten while they are read.
fn a_file_written_in_place_is_seen_whole() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    let values = 20_000u64;
    let mut raw = Raw::new((72 + 104 + 32 * values) as usize, 2);
    raw.toc(0, METRICS, 1, 72).toc(1, VALUES, values as i32, 176).metric(72, &MetricV1::default());
    for i in 0..values {
        raw.value(176 + 32 * i, 1, 0, 72, 0);
    }
    fs::write(&path, &raw.0).unwrap();
    let running = AtomicBool::new(true);
    thread::scope(|scope| {
        scope.spawn(|| {
            let file = OpenOptions::new().write(true).open(&path).unwrap();
            for round in 2u64.. {
                if !running.load(Relaxed) {
                    break;
                }
                (0..values).for_each(|i| _ = raw.u64(176 + 32 * i, round));
                thread::sleep(Duration::from_micros(300));
                // This is what C's library would do if it overwrote a file.
                file.write_all_at(&0u64.to_ne_bytes(), 16).unwrap();
                file.write_all_at(&round.to_ne_bytes(), 8).unwrap();
                file.write_all_at(&raw.0[72..], 72).unwrap();
                file.write_all_at(&round.to_ne_bytes(), 16).unwrap();
            }
        });
        let mut whole = 0;
        for _ in 0..300 {
            let Ok(file) = File::open(&path) else { continue };
            let first = file.value(0).unwrap().word;
            assert_eq!(first, file.header().g1);
            assert!((0..values as u32).all(|i| file.value(i).unwrap().word == first));
            whole += 1;
        }
        running.store(false, Relaxed);
        assert!(whole > 0);
    });
}

/// A program shortens its file, closes it, and stores the new contents into its map, as Parfait does. The thread may read the
/// file in between. The next request finds the new contents, and does not wait for the thread's next look at all files.
#[test]
fn a_file_that_is_overwritten_in_place_is_whole_at_the_next_request() {
    let metrics = |collection: &mut Collection| {
        // As for a request about names.
        collection.refresh_for(&mut std::iter::empty());
        collection.metric_count()
    };
    let mut whole = 0;
    for _ in 0..5 {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        fs::write(&path, two_metrics().0).unwrap();
        let mut collection = Collection::new("mmv", dir.path());
        collection.refresh();
        collection.watch().unwrap();
        // A directory that has just changed is scanned at each request.
        thread::sleep(Duration::from_millis(200));
        assert_eq!(metrics(&mut collection), 2);
        let map = OpenOptions::new().write(true).open(&path).unwrap();
        OpenOptions::new().write(true).open(&path).unwrap().set_len(100).unwrap();
        let begin = Instant::now();
        while metrics(&mut collection) == 2 {
            assert!(begin.elapsed() < Duration::from_secs(20));
        }
        map.write_all_at(&two_metrics().0, 0).unwrap();
        whole += u32::from(metrics(&mut collection) == 2);
    }
    assert!(whole > 0);
}

#[test]
fn what_is_no_regular_file_does_not_block() {
    let dir = tempfile::tempdir().unwrap();
    nix::unistd::mkfifo(&dir.path().join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    fs::create_dir(dir.path().join("directory")).unwrap();
    assert!(matches!(File::open(dir.path().join("fifo")), Err(ReadError::NotRegular)));
    let collection = collection(dir.path(), &[("a", &two_metrics()), (".hidden", &two_metrics())]);
    assert_eq!(collection.file_count(), 1);
}

#[test]
fn an_instance_domain_has_its_help_in_any_cluster() {
    let dir = tempfile::tempdir().unwrap();
    let registry = Registry::builder("a").directory(dir.path()).cluster(321).build().unwrap();
    registry.indom("i").serial(61).help("one line").long_help("all of it").register().unwrap();
    registry.try_start().unwrap();
    let mut collection = Collection::new("mmv", dir.path());
    collection.refresh();
    let serial = Serial::new(321 << 11 | 61);
    assert_eq!(collection.indoms().collect::<Vec<_>>(), [serial]);
    assert_eq!(collection.indom_help(serial, TextKind::OneLine), Ok(&b"one line"[..]));
    assert_eq!(collection.indom_help(serial, TextKind::Help), Ok(&b"all of it"[..]));
}

#[test]
fn an_instance_keeps_its_name_and_its_values() {
    let dir = tempfile::tempdir().unwrap();
    let registry = |file: &str, metric: &str, instances: [(u32, &str); 2], item| {
        let builder = Registry::builder(file).directory(dir.path()).cluster(5).no_prefix();
        let registry = builder.build().unwrap();
        let indom = registry.indom("i").serial(1).numbered(instances).register().unwrap();
        let family: Family<Counter> = registry.counter(metric).item(item).over(&indom).unwrap();
        for (id, name) in instances {
            family.instance(name).unwrap().add(u64::from(id) * 10 + u64::from(item));
        }
        registry.try_start().unwrap();
        registry
    };
    let _a = registry("a", "first", [(1, "one"), (2, "two")], 1);
    let _b = registry("b", "second", [(2, "zwei"), (3, "three")], 2);
    // Another file with further instances of the first metric.
    let _c = registry("c", "first", [(2, "two"), (4, "four")], 1);
    let mut collection = Collection::new("mmv", dir.path());
    collection.refresh();
    let serial = Serial::new(5 << 11 | 1);
    let instances: Vec<(u32, Vec<u8>)> =
        collection.instances(serial).unwrap().map(|(id, name)| (id.word(), name.to_vec())).collect();
    let expected = [(1, "one"), (2, "two"), (3, "three"), (4, "four")];
    assert_eq!(instances, expected.map(|(id, name)| (id, name.as_bytes().to_vec())));
    let values = |list: &[(u32, &str)]| Ok(list.iter().map(|(id, v)| (Some(*id), (*v).to_owned())).collect());
    assert_eq!(fetch(&mut collection, Item::new(5, 1)), values(&[(1, "11"), (2, "21"), (4, "41")]));
    // The value of "zwei" is not exported as that of "two".
    assert_eq!(fetch(&mut collection, Item::new(5, 2)), values(&[(3, "32")]));
}

#[test]
fn an_identifier_is_one_metric() {
    let dir = tempfile::tempdir().unwrap();
    let mut other = two_metrics();
    other.metric(72, &MetricV1 { name: "other", item: 1, ..MetricV1::default() }).value(280, 33, 0, 72, 0);
    // A different name for 5.1, and a different metric 5.2 with the same name without prefix. PCP's agent shows both names
    // with the first value.
    let mut collection = collection(dir.path(), &[("a", &two_metrics()), ("b", &other)]);
    assert_eq!(names(&collection), ["mmv.a.first", "mmv.a.second", "mmv.b.other", "mmv.b.second"]);
    assert_eq!(collection.name(Item::new(5, 1)).as_deref(), Ok("mmv.a.first"));
    assert_eq!(collection.name(Item::new(1, 1)).as_deref(), Ok("mmv.b.other"));
    assert_eq!([5, 1].map(|cluster| fetch(&mut collection, Item::new(cluster, 1))), [one("11"), one("33")]);

    // The item occurs twice in a file.
    let mut twice = two_metrics();
    twice.metric(176, &MetricV1 { name: "second", item: 1, ..MetricV1::default() });
    let file = parse(&twice);
    assert_eq!(file.problems().first(), [Problem::DuplicateItem { index: 1, item: 1 }]);
    assert_eq!(file.metrics().len(), 1);
}

#[test]
fn types_and_semantics_are_known_ones() {
    for ty in [-2, 7, 8, 10, 99, i32::MAX, i32::MIN] {
        let mut raw = two_metrics();
        raw.metric(72, &MetricV1 { name: "first", item: 1, ty, ..MetricV1::default() });
        assert_eq!(parse(&raw).problems().first(), [Problem::Type { index: 0, code: ty }]);
        assert_eq!(parse(&raw).metrics().len(), 1);
    }
    for code in [-1, 2, 5, i32::MAX] {
        let mut raw = two_metrics();
        raw.i32(72 + 72, code);
        assert_eq!(parse(&raw).problems().first(), [Problem::Semantics { index: 0, code }]);
    }
    for item in [1024, u32::MAX] {
        let mut raw = two_metrics();
        raw.u32(72 + 64, item);
        assert_eq!(parse(&raw).problems().first(), [Problem::Item { index: 0, item }]);
    }
}

#[test]
fn clusters_are_not_given_twice() {
    let dir = tempfile::tempdir().unwrap();
    let wants = |cluster: i32| {
        let mut raw = two_metrics();
        raw.i32(36, cluster);
        raw
    };
    let files = [("a", &wants(2)), ("b", &wants(1)), ("c", &wants(0)), ("d", &wants(0)), ("e", &wants(4095))];
    let collection = collection(dir.path(), &files);
    let cluster = |file: &str| collection.item(&format!("mmv.{file}.first")).unwrap().cluster();
    assert_eq!(["a", "b", "c", "d", "e"].map(cluster), [2, 1, 3, 4, 4095]);
}

#[test]
fn labels_are_bounded_and_fresh() {
    let dir = tempfile::tempdir().unwrap();
    let labelled = |payload: &[u8]| {
        let mut raw = two_metrics();
        raw.0.resize(LEN as usize + 256 + 16, b'x');
        // The table of contents grows into the space of the first metric, which moves after the second one.
        raw.i32(4, 1).i32(24, 3).toc(0, METRICS, 1, 176).toc(2, LABELS, 1, LEN).toc(1, VALUES, 2, 280);
        raw.u32(LEN, 16).u32(LEN + 4, 2).i32(LEN + 8, -1).put(LEN + 12, &[0; 244]).put(LEN + 12, payload);
        raw
    };
    // A text that fills its field, followed by bytes that do not belong to it.
    let long = format!("{{\"a\":\"{}\"}}", "y".repeat(236));
    assert_eq!(long.len(), 244);
    let of = LabelSubject::Item(Item::new(5, 2));
    let mut collection = collection(dir.path(), &[("a", &labelled(long.as_bytes()))]);
    assert_eq!(collection.labels(of).map(|l| l.json()), Some(&*long));

    for bad in [&b"{"[..], b"[1]", b"\xff", b"{\"a-b\":1}", b""] {
        let mut raw = labelled(bad);
        raw.u64(8, 2).u64(16, 2);
        fs::write(dir.path().join("a"), raw.0).unwrap();
        collection.refresh();
        assert_eq!(collection.labels(of).filter(|set| !set.is_empty()).map(|l| l.json()), None, "{bad:?}");
        assert_eq!(names(&collection), ["mmv.a.second"]);
        fs::write(dir.path().join("a"), labelled(b"{\"a\":1}").0).unwrap();
        collection.refresh();
        assert_eq!(collection.labels(of).map(|l| l.json()), Some("{\"a\":1}"));
    }
}

#[test]
fn labels_steer_no_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let payload = "{\"a\":\"\u{9b}2J\u{7f}é\u{202e}\u{e0041}\",\n\"b\":{\"c\":[\"\u{85}\"]}}";
    let mut raw = two_metrics();
    raw.0.resize(LEN as usize + 256, 0);
    raw.i32(4, 1).i32(24, 3).toc(0, METRICS, 1, 176).toc(2, LABELS, 1, LEN).toc(1, VALUES, 2, 280);
    raw.u32(LEN, 16).u32(LEN + 4, 2).i32(LEN + 8, -1).put(LEN + 12, payload.as_bytes());
    let collection = collection(dir.path(), &[("a", &raw)]);
    let set = collection.labels(LabelSubject::Item(Item::new(5, 2))).unwrap();
    let expected = r#"{"a":"\u009b2J\u007fé\u202e\udb40\udc41","b.c":["\u0085"]}"#;
    assert_eq!(set.json(), expected);
    assert!(set.json().chars().all(|c| !pcp_base::escape::is_control(c)));
}

#[test]
fn the_cases_of_pcps_own_tests() {
    for (name, raw) in crate::raw::bad_files() {
        let dir = tempfile::tempdir().unwrap();
        let mut collection = collection(dir.path(), &[(name, &raw)]);
        let metrics: Vec<Item> = collection.metrics().map(|(_, desc)| desc.item).collect();
        let readable = name.starts_with("metrics_") && name != "metrics_short" || name == "metrics_short_values";
        assert_eq!(!metrics.is_empty(), readable, "{name}");
        for item in metrics {
            let help = [TextKind::OneLine, TextKind::Help].map(|which| collection.help(item, which).is_ok());
            assert_eq!(help, [false, false], "{name}");
            let expected = match name {
                "metrics_short_string" => Err(Error::GENERIC),
                "metrics_back_pointer" | "metrics_short_values" => Err(Error::INST),
                _ => one("0"),
            };
            assert_eq!(fetch(&mut collection, item), expected, "{name}");
        }
        let mut text = Vec::new();
        mmv_reader::dump::dump(&mut text, b"name", &raw.0).unwrap();
    }
}

#[test]
fn a_terminal_is_shown_no_control_character() {
    let mut raw = two_metrics();
    let name = "\u{202e}\u{2028}\u{200b}\u{e0041}\u{34f}é漢🦀\0";
    raw.put(72, &[b"a\x1b[2J\nb\xc2\x9b\xff", name.as_bytes()].concat());
    let mut text = Vec::new();
    mmv_reader::dump::dump_to_terminal(&mut text, b"na\x1bme", &raw.0).unwrap();
    let text = String::from_utf8(text).unwrap();
    let shown = r"a\x1b[2J\x0ab\xc2\x9b\xff\xe2\x80\xae\xe2\x80\xa8\xe2\x80\x8b\xf3\xa0\x81\x81\xcd\x8fé漢🦀";
    assert!(text.contains(shown) && text.contains(r"na\x1bme"), "{text}");
    assert!(text.lines().all(|line| line.chars().all(pcp_base::escape::is_plain)));
    // The other function prints the same as C.
    let mut text = Vec::new();
    mmv_reader::dump::dump(&mut text, b"na\x1bme", &raw.0).unwrap();
    assert!(text.windows(6).any(|bytes| bytes == b"na\x1bme\n") || text.windows(6).any(|bytes| bytes == b"a\x1b[2J\n"));
}
