//! Output compared with PCP's pmdumplog over the archives of its tests.
//!
//! `./check` compares the small archives; `qa/archives` sets `ARCHIVES=all` and compares all of them.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use testkit::{Pcp, Version};

const OURS: &str = env!("CARGO_BIN_EXE_pmdumplog");

/// Archives whose blocks have no type code. PCP shows their 64-bit numbers in the byte order of the file, which is
/// wrong on this machine.
const UNTYPED: [&str; 3] = ["960624.08.17_v2", "babylon.pmview_v2", "bozo.client_v2"];

/// Archives whose index points into a record, before the first one, behind the last one, or into a missing volume. PCP
/// shows nothing or fails where it uses the index. Ours shows more.
const BAD_INDEX: [&str; 5] = ["badti-3", "badti-4", "20180608.04.23-01", "binning", "archive-20150417.131733"];

/// Largest total size of the files of a small archive, in bytes.
const SMALL: u64 = 150_000;

fn wants_all() -> bool {
    std::env::var_os("ARCHIVES").is_some_and(|what| what == "all")
}

/// Adds the archives in a directory and below it, each with the length of its files.
fn add(dir: &Path, found: &mut BTreeSet<PathBuf>) {
    for path in std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            add(&path, found);
        } else if let Some((base, _)) = path.to_str().unwrap().split_once(".meta") {
            found.insert(base.into());
        }
    }
}

/// Returns the archives to compare.
fn archives() -> Vec<PathBuf> {
    let suite = Pcp::required().testsuite();
    let mut found = BTreeSet::new();
    for dir in ["archives", "badarchives"] {
        add(&suite.join(dir), &mut found);
    }
    let len = |base: &PathBuf| {
        let name = base.file_name().unwrap().to_str().unwrap();
        let entries = std::fs::read_dir(base.parent().unwrap()).unwrap().map(Result::unwrap);
        let files = entries.filter(|e| e.file_name().to_str().is_some_and(|file| file.starts_with(name)));
        // A compressed file counts as ten times as long.
        let weight = |e: &std::fs::DirEntry| if e.path().extension().is_some_and(|x| x == "xz") { 10 } else { 1 };
        files.map(|e| e.metadata().unwrap().len() * weight(&e)).sum::<u64>()
    };
    let chosen: Vec<_> = found.into_iter().filter(|base| wants_all() || len(base) <= SMALL).collect();
    assert!(
        chosen.len() > if wants_all() { 250 } else { 100 },
        "only {} archives in {}",
        chosen.len(),
        suite.display()
    );
    chosen
}

fn run(program: &str, options: &str, archive: &Path) -> Output {
    Command::new(program).args(options.split(' ')).arg(archive).output().unwrap()
}

/// Replaces texts of PCP 6.0 by those of 7.2, which ours equal.
fn text(bytes: &[u8]) -> String {
    let mut text = String::from_utf8_lossy(bytes).into_owned();
    for old in ["Empty archive log", "PCP archive log"] {
        text = text.replace(old, old.trim_end_matches(" log"));
    }
    text
}

fn normal(output: &Output) -> String {
    testkit::with_sorted_metadata(&text(&output.stdout), str::to_owned)
}

/// Returns whether two lines differ only in the byte order of a 64-bit number.
fn is_swapped(ours: &str, theirs: &str) -> bool {
    let split = |line: &str| line.rsplit_once(' ').map(|(head, number)| (head.to_owned(), number.parse::<u64>().ok()));
    match (split(ours), split(theirs)) {
        (Some((a, Some(x))), Some((b, Some(y)))) => a == b && x.swap_bytes() == y,
        _ => false,
    }
}

fn compare(options: &str, archive: &Path) {
    let name = archive.file_name().unwrap().to_str().unwrap();
    let (ours, theirs) = (run(OURS, options, archive), run("pmdumplog", options, archive));
    let what = format!("pmdumplog {options} {}", archive.display());
    let (out, expected) = (normal(&ours), normal(&theirs));
    if BAD_INDEX.contains(&name) && out.len() > expected.len() {
        assert!(ours.status.success() && out.starts_with(expected.trim_end()), "{what}");
        return;
    }
    for (nth, (a, b)) in out.lines().zip(expected.lines()).enumerate() {
        assert!(a == b || (UNTYPED.contains(&name) && is_swapped(a, b)), "{what}: line {}:\n{a}\n{b}", nth + 1);
    }
    assert_eq!(out.lines().count(), expected.lines().count(), "{what}");
    assert_eq!((ours.status.code(), text(&ours.stderr)), (theirs.status.code(), text(&theirs.stderr)), "{what}");
}

#[test]
#[ignore = "needs PCP"]
// Slow: PCP's command and ours print each archive of the test suite.
fn all_of_each_archive_of_the_testsuite() {
    let archives = archives();
    for archive in archives.iter().filter(|archive| !is_large(archive)) {
        compare("-a -z -xxx", archive);
    }
}

#[test]
#[ignore = "needs PCP"]
// Slow: PCP's command and ours print each archive of the test suite.
fn other_options_over_the_testsuite() {
    let options =
        ["-z -I -e -h -xx", "-z -r -M", "-l -x -s -m", "-Z UTC -d -t", "-z -i -S 10min -T 20min", "-m -S -90sec"];
    for (nth, archive) in archives().iter().filter(|archive| !is_large(archive)).enumerate() {
        let each = if wants_all() { &options[..] } else { &options[nth % options.len()..][..1] };
        each.iter().for_each(|options| compare(options, archive));
    }
}

