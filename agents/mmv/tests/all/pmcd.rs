//! The agent in a real pmcd, compared with PCP's on the same files.
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::scene::{Scene, assert_same};
use mmv::{Counter, Family, Gauge, Registry, Text};
use testkit::{Pcp, Pmcd, Version};

/// Writes a file of a version with the C library.
fn c_writer(scene: &Scene, version: i32, flags: i32, name: &str) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../mmv/reader/tests/all/pcp/writer.c");
    let mut writer = Command::new(scene.compile(&source));
    writer.env("PCP_TMP_DIR", scene.files().parent().unwrap());
    assert!(writer.args([version.to_string(), flags.to_string(), name.to_owned()]).status().unwrap().success());
}

/// Writes files of every version: without a cluster, with the cluster of another file, and with a name that is not a
/// component.
fn write_files(scene: &Scene) {
    c_writer(scene, 1, 0, "first");
    c_writer(scene, 3, 0, "third");
    c_writer(scene, 2, 0, "client-123");
    for (name, version, flags, cluster) in [("second", 2, 0, 9u32), ("unprefixed", 1, 1, 10), ("sentinels", 1, 4, 4095)]
    {
        c_writer(scene, version, flags, name);
        copy(scene, name, name, cluster);
    }
    // Names that no name space file could have, but that the tools accept.
    for name in ["a", "b", "z", "123", "_9"] {
        copy(scene, "first", name, 0);
    }
    copy(scene, "first", "digits", 0);
    let mut digits = fs::read(scene.files().join("digits")).unwrap();
    let at = digits.windows(8).position(|name| name == b"one.u32\0").unwrap();
    digits[at..at + 7].copy_from_slice(b"1ne._32");
    fs::write(scene.files().join("digits"), digits).unwrap();
    fs::write(scene.files().join("rubbish"), "no such file").unwrap();
    fs::write(scene.files().join(".hidden"), "no such file").unwrap();
    fs::create_dir(scene.files().join("directory")).unwrap();
}

/// Copies a file, with another name and cluster.
fn copy(scene: &Scene, from: &str, to: &str, cluster: u32) {
    let mut bytes = fs::read(scene.files().join(from)).unwrap();
    bytes[36..40].copy_from_slice(&cluster.to_ne_bytes());
    fs::write(scene.files().join(to), bytes).unwrap();
}

/// Registers metrics of every kind.
fn register(registry: &Registry) {
    let indom = registry.indom("letters").help("letters").instances(["alpha", "beta and more"]).register().unwrap();
    registry.counter("counter").help("one").long_help("line\nand more").register().unwrap().add(1 << 40);
    let each: Family<Gauge<f32>> = registry.metric("each").note("note", 1).label("part", "x").over(&indom).unwrap();
    each.instance("alpha").unwrap().set(1.5);
    let text: Text = registry.text("text").register().unwrap();
    text.set("some words");
    indom.label_instance("alpha", "greek", true).unwrap();
    registry.label("tier", "web").unwrap();
}

/// Returns the output of the tools.
fn described(pmcd: &Pmcd) -> String {
    let mut text = String::new();
    let mut say = |tool: &str, args: &[&str]| text.push_str(&pmcd.run(tool, args).text);
    say("pminfo", &["-dfml", "mmv"]);
    // The help of mmv.control is in our own words.
    say("pminfo", &["-tT", "mmv.first", "mmv.third"]);
    for options in ["-m", "-I", "-x", "-s", "-M"] {
        say("pminfo", &[options, "mmv.third", "mmv.control"]);
    }
    for options in ["-I", "-i", "-v", "-V"] {
        say("pmprobe", &[options, "mmv"]);
    }
    for name in [
        "mmv.first.one",
        "mmv.first.one.u32",
        "mmv.nothing",
        "mmv.first.one.u32.x",
        "mmv.first.each.string",
        "mmv.digits.1ne",
        "mmv.123.one.u32",
        "mmv._9",
    ] {
        say("pminfo", &["-f", name]);
    }
    for (metric, value) in [
        ("mmv.control.reload", "1"),
        ("mmv.control.reload", "word"),
        ("mmv.control.debug", "4096"),
        ("mmv.control.debug", "0"),
        ("mmv.control.files", "1"),
        ("mmv.first.one.u32", "1"),
        ("mmv.first.each.i64", "1"),
    ] {
        // PCP 7 refuses numbers as debug options.
        if metric != "mmv.control.debug" || Pcp::required().version() < Version(7, 0, 0) {
            say("pmstore", &[metric, value]);
        }
    }
    say("pmval", &["-s", "2", "-t", "0.05", "-i", "three", "mmv.first.each.i32"]);
    let without_times =
        |line: &&str| !line.starts_with("host: ") && !line.starts_with("samples: ") && line.get(2..3) != Some(":");
    let text: Vec<&str> = text.lines().filter(without_times).collect();
    let text = text.join("\n").replace(&pmcd.host(), "HOST").replace(&format!(":{}", pmcd.port()), ":PORT");
    text + "\n"
}

