//! Definitions over an archive.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use pcp_archive::{Archive, Create, Version};
use pcp_derived::{Definitions, Scope};
use pcp_pdu::event::Stamp;
use pcp_pdu::metadata::TextKind;
use pcp_pdu::result_writer::ResultWriter;
use pmapi::{Atom, Converted, Desc, InDom, Inst, OptionWord as _, PmId, Semantics, Type, Units};
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
    let mut command = Command::new(env!("CARGO_BIN_EXE_pmlogderive"));
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
                let value = match value.atom(desc.ty).unwrap() {
                    Atom::Double(value) => value.to_string(),
                    value => value.to_string(),
                };
                lines.push(format!("{seconds}{inst} {value}"));
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
    let output = run(&[&"-c", &config, &input, &out]);
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
    let output = run(&[&"-c", &config, &input, &out]);
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
    assert_eq!(meta.text(step, TextKind::OneLine).unwrap(), b"orders since the record before");
    let indom = meta.desc(step).unwrap().indom.unwrap();
    assert_eq!(meta.indom_records(indom).unwrap().len(), 2);

    // Reading does not change the archive.
    let output = run(&[&"-c", &config, &input, &out]);
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("File exists"));
}

#[test]
fn a_check() {
    let dir = tempfile::tempdir().unwrap();
    let (input, config) = (write(dir.path()), dir.path().join("a.conf"));
    fs::write(&config, CONFIG).unwrap();
    let output = run(&[&"--check", &"-c", &config, &input, &"--tsv", &"--samples", &"4"]);
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
    let output = run(&[&"--check", &"-c", &config, &dir.path().join("none")]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("/none: "));
    let output = run(&[&"-c", &config, &input]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("<OUTPUT>"));
}

/// Writes an archive as pmlogger does with several logging groups: `a` in every even second, `b` in every odd one with an
/// instance more from second 9 on, and `cpus` once, once more after it has changed, and once after a gap. The second of
/// the gap is 20.
fn write_groups(dir: &Path) -> PathBuf {
    let base = dir.join("groups");
    let mut writer = Create::new("shop").create(&base).unwrap();
    let indom = InDom::from_word(253 << 22 | 1).unwrap();
    let metrics =
        [("a", None, Semantics::Counter), ("b", Some(indom), Semantics::Counter), ("cpus", None, Semantics::Discrete)];
    for ((name, indom, semantics), item) in metrics.into_iter().zip(1..) {
        let units = if item < 3 { Units::COUNT } else { Units::NONE };
        let desc = Desc { pmid: pmid(item), ty: Type::U32, indom, semantics, units };
        writer.metric(&desc.into(), &[name.as_bytes()]).unwrap();
    }
    let mut values = ResultWriter::new();
    for second in 0..31_u32 {
        let time = Stamp { seconds: START + i64::from(second), nanoseconds: 0 };
        let all: [(Inst, &[u8]); 2] = [(Inst::new(1), b"north"), (Inst::new(2), b"south")];
        let list: &[(Option<Inst>, u32)] = match second {
            20 => {
                writer.mark(time).unwrap();
                continue;
            }
            0 | 9 => {
                writer.instances(time, indom, &all[..if second < 9 { 1 } else { 2 }]).unwrap();
                &[(Some(Inst::new(1)), 3 * second), (Some(Inst::new(2)), second * second)]
            }
            _ => &[(Some(Inst::new(1)), 3 * second), (Some(Inst::new(2)), second * second)],
        };
        values.begin();
        let mut put = |item, list: &[(Option<Inst>, u32)]| {
            values.begin_set(Some(pmid(item)));
            list.iter().for_each(|(inst, value)| values.push(*inst, Type::U32, Atom::U32(*value)).unwrap());
            values.end_set(Ok(()));
        };
        match second {
            3 | 13 | 25 => put(3, &[(None, second + 1)]),
            _ if second % 2 == 0 => put(1, &[(None, 8 * second)]),
            _ => put(2, &list[..if second < 9 { 1 } else { 2 }]),
        }
        writer.values(time, &mut values).unwrap();
    }
    writer.finish().unwrap();
    base
}

