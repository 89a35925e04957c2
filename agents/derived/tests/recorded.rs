//! Options `--archive`, `--check` and `--write`: definitions over an archive.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use pcp_archive::{Archive, Create};
use pcp_pdu::event::Stamp;
use pcp_pdu::result_writer::ResultWriter;
use pmapi::{Atom, Desc, InDom, Inst, PmId, Semantics, Type, Units};
use testkit::Pcp;

const START: i64 = 1_700_000_000;

fn pmid(item: u32) -> PmId {
    PmId::from_word(253 << 22 | item).unwrap()
}

/// Writes an archive of 10 records, with a gap after 5. It has a number, and a counter with two instances, one of which
/// disappears.
fn write(dir: &Path) -> PathBuf {
    let base = dir.join("in");
    let mut writer = Create::new("shop").create(&base).unwrap();
    let indom = InDom::from_word(253 << 22 | 1).unwrap();
    for (item, indom, semantics) in [(1, Some(indom), Semantics::Counter), (2, None, Semantics::Instant)] {
        let desc = Desc { pmid: pmid(item), ty: Type::U32, indom, semantics, units: Units::COUNT };
        writer.metric(&desc.into(), &[["shop.orders", "shop.carts"][item as usize - 1].as_bytes()]).unwrap();
    }
    let mut values = ResultWriter::new();
    for nth in 0..10_u32 {
        let time = Stamp { seconds: START + 2 * i64::from(nth), nanoseconds: 0 };
        if nth == 5 {
            writer.mark(Stamp { seconds: time.seconds - 1, nanoseconds: 0 }).unwrap();
        }
        let all: [(Inst, &[u8]); 2] = [(Inst::new(1), b"north"), (Inst::new(2), b"south")];
        let list = &all[..if nth < 8 { 2 } else { 1 }];
        writer.instances(time, indom, list).unwrap();
        values.begin();
        values.begin_set(Some(pmid(1)));
        for (inst, _) in list {
            values.push(Some(*inst), Type::U32, Atom::U32(nth * nth * inst.word())).unwrap();
        }
        values.end_set(Ok(()));
        values.begin_set(Some(pmid(2)));
        values.push(None, Type::U32, Atom::U32(nth)).unwrap();
        values.end_set(Ok(()));
        writer.values(time, &mut values).unwrap();
    }
    writer.finish().unwrap();
    base
}

const CONFIG: &str = "\
step = delta(shop.orders)
step(oneline) = orders since the record before
double = shop.carts * 2
next = double + 1
missing = shop.nothing + 1
";

fn run(args: &[&dyn AsRef<std::ffi::OsStr>]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pmdaderived"));
    args.iter().for_each(|arg| _ = command.arg(arg.as_ref()));
    command.env("PMNS_DEFAULT", "/dev/null").output().unwrap()
}

/// Returns the values of a metric as lines of seconds after the start, instance and value. Without a metric, returns
/// the `<mark>`s.
fn values(archive: &Archive, name: &str) -> Vec<String> {
    let meta = archive.metadata();
    let pmid = meta.names().pmid(name.as_bytes()).unwrap();
    let desc = meta.desc(pmid).unwrap();
    let (mut cursor, mut lines) = (archive.cursor(), Vec::new());
    while let Some(record) = cursor.forward().unwrap() {
        let seconds = record.time.seconds - START;
        if record.is_mark() {
            lines.push(format!("{seconds} mark"));
        }
        for set in record.values.iter().filter(|set| set.pmid == Some(pmid)) {
            for (inst, value) in set.values() {
                let inst = inst.map_or(String::new(), |inst| format!(" {}", inst.word()));
                lines.push(format!("{seconds}{inst} {}", value.atom(desc.ty).unwrap()));
            }
        }
    }
    lines
}