#[test]
#[ignore = "needs PCP"]
// Slow: PCP's tools run under both agents.
fn the_tools_cannot_tell_it_from_the_c_agent() {
    let scene = Scene::new();
    write_files(&scene);
    let registry = scene.registry("ours");
    register(&registry);
    let c = described(&scene.under(scene.c()));
    for part in [
        "mmv.third.each.u64",
        "mmv.z.one.u32",
        "mmv.digits.1ne._32 PMID",
        "mmv.123.one.u32 PMID",
        "mmv._9.one.u32 PMID",
        "\"greek\":true",
        "beta and more",
        "No permission",
    ] {
        assert!(c.contains(part), "{part} is not in\n{c}");
    }
    for agent in [scene.ours(), scene.ours().unix(), scene.ours().inet(), scene.our_object()] {
        assert_same(&c, &described(&scene.under(agent)));
    }
}

/// Returns the names below `mmv`, in the order of the tools.
fn names(pmcd: &Pmcd) -> Vec<String> {
    pmcd.run("pminfo", ["mmv"]).ok().lines().map(str::to_owned).collect()
}

/// Returns these names as soon as they are as expected, or after ten seconds: the agent spends at most a tenth of the time
/// on checks, so a change may show late.
fn names_in_time<T: PartialEq>(pmcd: &Pmcd, expected: &[T]) -> Vec<String>
where
    String: PartialEq<T>,
{
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        let names = names(pmcd);
        if names == expected || Instant::now() > until {
            return names;
        }
        sleep(Duration::from_millis(20));
    }
}

/// libpcp allows these names of labels since 7.2. Earlier versions pass them on, and their tools show them.
#[test]
#[ignore = "needs PCP"]
// Slow: pmcd starts for each form of the agent.
fn labels_that_begin_with_an_underscore_or_a_digit() {
    let scene = Scene::new();
    let registry = scene.registry("m");
    let _counter: Counter = registry.counter("x").label("_block_size_resolved", "1").note("9", 2).register().unwrap();
    registry.label("__name__", "up").unwrap();
    for agent in [scene.ours(), scene.our_object()] {
        let pmcd = scene.under(agent);
        assert!(names_in_time(&pmcd, &["mmv.m.x"]).contains(&"mmv.m.x".to_owned()));
        let text = pmcd.run("pminfo", ["-l", "mmv.m.x"]).ok();
        for label in ["\"__name__\":\"up\"", "\"_block_size_resolved\":\"1\"", "\"9\":2"] {
            assert!(text.contains(label), "{label} is not in {text}");
        }
    }
}

#[test]
#[ignore = "needs PCP"]
fn files_come_and_go() {
    let scene = Scene::new();
    let (c, ours) = (scene.under(scene.c()), scene.under(scene.ours()));
    // PCP 7 has one more.
    let control = names(&c);
    assert!(control.ends_with(&["mmv.control.files", "mmv.control.debug", "mmv.control.reload"].map(str::to_owned)));
    let now = |expected: &[&str]| {
        let expected: Vec<&str> = expected.iter().copied().chain(control.iter().map(String::as_str)).collect();
        assert_eq!(names_in_time(&ours, &expected), expected);
        assert_eq!(names(&c), expected);
    };
    now(&[]);
    let registry = scene.registry("one");
    let counter = registry.counter("requests").register().unwrap();
    now(&["mmv.one.requests"]);
    let two = scene.registry("two");
    let _: Counter = two.counter("b.first").register().unwrap();
    let _: Counter = two.counter("b.second").register().unwrap();
    now(&["mmv.two.b.second", "mmv.two.b.first", "mmv.one.requests"]);
    counter.add(7);
    for pmcd in [&c, &ours] {
        assert!(pmcd.run("pminfo", ["-f", "mmv.one.requests"]).ok().contains("value 7"));
        assert!(pmcd.run("pminfo", ["-f", "mmv.control.files"]).ok().contains("value 2"));
    }
    drop(registry);
    now(&["mmv.two.b.second", "mmv.two.b.first"]);
    fs::remove_dir_all(scene.files()).unwrap();
    now(&[]);
    assert!(ours.log("mmv").contains("mmv.one") || !ours.log("mmv").is_empty());
    fs::create_dir(scene.files()).unwrap();
    let _three = scene.registry("three");
    let _: Counter = _three.counter("x").register().unwrap();
    now(&["mmv.three.x"]);
}

#[test]
#[ignore = "needs PCP"]
fn a_file_goes_with_its_process() {
    let scene = Scene::new();
    let (c, ours) = (scene.under(scene.c()), scene.under(scene.ours()));
    let control = names(&c);
    let mut process = Command::new("sleep").arg("600").spawn().unwrap();
    let registry = Registry::builder("gone").directory(scene.files()).room(16).build().unwrap();
    registry.counter("x").register().unwrap();
    registry.try_start().unwrap();
    let mut bytes = fs::read(scene.files().join("gone")).unwrap();
    drop(registry);
    bytes[32..36].copy_from_slice(&process.id().to_ne_bytes());
    fs::write(scene.files().join("gone"), bytes).unwrap();
    for pmcd in [&c, &ours] {
        assert_eq!(names(pmcd)[0], "mmv.gone.x");
    }
    process.kill().unwrap();
    process.wait().unwrap();
    assert_eq!(names_in_time(&ours, &control), control);
    assert_eq!(names(&c), control);
}