/// Definitions and their values over [`write_groups`], as [`values`] returns them.
const GROUPS: [(&str, &str, &[&str]); 9] = [
    (
        "a_rate",
        "rate(a)",
        &[
            "2 8", "4 8", "6 8", "8 8", "10 8", "12 8", "14 8", "16 8", "18 8", "20 mark", "24 8", "26 8", "28 8",
            "30 8",
        ],
    ),
    // Records 3, 13 and 25 have only `cpus`.
    (
        "b_step",
        "delta(b)",
        &[
            "5 1 12", "7 1 6", "9 1 6", "11 1 6", "11 2 40", "15 1 12", "15 2 104", "17 1 6", "17 2 64", "19 1 6",
            "19 2 72", "20 mark", "23 1 6", "23 2 88", "27 1 12", "27 2 200", "29 1 6", "29 2 112",
        ],
    ),
    // A number that is logged once holds until its next record or the gap.
    (
        "load",
        "a / cpus",
        &[
            "4 8",
            "6 12",
            "8 16",
            "10 20",
            "12 24",
            "14 8",
            "16 9.142857142857142",
            "18 10.285714285714286",
            "20 mark",
            "26 8",
            "28 8.615384615384615",
            "30 9.23076923076923",
        ],
    ),
    ("twice", "cpus * 2", &["3 8", "13 28", "20 mark", "25 52"]),
    ("change", "delta(cpus)", &["13 10", "20 mark"]),
    // No record has both operands.
    ("never", "rate(a) + rate(sum(b))", &["20 mark"]),
    (
        "fast",
        "scalar(matchinst(/south/, rate(b))) > 30",
        &["11 0", "15 0", "17 1", "19 1", "20 mark", "23 1", "27 1", "29 1"],
    ),
    // Definitions that refer to others have no effect on these. Between the records of `cpus` its difference is 0.
    (
        "nested",
        "a_rate * twice",
        &[
            "4 64", "6 64", "8 64", "10 64", "12 64", "14 224", "16 224", "18 224", "20 mark", "26 416", "28 416",
            "30 416",
        ],
    ),
    (
        "mixed",
        "(change + 1) * a_rate",
        &["4 8", "6 8", "8 8", "10 8", "12 8", "14 8", "16 8", "18 8", "20 mark", "26 8", "28 8", "30 8"],
    ),
];

