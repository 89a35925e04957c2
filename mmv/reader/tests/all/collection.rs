//! A directory of files as the agent sees it: files that appear, change and disappear.

use pcp_pdu::print::Print;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use mmv::{Counter, Family, Gauge, Registry, RegistryBuilder, Text};
use mmv_reader::collection::{Collection, LabelSubject};
use pmapi::{Error, Inst, Item, Units};

fn builder(dir: &Path, name: &str) -> RegistryBuilder {
    Registry::builder(name).directory(dir).persistent()
}

fn export(dir: &Path, name: &str, metric: &str) -> (Registry, Counter) {
    let registry = builder(dir, name).room(16).build().unwrap();
    let counter = registry.counter(metric).register().unwrap();
    registry.try_start().unwrap();
    (registry, counter)
}

fn names(collection: &Collection) -> Vec<String> {
    collection.metrics().map(|(name, _)| name).collect()
}

fn value(collection: &mut Collection, name: &str) -> Result<String, Error> {
    let item = collection.item(name)?;
    let mut values = Vec::new();
    collection.fetch(item, |_| true, |_, value| values.push(Print::new(value.unwrap(), 0).to_string()))?;
    Ok(values.join(" "))
}

/// Refreshes until nothing changes. Soon after a change the directory is read again, because another change could have
/// the same time.
fn settle(collection: &mut Collection) {
    while collection.refresh() {}
}

#[test]
fn files_come_change_and_go() {
    let dir = tempfile::tempdir().unwrap();
    let files = dir.path().join("mmv");
    let mut collection = Collection::new("mmv", &files);
    assert!(!collection.refresh(), "there is no directory, and there was none");
    assert_eq!((collection.file_count(), collection.metric_count(), collection.reload()), (0, 0, 0));
    assert_eq!(collection.item("mmv.a.x"), Err(Error::NAME));
    fs::create_dir(&files).unwrap();
    settle(&mut collection);

    let (registry, x) = export(&files, "a", "x");
    assert!(collection.refresh());
    assert!(!collection.refresh(), "nothing has changed");
    x.add(3);
    assert!(!collection.refresh(), "a value is no change");
    assert_eq!(value(&mut collection, "mmv.a.x"), Ok("3".into()));
    let item = collection.item("mmv.a.x").unwrap();
    assert_eq!(collection.name(item).as_deref(), Ok("mmv.a.x"));

    // A registry that grows writes another file of the same name.
    registry.counter("y").register().unwrap();
    x.inc();
    assert!(collection.refresh());
    assert_eq!(names(&collection), ["mmv.a.x", "mmv.a.y"]);
    assert_eq!(value(&mut collection, "mmv.a.x"), Ok("4".into()));
    assert_eq!(collection.item("mmv.a.x"), Ok(item), "items stay");

    let _b = export(&files, "b", "z");
    assert!(collection.refresh());
    assert_eq!(names(&collection), ["mmv.a.x", "mmv.a.y", "mmv.b.z"]);
    assert_eq!(collection.file_count(), 2);
    fs::remove_file(files.join("a")).unwrap();
    assert!(collection.refresh());
    assert_eq!(names(&collection), ["mmv.b.z"]);
    assert_eq!(collection.desc(item), Err(Error::PMID));
    fs::remove_dir_all(&files).unwrap();
    assert!(collection.refresh());
    assert!(!collection.refresh());
    assert_eq!(collection.metric_count(), 0);
}

#[test]
fn changes_within_one_tick_of_the_clock_are_seen() {
    let dir = tempfile::tempdir().unwrap();
    let registry = builder(dir.path(), "a").build().unwrap();
    registry.try_start().unwrap();
    let mut collection = Collection::new("mmv", dir.path());
    for i in 0..200 {
        registry.counter(&format!("m{i}")).register().unwrap();
        collection.refresh();
        assert_eq!(collection.metric_count(), i + 1);
        let _other = export(dir.path(), &format!("b{i}"), "x");
        collection.refresh();
        assert_eq!(collection.metric_count(), i + 2);
        fs::remove_file(dir.path().join(format!("b{i}"))).unwrap();
        collection.refresh();
        assert_eq!(collection.metric_count(), i + 1);
    }
}

