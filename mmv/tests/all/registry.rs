//! The registrations that a registry accepts, the identifiers that it assigns, and the end of its file.
#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use mmv::format::{Flags, ValueType, Version};
use mmv::{Buckets, Counter, CounterWriter, Error, Family, Gauge, Interval, Registry, Semantics, Text, Timer, Units};
use mmv_reader::{File, TextKind};
use nix::sys::stat::{Mode, umask};

fn registry(dir: &Path) -> Registry {
    Registry::builder("test").directory(dir).build().unwrap()
}

fn read(dir: &Path) -> File {
    let file = File::open(dir.join("test")).unwrap();
    assert_eq!(file.problems().first(), []);
    file
}

fn items(dir: &Path) -> HashMap<String, u32> {
    let file = read(dir);
    file.metrics().iter().map(|m| (String::from_utf8(file.name(m).to_vec()).unwrap(), m.item)).collect()
}

#[test]
fn what_the_agent_would_skip_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let registry = registry(dir.path());
    let counter = |name: &str| registry.counter(name).register();
    assert!(matches!(counter("no-dash"), Err(Error::Name { .. })));
    assert!(matches!(counter("9lives"), Err(Error::Name { .. })));
    assert!(matches!(counter(&"n".repeat(256)), Err(Error::TooLong { .. })));
    counter("a.b").unwrap();
    assert!(matches!(counter("a.b"), Err(Error::InUse { .. })));
    assert!(matches!(counter("a"), Err(Error::Leaf(name)) if name == "a"));
    assert!(matches!(counter("a.b.c"), Err(Error::Leaf(name)) if name == "a.b"));
    counter("a.bc").unwrap();
    assert!(matches!(registry.counter("c").item(1024).register(), Err(Error::Range { .. })));
    registry.counter("c").item(7).register().unwrap();
    assert!(matches!(registry.counter("d").item(7).register(), Err(Error::InUse { .. })));
    assert!(matches!(registry.counter("d").help(&"h".repeat(256)).register(), Err(Error::TooLong { .. })));
    assert!(matches!(registry.counter("d").label("a-b", 1).register(), Err(Error::Label { .. })));
    assert!(matches!(registry.counter("d").label("l", "x".repeat(250)).register(), Err(Error::TooLong { .. })));
    // A failed registration leaves nothing behind.
    registry.counter("d").register().unwrap();

    assert!(matches!(registry.indom("i").serial(0).register(), Err(Error::Range { .. })));
    assert!(matches!(registry.indom("i").serial(2048).register(), Err(Error::Range { .. })));
    let indom = registry.indom("i").serial(5).register().unwrap();
    assert!(matches!(registry.indom("i").register(), Err(Error::InUse { .. })));
    assert!(matches!(registry.indom("j").serial(5).register(), Err(Error::InUse { .. })));
    indom.add_numbered(1, "one").unwrap();
    assert!(matches!(indom.add_numbered(1, "uno"), Err(Error::InUse { .. })));
    assert!(matches!(indom.add("one"), Err(Error::InUse { .. })));
    assert!(matches!(indom.add(""), Err(Error::Name { .. })));

    for name in ["client-123", "a/b", ".a", "", "control"] {
        assert!(matches!(Registry::new(name), Err(Error::Name { .. })), "{name}");
    }
    assert!(Registry::builder("client-123").no_prefix().build().is_ok());
    assert!(matches!(Registry::builder("a").cluster(4096).build(), Err(Error::Range { .. })));
    assert!(matches!(Registry::builder("a").cluster(0).build(), Err(Error::Range { .. })));
    let control = Registry::builder("a").no_prefix().build().unwrap();
    assert!(matches!(control.counter("control.files").register(), Err(Error::Name { .. })));
}

