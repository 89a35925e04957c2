//! CPU time of reading compared with libpcp's in the same run: `cargo bench -p pcp-archive`.
//!
//! Needs PCP with its archives of tests, gcc and xz. The archive is that of a host with many processes: 322 MB. The C
//! program (`peer.c`) needs 20 s and more for one of its grids; `QUICK=1` leaves out that grid.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use pcp_archive::{Archive, Direction, Interpolation, Rule};
use pcp_pdu::profile::Profile;
use pmapi::PmId;
use testkit::Pcp;

const ARCHIVE: &str = "20180416.10.00";
/// Number of runs, of which the fastest counts.
const RUNS: usize = 7;
const MINUTE: i64 = 60_000_000_000;

fn cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).unwrap().into()
}

/// Decompresses the archive.
fn unpacked(dir: &Path) -> PathBuf {
    let source = Pcp::required().testsuite().join("archives");
    for entry in source.read_dir().unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        if !name.strip_prefix(ARCHIVE).is_some_and(|rest| rest.starts_with('.')) {
            continue;
        }
        let to = dir.join(name.trim_end_matches(".xz"));
        let file = std::fs::File::create(&to).unwrap();
        let program = if name.ends_with(".xz") { "xzcat" } else { "cat" };
        assert!(Command::new(program).arg(entry.path()).stdout(file).status().unwrap().success());
    }
    dir.join(ARCHIVE)
}

/// Time and number of values of the C program.
fn libpcp(peer: &Path, archive: &Path, what: &[&str]) -> (Duration, u64) {
    let output = Command::new(peer).arg(archive).args(what).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut numbers = text.split_whitespace().map(|number| number.parse().unwrap());
    (Duration::from_nanos(numbers.next().unwrap()), numbers.next().unwrap())
}

fn ours(path: &Path, what: &[&str]) -> (Duration, u64) {
    let start = cpu();
    let archive = Archive::open(path).unwrap();
    if what == ["open"] {
        return (cpu() - start, 0);
    }
    let pmid = what.get(1).map(|name| archive.metadata().names().pmid(name.as_bytes()).unwrap());
    let start = cpu();
    let count = match (what[0], pmid) {
        ("all", _) => all(&archive),
        ("one", Some(pmid)) => one(&archive, pmid),
        (_, Some(pmid)) => grid(&archive, pmid),
        (_, None) => 0,
    };
    (cpu() - start, count)
}

fn all(archive: &Archive) -> u64 {
    let (mut cursor, mut count) = (archive.cursor(), 0);
    while let Some(record) = cursor.forward().unwrap() {
        count += record.values.iter().map(|set| set.len() as u64).sum::<u64>();
    }
    count
}

fn one(archive: &Archive, pmid: PmId) -> u64 {
    let (mut cursor, profile, mut count) = (archive.cursor(), Profile::default(), 0);
    while let Some(fetched) = cursor.fetch(Direction::Forward, &[pmid], &profile).unwrap() {
        count += fetched.sets().iter().map(|set| set.values().count() as u64).sum::<u64>();
    }
    count
}

fn grid(archive: &Archive, pmid: PmId) -> u64 {
    let rules = Interpolation::new().rule(Rule::Before632);
    let mut values = archive.interpolator(&[pmid], &Profile::default(), rules);
    values.seek(archive.label().start, MINUTE);
    let mut count = 0;
    while let Some(sample) = values.fetch().unwrap() {
        count += sample.sets().map(|set| set.values().len() as u64).sum::<u64>();
    }
    count
}

fn main() {
    let dir = tempfile::tempdir().unwrap();
    let peer = dir.path().join("peer");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/archive/peer.c");
    assert!(Command::new("gcc").args(["-O2", "-o"]).arg(&peer).args([source, "-lpcp"]).status().unwrap().success());
    let archive = unpacked(dir.path());
    let mut cases = vec![
        vec!["open"],
        vec!["all"],
        vec!["one", "kernel.all.load"],
        vec!["one", "proc.psinfo.rss"],
        vec!["grid", "kernel.all.load"],
    ];
    if std::env::var_os("QUICK").is_none() {
        cases.push(vec!["grid", "proc.psinfo.rss"]);
    }
    println!("{:28} {:>12} {:>12} {:>8} {:>10} {:>10}", "", "libpcp ms", "ours ms", "ratio", "values", "libpcp's");
    for what in cases {
        // Both in turns: the machine may be busy.
        let is_slow = what == ["grid", "proc.psinfo.rss"];
        let (mut theirs, mut mine) = (libpcp(&peer, &archive, &what), ours(&archive, &what));
        for turn in 1..RUNS {
            mine = mine.min(ours(&archive, &what));
            theirs = if is_slow && turn > 1 { theirs } else { theirs.min(libpcp(&peer, &archive, &what)) };
        }
        let milli = |time: Duration| time.as_secs_f64() * 1000.0;
        let ratio = milli(theirs.0) / milli(mine.0);
        println!(
            "{:28} {:12.2} {:12.2} {ratio:8.1} {:10} {:10}",
            what.join(" "),
            milli(theirs.0),
            milli(mine.0),
            mine.1,
            theirs.1
        );
    }
}
