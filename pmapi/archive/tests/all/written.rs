//! PCP's tools read written archives. Archives of PCP's tests are copied through reader and writer.
//!
//! `./check` copies the small archives; `qa/archives` sets `ARCHIVES=all` and copies all of them.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use pcp_archive::{Archive, Create, Version, Writer};
use pcp_pdu::desc::RawDesc;
use pcp_pdu::event::Stamp;
use pcp_pdu::metadata::{Subject, TextKind};
use pcp_pdu::result_writer::ResultWriter;
use pmapi::{Atom, InDom, Inst, LabelLevel, LabelSet, PmId, Type, Units};
use testkit::Pcp;

use crate::support;

/// Largest total size of the files of a small archive, in bytes.
const SMALL: u64 = 300_000;

/// Returns the archives of PCP's tests that ours reads, except those whose dump does not fit into memory.
fn archives() -> Vec<PathBuf> {
    let wants_all = std::env::var_os("ARCHIVES").is_some_and(|what| what == "all");
    let dir = Pcp::required().testsuite().join("archives");
    let mut found = BTreeSet::new();
    for path in std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()) {
        if let Some((base, _)) = path.to_str().unwrap().split_once(".meta") {
            let len = |suffix: &str| Path::new(&format!("{base}{suffix}")).metadata().map_or(SMALL, |file| file.len());
            let is_small = len(".meta") + len(".0") < SMALL || len(".meta.xz") + len(".0.xz") < SMALL / 8;
            let is_long = ["20180416.10.00", "pcp-pidstat-process-args", "pcp-atop-threads"].iter();
            let is_long = is_long.clone().any(|name| Path::new(base).ends_with(name));
            if (is_small || wants_all && !is_long) && Archive::open(base).is_ok_and(|archive| archive.end().is_ok()) {
                found.insert(PathBuf::from(base));
            }
        }
    }
    assert!(found.len() > 100, "only {} archives in {}", found.len(), dir.display());
    found.into_iter().collect()
}

fn run(program: &str, args: &[&str], archive: &Path) -> Output {
    Command::new(program).args(args).arg(archive).env("TZ", "UTC").output().unwrap()
}