#[test]
fn an_instance_domain_is_registered_with_all_its_instances_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let registry = registry(dir.path());
    let long = "i".repeat(100);
    registry.try_start().unwrap();
    assert!(matches!(registry.indom("i").serial(5).instances([&*long, "a", ""]).register(), Err(Error::Name { .. })));
    assert!(matches!(registry.indom("i").instances(["a", "a"]).register(), Err(Error::InUse { .. })));
    let numbered = [(1, "a"), (1 << 31, "b")];
    assert!(matches!(registry.indom("i").numbered(numbered).register(), Err(Error::Range { .. })));
    let indom = registry.indom("i").serial(5).instances(["a", "b"]).register().unwrap();
    assert_eq!(indom.names(), ["a", "b"]);
    let file = read(dir.path());
    assert_eq!((file.indoms().len(), file.indoms()[0].serial), (1, 5));
}

#[test]
fn a_file_is_full_at_1023_metrics_and_255_labels() {
    let dir = tempfile::tempdir().unwrap();
    let registry = registry(dir.path());
    for i in 0..1023 {
        registry.counter(&format!("m{i}")).register().unwrap();
    }
    let e = registry.counter("m1023").register().unwrap_err();
    assert!(matches!(&e, Error::TooManyMetrics(name) if name == "m1023"));
    assert_eq!(e.to_string(), "\"m1023\": a file can have at most 1023 metrics; use another registry for more");
    for i in 0..254 {
        registry.label(&format!("l{i}"), i).unwrap();
    }
    // A label set has no room for more.
    assert!(matches!(registry.label("more", 1), Err(Error::Label { name, .. }) if name == "more"));
    let indom = registry.indom("indom").label("last", 1).register().unwrap();
    assert!(matches!(indom.label_instance("i", "more", 1), Err(Error::TooManyLabels)));
    registry.try_start().unwrap();
    let file = read(dir.path());
    assert_eq!((file.metrics().len(), file.labels().len()), (1023, 255));
    assert_eq!(items(dir.path()).len(), 1023, "no two have the same item");
}

/// Each member of an object is a label with the name of the object in front, and PCP limits these names and their sum.
#[test]
fn labels_that_no_set_holds_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let registry = registry(dir.path());
    let members: std::collections::BTreeMap<String, u32> = (0..20).map(|i| (format!("m{i}"), 1)).collect();
    let accepted = (0..20).take_while(|i| registry.label(&format!("l{i}"), &members).is_ok()).count();
    assert_eq!(accepted, 254 / 20);
    let refused = registry.counter("a").label("l", &members).label("o", &members);
    assert!(refused.register().is_ok());
    let many = (0..13).fold(registry.counter("b"), |metric, i| metric.label(&format!("l{i}"), &members));
    assert!(matches!(many.register(), Err(Error::Label { name, .. }) if name == "l12"));
    registry.try_start().unwrap();
    let mut collection = mmv_reader::collection::Collection::new("mmv", dir.path());
    while collection.refresh() {}
    let cluster = collection.metrics().next().unwrap().1.item.cluster();
    let labels = collection.labels(mmv_reader::collection::LabelSubject::Cluster(cluster)).unwrap();
    assert_eq!(labels.labels().count(), 20 * accepted);
    assert!(registry.counter("b").register().is_ok(), "nothing of it was registered");
}

#[test]
fn items_follow_from_names() {
    let names: Vec<String> = (0..300).map(|i| format!("metric{i}")).collect();
    let export = |names: &mut dyn Iterator<Item = &String>| {
        let dir = tempfile::tempdir().unwrap();
        let registry = registry(dir.path());
        names.for_each(|name| drop(registry.counter(name).register().unwrap()));
        registry.try_start().unwrap();
        (items(dir.path()), read(dir.path()).header().cluster)
    };
    let forwards = export(&mut names.iter());
    assert_eq!(forwards, export(&mut names.iter().rev()));
    assert!((256..=2047).contains(&forwards.1));
}

#[test]
fn items_are_those_of_the_file_before() {
    let dir = tempfile::tempdir().unwrap();
    let persistent = || Registry::builder("test").directory(dir.path()).persistent().build().unwrap();
    let first = persistent();
    first.try_start().unwrap();
    // Registered one by one, so that the first one gets a contended item.
    (0..200).for_each(|i| drop(first.counter(&format!("metric{i}")).register().unwrap()));
    let before = items(dir.path());
    let cluster = read(dir.path()).header().cluster;
    drop(first);
    let second = persistent();
    (0..300).rev().for_each(|i| drop(second.counter(&format!("metric{i}")).register().unwrap()));
    second.try_start().unwrap();
    let after = items(dir.path());
    assert_eq!(after.len(), 300);
    for (name, item) in before {
        assert_eq!(after.get(&name), Some(&item), "{name}");
    }
    assert_eq!(read(dir.path()).header().cluster, cluster);
}