#[test]
fn nothing_goes_while_a_file_grows() {
    let dir = tempfile::tempdir().unwrap();
    let registry = builder(dir.path(), "a").build().unwrap();
    registry.counter("first").register().unwrap();
    registry.try_start().unwrap();
    let batch = registry.batch();
    (0..500).for_each(|i| drop(registry.counter(&format!("m{i}")).register().unwrap()));
    drop(batch);
    let mut collection = Collection::new("mmv", dir.path());
    let growing = AtomicBool::new(true);
    thread::scope(|scope| {
        scope.spawn(|| {
            for i in 0..400 {
                registry.counter(&format!("n{i}")).register().unwrap();
                thread::sleep(Duration::from_millis(1));
            }
            growing.store(false, Relaxed);
        });
        while growing.load(Relaxed) {
            collection.refresh();
            assert_eq!(collection.item("mmv.a.first").err(), None);
        }
    });
}

#[test]
fn a_file_being_written_is_read_later() {
    let dir = tempfile::tempdir().unwrap();
    let _a = export(dir.path(), "a", "x");
    let path = dir.path().join("a");
    let whole = fs::read(&path).unwrap();
    let generations = |g1: u64, g2: u64| {
        let mut bytes = whole.clone();
        bytes[8..16].copy_from_slice(&g1.to_ne_bytes());
        bytes[16..24].copy_from_slice(&g2.to_ne_bytes());
        bytes
    };
    for (g1, g2) in [(0, 0), (5, 0), (5, 4)] {
        fs::write(&path, generations(g1, g2)).unwrap();
        let mut collection = Collection::new("mmv", dir.path());
        collection.refresh();
        assert_eq!((collection.file_count(), collection.reload()), (0, 1));
        // Written in place: only the file changes, not the directory.
        fs::write(&path, generations(5, 5)).unwrap();
        assert!(collection.refresh());
        assert_eq!((collection.file_count(), collection.reload()), (1, 0));
        fs::write(&path, generations(6, 6)).unwrap();
        assert!(collection.refresh(), "another generation");
        fs::write(&path, generations(7, 0)).unwrap();
        assert!(collection.refresh());
        assert_eq!((collection.file_count(), collection.reload()), (0, 1));
    }
}

#[test]
fn a_store_reads_everything_again() {
    let dir = tempfile::tempdir().unwrap();
    let _a = export(dir.path(), "a", "x");
    let mut collection = Collection::new("mmv", dir.path());
    settle(&mut collection);
    collection.set_reload(7);
    assert_eq!(collection.reload(), 7);
    assert!(collection.refresh());
    assert_eq!(collection.reload(), 0);
}

#[test]
fn a_file_is_valid_while_its_process_lives() {
    let dir = tempfile::tempdir().unwrap();
    let registry = Registry::builder("a").directory(dir.path()).room(16).build().unwrap();
    registry.counter("x").register().unwrap();
    registry.try_start().unwrap();
    let mut process = Command::new("sleep").arg("600").spawn().unwrap();
    let path = dir.path().join("a");
    let mut bytes = fs::read(&path).unwrap();
    bytes[32..36].copy_from_slice(&process.id().to_ne_bytes());
    fs::write(&path, &bytes).unwrap();
    let mut collection = Collection::new("mmv", dir.path());
    settle(&mut collection);
    assert_eq!(collection.metric_count(), 1);
    process.kill().unwrap();
    process.wait().unwrap();
    assert!(collection.refresh());
    assert_eq!(collection.metric_count(), 0);
    // Without the flag, or without a process, the process is not checked.
    for (flags, pid) in [(0u32, process.id()), (2, 0)] {
        bytes[28..32].copy_from_slice(&flags.to_ne_bytes());
        bytes[32..36].copy_from_slice(&pid.to_ne_bytes());
        fs::write(&path, &bytes).unwrap();
        collection.set_reload(1);
        collection.refresh();
        assert_eq!(collection.metric_count(), 1);
    }
}

