//! The agent in the real pmcd, compared with PCP's agent, which is written in Python.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use testkit::{Agent, Pcp, Pmcd, wait_for};

/// A configuration directory, and both agents for it.
struct Scene {
    pcp: Pcp,
    dir: TempDir,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum By {
    Pcp,
    Us,
}

impl Scene {
    fn new() -> Scene {
        let pcp = Pcp::required();
        let imports = "import requests, pcp.pmda";
        let works =
            Command::new("/usr/bin/python3").args(["-c", imports]).status().is_ok_and(|status| status.success());
        assert!(works, "PCP's agent needs the packages python3-pcp and python3-requests, which ./check installs");
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(dir.path().join("config.d")).unwrap();
        Scene { pcp, dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Adds a source that is a file with this document.
    fn document(&self, name: &str, text: &[u8]) {
        let path = self.path(&format!("{name}.txt"));
        fs::write(&path, text).unwrap();
        fs::write(self.path(&format!("config.d/{name}.url")), format!("file://{}\n", path.display())).unwrap();
    }

    fn agent(&self, by: By) -> Agent {
        let user = nix::unistd::User::from_uid(nix::unistd::geteuid()).unwrap().unwrap().name;
        let binary = match by {
            By::Us => PathBuf::from(env!("CARGO_BIN_EXE_pmdaopenmetrics")),
            By::Pcp => {
                let program = Path::new(self.pcp.config("PCP_PMDAS_DIR")).join("openmetrics/pmdaopenmetrics.python");
                let script = self.path("python");
                fs::write(&script, format!("#!/bin/sh\nexec /usr/bin/python3 {} \"$@\"\n", program.display())).unwrap();
                fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
                script
            }
        };
        let agent = Agent::new("openmetrics", 144, binary).names("root {\n openmetrics 144:*:*\n}\n").not_ready();
        let agent = agent.args(["-l", "openmetrics.log", "-u", &user, "-c"]).args([self.path("config.d")]);
        if by == By::Us { agent.args(["--pcp"]) } else { agent }
    }

    fn start(&self, by: By) -> Pmcd {
        let pmcd = self.pcp.pmcd().agent(self.agent(by)).options(["-t", "60"]).start();
        ready(&pmcd);
        pmcd
    }

    fn sources(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path("config.d")).unwrap();
        let name = |path: PathBuf| path.file_stem().unwrap().to_str().unwrap().to_owned();
        let mut names: Vec<String> = entries.map(|entry| name(entry.unwrap().path())).collect();
        names.sort_unstable();
        names
    }
}

fn ready(pmcd: &Pmcd) {
    wait_for("the agent is ready", || pmcd.run("pminfo", ["-f", "openmetrics.control.debug"]).text.contains("value"));
}

/// Returns what pminfo says about each metric of a source with some options.
fn metrics(pmcd: &Pmcd, source: &str, options: &[&str]) -> String {
    let names = pmcd.run("pminfo", [format!("openmetrics.{source}")]).text;
    let mut names: Vec<&str> = names.lines().filter(|line| line.starts_with("openmetrics.")).collect();
    names.sort_unstable();
    if names.is_empty() {
        return "no metrics\n".to_owned();
    }
    pmcd.run("pminfo", [&["-b", "2000"], options, &names].concat()).text
}

/// Compares both agents, and returns the sources whose metrics differ, with the first line that does.
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
    let scene = Scene::new();
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

/// A generator of numbers that are the same in each run.
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

/// Writes a document with anything that both agents read alike.
fn generated(random: &mut Random) -> String {
    let mut text = String::new();
    let end = random.of(&["\n", "\n", "\n", "\r\n", "\n\n"]);
    for metric in 0..=random.below(8) {
        let base = random.of(&["http", "a:b", "Go", "x.y", "node_cpu", "t_sum", "c_count"]);
        let unit =
            random.of(&["", "_total", "_seconds", "_bytes", "_seconds_total", "_bucket", "_microseconds", "_info"]);
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
            let ty = random.of(&["double", "float", "string", "nonsense"]);
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

#[test]
#[ignore = "needs PCP"]
fn generated_documents() {
    let scene = Scene::new();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for number in 0..200 {
        scene.document(&format!("g{number:03}"), generated(&mut random).as_bytes());
    }
    let differences = differences(&scene, &["-fdlmtT"]);
    assert!(differences.is_empty(), "{differences:#?}");
}

/// One agent takes the place of the other, while sources come and go: numbers and instances stay the same.
#[test]
#[ignore = "needs PCP"]
fn there_and_back() {
    let scene = Scene::new();
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
        // It sorts before the others.
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