#[test]
fn clusters_keep_away_from_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = |name: &str| {
        let registry = Registry::builder(name).directory(dir.path()).persistent().build().unwrap();
        registry.try_start().unwrap();
        File::open(dir.path().join(name)).unwrap().header().cluster
    };
    let mut clusters: Vec<i32> = (0..200).map(|i| cluster(&format!("app{i}"))).collect();
    clusters.sort_unstable();
    clusters.dedup();
    assert_eq!(clusters.len(), 200);
    // Lower clusters are left to files without a cluster.
    assert!(clusters[0] >= 256);
}

#[test]
fn an_application_without_pcp_runs_on() {
    let dir = tempfile::tempdir().unwrap();
    let missing = Registry::builder("test").directory(dir.path().join("missing")).build().unwrap();
    let counter = missing.counter("counter").register().unwrap();
    let text = missing.text("text").register().unwrap();
    missing.start();
    counter.inc();
    text.set("x");
    assert_eq!((counter.get(), text.get().as_str(), missing.path()), (1, "x", None));
    assert!(missing.counter("later").register().is_ok());
    let e = missing.try_start().unwrap_err().to_string();
    assert!(e.contains("missing") && e.contains("No such file"), "{e}");
}

#[test]
fn files_go_or_stay_as_asked() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("test");
    let first = registry(dir.path());
    first.try_start().unwrap();
    assert_eq!(read(dir.path()).header().owner(), Some(std::process::id() as i32));
    assert_eq!(first.path(), Some(path.clone()));
    let clone = first.clone();
    drop(first);
    assert!(path.exists(), "a clone is left");
    clone.stop();
    assert!(!path.exists());
    clone.try_start().unwrap();
    assert!(path.exists(), "a registry can start again");

    // The file of another process with this name is not removed.
    fs::remove_file(&path).unwrap();
    fs::write(&path, "other").unwrap();
    drop(clone);
    assert!(path.exists());
    fs::remove_file(&path).unwrap();

    let stays = Registry::builder("test").directory(dir.path()).persistent().build().unwrap();
    // The umask of a process does not hide its metrics.
    let hidden = umask(Mode::from_bits_truncate(0o077));
    stays.try_start().unwrap();
    umask(hidden);
    drop(stays);
    assert_eq!(read(dir.path()).header().flags, Flags::default());
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["test"], "no temporary files are left");
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&path).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o644);
}

#[test]
fn many_values_of_one_metric_are_all_in_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let registry = Registry::builder("test").directory(dir.path()).build().unwrap();
    let names: Vec<String> = (0..5000).map(|i| format!("i{i}")).collect();
    let indom = registry.indom("d").numbered((0..).zip(names.iter().map(String::as_str))).register().unwrap();
    let family: Family<Gauge<u32>> = registry.metric("m").over(&indom).unwrap();
    registry.counter("last").help("one line").register().unwrap();
    registry.try_start().unwrap();
    family.get("i4999").unwrap().set(7);
    let file = read(dir.path());
    assert_eq!((file.problems().count(), file.metrics().len()), (0, 2));
    assert!(file.metrics()[0].values().iter().map(|value| value.instance).eq(0..5000));
    let instances = file.indoms()[0].instances();
    assert!(instances.iter().map(|i| file.instance_name(i)).eq(names.iter().map(|name| name.as_bytes())));
    assert_eq!(file.help(&file.metrics()[1], TextKind::OneLine), Some(&b"one line"[..]));
}