/// An archive with a part of the records would look like one of a shorter time.
#[test]
fn an_error_leaves_no_incomplete_archive() {
    let dir = tempfile::tempdir().unwrap();
    let (input, config, out) = (write(dir.path()), dir.path().join("a.conf"), dir.path().join("out"));
    fs::write(&config, CONFIG).unwrap();
    let data = dir.path().join("in.0");
    let mut bytes = fs::read(&data).unwrap();
    // The label and 5 records are before the damage.
    let mut at = 0;
    for _ in 0..6 {
        at += u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    }
    bytes[at..at + 4].fill(0xff);
    fs::write(&data, bytes).unwrap();
    let output = run(&[&"--archive", &input, &"--write", &out, &"-c", &config]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && errors.contains("in.0"), "{errors}");
    let left = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = left.filter(|name| name.to_string_lossy().starts_with("out")).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn metrics_of_an_archive() {
    let dir = tempfile::tempdir().unwrap();
    let (input, config, out) = (write(dir.path()), dir.path().join("a.conf"), dir.path().join("out"));
    fs::write(&config, CONFIG).unwrap();
    let output = run(&[&"--archive", &input, &"--write", &out, &"-c", &config]);
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{errors}");
    assert_eq!(text, format!("{}: 3 metrics, 10 records\n", out.display()));
    assert!(errors.contains("shop.nothing") && errors.lines().count() == 1, "{errors}");

    let archive = Archive::open(&out).unwrap();
    assert_eq!((&*archive.label().host, archive.label().start.seconds), (&b"shop"[..], START));
    // There is no difference over the gap, nor for an instance that has ended.
    let step = [
        "2 1 1", "2 2 2", "4 1 3", "4 2 6", "6 1 5", "6 2 10", "8 1 7", "8 2 14", "9 mark", "12 1 11", "12 2 22",
        "14 1 13", "14 2 26", "16 1 15", "18 1 17",
    ];
    assert_eq!(values(&archive, "derived.step"), step);
    assert_eq!(values(&archive, "derived.double").len(), 11);
    assert_eq!(values(&archive, "derived.next").last().unwrap(), "18 19");
    let meta = archive.metadata();
    let step = meta.names().pmid(b"derived.step").unwrap();
    assert_eq!(meta.text(step, pcp_archive::TextLevel::OneLine).unwrap(), b"orders since the record before");
    let indom = meta.desc(step).unwrap().indom.unwrap();
    assert_eq!(meta.indom_records(indom).unwrap().len(), 2);

    // Reading does not change the archive.
    let output = run(&[&"--archive", &input, &"--write", &out, &"-c", &config]);
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("File exists"));
}

#[test]
fn a_check() {
    let dir = tempfile::tempdir().unwrap();
    let (input, config) = (write(dir.path()), dir.path().join("a.conf"));
    fs::write(&config, CONFIG).unwrap();
    let output = run(&[&"--archive", &input, &"--check", &config, &"--tsv", &"--samples", &"4"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let expected = [
        "step\tOK\ttype=64-bit int indom=SET sem=instant units=count\t{\"north\"=5,\"south\"=10}",
        "double\tOK\ttype=32-bit unsigned int indom=NULL sem=instant units=count\t{\"\"=6}",
        "next\tOK\ttype=32-bit unsigned int indom=NULL sem=instant units=count\t{\"\"=7}",
    ];
    for line in expected {
        assert!(text.lines().any(|found| found == line), "{text}");
    }
    assert!(text.contains("missing\tERR\tsemantic\t") && !output.status.success(), "{text}");
    let output = run(&[&"--archive", &dir.path().join("none"), &"--check", &config]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("/none: "));
    let output = run(&[&"--archive", &input]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("--archive needs --check or --write"));
}

/// Metrics that many archives have. Definitions over a metric that an archive lacks are refused.
const COMMON: &str = "\
busy = 100 * (rate(kernel.all.cpu.user) + rate(kernel.all.cpu.sys)) / hinv.ncpu
load = kernel.all.load * 2
disks = rate(disk.dev.total)
memory = sum(mem.util.used)
one = sample.long.one + 1
bins = delta(sample.bin)
colours = sample.colour * 2
";

/// PCP's pmlogcheck finds no fault with archives written from those of PCP's tests.
#[test]
#[ignore = "needs PCP"]
fn pmlogcheck_is_silent() {
    let pcp = Pcp::required();
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("a.conf");
    fs::write(&config, COMMON).unwrap();
    let mut written = 0;
    for entry in fs::read_dir(pcp.testsuite().join("archives")).unwrap().map(|entry| entry.unwrap()) {
        let path = entry.path();
        let is_small = entry.metadata().unwrap().len() < 300_000;
        if !is_small || path.extension().is_none_or(|suffix| suffix != "meta") {
            continue;
        }
        let out = dir.path().join(format!("out{written}"));
        if !run(&[&"--archive", &path.with_extension(""), &"--write", &out, &"-c", &config]).status.success() {
            continue;
        }
        written += 1;
        let mut check = pcp.command("pmlogcheck");
        check.arg("-w").arg(&out);
        assert_eq!(pcp.run_command(check, "").text, "", "{}", path.display());
    }
    assert!(written > 20, "{written} archives");
}