fn output(program: &str, args: &[&str], archive: &Path) -> String {
    let output = run(program, args, archive);
    assert!(output.status.success(), "{program} {}: {}", archive.display(), String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns the complaints of pmlogcheck(1).
fn complaints(archive: &Path) -> String {
    let output = run("pmlogcheck", &["-w"], archive);
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Removes records of an instance domain that equal the record before, because a writer leaves them out.
fn without_repeats(block: &str) -> String {
    let mut records: Vec<(&str, String)> = Vec::new();
    for line in block.split_inclusive('\n') {
        match records.last_mut() {
            Some((_, instances)) if line.starts_with("   ") => instances.push_str(line),
            _ => records.push((line, String::new())),
        }
    }
    records.dedup_by(|record, before| !record.1.is_empty() && record.1 == before.1);
    records.into_iter().map(|(head, instances)| head.to_owned() + &instances).collect()
}

fn remove_files(dir: &Path) {
    std::fs::read_dir(dir).unwrap().for_each(|entry| std::fs::remove_file(entry.unwrap().path()).unwrap());
}

const DUMP: [&str; 7] = ["-z", "-xxx", "-L", "-d", "-i", "-m", "-s"];

fn dump(archive: &Path) -> String {
    testkit::with_sorted_metadata(&output("pmdumplog", &DUMP, archive), without_repeats)
}

/// Fails with the first lines that differ.
fn same(ours: &str, theirs: &str, archive: &Path) {
    for (nth, (ours, theirs)) in ours.lines().zip(theirs.lines()).enumerate() {
        assert_eq!(ours, theirs, "{}: line {}", archive.display(), nth + 1);
    }
    assert_eq!(ours.len(), theirs.len(), "{}", archive.display());
}

fn lines(archive: &Path) -> Vec<String> {
    let mut lines: Vec<String> =
        output("pmdumplog", &["-z", "-xxx", "-e", "-h"], archive).lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// Returns whether the writer refuses an archive: times of instance domains or records go back, or metrics have no
/// descriptor.
fn is_refused(from: &Archive, base: &Path) -> bool {
    complaints(base).contains("before") || from.label().start > from.end().unwrap()
}

#[test]
#[ignore = "needs PCP"]
// Slow: all archives of the test suite.
fn copies_of_the_testsuite_have_the_same_dump() {
    let dir = tempfile::tempdir().unwrap();
    let (mut copied, mut refused) = (0, Vec::new());
    for base in archives() {
        println!("{}", base.display());
        let from = Archive::open(&base).unwrap();
        if is_refused(&from, &base) {
            refused.push(base);
            continue;
        }
        let to = dir.path().join("copy");
        support::copy(&from, &Create::with_label(from.label()), &to);
        let what = base.display();
        same(&dump(&to), &dump(&base), &base);
        assert!(lines(&to) == lines(&base), "{what}");
        if complaints(&base).is_empty() {
            assert_eq!(complaints(&to), "", "{what}");
        }
        copied += 1;
        remove_files(dir.path());
    }
    println!("{copied} archives copied; not {refused:?}");
    assert!(copied > 100 && refused.len() <= 5, "{copied} copied, not {refused:?}");
}

/// Returns the lines of instances by instance domain and time, in microseconds.
fn instances(archive: &Path) -> HashMap<(String, String), Vec<String>> {
    let text = output("pmdumplog", &["-z", "-i"], archive);
    let (mut indom, mut time, mut all) = (String::new(), String::new(), HashMap::new());
    for line in text.lines() {
        if line.starts_with("InDom: ") {
            line.clone_into(&mut indom);
        } else if line.ends_with(" instances") {
            let (seconds, rest) = line.split_once('.').unwrap();
            time = format!("{seconds}.{}", &rest[..6]);
            all.insert((indom.clone(), time.clone()), Vec::new());
        } else if let Some(instances) = all.get_mut(&(indom.clone(), time.clone())) {
            instances.push(line.to_owned());
        }
    }
    all
}

/// Returns whether a rewritten archive has other instances than its source: pmlogrewrite 7.2.1 loses some.
fn has_other_instances(rewritten: &Path, source: &Path) -> bool {
    let source = instances(source);
    instances(rewritten).iter().any(|(at, instances)| source.get(at).is_some_and(|source| source != instances))
}

#[test]
#[ignore = "needs PCP"]
// Slow: all archives of the test suite.
fn copies_into_version_3_are_as_those_of_pmlogrewrite() {
    let dir = tempfile::tempdir().unwrap();
    let rewrite = Pcp::required().path("PCP_BINADM_DIR").join("pmlogrewrite");
    let (mut copied, mut changed) = (0, 0);
    for base in archives() {
        remove_files(dir.path());
        let from = Archive::open(&base).unwrap();
        if is_refused(&from, &base) || from.label().version == Version::V3 {
            continue;
        }
        let (ours, theirs) = (dir.path().join("ours"), dir.path().join("theirs"));
        let done = Command::new(&rewrite).args(["-V", "3"]).arg(&base).arg(&theirs).output().unwrap();
        // pmlogrewrite makes archives of some in which libpcp 6.0.3 writes beyond a block of memory: PCP's own pmdumplog
        // fails with some options, and shows wrong instances with others. With libpcp 7.2, pmlogrewrite 6.0.3 removes
        // instances that are not there.
        let is_read = |args| {
            let output = run("pmdumplog", args, &theirs);
            output.status.success() && !String::from_utf8_lossy(&output.stderr).contains("Botch")
        };
        if done.status.success() && is_read(&["-i"]) && is_read(&DUMP) {
            if has_other_instances(&theirs, &base) {
                println!("{}: pmlogrewrite has changed instances", base.display());
                changed += 1;
                continue;
            }
            let version_3 = Create::with_label(from.label()).version(Version::V3);
            support::copy(&from, &version_3, &ours);
            same(&dump(&ours), &dump(&theirs), &base);
            assert_eq!(complaints(&ours), complaints(&theirs).replace("theirs", "ours"), "{}", base.display());
            copied += 1;
        }
    }
    assert!(copied > 80 && changed <= 5, "{copied} copied, {changed} changed by pmlogrewrite");
}

fn at(seconds: i64) -> Stamp {
    // pmval of PCP 6 counts in microseconds.
    Stamp { seconds: 1_700_000_000 + seconds, nanoseconds: 123_456_000 }
}

const fn pmid(item: u32) -> u32 {
    253 << 22 | item
}

const METRICS: [(&str, Type, bool); 7] = [
    ("test.word", Type::I32, false),
    ("test.unsigned", Type::U32, true),
    ("test.long", Type::I64, true),
    ("test.counter", Type::U64, true),
    ("test.float", Type::Float, false),
    ("test.double", Type::Double, true),
    ("test.text", Type::String, true),
];

/// Writes values of all types, changing instances, labels, texts, a mark and several volumes.
fn write(writer: &mut Writer, seconds: std::ops::Range<i64>) {
    let indom = InDom::from_word(pmid(3)).unwrap();
    for (item, (name, ty, has_indom)) in METRICS.iter().enumerate() {
        let semantics = if *ty == Type::U64 { 1 } else { 3 };
        let units = if *ty == Type::U64 { Units::KBYTES.word() } else { 0 };
        let pmid = PmId::from_word(pmid(item as u32));
        let desc = RawDesc { pmid, ty: ty.code(), indom: has_indom.then_some(indom), semantics, units };
        writer.metric(&desc, &[name.as_bytes()]).unwrap();
        writer.text(Subject::Metric(pmid.unwrap()), TextKind::OneLine, b"One line").unwrap();
    }
    writer.text(Subject::InDom(indom), TextKind::Help, b"Instances that come and go").unwrap();
    let mut values = ResultWriter::new();
    for second in seconds {
        let instances: Vec<u32> = (second as u32 / 5..second as u32 / 5 + 10).collect();
        let names: Vec<String> = instances.iter().map(|inst| format!("name{inst} of it")).collect();
        let list: Vec<_> = instances.iter().zip(&names).map(|(i, name)| (Inst::new(*i), name.as_bytes())).collect();
        writer.instances(at(second), indom, &list).unwrap();
        let labels = LabelSet::single("fifth", second / 5).unwrap();
        writer.labels(at(second), (LabelLevel::InDom, indom.word()), &[(None, &labels)]).unwrap();
        let of = list.iter().map(|(inst, _)| (Some(*inst), &labels)).collect::<Vec<_>>();
        writer.labels(at(second), (LabelLevel::Instances, indom.word()), &of).unwrap();
        let host = LabelSet::single("hostname", "host").unwrap();
        writer.labels(at(second), (LabelLevel::Context, 0), &[(None, &host)]).unwrap();
        values.begin();
        for (item, (_, ty, has_indom)) in METRICS.iter().enumerate() {
            values.begin_set(PmId::from_word(pmid(item as u32)));
            let instances = if *has_indom { list.iter().map(|(inst, _)| Some(*inst)).collect() } else { vec![None] };
            let text = format!("{second}");
            for inst in instances {
                let atom = match ty {
                    Type::I32 => Atom::I32(-second as i32),
                    Type::U32 => Atom::U32(second as u32),
                    Type::I64 => Atom::I64(-second),
                    Type::U64 => Atom::U64(1 << 40 | second as u64),
                    Type::Float => Atom::Float(second as f32 / 2.0),
                    Type::Double => Atom::Double(second as f64 / 4.0),
                    _ => Atom::String(text.as_bytes()),
                };
                values.push(inst, *ty, atom).unwrap();
            }
            values.end_set(Ok(()));
        }
        writer.values(at(second), &mut values).unwrap();
    }
}

#[test]
#[ignore = "needs PCP"]
fn tools_read_what_is_written() {
    let dir = tempfile::tempdir().unwrap();
    for version in [Version::V2, Version::V3] {
        let base = dir.path().join(format!("v{}", version.number()));
        let options = Create::new("host").version(version).timezone("CET-1").volume_size(200_000);
        let mut writer = options.create(&base).unwrap();
        write(&mut writer, 0..300);
        writer.mark(at(300)).unwrap();
        writer.finish().unwrap();
        let mut writer = Writer::append(&base).unwrap();
        write(&mut writer, 301..400);
        assert!(writer.volume() > 0);
        writer.finish().unwrap();

        assert_eq!(complaints(&base), "", "{}", base.display());
        let word = output("pmval", &["-z", "-r", "-s", "2", "-a", base.to_str().unwrap()], Path::new("test.word"));
        assert!(word.contains("host:      host\n") && word.trim_end().ends_with(" -1"), "{word}");
        let info = output("pminfo", &["-d", "-t", "-l", "-a", base.to_str().unwrap()], Path::new("test.counter"));
        let units = "    Semantics: counter  Units: Kbyte";
        for part in ["test.counter [One line]", "Data Type: 64-bit unsigned int", units, "labels {\"fifth\":0"] {
            assert!(info.contains(part), "{part}: {info}");
        }
        let args = ["/usr/bin/pmrep", "-z", "-o", "csv", "-r", "-u", "-a", base.to_str().unwrap()];
        if testkit::Pcp::required().has_python() {
            // Another Python does not have PCP's module.
            let rep = output("/usr/bin/python3", &args, Path::new("test.double"));
            assert!(rep.lines().count() > 300 && rep.contains("99.75"), "{rep}");
        }
        let marks = output("pmdumplog", &["-M", "-m"], &base);
        assert_eq!(marks.matches("<mark>").count(), 1);
        let labels = output("pmdumplog", &["-e"], &base);
        assert!(labels.contains("{\"fifth\":79}"), "{labels}");
    }
}

#[test]
#[ignore = "needs PCP"]
fn pmdumplog_reads_while_it_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().join("a");
    let mut writer = Create::new("host").create(&base).unwrap();
    for second in 0..20 {
        write(&mut writer, second..second + 1);
        writer.flush().unwrap();
        let dumped = output("pmdumplog", &["-m"], &base);
        assert_eq!(dumped.matches("7 metrics").count(), second as usize + 1);
        assert_eq!(complaints(&base), "");
    }
}