#[test]
fn two_registries_have_no_file_together() {
    let dir = tempfile::tempdir().unwrap();
    let first = registry(dir.path());
    let second = registry(dir.path());
    let counter = second.counter("counter").register().unwrap();
    first.try_start().unwrap();
    assert!(matches!(second.try_start(), Err(Error::InUse { .. })));
    assert_eq!(read(dir.path()).metrics().len(), 0);
    drop(first);
    counter.inc();
    second.try_start().unwrap();
    assert_eq!(read(dir.path()).value(0).map(|value| value.word), Some(1));
}

#[test]
fn the_name_of_a_file_can_be_as_long_as_the_system_allows() {
    let dir = tempfile::tempdir().unwrap();
    for builder in [|n: &str| Registry::builder(n), |n: &str| Registry::builder(n).no_prefix()] {
        let registry = builder(&"n".repeat(255)).directory(dir.path()).build().unwrap();
        registry.try_start().unwrap();
        registry.counter("added").register().unwrap();
        assert_eq!(File::open(registry.path().unwrap()).unwrap().metrics().len(), 1);
        assert!(matches!(builder(&"n".repeat(256)).build(), Err(Error::TooLong { .. })));
    }
}

#[test]
fn versions() {
    let version = |prepare: &dyn Fn(&Registry)| {
        let dir = tempfile::tempdir().unwrap();
        let registry = registry(dir.path());
        registry.counter("short").help("help").register().unwrap();
        prepare(&registry);
        registry.try_start().unwrap();
        read(dir.path()).version()
    };
    assert_eq!(version(&|_| ()), Version::V2);
    assert_eq!(version(&|r| drop(r.counter(&"n".repeat(64)).register().unwrap())), Version::V2);
    assert_eq!(version(&|r| drop(r.indom("i").instances([&*"n".repeat(64)]).register().unwrap())), Version::V2);
    assert_eq!(version(&|r| r.label("a", 1).unwrap()), Version::V3);
}

#[test]
fn equal_strings_are_stored_once() {
    let dir = tempfile::tempdir().unwrap();
    let registry = registry(dir.path());
    for i in 0..100 {
        registry.counter(&format!("metric{i}")).help("the same").long_help("the same").register().unwrap();
    }
    registry.try_start().unwrap();
    let bytes = fs::read(dir.path().join("test")).unwrap();
    let strings = (0..3).map(|toc| &bytes[40 + 16 * toc..]).find(|toc| toc[0] == 5).unwrap();
    assert_eq!(u32::from_ne_bytes(strings[4..8].try_into().unwrap()), 101, "the names and one help text");
    let file = read(dir.path());
    assert!(file.metrics().iter().all(|m| file.help(m, TextKind::Help) == Some(b"the same")));
}