/// Writes definitions over an archive of several logging groups, and returns the values of one of them.
fn over_groups(dir: &Path, definitions: &str, name: &str) -> Vec<String> {
    let (input, config, out) = (write_groups(dir), dir.join("a.conf"), dir.join("out"));
    fs::write(&config, definitions).unwrap();
    let output = run(&[&"-c", &config, &input, &out]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    values(&Archive::open(out).unwrap(), &format!("derived.{name}"))
}

#[test]
fn definitions_over_several_logging_groups() {
    let together: String = GROUPS.iter().map(|(name, expression, _)| format!("{name} = {expression}\n")).collect();
    for (name, expression, expected) in GROUPS {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(over_groups(dir.path(), &together, name), expected, "{name}");
        let is_alone = !["never", "nested", "mixed"].contains(&name);
        if is_alone {
            let dir = tempfile::tempdir().unwrap();
            assert_eq!(over_groups(dir.path(), &format!("{name} = {expression}\n"), name), expected, "{name} alone");
        }
    }
}

/// Writes an archive in which a number of each instance and a text are logged once, a counter in every second, and from
/// second 6 on an error in place of the numbers. `start` is the second of the first record.
fn write_once(base: &Path, start: i64) {
    let mut writer = Create::new("shop").create(base).unwrap();
    let indom = InDom::from_word(253 << 22 | 1).unwrap();
    let metrics = [
        ("work", Type::U32, Some(indom), Semantics::Counter),
        ("size", Type::U32, Some(indom), Semantics::Discrete),
        ("state", Type::String, None, Semantics::Discrete),
    ];
    for ((name, ty, indom, semantics), item) in metrics.into_iter().zip(1..) {
        let desc = Desc { pmid: pmid(item), ty, indom, semantics, units: Units::NONE };
        writer.metric(&desc.into(), &[name.as_bytes()]).unwrap();
    }
    let mut values = ResultWriter::new();
    for second in 0..9_u32 {
        let time = Stamp { seconds: START + start + i64::from(second), nanoseconds: 0 };
        values.begin();
        if second == 1 {
            writer.instances(time, indom, &[(Inst::new(1), b"north"), (Inst::new(2), b"south")]).unwrap();
            values.begin_set(Some(pmid(2)));
            for inst in 1..=2 {
                values.push(Some(Inst::new(inst)), Type::U32, Atom::U32(10 * inst)).unwrap();
            }
            values.end_set(Ok(()));
            values.begin_set(Some(pmid(3)));
            values.push(None, Type::String, Atom::String(b"open")).unwrap();
            values.end_set(Ok(()));
        } else {
            values.begin_set(Some(pmid(1)));
            for inst in 1..=2 {
                values.push(Some(Inst::new(inst)), Type::U32, Atom::U32(100 * inst * second)).unwrap();
            }
            values.end_set(Ok(()));
            if second == 6 {
                values.begin_set(Some(pmid(2)));
                values.end_set(Err(pmapi::Error::AGAIN));
            }
        }
        writer.values(time, &mut values).unwrap();
    }
    writer.finish().unwrap();
}

/// What is logged once holds for each instance, through functions and references, until its next record, which may be an
/// error, and not in the next archive.
#[test]
fn operands_that_are_logged_once() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (dir.path().join("a"), dir.path().join("b"));
    write_once(&first, 0);
    write_once(&second, 100);
    let both = format!("{},{}", first.display(), second.display());
    let config = dir.path().join("a.conf");
    let definitions = "\
share = rate(work) / size
north = work[north] / scalar(matchinst(/north/, size))
all = sum(work) / sum(size)
twice = half * 4
half = size / 2
text = state
";
    fs::write(&config, definitions).unwrap();
    let out = dir.path().join("out");
    let output = run(&[&"-c", &config, &both, &out]);
    assert_eq!((output.status.success(), &*String::from_utf8_lossy(&output.stderr)), (true, ""));
    let archive = Archive::open(out).unwrap();
    let of = |name: &str| -> Vec<String> {
        let lines = values(&archive, &format!("derived.{name}"));
        lines.into_iter().filter(|line| !line.contains("mark")).collect()
    };
    // The counter has a rate over the record in which it is missing, and none over two archives.
    let shares = ["2 1 10", "2 2 10", "3 1 10", "3 2 10", "4 1 10", "4 2 10", "5 1 10", "5 2 10"];
    let again = shares.map(|line| format!("10{line}"));
    assert_eq!(of("share"), shares.iter().map(|line| (*line).to_owned()).chain(again).collect::<Vec<_>>());
    assert_eq!(of("north")[..4], ["2 1 20", "3 1 30", "4 1 40", "5 1 50"]);
    assert_eq!((of("north").len(), &*of("north")[4]), (8, "102 1 20"));
    assert_eq!(of("all")[..4], ["2 20", "3 30", "4 40", "5 50"]);
    assert_eq!(of("all").len(), 8);
    assert_eq!(of("twice"), ["1 1 20", "1 2 40", "101 1 20", "101 2 40"]);
    assert_eq!(of("text").len(), 2);
}

/// A constant has a value in each record.
#[test]
fn constants_of_an_archive() {
    let four = "four = mkconst(4, type=\"u32\")\n";
    let [alone, together] = [four.to_owned(), format!("{four}a_rate = rate(a)\n")].map(|text| {
        let dir = tempfile::tempdir().unwrap();
        over_groups(dir.path(), &text, "four")
    });
    assert_eq!((alone.len(), &*alone[1]), (31, "1 4"));
    assert_eq!(alone, together);
}