#[test]
fn more_files_than_stay_open() {
    let dir = tempfile::tempdir().unwrap();
    let all: Vec<_> = (0..300).map(|i| export(dir.path(), &format!("file{i:03}"), "x")).collect();
    let mut collection = Collection::new("mmv", dir.path());
    settle(&mut collection);
    assert_eq!(collection.metric_count(), 300);
    let descriptors = || {
        let links = fs::read_dir("/proc/self/fd").unwrap().filter_map(|fd| fs::read_link(fd.unwrap().path()).ok());
        links.filter(|link| link.starts_with(dir.path()) && link != dir.path()).count()
    };
    // The registries keep their own files open. A part of the others is kept for other users.
    let open = descriptors();
    assert!((300 + Collection::OPEN_FILES / 2..=300 + Collection::OPEN_FILES).contains(&open), "{open}");
    for (i, (_, counter)) in all.iter().enumerate() {
        counter.add(i as u64);
    }
    assert!(!collection.refresh());
    for i in 0..300 {
        assert_eq!(value(&mut collection, &format!("mmv.file{i:03}.x")), Ok(i.to_string()));
    }
    assert!(descriptors() <= open + 1);
}

#[test]
fn many_values_of_one_file() {
    let dir = tempfile::tempdir().unwrap();
    let registry = builder(dir.path(), "a").build().unwrap();
    let instances: Vec<String> = (0..5000).map(|i| format!("i{i}")).collect();
    let indom = registry.indom("i").serial(1).numbered((0..).zip(instances.iter().map(String::as_str)));
    let indom = indom.register().unwrap();
    let families: Vec<Family<Counter>> =
        (0..3).map(|m| registry.counter(&format!("m{m}")).item(m).over(&indom).unwrap()).collect();
    for (m, family) in (0..).zip(&families) {
        for (i, name) in (0..).zip(&instances) {
            family.instance(name).unwrap().add(m * 10_000 + i);
        }
    }
    registry.try_start().unwrap();
    let mut collection = Collection::new("mmv", dir.path());
    collection.refresh();
    let cluster = collection.item("mmv.a.m0").unwrap().cluster();
    for m in 0..3u16 {
        let mut values = Vec::new();
        let some = |inst: Inst| inst.word() % 2 == 0;
        collection
            .fetch(Item::new(cluster, m), some, |inst, value| {
                values.push((inst, Print::new(value.unwrap(), 0).to_string()))
            })
            .unwrap();
        let expected: Vec<(Option<Inst>, String)> = (0..5000)
            .filter(|i| i % 2 == 0)
            .map(|i| (Inst::from_word(i), (u32::from(m) * 10_000 + i).to_string()))
            .collect();
        assert_eq!(values, expected);
    }
}

#[test]
fn prefixes_and_values_that_are_none() {
    let dir = tempfile::tempdir().unwrap();
    let registry = builder(dir.path(), "a").no_prefix().sentinels().build().unwrap();
    let gauge: Gauge<i64> = registry.metric("gauge").register().unwrap();
    let float: Gauge = registry.gauge("float").register().unwrap();
    let text: Text = registry.text("text").register().unwrap();
    registry.try_start().unwrap();
    let mut collection = Collection::new("pmproxy", dir.path());
    collection.refresh();
    assert_eq!(names(&collection), ["pmproxy.gauge", "pmproxy.float", "pmproxy.text"]);
    for name in ["pmproxy.float", "pmproxy.gauge", "pmproxy.text"] {
        assert_eq!(value(&mut collection, name), Ok(String::new()), "no value, and no error");
    }
    gauge.set(-1);
    float.set(0.5);
    text.set("t");
    collection.refresh();
    let values = ["pmproxy.float", "pmproxy.gauge", "pmproxy.text"].map(|name| value(&mut collection, name).unwrap());
    // As a 64-bit integer, -1 has all bits set, which means "no value".
    assert_eq!(values, ["0.5", "", "\"t\""]);
}

