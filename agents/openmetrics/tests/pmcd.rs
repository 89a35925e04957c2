//! The agent in the real pmcd, compared with PCP's agent, which is written in Python.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "scene/both.rs"]
mod both;
#[path = "scene/compared.rs"]
mod compared;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use both::By;
use compared::{Scene, metrics, ready};
use testkit::Pmcd;

/// Compares both agents. Returns the sources whose metrics differ, with the first line that differs.
fn differences(scene: &Scene, options: &[&str]) -> BTreeMap<String, String> {
    let answers = |by| {
        let pmcd = scene.start(by);
        let of = |source: String| (source.clone(), metrics(&pmcd, &source, options));
        scene.sources().into_iter().map(of).collect::<Vec<_>>()
    };
    let (theirs, ours) = (answers(By::Pcp), answers(By::Us));
    assert!(theirs.iter().filter(|(_, text)| text.contains("value")).count() * 10 > theirs.len() * 9);
    let mut differences = BTreeMap::new();
    for ((source, theirs), (_, ours)) in theirs.into_iter().zip(ours) {
        if theirs != ours {
            let pair = theirs.lines().zip(ours.lines()).find(|(theirs, ours)| theirs != ours);
            differences.insert(source, format!("{pair:?}"));
        }
    }
    differences
}

#[test]
#[ignore = "needs PCP"]
fn documents_of_pcps_testsuite() {
    let Some(scene) = Scene::new() else { return };
    for entry in fs::read_dir(scene.pcp.testsuite().join("openmetrics/samples")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "txt") {
            let name = path.file_stem().unwrap().to_str().unwrap().replace(['.', '-'], "_");
            scene.document(&name, &fs::read(&path).unwrap());
        }
    }
    assert!(scene.sources().len() >= 18);
    let differences = differences(&scene, &["-fdlmtT"]);
    assert!(differences.is_empty(), "{differences:#?}");
}

/// A generator of random numbers with a fixed seed.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }

    fn of<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[usize::try_from(self.below(words.len() as u64)).unwrap()]
    }
}

const BASES: [&str; 7] = ["http", "a:b", "Go", "x.y", "node_cpu", "t_sum", "c_count"];
const UNITS: [&str; 8] = ["", "_total", "_seconds", "_bytes", "_seconds_total", "_bucket", "_microseconds", "_info"];

/// Writes a document with every feature that both agents interpret alike.
fn generated(random: &mut Random, bases: &[&str], units: &[&str]) -> String {
    let mut text = String::new();
    let end = random.of(&["\n", "\n", "\n", "\r\n", "\n\n"]);
    for metric in 0..=random.below(8) {
        let (base, unit) = (random.of(bases), random.of(units));
        let name = format!("{base}{metric}{unit}");
        if random.below(3) > 0 {
            let help = random.of(&["Some help.", "", "one\\ntwo", "  many   words ", "é 漢", "back\\\\slash"]);
            let _ = write!(text, "# HELP {name} {help}{end}");
        }
        if random.below(3) > 0 {
            let ty = random.of(&["counter", "gauge", "histogram", "summary", "untyped", "unknown", "counter x"]);
            let _ = write!(text, "# TYPE {name} {ty}{end}");
        }
        if random.below(5) == 0 {
            let ty = random.of(&["double", "float", "string", "u64", "64", "u32", "32", "nonsense"]);
            let semantics = random.of(&["counter", "instant", "discrete", "odd"]);
            let units = random.of(&["none", "byte", "Kbyte / sec", "count x 10^3", "nanosec"]);
            let indom = random.of(&["PM_INDOM_NULL", "1.2", "name"]);
            let _ = write!(text, "# PCP5 p{metric}.q 1.2.3 {ty} {indom} {semantics} {units}{end}");
        }
        samples(random, &mut text, &name, end);
        let _ = write!(text, "{}", random.of(&["", "", "# another comment\n", "#\n", "  \n"]));
    }
    text
}