#[test]
fn everything_about_a_metric() {
    let dir = tempfile::tempdir().unwrap();
    let registry = registry(dir.path());
    let metric = registry.metric::<Gauge<i32>>("depth").item(3).units(Units::BYTES).semantics(Semantics::Discrete);
    let depth = metric.help("one line").long_help("a text").label("tier", "web").register().unwrap();
    depth.set(-5);
    registry.try_start().unwrap();
    let file = read(dir.path());
    let m = &file.metrics()[0];
    assert_eq!((m.item, m.ty, m.semantics, m.units), (3, ValueType::I32, Semantics::Discrete, Units::BYTES));
    assert_eq!(
        (file.help(m, TextKind::OneLine), file.help(m, TextKind::Help)),
        (Some(&b"one line"[..]), Some(&b"a text"[..]))
    );
    assert_eq!(file.value(0).unwrap().half() as i32, -5);
    let label = &file.labels()[0];
    assert_eq!((label.flags, label.identity, label.instance), (16, 3, -1));
    assert_eq!(file.payload(label), br#"{"tier":"web"}"#);
}

#[test]
fn handles_are_found_by_name_and_type() {
    let dir = tempfile::tempdir().unwrap();
    let registry = registry(dir.path());
    let counter: Counter = registry.counter("counter").register().unwrap();
    let _writer: CounterWriter = registry.metric("writer").register().unwrap();
    registry.find::<Counter>("counter").unwrap().add(3);
    assert_eq!(counter.get(), 3);
    assert!(registry.find::<Counter<u32>>("counter").is_none());
    assert!(registry.find::<Gauge<u64>>("counter").is_none());
    assert!(registry.find::<CounterWriter>("writer").is_none(), "there is one writer only");
    assert!(registry.find::<Counter>("none").is_none());

    let indom = registry.indom("indom").instances(["a"]).register().unwrap();
    let writers: Family<CounterWriter> = registry.metric("writers").over(&indom).unwrap();
    let mut a = writers.instance("a").unwrap();
    a.inc();
    assert!(matches!(writers.instance("a"), Err(Error::InUse { .. })));
    assert!(writers.instance("b").is_ok());
    let other = Registry::new("other").unwrap();
    assert!(matches!(other.counter("c").over(&indom), Err(Error::ForeignInDom(name)) if name == "indom"));
}

#[test]
fn sentinels_say_that_there_is_no_value() {
    let dir = tempfile::tempdir().unwrap();
    let registry = Registry::builder("test").directory(dir.path()).sentinels().build().unwrap();
    let float: Gauge = registry.gauge("float").register().unwrap();
    let small: Gauge<i32> = registry.metric("small").register().unwrap();
    let count: Counter = registry.counter("count").register().unwrap();
    let indom = registry.indom("indom").instances(["a", "b"]).register().unwrap();
    let family: Family<Gauge<u64>> = registry.metric("family").over(&indom).unwrap();
    let words = || {
        let file = read(dir.path());
        (0..5).map(|i| file.value(i).unwrap().word).collect::<Vec<u64>>()
    };
    registry.try_start().unwrap();
    assert!(f64::from_bits(words()[0]).is_nan());
    assert_eq!(words()[1..], [u64::MAX, 0, u64::MAX, u64::MAX]);
    assert_eq!((float.get(), small.get(), count.get()), (0.0, 0, 0));
    float.add(1.5);
    small.dec();
    family.instance("b").unwrap().set(3);
    let later: Gauge<u64> = registry.metric("later").register().unwrap();
    assert_eq!(words()[0], 1.5f64.to_bits());
    assert_eq!(words()[3..], [u64::MAX, 3]);
    assert_eq!((small.get(), later.get()), (-1, 0));
    assert_ne!(words()[1], u64::MAX, "-1 is a value");
    later.clear();
    float.clear();
    assert!(f64::from_bits(words()[0]).is_nan());
    assert_eq!(read(dir.path()).value(5).unwrap().word, u64::MAX);
}

#[test]
fn times_add_up_to_the_nanosecond() {
    let dir = tempfile::tempdir().unwrap();
    let registry = registry(dir.path());
    let timer: Timer = registry.timer("timer").register().unwrap();
    let again: Timer = registry.find("timer").unwrap();
    registry.try_start().unwrap();
    for _ in 0..1000 {
        timer.observe(Duration::from_nanos(300));
        again.observe(Duration::from_nanos(300));
    }
    assert_eq!(timer.get(), Duration::from_micros(600));
    assert_eq!(timer.time(|| 7), 7);
    let mut interval: Interval = registry.metric("interval").register().unwrap();
    interval.start();
    let index = read(dir.path()).metrics()[1].values()[0].index;
    let running = read(dir.path()).value(index).unwrap();
    assert!(running.extra < 0 && running.word == 0);
    std::thread::sleep(Duration::from_millis(2));
    interval.stop();
    let stopped = read(dir.path()).value(index).unwrap();
    assert!(stopped.extra == 0 && stopped.word >= 2000);
    assert_eq!(interval.get(), Duration::from_micros(stopped.word));
}

#[test]
fn texts() {
    let dir = tempfile::tempdir().unwrap();
    let registry = registry(dir.path());
    let first: Text = registry.text("first").register().unwrap();
    first.set("before the start");
    let second: Text = registry.text("second").register().unwrap();
    registry.try_start().unwrap();
    let strings = || {
        let file = read(dir.path());
        let string = |i| String::from_utf8(file.string(&file.value(i).unwrap()).unwrap().to_vec()).unwrap();
        (string(0), string(1))
    };
    assert_eq!(strings(), ("before the start".into(), String::new()));
    second.set("two");
    second.set("three");
    let _third: Text = registry.text("third").register().unwrap();
    assert_eq!(strings(), ("before the start".into(), "three".into()));
    first.set(&"é".repeat(300));
    assert_eq!(strings().0, "é".repeat(127));
}

#[test]
fn names_of_clients_do_not_make_instances_without_number() {
    let dir = tempfile::tempdir().unwrap();
    let registry = Registry::builder("app").directory(dir.path()).most_instances(3).build().unwrap();
    let indom = registry.indom("rows").instances(["a"]).register().unwrap();
    let family: Family<Counter> = registry.counter("m").over(&indom).unwrap();
    ["b", "c", "a"].iter().for_each(|name| family.instance(name).unwrap().inc());
    for n in 0..100 {
        let error = family.instance(&format!("client {n}")).unwrap_err();
        assert!(matches!(&error, Error::TooManyInstances { indom, max: 3 } if indom == "rows"), "{error}");
    }
    // Instances that exist, and those that the application adds itself, are available.
    family.instance("b").unwrap().inc();
    indom.add("d").unwrap();
    family.instance("d").unwrap().inc();
    assert_eq!(indom.names(), ["a", "b", "c", "d"]);
    // There is also a limit by default.
    let registry = Registry::builder("default").directory(dir.path()).build().unwrap();
    let indom = registry.indom("rows").register().unwrap();
    let family: Family<Counter> = registry.counter("m").over(&indom).unwrap();
    let added = (0..20_000).take_while(|n| family.instance(&n.to_string()).is_ok()).count();
    assert_eq!((added, indom.names().len()), (10_000, 10_000));
}

#[test]
fn distributions() {
    let dir = tempfile::tempdir().unwrap();
    let builder = Registry::builder("test").directory(dir.path()).flush_every(Duration::ZERO);
    let registry = builder.build().unwrap();
    let buckets: Buckets = registry.histogram("size").units(Units::BYTES).buckets(&[10.0, 100.0]).unwrap();
    let quantiles = registry.histogram("time").quantiles(&[0.5, 0.9]).unwrap();
    registry.try_start().unwrap();
    // The sum of the largest numbers is infinite.
    for value in [1.0, 10.0, 10.5, 100.0, 1e9, f64::NAN, f64::INFINITY, f64::MAX, f64::MAX, f64::MIN] {
        buckets.record(value);
    }
    [f64::NAN, f64::MAX, f64::MAX].into_iter().for_each(|value| quantiles.record(value));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let quantiles = quantiles.clone();
            scope.spawn(move || (0..250).for_each(|i| quantiles.record(f64::from(i * 4 + thread + 1) / 1000.0)));
        }
    });
    registry.flush();
    let file = read(dir.path());
    let values = |name: &str| {
        let metric = file.metrics().iter().find(|m| file.name(m) == name.as_bytes()).unwrap();
        metric.values().iter().map(|v| file.value(v.index).unwrap().word).collect::<Vec<u64>>()
    };
    assert_eq!((values("size.bucket"), values("size.count")), (vec![2, 2, 1], vec![5]));
    assert_eq!(f64::from_bits(values("size.sum")[0]), 1e9 + 121.5);
    assert_eq!(values("time.count"), [1000]);
    let sum = f64::from_bits(values("time.sum")[0]);
    assert!((sum - 500.5).abs() < 1e-6, "{sum}");
    let found: Vec<f64> = values("time.quantile").into_iter().map(f64::from_bits).collect();
    for (found, expected) in found.iter().zip([0.5, 0.9, 1.0]) {
        assert!((found / expected - 1.0).abs() < 0.01, "{found} for {expected}");
    }
    assert!(matches!(registry.histogram("bad").buckets(&[2.0, 1.0]), Err(Error::Histogram { .. })));
    assert!(matches!(registry.histogram("bad").quantiles(&[1.5]), Err(Error::Histogram { .. })));
    assert!(matches!(registry.histogram("bad").resolution(0.0).quantiles(&[0.5]), Err(Error::Histogram { .. })));
}