#[test]
fn labels_of_a_registry_are_those_of_its_cluster() {
    let dir = tempfile::tempdir().unwrap();
    let registry = builder(dir.path(), "a").cluster(77).build().unwrap();
    registry.counter("x").item(4).label("a", 1).note("b", "two").register().unwrap();
    registry.label("tier", "web").unwrap();
    registry.try_start().unwrap();
    let mut collection = Collection::new("mmv", dir.path());
    collection.refresh();
    let json = |of| collection.labels(of).map(|set| set.json());
    assert_eq!(json(LabelSubject::Cluster(77)), Some(r#"{"tier":"web"}"#));
    assert_eq!(json(LabelSubject::Item(Item::new(77, 4))), Some(r#"{"a":1,"b":"two"}"#));
    assert_eq!(json(LabelSubject::Item(Item::new(77, 5))), None);
}

#[test]
fn extra_units_are_dumped_as_by_pcp_7_2() {
    let dir = tempfile::tempdir().unwrap();
    let registry = builder(dir.path(), "a").build().unwrap();
    let extra = |code: i32, scale: u32| ((code as u32) << 3 & 0xff) | scale;
    let words = [
        (extra(1, 1), "temperature (C)"),
        (extra(1, 2), "temperature (F)"),
        (extra(1, 3), "temperature (K)"),
        (extra(2, 1), "voltage (V)"),
        (extra(2, 2), "voltage (mV)"),
        (extra(2, 3), "voltage (uV)"),
        (extra(3, 1), "current (A)"),
        (extra(3, 2), "current (mA)"),
        (extra(3, 3), "current (uA)"),
        (extra(4, 1), "power (kW)"),
        (extra(4, 2), "power (W)"),
        (extra(4, 3), "power (mW)"),
        (extra(4, 4), "power (uW)"),
        (extra(-4, 2), "/ power (W)"),
        (extra(4, 2) | 0x0f00_3000, "power (W) / sec"),
        (extra(2, 7), "voltage (scale-7)"),
        (extra(-11, 7), "/ extra-11"),
        (extra(4, 2) | 0x0600, "power (W)"),
        (0x0600, "x 10^6"),
        (3, ""),
    ];
    for (number, (word, _)) in words.iter().enumerate() {
        registry.gauge(&format!("m{number}")).units(Units::from_word(*word)).register().unwrap();
    }
    registry.try_start().unwrap();
    let mut out = Vec::new();
    mmv_reader::dump::dump(&mut out, b"a", &fs::read(dir.path().join("a")).unwrap()).unwrap();
    let out = String::from_utf8(out).unwrap();
    let shown: Vec<&str> = out.lines().filter_map(|line| line.trim().strip_prefix("units=")).collect();
    assert_eq!(shown, words.map(|(_, text)| text));
}

/// Labels are left out one by one, as with libpcp 7.2, however other libraries write them.
#[test]
fn labels_with_invalid_names_are_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let registry = builder(dir.path(), "a").cluster(77).room(16).build().unwrap();
    registry.counter("x").item(4).label("_a", 1).note("9", "two").register().unwrap();
    registry.label("long_enough_to_be_replaced", "web").unwrap();
    assert!(registry.label("k8s.io/name", "x").is_err());
    registry.try_start().unwrap();
    drop(registry);
    let mut bytes = fs::read(dir.path().join("a")).unwrap();
    let of_registry = br#"{"long_enough_to_be_replaced":"web"}"#;
    let at = bytes.windows(of_registry.len()).position(|part| part == of_registry).unwrap();
    bytes[at..at + of_registry.len()].copy_from_slice(br#"{"a-b":1,"_c":{"d.e":2,"f":3}}      "#);
    fs::write(dir.path().join("a"), bytes).unwrap();
    let mut collection = Collection::new("mmv", dir.path());
    collection.refresh();
    let json = |of| collection.labels(of).map(|set| set.json());
    assert_eq!(json(LabelSubject::Cluster(77)), Some(r#"{"_c.f":3}"#));
    assert_eq!(json(LabelSubject::Item(Item::new(77, 4))), Some(r#"{"9":"two","_a":1}"#));
}