fn samples(random: &mut Random, text: &mut String, name: &str, end: &str) {
    let keys = ["le", "device", "Zone", "quantile", "a", "instance", "instname"];
    let labels = random.below(4);
    let from = random.below(7);
    for instance in 0..=random.below(4) {
        let _ = write!(text, "{}{name}", random.of(&["", "", " ", "\t"]));
        if labels > 0 {
            let key = |label: u64| keys[usize::try_from((from + label) % 7).unwrap()];
            let value = |random: &mut Random| random.of(&["1", "+Inf", "x y", "é", "", "a:b", "}", ","]);
            let pairs: Vec<String> =
                (0..labels).map(|label| format!("{}=\"{}{instance}\"", key(label), value(random))).collect();
            let _ = write!(text, "{{{}{}}}", pairs.join(random.of(&[",", ", "])), random.of(&["", "", ",", " "]));
        }
        let value = random.of(&["1", "0.5", "-3e-7", "+Inf", "NaN", "123456789", "1_000", ".5", "abc", "1e400"]);
        let rest = random.of(&["", "", " 1395066363000", " # {} 5"]);
        let _ = write!(text, " {value}{rest}{end}");
        if labels == 0 {
            break;
        }
    }
}

/// The environment variables `SEED` and `DOCUMENTS` choose other documents, and their number.
#[test]
#[ignore = "needs PCP"]
fn generated_documents() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let Some(scene) = Scene::new() else { return };
    let mut random = Random(number("SEED").unwrap_or(0x9e37_79b9_7f4a_7c15));
    for number in 0..number("DOCUMENTS").unwrap_or(200) {
        scene.document(&format!("g{number:03}"), generated(&mut random, &BASES, &UNITS).as_bytes());
    }
    let differences = differences(&scene, &["-fdlmtT"]);
    assert!(differences.is_empty(), "{differences:#?}");
}

/// Documents that change between two requests: types, labels and order, and metrics that come and go.
#[test]
#[ignore = "needs PCP"]
fn documents_that_change() {
    const SOURCES: usize = 20;
    let Some(scene) = Scene::new() else { return };
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let rounds: Vec<Vec<String>> =
        (0..6).map(|_| (0..SOURCES).map(|_| generated(&mut random, &BASES[4..6], &UNITS[..2])).collect()).collect();
    let write = |documents: &[String]| {
        for (number, document) in documents.iter().enumerate() {
            scene.document(&format!("g{number:02}"), document.as_bytes());
        }
    };
    let answers = |by| {
        write(&rounds[0]);
        let pmcd = scene.start(by);
        let mut all = Vec::new();
        for (round, documents) in rounds.iter().enumerate() {
            write(documents);
            let of = |source: &String| (format!("{source} in round {round}"), metrics(&pmcd, source, &["-fdlmtT"]));
            all.extend(scene.sources().iter().map(of));
        }
        all
    };
    let (theirs, ours) = (answers(By::Pcp), answers(By::Us));
    let different: Vec<String> = theirs
        .into_iter()
        .zip(ours)
        .filter(|(theirs, ours)| theirs != ours)
        .map(|(theirs, ours)| {
            let pair = theirs.1.lines().zip(ours.1.lines()).find(|(theirs, ours)| theirs != ours);
            format!("{}: {pair:?}", theirs.0)
        })
        .collect();
    assert!(different.is_empty(), "{different:#?}");
}

