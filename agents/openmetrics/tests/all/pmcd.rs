//! The agent in the real pmcd, compared with PCP's agent, which is written in Python.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use crate::both::By;
use crate::compared::{Scene, metrics, ready};
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
// Slow: both agents, one of them in Python, read all documents of PCP's testsuite.
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

/// Documents that exporters do not write, but people do.
const ODD: [(&str, &str); 32] = [
    (
        "numbers",
        "a NaN\nb +Inf\nc -Inf\nd -0\ne -0.0\nf 1e3\ng 1E+03\nh 0x1F\ni 18446744073709551615\nj 1e309\nk nan\nl inf\nm Infinity\n",
    ),
    (
        "huge",
        "a 18446744073709551616\nb -9223372036854775809\nc 123456789012345678901234567890\nd 1e-400\ne 4.9e-324\n",
    ),
    (
        "typed",
        "# PCP5 p.a 1.2.3 u64 PM_INDOM_NULL counter none\np_a 18446744073709551615\n# PCP5 p.b 1.2.3 32 PM_INDOM_NULL instant none\np_b -2147483648\n",
    ),
    (
        "fraction",
        "# PCP5 p.a 1.2.3 u64 PM_INDOM_NULL counter none\np_a 1.5\n# PCP5 p.b 1.2.3 u32 PM_INDOM_NULL counter none\np_b -1\n",
    ),
    ("times", "a 1 1395066363000\nb{c=\"1\"} 2 -1\nc 3 0\nd 4 1395066363.123\ne 5 soon\n"),
    ("empty_labels", "a{} 1\nb{,} 2\nc{x=\"\"} 3\nd{x=\"\",y=\"\"} 4\n"),
    ("comma", "a{x=\"1\",} 1\nb{x=\"1\" , y=\"2\" ,} 2\n"),
    ("twice", "a 1\na 2\nb{c=\"1\"} 1\nb{c=\"1\"} 2\nb{c=\"2\"} 3\n"),
    ("mixed", "a 1\na{b=\"1\"} 2\nc{b=\"1\"} 1\nc 2\n"),
    ("types_twice", "# TYPE a counter\n# TYPE a gauge\na 1\n# TYPE b gauge\nb 1\n# TYPE b counter\nb 2\n"),
    ("type_after", "a 1\n# TYPE a counter\n# HELP a later\nb 2\n"),
    ("unit", "# HELP a_seconds help\n# TYPE a_seconds gauge\n# UNIT a_seconds seconds\na_seconds 1\n"),
    ("untyped", "# TYPE a untyped\na 1\n# TYPE b unknown\nb 2\n# TYPE c\nc 3\n# TYPE\nd 4\n"),
    (
        "summary",
        "# TYPE s summary\ns_sum 1\ns_count 2\n# TYPE t summary\nt{quantile=\"0.5\"} 1\nt{quantile=\"NaN\"} 2\nt_sum 3\nt_count 4\n",
    ),
    (
        "histogram",
        "# TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_bucket{le=\"2\"} 2\nh_bucket{le=\"+Inf\"} 3\nh_sum 4\nh_count 3\n",
    ),
    ("colons", "a:b:c 1\n:d 2\ne: 3\na::b 4\n"),
    ("line_ends", "# HELP a x\r\n# TYPE a counter\na 1\r\nb 2\n\r\n\nc 3\r\n"),
    ("no_end", "a 1\nb 2"),
    ("spaces", "  a 1\n\tb 2\nc   3  \nd\t4\t\ne {x=\"1\"} 5\nf{ x = \"1\" } 6\n"),
    ("comments", "#\n# \n#comment\n# HELPa x\n## HELP b x\n#HELP c x\na 1\nb 2\nc 3\n"),
    ("help", "# HELP a back\\\\slash and\\nline\n# TYPE a gauge\na 1\n# HELP b \"quoted\"\nb 2\n# HELP c\nc 3\n"),
    ("help_twice", "# HELP a one\n# HELP a two\n# TYPE a gauge\na 1\n"),
    ("brackets", "a{b=\"}\"} 1\nc{d=\"{\"} 2\ne{f=\",\"} 3\ng{h=\"=\"} 4\ni{j=\"#\"} 5\n"),
    ("order", "a{x=\"1\",y=\"2\"} 1\na{y=\"2\",x=\"1\"} 2\na{y=\"3\",x=\"1\"} 3\n"),
    ("missing_labels", "a{x=\"1\"} 1\na{y=\"2\"} 2\na{x=\"1\",y=\"2\"} 3\n"),
    ("label_twice", "a{x=\"1\",x=\"2\"} 1\n"),
    ("no_value", "a\nb 1\n"),
    ("bad_value", "a one\nb 1\n"),
    ("two_values", "a 1 2 3\nb 1\n"),
    ("open", "a{x=\"1\" 1\nb 1\n"),
    ("unquoted", "a{x=1} 1\nb 1\n"),
    ("eof", "a 1\n# EOF\nb 2\n"),
];

#[test]
#[ignore = "needs PCP"]
// Slow: both agents, one of them in Python.
fn odd_documents() {
    let Some(scene) = Scene::new() else { return };
    for (name, text) in ODD {
        scene.document(name, text.as_bytes());
    }
    let differences = differences(&scene, &["-fdlmtT"]);
    assert!(differences.is_empty(), "{differences:#?}");
}

/// The environment variables `SEED` and `DOCUMENTS` choose other documents, and their number.
#[test]
#[ignore = "needs PCP"]
// Slow: both agents, one of them in Python, read generated documents.
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
// Slow: both agents, one of them in Python, and pminfo for each change.
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
    assert_eq!(samples(&all), counts.iter().sum::<usize>());
    let metrics = scene.pcp.run("pmdumplog", ["-d", &all]).ok();
    let names = ["openmetrics.m.one", "openmetrics.m.two", "openmetrics.m.p.q", "openmetrics.k.three"];
    for name in names {
        assert_eq!(metrics.matches(&format!("({name})")).count(), 1, "{name}: {metrics}");
    }
    assert_eq!(metrics.matches("(openmetrics.").count(), names.len(), "{metrics}");
}