/// Each definition has the values of its last record. Instances have the names of that time.
#[test]
fn a_check_over_several_logging_groups() {
    let dir = tempfile::tempdir().unwrap();
    let (input, config) = (write_groups(dir.path()), dir.path().join("a.conf"));
    fs::write(&config, GROUPS.map(|(name, expression, _)| format!("{name} = {expression}\n")).concat()).unwrap();
    let check = |samples: &str| {
        let output = run(&[&"--check", &"-c", &config, &input, &"--tsv", &"--samples", &samples]);
        String::from_utf8(output.stdout).unwrap()
    };
    let expected = |text: &str, values: [&str; 5]| {
        for (name, value) in ["a_rate", "b_step", "load", "twice", "change"].into_iter().zip(values) {
            assert!(
                text.lines().any(|line| line.starts_with(name) && line.ends_with(&format!("\t{value}"))),
                "{name} {text}"
            );
        }
    };
    expected(&check("9"), ["{\"\"=8}", "{\"north\"=6}", "{\"\"=16}", "{\"\"=8}", "{}"]);
    // An archive may end before.
    expected(&check("100"), ["{\"\"=8}", "{\"north\"=6,\"south\"=112}", "{\"\"=9.23076923076923}", "{\"\"=52}", "{}"]);
}

/// The lines that libpcp 7.2 prints for them.
#[test]
fn messages_about_controls() {
    let dir = tempfile::tempdir().unwrap();
    let (input, config) = (write(dir.path()), dir.path().join("a.conf"));
    fs::write(&config, "#control extra=1\ndouble = shop.carts * 2\n").unwrap();
    for (control, expected) in [
        ("foo", "missing '=' in derived metric control (foo)"),
        ("foo=1", "unknown derived metric control (foo)"),
        ("global=", "missing value in derived metric control (global=)"),
        ("global=x", "bad value (x) for derived metric control (global)"),
        ("option=7", "failed to set derived metric control option=7: Bad value for function argument"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pmlogderive"));
        command.arg("--check").arg("-c").arg(&config).arg(&input).env("PCP_DERIVED_CONTROL", control);
        let output = command.env("PMNS_DEFAULT", "/dev/null").output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let expected = [
            format!("Warning: $PCP_DERIVED_CONTROL: {expected}"),
            format!("[{}:1] Warning: unknown derived metric control (extra)", config.display()),
        ];
        assert_eq!(text.lines().take(2).collect::<Vec<_>>(), expected);
    }
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

/// Archives that have values whose encoding does not match their type: these are errors here, and wrong values in libpcp.
const DAMAGED: [&str; 8] = [
    "bozo.client_v2",
    "960624.08.17_v2",
    "ace_v2",
    "bigace_v2",
    "babylon.pmview_v2",
    "babylon.percpu_v2",
    "rattle",
    "src-rattle",
];

/// Value of an instance at a time in microseconds.
type Value = (i64, u32, f64);

/// Returns definitions over an archive with their keys for libpcp: over each of its numbers, and with its numbers that are
/// logged once.
fn definitions(archive: &Archive) -> Vec<(String, String)> {
    let meta = archive.metadata();
    let is_number = |desc: &Desc| {
        matches!(desc.ty, Type::I32 | Type::U32 | Type::I64 | Type::U64 | Type::Float | Type::Double)
            && desc.pmid.domain().get() != 511
    };
    let is_valid = |name: &str| Definitions::new(Scope::Global).register("x", name).is_ok();
    let all = meta.names().below(b"").unwrap().into_iter();
    let metrics: Vec<(String, Desc)> = all
        .filter_map(|(name, pmid)| Some((String::from_utf8(name).ok()?, meta.desc(pmid).ok()?)))
        // The difference of a number of 64 bits wraps around in libpcp, and its rate is one that has not fallen.
        .filter(|(name, desc)| is_number(desc) && is_valid(name) && name != "sample.wrap.longlong")
        .collect();
    let once: Vec<&str> = metrics
        .iter()
        .filter(|(_, desc)| desc.semantics == Semantics::Discrete && desc.indom.is_none() && desc.units == Units::NONE)
        .map(|(name, _)| &**name)
        .take(3)
        .collect();
    let mut found = Vec::new();
    for (name, desc) in metrics.iter().step_by(metrics.len() / 20 + 1) {
        let forms = ["delta(X)", "instant(X)", "sum(X)", "count(X)", "matchinst(/[a-f]/, X) / 4"];
        let forms = forms.iter().chain(match desc.semantics {
            Semantics::Counter if desc.units.dim_time() < 2 => &["rate(X)"][..],
            _ => &[],
        });
        found.extend(forms.map(|form| (name.clone(), form.replace('X', name))));
        for once in once.iter().filter(|_| desc.semantics == Semantics::Instant && desc.indom.is_none()) {
            found.push((format!("@{name}"), format!("{name} * {once}")));
        }
    }
    found
}

/// Each definition has the values that libpcp has for it when it is fetched without the others. With an operand that is
/// logged once these are the values that libpcp interpolates, as pmrep does.
#[test]
#[ignore = "needs PCP"]
// Slow: libpcp evaluates each definition over the archives, too.
fn values_as_in_libpcp() {
    let pcp = Pcp::required();
    let dir = tempfile::tempdir().unwrap();
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/../../pmapi/context/tests/support/derived.c");
    let program = testkit::compile(program, &dir, &["-lpcp"]);
    let (mut values, mut kept, mut differences) = (0, 0, Vec::new());
    for entry in fs::read_dir(pcp.testsuite().join("archives")).unwrap().map(|entry| entry.unwrap()) {
        let path = entry.path();
        let is_small = entry.metadata().unwrap().len() < 100_000;
        let is_damaged = DAMAGED.iter().any(|name| path.file_stem().unwrap() == *name);
        if !is_small || is_damaged || path.extension().is_none_or(|suffix| suffix != "meta") {
            continue;
        }
        let Ok(archive) = Archive::open(path.with_extension("")) else { continue };
        // libpcp computes differences over a gap, unless it interpolates.
        let mut cursor = archive.cursor();
        if std::iter::from_fn(|| Some(cursor.forward().ok()??.is_mark())).any(|is_mark| is_mark) {
            continue;
        }
        let definitions = definitions(&archive);
        let (config, out) = (dir.path().join("a.conf"), dir.path().join(path.file_stem().unwrap()));
        let lines = |line: &dyn Fn(usize, &(String, String)) -> String| -> String {
            definitions.iter().enumerate().map(|(nth, definition)| line(nth, definition)).collect()
        };
        fs::write(&config, lines(&|nth, (_, expression)| format!("d{nth} = {expression}\n"))).unwrap();
        if !run(&[&"-c", &config, &path.with_extension(""), &out]).status.success() {
            continue;
        }
        let mut libpcp = Command::new(&program);
        libpcp.arg(path.with_extension("")).env("PCP_DERIVED_CONFIG", "").stderr(std::process::Stdio::null());
        let text = lines(&|nth, (key, expression)| format!("{key}\tjudge.d{nth}\t{expression}\n"));
        let (all_theirs, bad) = theirs(&testkit::answers(&mut libpcp, &text));
        let all_ours = ours(&Archive::open(&out).unwrap());
        for (nth, (key, expression)) in definitions.iter().enumerate().filter(|(nth, _)| !bad.contains(nth)) {
            // The program knows microseconds.
            if key.starts_with('@') && archive.label().version != Version::V2 {
                continue;
            }
            let [ours, mut theirs] = [&all_ours, &all_theirs].map(|all| all.get(&nth).cloned().unwrap_or_default());
            // Before PCP 7, the rate of a counter that falls wraps around.
            if expression.starts_with("rate") {
                let differences = definitions.iter().position(|(_, other)| *other == format!("delta({key})")).unwrap();
                let falls =
                    |of: &Value| all_theirs[&differences].iter().any(|it| (it.0, it.1) == (of.0, of.1) && it.2 < 0.0);
                theirs.retain(|value| !falls(value));
            }
            let is_same = |(ours, theirs): (&Value, &Value)| {
                let is_close = (ours.2 - theirs.2).abs() <= 4.0 * f64::EPSILON * theirs.2.abs();
                let is_equal = is_close || ours.2 == theirs.2 || ours.2.is_nan() && theirs.2.is_nan();
                (ours.0, ours.1) == (theirs.0, theirs.1) && is_equal
            };
            let at = ours.iter().zip(&theirs).position(|pair| !is_same(pair));
            let at = at.or((ours.len() != theirs.len()).then_some(ours.len().min(theirs.len())));
            if let Some(at) = at {
                let (ours, theirs) = (ours.get(at), theirs.get(at));
                differences.push(format!("{}: {expression}: {ours:?}, libpcp's {theirs:?}", path.display()));
            }
            values += ours.len();
            kept += if key.starts_with('@') { ours.len() } else { 0 };
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert!(values > 100_000 && kept > 100, "{values} {kept}");
}

/// Returns the values of an archive by the number of their definition.
fn ours(archive: &Archive) -> HashMap<usize, Vec<Value>> {
    let meta = archive.metadata();
    let number = |pmid| {
        std::str::from_utf8(meta.names().names(pmid).next()?).ok()?.strip_prefix("derived.d")?.parse::<usize>().ok()
    };
    let (mut cursor, mut found) = (archive.cursor(), HashMap::<usize, Vec<Value>>::new());
    while let Some(record) = cursor.forward().unwrap() {
        let time = record.time.seconds * 1_000_000 + i64::from(record.time.nanoseconds / 1000);
        for (set, pmid) in record.values.iter().filter_map(|set| Some((set, set.pmid?))) {
            let list = found.entry(number(pmid).unwrap()).or_default();
            let start = list.len();
            list.extend(set.values().map(
                |(inst, value)| match value.extract(meta.desc(pmid).unwrap().ty, Type::Double) {
                    Ok(Converted::Atom(Atom::Double(value))) => (time, inst.word(), value),
                    other => panic!("{other:?}"),
                },
            ));
            list[start..].sort_by_key(|value| value.1);
        }
    }
    found
}

/// Returns the values that libpcp has, and the definitions that it refuses.
fn theirs(text: &str) -> (HashMap<usize, Vec<Value>>, Vec<usize>) {
    let (mut found, mut bad, mut last) = (HashMap::<usize, Vec<Value>>::new(), Vec::new(), (0, 0));
    for line in text.lines() {
        let words: Vec<&str> = line.split([' ', ':']).filter(|word| !word.is_empty()).collect();
        match words[..] {
            ["none" | "syntax", number] => bad.push(number.parse().unwrap()),
            [number, "at", time, _] => last = (number.parse().unwrap(), time.replace('.', "").parse().unwrap()),
            [inst, value] => {
                let inst: i32 = inst.parse().unwrap();
                found.entry(last.0).or_default().push((last.1, inst as u32, value.parse().unwrap()));
            }
            _ => panic!("{line}"),
        }
    }
    (found, bad)
}

/// PCP's pmlogcheck finds no fault with archives written from those of PCP's tests.
#[test]
#[ignore = "needs PCP"]
// Slow: pmlogcheck reads each archive that is written.
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
        if !run(&[&"-c", &config, &path.with_extension(""), &out]).status.success() {
            continue;
        }
        written += 1;
        let mut check = pcp.command("pmlogcheck");
        check.arg("-w").arg(&out);
        assert_eq!(pcp.run_command(check, "").text, "", "{}", path.display());
    }
    assert!(written > 20, "{written} archives");
}