/// One agent replaces the other, while sources are added and removed. Numbers and instances stay the same.
#[test]
#[ignore = "needs PCP"]
fn there_and_back() {
    let Some(scene) = Scene::new() else { return };
    scene.document(
        "m",
        b"one 1\ntwo{a=\"1\"} 1\ntwo{a=\"2\"} 2\n# PCP5 p.q 1.2.3 u32 1.2 instant none\np_q{instname=\"x\"} 3\n",
    );
    scene.document("k", b"three{b=\"\\\\ \xc3\xa9\"} 3\n");
    let mut pmcd = scene.start(By::Pcp);
    let seen = |pmcd: &Pmcd| metrics(pmcd, "m", &["-mf"]) + &metrics(pmcd, "k", &["-mf"]);
    let first = seen(&pmcd);
    assert!(first.contains("openmetrics.m.two PMID: 144.2.1") && first.contains("inst [1 or \"1 a:2\"]"), "{first}");
    for (name, by) in [("b", By::Us), ("a", By::Pcp), ("c", By::Us)] {
        // This instance sorts before the others.
        scene.document(name, b"n{z=\"9\"} 1\n");
        pmcd.set_agents(vec![scene.agent(by)]);
        pmcd.restart();
        ready(&pmcd);
        assert_eq!(seen(&pmcd), first, "{by:?}");
    }
    let last = metrics(&pmcd, "a", &["-m"]) + &metrics(&pmcd, "b", &["-m"]) + &metrics(&pmcd, "c", &["-m"]);
    let expected = "openmetrics.a.n PMID: 144.4.0\nopenmetrics.b.n PMID: 144.3.0\nopenmetrics.c.n PMID: 144.5.0\n";
    assert_eq!(last, expected);
}

/// Records both sources with pmlogger, and returns the archive.
fn record(scene: &Scene, pmcd: &Pmcd, name: &str) -> String {
    let path = |name: &str| scene.path(name).to_str().unwrap().to_owned();
    fs::write(path("log"), "log mandatory on 100 msec { openmetrics.m openmetrics.k }\n").unwrap();
    let log = path(&format!("{name}.log"));
    let text = pmcd.run("pmlogger", ["-c", &path("log"), "-l", &log, "-s", "5", &path(name)]).text;
    assert!(scene.path(&format!("{name}.0")).exists(), "{text}{}", fs::read_to_string(log).unwrap());
    path(name)
}

/// pmlogextract merges archives of both agents. It refuses to merge metrics whose descriptors have changed.
#[test]
#[ignore = "needs PCP"]
fn archives_go_on() {
    let Some(scene) = Scene::new() else { return };
    scene.document(
        "m",
        b"# TYPE one counter\none 1\ntwo{a=\"1\"} 1\ntwo{a=\"2\"} 2\n# PCP5 p.q 1.2.3 u32 1.2 instant byte\np_q{instname=\"x\"} 3\n",
    );
    scene.document("k", b"three{b=\"\\\\ \xc3\xa9\"} 3\n");
    let mut pmcd = scene.start(By::Pcp);
    let mut archives = vec![record(&scene, &pmcd, "first")];
    for (name, by) in [("ours", By::Us), ("back", By::Pcp), ("again", By::Us)] {
        scene.document(name, b"n{z=\"9\"} 1\n");
        pmcd.set_agents(vec![scene.agent(by)]);
        pmcd.restart();
        ready(&pmcd);
        archives.push(record(&scene, &pmcd, name));
    }
    let samples = |archive: &str| {
        let text = scene.pcp.run("pmdumplog", [archive, "openmetrics.m.two"]).ok();
        text.matches("inst [1 or \"1 a:2\"] value 2").count()
    };
    let counts: Vec<usize> = archives.iter().map(|archive| samples(archive)).collect();
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    let all = scene.path("all").to_str().unwrap().to_owned();
    archives.push(all.clone());
    scene.pcp.run("pmlogextract", &archives).ok();
    assert_eq!(samples(&all), counts.iter().sum());
    let metrics = scene.pcp.run("pmdumplog", ["-d", &all]).ok();
    let names = ["openmetrics.m.one", "openmetrics.m.two", "openmetrics.m.p.q", "openmetrics.k.three"];
    for name in names {
        assert_eq!(metrics.matches(&format!("({name})")).count(), 1, "{name}: {metrics}");
    }
    assert_eq!(metrics.matches("(openmetrics.").count(), names.len(), "{metrics}");
}
