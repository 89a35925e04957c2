//! Files of both libraries, read by the C agent, C's mmvdump and this crate.

mod show;
mod tools;

use std::fs;
use std::path::Path;

use mmv::{Counter, CounterWriter, Family, Gauge, GaugeWriter, Interval, Registry, Semantics, Text, Timer, Units};
use testkit::{Pcp, Version};
use tools::Scene;

/// Compares the C agent's output about every metric with the collection's.
fn compare(scene: &Scene) {
    let theirs = scene.pminfo();
    let ours = show::collection(&scene.files());
    assert!(!ours.is_empty());
    for (name, block) in &ours {
        assert_eq!(theirs.get(name).map_or("", String::as_str), block, "{name}");
    }
    let names = |blocks: &std::collections::BTreeMap<String, String>| blocks.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&ours), names(&theirs));
    for file in fs::read_dir(scene.files()).unwrap() {
        same_dump(&file.unwrap().path());
    }
}

fn same_dump(path: &Path) {
    let (theirs, status) = tools::mmvdump(path);
    let mut ours = Vec::new();
    let valid =
        mmv_reader::dump::dump(&mut ours, path.as_os_str().as_encoded_bytes(), &fs::read(path).unwrap()).unwrap();
    assert_eq!(tools::without_clock(&ours), tools::without_clock(&theirs));
    assert_eq!(valid, status, "{path:?}");
}

#[test]
#[ignore = "needs PCP"]
fn what_c_writes_we_read() {
    for version in 1..=3 {
        // No flags, `MMV_FLAG_NOPREFIX`, `MMV_FLAG_SENTINEL`.
        for flags in [0, 1, 4] {
            let scene = Scene::new();
            scene.c_writer(version, flags, "written");
            compare(&scene);
            assert_eq!(show::collection(&scene.files()).len(), 18, "version {version}, flags {flags}");
        }
    }
}

#[test]
#[ignore = "needs PCP"]
fn files_of_several_applications() {
    let scene = Scene::new();
    scene.c_writer(1, 1, "first");
    scene.c_writer(3, 0, "second");
    // The file's name is no component of metric names.
    scene.c_writer(2, 0, "client-123");
    // Without a cluster, each file gets the lowest free one.
    for name in ["a", "b", "z"] {
        let mut bytes = fs::read(scene.files().join("first")).unwrap();
        let [flags, cluster] = [28..32, 36..40];
        bytes[flags].fill(0);
        bytes[cluster].fill(0);
        fs::write(scene.files().join(name), bytes).unwrap();
    }
    compare(&scene);
    assert_eq!(show::collection(&scene.files()).len(), 5 * 18);
}

/// Registers metrics of every type and semantics, with and without instances, help and labels.
fn everything(registry: &Registry, long: bool, labels: bool) -> Vec<Box<dyn std::any::Any>> {
    let long_name = format!("m{}", ".long".repeat(20));
    let indom = registry.indom("letters").serial(8).help("letters").long_help("a\nfew").numbered([(0, "alpha")]);
    let indom = indom.register().unwrap();
    indom.add_numbered(5, if long { &long_name } else { "beta" }).unwrap();
    if long {
        registry.counter(&long_name).units(Units::COUNT.per(Units::SECONDS)).register().unwrap().add(4);
    }
    let mut counter: CounterWriter<u32> = registry.metric("counter.writer").register().unwrap();
    counter.add(3_000_000_000);
    let u64s: Family<Counter> = registry.counter("counter.u64").help("a").long_help("b\nc").over(&indom).unwrap();
    u64s.instance("alpha").unwrap().add(u64::MAX);
    let i64s: Counter<i64> = registry.metric("counter.i64").semantics(Semantics::Discrete).register().unwrap();
    i64s.add(-9);
    let i32s: Family<Gauge<i32>> = registry.metric("gauge.i32").units(Units::KBYTES).over(&indom).unwrap();
    i32s.instance("alpha").unwrap().sub(7);
    let float: Gauge<f32> = registry.metric("gauge.f32").register().unwrap();
    float.set(1.25);
    let mut double: GaugeWriter = registry.metric("gauge.f64").register().unwrap();
    double.set(-2.5);
    let text: Text = registry.text("text.one").register().unwrap();
    text.set("some words");
    let texts: Family<Text> = registry.text("text.each").over(&indom).unwrap();
    texts.instance("alpha").unwrap().set("each");
    let timer: Timer = registry.timer("time.timer").register().unwrap();
    timer.observe(std::time::Duration::from_micros(1234));
    let interval: Interval = registry.metric("time.interval").register().unwrap();
    if labels {
        registry.label("tier", "web").unwrap();
        registry.counter("labelled").label("rack", 3).note("note", "optional").register().unwrap();
        indom.label_instance("alpha", "greek", true).unwrap();
        registry.indom("empty").label("kind", "none").register().unwrap();
    }
    vec![Box::new(counter), Box::new(double), Box::new(interval)]
}