/// Returns whether the dump is too long for the memory.
fn is_large(archive: &Path) -> bool {
    ["20180416.10.00", "pcp-pidstat-process-args", "pcp-atop-threads"].iter().any(|name| archive.ends_with(name))
}

/// Dumps of over 100 MB are compared while they are written, without the parts that PCP writes in another order.
#[test]
#[ignore = "needs PCP"]
fn large_archives_of_the_testsuite() {
    let options = ["-L", "-z", "-t", "-m", "-s", "-xxx"];
    for archive in archives().iter().filter(|archive| is_large(archive)) {
        let start = |program: &str| {
            let child = Command::new(program).args(options).arg(archive).stdout(Stdio::piped()).spawn();
            BufReader::new(child.unwrap().stdout.take().unwrap())
        };
        let (mut ours, mut theirs) = (start(OURS), start("pmdumplog"));
        let mut at = 0;
        loop {
            let (a, b) = (ours.fill_buf().unwrap(), theirs.fill_buf().unwrap());
            let len = a.len().min(b.len());
            assert!(a[..len] == b[..len], "{}: after byte {at}", archive.display());
            if len == 0 {
                break;
            }
            at += len;
            ours.consume(len);
            theirs.consume(len);
        }
        let left = ours.read_to_end(&mut Vec::new()).unwrap() + theirs.read_to_end(&mut Vec::new()).unwrap();
        assert_eq!(left, 0, "{}", archive.display());
    }
}

#[test]
#[ignore = "needs PCP"]
fn metrics_by_name_and_raw_files_of_the_testsuite() {
    let dir = Pcp::required().testsuite().join("archives");
    let archive = dir.join("omnibus_v3");
    for arguments in
        [&["sample.long"][..], &["sample", "-M"], &["no.such.metric"], &["sample.bin", "sample.long.one", "-r"]]
    {
        let run = |program: &str| {
            let output = Command::new(program).args(["-z"]).arg(&archive).args(arguments).output().unwrap();
            (output.status.code(), text(&output.stdout), text(&output.stderr))
        };
        assert_eq!(run(OURS), run("pmdumplog"), "{arguments:?}");
    }
    for file in ["omnibus_v3.meta", "omnibus_v3.0", "omnibus_v3.index", "missing"] {
        let run = |program: &str| {
            let output = Command::new(program).arg("-v").arg(dir.join(file)).output().unwrap();
            (output.status.code(), text(&output.stdout), text(&output.stderr))
        };
        assert_eq!(run(OURS), run("pmdumplog"), "{file}");
    }
}

#[test]
#[ignore = "needs PCP"]
fn zones_and_times_of_the_testsuite() {
    let archive = Pcp::required().testsuite().join("archives/ok-foo");
    let both = |arguments: &[&str]| {
        let run = |program: &str| {
            let output = Command::new(program).args(arguments).arg(&archive).output().unwrap();
            (output.status.code(), text(&output.stdout), text(&output.stderr))
        };
        assert_eq!(run(OURS), run("pmdumplog"), "{arguments:?}");
    };
    // The C library has rules of its own for texts without, and ignores what is invalid after an offset.
    let lenient =
        ["CET-1CEST", "EST+5EDT", "UTC+25", "UTC+1:2:3", "CET-1CEST,M13.6.8,M0.0.0", "posix/Asia/Tokyo", "asia/tokyo"];
    let zones = ["EST", "CET", "PST8PDT", "Europe/Berlin", ":Europe/Berlin", "EST-11EST-10,89/2:00,299/2:00"];
    for zone in zones.into_iter().chain(lenient) {
        both(&["-Z", zone, "-l"]);
    }
    for zone in ["bad zone", "", "/etc/passwd", "../x"] {
        if Pcp::required().version() >= Version(7, 2, 1) {
            both(&["-Z", zone, "-l"]);
            continue;
        }
        // Older versions take them for UTC.
        let output = Command::new(OURS).args(["-Z", zone, "-l"]).arg(&archive).output().unwrap();
        let reason = format!("pmdumplog: Cannot set timezone to \"{zone}\": Invalid argument\n");
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(1), reason));
    }
    let times = [
        "yesterday",
        "x",
        "@Mon",
        "@ 25:00",
        "1 mumble",
        "-1x",
        "@ 4:34:35",
        "next week",
        "1 second ago",
        "last hour",
        "@Aug 7 04:34:35 1998",
        "7 aug 1998 4:34:36",
        "-3sec",
        "5sec",
        "bad words",
        "@ bad",
        "0",
    ];
    for time in times {
        both(&["-z", "-S", time]);
        both(&["-z", "-T", time]);
    }
}

/// Records with debugging option `pdu`, without the address and the bytes that PCP shows.
#[test]
#[ignore = "needs PCP"]
fn records_for_debugging_of_the_testsuite() {
    let dir = Pcp::required().testsuite().join("archives");
    for name in ["binning", "omnibus_v3"] {
        let run = |program: &str| {
            let output = Command::new(program).args(["-z", "-m", "-Dpdu"]).arg(dir.join(name)).output().unwrap();
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            let shown = text.lines().filter(|line| line.starts_with("__pmResult") || line.starts_with("  "));
            let mut lines: Vec<String> = shown.map(|line| line.split(" timestamp: ").last().unwrap().into()).collect();
            // PCP shows the last record first, when it looks for the end, and some without instances.
            lines.retain(|line| !line.contains("[") && !line.contains("numpmid"));
            lines.sort();
            lines.dedup();
            lines
        };
        let (ours, theirs) = (run(OURS), run("pmdumplog"));
        assert!(ours.len() > 5, "{ours:?}");
        assert_eq!(ours, theirs, "{name}");
    }
}