#[test]
#[ignore = "needs PCP"]
// Slow: PCP's tools read 24 files.
fn what_we_write_c_reads() {
    for (long, labels) in [(false, false), (true, false), (true, true)] {
        for build in
            [|b| b, mmv::RegistryBuilder::no_prefix, mmv::RegistryBuilder::sentinels, mmv::RegistryBuilder::persistent]
        {
            let scene = Scene::new();
            let registry = build(Registry::builder("ours").directory(scene.files())).build().unwrap();
            let _before = everything(&registry, long, labels);
            registry.try_start().unwrap();
            compare(&scene);
            // A registry that grows writes another file.
            registry.counter("later").register().unwrap().inc();
            compare(&scene);
            let metrics = 11 + usize::from(long) + usize::from(labels);
            assert_eq!(show::collection(&scene.files()).len(), metrics);
        }
    }
}

#[test]
#[ignore = "needs PCP"]
fn units_of_every_kind_are_dumped() {
    let scene = Scene::new();
    let registry = Registry::builder("units").directory(scene.files()).build().unwrap();
    // PCP before 7.2 prints no extra units.
    let (first, extra) = if Pcp::required().version() < Version(7, 2, 0) { (8, 0) } else { (0, 0xff) };
    let words = [0x0000_0f00, 0x5741_eb0e, 0xb914_4117, 0x9382_d0af].map(|word| word & (!0xff | extra));
    for word in (first..32).map(|bit| 1 << bit).chain(words) {
        registry.gauge(&format!("u{word:x}")).units(Units::from_word(word)).register().unwrap();
    }
    registry.try_start().unwrap();
    same_dump(&scene.files().join("units"));
}

#[test]
#[ignore = "needs PCP"]
fn a_running_interval_is_seen_running() {
    let scene = Scene::new();
    let registry = Registry::builder("ours").directory(scene.files()).build().unwrap();
    let mut interval: Interval = registry.metric("interval").register().unwrap();
    registry.try_start().unwrap();
    interval.start();
    std::thread::sleep(std::time::Duration::from_millis(20));
    let block = scene.pminfo().remove("mmv.ours.interval").unwrap();
    let (_, value) = block.rsplit_once("value ").unwrap();
    assert!(value.trim().parse::<u64>().unwrap() >= 20_000, "{block}");
}

#[test]
#[ignore = "needs PCP"]
fn files_of_other_languages() {
    // The directories of the package pcp-testsuite and of ./check.
    let suites = ["/var/lib/pcp/testsuite/mmv", concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/pcp-testsuite/mmv")];
    let suite = suites.map(Path::new).into_iter().find(|suite| suite.exists()).expect("files of pcp-testsuite");
    let scene = |file: &str| {
        let scene = Scene::new();
        let bytes = tools::run("xz", &["-dc", suite.join(format!("{file}.xz")).to_str().unwrap()]).0;
        fs::write(scene.files().join(file), bytes).unwrap();
        scene
    };
    compare(&scene("KeyboardReader"));
    compare(&scene("pytest"));
    // A metric of this file is below another metric in the name space, where pminfo stops early.
    let large = scene("large-parfait");
    let (theirs, ours) = (large.pminfo(), show::collection(&large.files()));
    assert_eq!((theirs.len(), ours.len()), (245, 421));
    for (name, block) in &theirs {
        assert_eq!(ours.get(name), Some(block));
    }
    same_dump(&large.files().join("large-parfait"));
}

#[test]
#[ignore = "needs PCP"]
fn files_that_are_not_valid() {
    for (name, bytes) in crate::raw::bad_files() {
        let scene = Scene::new();
        fs::write(scene.files().join(name), bytes.0).unwrap();
        compare_bad(&scene, name);
    }
}

/// Asserts that C's reader and this one find the same metrics.
fn compare_bad(scene: &Scene, name: &str) {
    let theirs: Vec<String> = scene.pminfo().into_keys().collect();
    let ours: Vec<String> = show::collection(&scene.files()).into_keys().collect();
    assert_eq!(ours, theirs, "{name}");
    same_dump(&scene.files().join(name));
}
