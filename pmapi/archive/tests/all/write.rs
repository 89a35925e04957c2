//! Written archives are read back, with any cut and after any failure.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;

use pcp_archive::{Archive, Create, Version, Writer};
use pcp_pdu::desc::RawDesc;
use pcp_pdu::event::Stamp;
use pcp_pdu::metadata::{Subject, TextKind};
use pcp_pdu::result::RawValue;
use pcp_pdu::result_writer::ResultWriter;
use pmapi::{Atom, Error, InDom, Inst, LabelLevel, LabelSet, PmId, Type};
use proptest::prelude::*;

use crate::support;

fn at(seconds: i64) -> Stamp {
    Stamp { seconds, nanoseconds: 0 }
}

fn pmid(item: u32) -> PmId {
    PmId::from_word(253 << 22 | item).unwrap()
}

fn indom() -> InDom {
    InDom::from_word(253 << 22 | 7).unwrap()
}

const TYPES: [Type; 4] = [Type::U32, Type::U64, Type::String, Type::Double];

fn desc(item: u32) -> RawDesc {
    let ty = TYPES[item as usize % TYPES.len()].code();
    RawDesc { pmid: Some(pmid(item)), ty, indom: Some(indom()), semantics: 3, units: 0 }
}

fn name(item: u32) -> String {
    format!("a.b{item}")
}

fn describe(writer: &mut Writer, metrics: u32) {
    for item in 0..metrics {
        writer.metric(&desc(item), &[name(item).as_bytes()]).unwrap();
    }
}

/// Adds a set of values of a metric, one for each instance.
fn push(values: &mut ResultWriter, item: u32, instances: &[u32], value: u32) {
    let ty = TYPES[item as usize % TYPES.len()];
    let text = format!("{value}");
    let atom = match ty {
        Type::U32 => Atom::U32(value),
        Type::U64 => Atom::U64(value.into()),
        Type::Double => Atom::Double(value.into()),
        _ => Atom::String(text.as_bytes()),
    };
    values.begin_set(Some(pmid(item)));
    instances.iter().for_each(|inst| values.push(Some(Inst::new(*inst)), ty, atom).unwrap());
    values.end_set(Ok(()));
}

/// Step of a writer.
#[derive(Clone, Debug)]
enum Step {
    /// Instances of the domain, each with a number that its name contains.
    Instances(BTreeMap<u32, u8>),
    Labels(u8),
    Text(u8),
    /// Metrics with a value for each instance.
    Record(Vec<u32>),
    Mark,
    NextVolume,
    Flush,
    Append,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => prop::collection::btree_map(0..12_u32, 0..2_u8, 0..6).prop_map(Step::Instances),
        1 => any::<u8>().prop_map(Step::Labels),
        1 => any::<u8>().prop_map(Step::Text),
        6 => prop::collection::vec(0..5_u32, 1..4).prop_map(Step::Record),
        1 => Just(Step::Mark),
        1 => Just(Step::NextVolume),
        1 => Just(Step::Flush),
        1 => Just(Step::Append),
    ]
}

/// Metric and its instances.
type Set = (PmId, Vec<u32>);

/// Expected result of reading.
#[derive(Default, PartialEq, Debug)]
struct Content {
    /// Time, and metrics with instances; no metric for a mark.
    records: Vec<(Stamp, Vec<Set>)>,
    /// Instances at the time of each record.
    instances: Vec<Vec<(u32, Vec<u8>)>>,
    labels: Option<String>,
    text: Option<Vec<u8>>,
}

/// Writes steps, one a second, and returns the expected result of reading.
fn write(base: &Path, version: Version, steps: &[Step]) -> Content {
    let mut writer = Create::new("host").version(version).start(at(1)).create(base).unwrap();
    describe(&mut writer, 5);
    let mut content = Content::default();
    let mut current: Vec<(u32, Vec<u8>)> = Vec::new();
    let mut values = ResultWriter::new();
    for (step, second) in steps.iter().zip(1..) {
        match step {
            // Readers skip empty domains.
            Step::Instances(all) if all.is_empty() => (),
            Step::Instances(all) => {
                current = all.iter().map(|(inst, name)| (*inst, format!("{inst} {name}").into_bytes())).collect();
                let list: Vec<_> = current.iter().rev().map(|(i, name)| (Inst::new(*i), name.as_slice())).collect();
                writer.instances(at(second), indom(), &list).unwrap();
            }
            Step::Labels(value) => {
                let set = LabelSet::single("a", *value).unwrap();
                writer.labels(at(second), (LabelLevel::Domain, 253), &[(None, &set)]).unwrap();
                content.labels = Some(set.json().to_owned());
            }
            Step::Text(value) => {
                let text = vec![b'a' + value % 26; usize::from(*value)];
                writer.text(Subject::Metric(pmid(1)), TextKind::OneLine, &text).unwrap();
                content.text = Some(text);
            }
            Step::Record(metrics) => {
                values.begin();
                let instances: Vec<u32> = current.iter().map(|(inst, _)| *inst).collect();
                metrics.iter().for_each(|item| push(&mut values, *item, &instances, second as u32));
                writer.values(at(second), &mut values).unwrap();
                let sets = metrics.iter().map(|item| (pmid(*item), instances.clone())).collect();
                content.records.push((at(second), sets));
                content.instances.push(current.clone());
            }
            Step::Mark => {
                writer.mark(at(second)).unwrap();
                content.records.push((at(second), Vec::new()));
                content.instances.push(current.clone());
            }
            Step::NextVolume => writer.next_volume(),
            Step::Flush => writer.flush().unwrap(),
            Step::Append if content.records.is_empty() => (),
            Step::Append => {
                writer.finish().unwrap();
                writer = Writer::append(base).unwrap();
            }
        }
    }
    content
}

fn read(base: &Path) -> Content {
    let archive = Archive::open(base).unwrap();
    let meta = archive.metadata();
    let mut names = meta.instance_names();
    let mut content = Content::default();
    let mut cursor = archive.cursor();
    while let Some(record) = cursor.forward().unwrap() {
        let mut sets = Vec::new();
        for set in record.values.iter() {
            let (item, ty) = (set.pmid.unwrap().word() & 0xff, TYPES[set.pmid.unwrap().word() as usize & 3]);
            for (_, value) in set.values() {
                assert_eq!(shown(value, ty), record.time.seconds.to_string(), "metric {item}");
            }
            sets.push((set.pmid.unwrap(), set.values().map(|(inst, _)| inst.unwrap().word()).collect()));
        }
        content.records.push((record.time, sets));
        let now = names.instances(indom(), record.time).unwrap_or_default();
        content.instances.push(now.iter().map(|i| (i.inst, i.name.to_vec())).collect());
    }
    let labels = meta.labels(LabelLevel::Domain, 253, at(i64::MAX)).ok().flatten();
    content.labels = labels.and_then(|record| Some(record.sets().next()?.label_set().unwrap().json().to_owned()));
    content.text = meta.text(pmid(1), TextKind::OneLine).ok().map(<[u8]>::to_vec);
    content
}

fn shown(value: RawValue<'_>, ty: Type) -> String {
    match value.atom(ty).unwrap() {
        Atom::U32(v) => v.to_string(),
        Atom::U64(v) => v.to_string(),
        Atom::Double(v) => v.to_string(),
        Atom::String(v) => String::from_utf8(v.to_vec()).unwrap(),
        other => unreachable!("{other:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    // Slow: many random archives are written and read.
    fn any_archive(steps in prop::collection::vec(step(), 1..40), is_v2 in any::<bool>()) {
        let dir = tempfile::tempdir().unwrap();
        let version = if is_v2 { Version::V2 } else { Version::V3 };
        let base = dir.path().join("a");
        let content = write(&base, version, &steps);
        // An archive without records is not readable.
        prop_assume!(!content.records.is_empty());
        prop_assert_eq!(&read(&base), &content);
        let copied = dir.path().join("b");
        let other = if is_v2 { Version::V3 } else { Version::V2 };
        support::copy(&Archive::open(&base).unwrap(), &Create::new("host").version(other), &copied);
        prop_assert_eq!(read(&copied).records, content.records);
    }
}

/// Writes records of about 1000 bytes.
fn long(writer: &mut Writer, seconds: std::ops::Range<i64>) {
    describe(writer, 5);
    let instances: Vec<u32> = (0..50).collect();
    let names: Vec<String> = instances.iter().map(|inst| format!("name{inst}")).collect();
    let list: Vec<_> = instances.iter().zip(&names).map(|(i, name)| (Inst::new(*i), name.as_bytes())).collect();
    let mut values = ResultWriter::new();
    for second in seconds {
        writer.instances(at(second), indom(), &list).unwrap();
        values.begin();
        push(&mut values, 1, &instances, second as u32);
        writer.values(at(second), &mut values).unwrap();
    }
}

#[test]
fn a_killed_writer_leaves_an_archive() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().join("a");
    let mut writer = Create::new("host").create(&base).unwrap();
    long(&mut writer, 1..11);
    writer.flush().unwrap();
    long(&mut writer, 11..12);
    std::mem::forget(writer);
    assert_eq!(read(&base).records.len(), 10);
    // Records of another writer follow.
    let mut writer = Writer::append(&base).unwrap();
    assert_eq!(writer.last(), Some(at(10)));
    long(&mut writer, 10..20);
    drop(writer);
    let content = read(&base);
    assert_eq!(content.records.len(), 20);
    assert_eq!(content.records.last().unwrap().0, at(19));
}

/// Returns the names in a directory, sorted.
fn names(dir: &Path) -> Vec<String> {
    let names = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

#[test]
fn a_discarded_archive_leaves_no_files() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().join("a");
    let mut writer = Create::new("host").create(&base).unwrap();
    long(&mut writer, 1..40);
    writer.next_volume();
    long(&mut writer, 40..80);
    writer.flush().unwrap();
    // The next volume would have the name of a file that the writer has not created.
    std::fs::write(dir.path().join("a.2"), "of another program").unwrap();
    writer.next_volume();
    let mut values = ResultWriter::new();
    values.begin();
    push(&mut values, 0, &[1], 7);
    assert!(writer.values(at(90), &mut values).is_err());
    assert_eq!(names(dir.path()), ["a.0", "a.1", "a.2", "a.index", "a.meta"]);
    writer.discard().unwrap();
    assert_eq!(names(dir.path()), ["a.2"]);

    let mut writer = Create::new("host").create(dir.path().join("b")).unwrap();
    long(&mut writer, 1..40);
    writer.finish_or_discard().unwrap();
    let mut writer = Writer::append(dir.path().join("b")).unwrap();
    writer.mark(at(100)).unwrap();
    writer.discard().unwrap();
    assert_eq!(Archive::open(dir.path().join("b")).unwrap().end().unwrap(), at(39));
}

#[test]
fn volumes_and_index() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().join("a");
    let mut writer = Create::new("host").volume_size(300_000).create(&base).unwrap();
    long(&mut writer, 1..1001);
    assert_eq!(writer.volume(), 3);
    writer.finish().unwrap();
    let archive = Archive::open(&base).unwrap();
    let lens: Vec<u64> = (0..4).map(|volume| archive.first().volume_len(volume).unwrap()).collect();
    assert!(lens.iter().all(|len| *len <= 300_000), "{lens:?}");
    assert_eq!(read(&base).records.len(), 1000);
    let index = archive.first().index();
    let of = |volume| index.iter().filter(|entry| entry.volume == volume).collect::<Vec<_>>();
    for volume in 0..3 {
        let offsets: Vec<i64> = of(volume).iter().map(|entry| entry.data).collect();
        assert_eq!((offsets.len(), offsets[0]), (3, 808), "volume {volume}: {offsets:?}");
        assert!(offsets.windows(2).all(|pair| (98_000..=100_000).contains(&(pair[1] - pair[0]))), "{offsets:?}");
    }
    let last = index.last().unwrap();
    assert_eq!(
        (last.time, last.data as u64, last.meta as u64),
        (at(1000), lens[3], archive.first().meta_len().unwrap())
    );
    let middle = of(1)[1];
    let mut cursor = archive.cursor();
    cursor.seek(middle.time);
    assert_eq!(cursor.forward().unwrap().unwrap().time, middle.time);
}

#[test]
fn a_delta_is_shorter() {
    let dir = tempfile::tempdir().unwrap();
    let mut lens = Vec::new();
    for (base, version) in [("a", Version::V2), ("b", Version::V3)] {
        let mut writer = Create::new("host").version(version).create(dir.path().join(base)).unwrap();
        let mut values = ResultWriter::new();
        describe(&mut writer, 1);
        for second in 1..100 {
            let names: Vec<String> = (second..second + 50).map(|inst| format!("instance {inst}")).collect();
            let list: Vec<_> = (second..).zip(&names).map(|(i, name)| (Inst::new(i), name.as_bytes())).collect();
            writer.instances(at(second.into()), indom(), &list).unwrap();
            values.begin();
            push(&mut values, 0, &[second], second);
            writer.values(at(second.into()), &mut values).unwrap();
        }
        writer.finish().unwrap();
        let archive = Archive::open(dir.path().join(base)).unwrap();
        let last = archive.metadata().instance_names().instances(indom(), at(99)).unwrap();
        assert_eq!((last.len(), last[0].inst, last[0].name), (50, 99, &b"instance 99"[..]));
        lens.push(archive.first().meta_len().unwrap());
    }
    assert!(lens[1] * 10 < lens[0], "{lens:?}");
}

fn refused(what: &str, result: pcp_archive::Result, code: Error, reason: &str) {
    let error = result.unwrap_err();
    assert_eq!(error.code(), code, "{what}: {error}");
    assert!(error.to_string().contains(reason), "{what}: {error}");
}

#[test]
fn what_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().join("a");
    let invalid = Error::from_errno(22);
    let new = Create::new("host").version(Version::V2);
    let long = Create::new("h".repeat(64)).version(Version::V2).create(&base).map(drop);
    refused("host", long, invalid, "the host name has 64 bytes; archives of version 2 hold 63");
    for end in ["", "b/", "b/.", ".."] {
        let end = new.create(dir.path().join(end)).map(drop);
        refused("directory", end, invalid, "this is a directory, not the base name of an archive");
    }
    let early = Create::new("host").start(at(-1));
    let inexact = Create::new("host").start(Stamp { seconds: 1, nanoseconds: 1_000_000_000 });
    for (options, reason) in [
        (&early, "the time is before 1970"),
        (&inexact, "1000000000 nanoseconds are over a second"),
        (&new.clone().start(at(1 << 31)), "archives of version 2 have no time after 19 January 2038"),
    ] {
        refused("start", options.create(&base).map(drop), invalid, reason);
        assert_eq!(names(dir.path()), [""; 0]);
    }
    let mut writer = new.create(&base).unwrap();
    refused("files", new.create(&base).map(drop), Error::from_errno(17), "a.meta: File exists");
    let other = RawDesc { units: 1, ..desc(0) };
    writer.metric(&desc(0), &[b"a"]).unwrap();
    refused(
        "units",
        writer.metric(&other, &[b"a"]),
        Error::LOGCHANGEUNITS,
        "metric 253.0.0 is in the archive with another units",
    );
    refused(
        "name",
        writer.metric(&desc(1), &[b"a"]),
        Error::NAME,
        "name \"a\" of metric 253.0.1 is that of metric 253.0.0",
    );
    refused("no name", writer.metric(&desc(1), &[]), Error::NAME, "metric 253.0.1 has no name");
    let mut values = ResultWriter::new();
    values.begin();
    push(&mut values, 1, &[1], 1);
    refused(
        "unknown",
        writer.values(at(5), &mut values),
        Error::PMID_LOG,
        "a.0: metric 253.0.1 has values, but no descriptor",
    );
    let wrong = RawDesc { ty: Type::U32.code(), ..desc(1) };
    writer.metric(&wrong, &[b"b"]).unwrap();
    refused(
        "type",
        writer.values(at(5), &mut values),
        invalid,
        "metric 253.0.1 are not encoded as its type U32 requires",
    );
    values.begin();
    push(&mut values, 0, &[1], 5);
    writer.values(at(5), &mut values).unwrap();
    refused(
        "time",
        writer.values(at(4), &mut values),
        invalid,
        "the time of the record, 4.000000000, is before 5.000000000",
    );
    refused("late", writer.mark(at(1 << 31)), invalid, "archives of version 2 have no time after 19 January 2038");
    refused("early", writer.mark(at(-1)), invalid, "the time is before 1970");
    let early = writer.instances(at(4), indom(), &[(Inst::new(1), b"a")]);
    refused("instances", early, invalid, "a.meta: the time of the metadata, 4.000000000, is before 5.000000000");
    assert!(writer.mark(at(4)).unwrap_err().is_refusal());
    let twice = writer.instances(at(5), indom(), &[(Inst::new(1), b"a"), (Inst::new(1), b"b")]);
    assert!(twice.as_ref().unwrap_err().is_refusal());
    refused("instances", twice, invalid, "instance 1 of domain 253.7 is in the list twice");
    refused("text", writer.text(Subject::InDom(indom()), TextKind::Help, b"a\0b"), invalid, "a help text has a NUL");
    writer.finish().unwrap();
    assert_eq!(read(&base).records.len(), 1);
}

#[test]
fn archives_that_cannot_be_continued() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().join("a");
    let mut writer = Create::new("host").create(&base).unwrap();
    long(&mut writer, 1..5);
    writer.finish().unwrap();
    let append = || Writer::append(&base).map(drop);
    let change = |suffix: &str, change: &dyn Fn(&mut Vec<u8>), code, reason: &str| {
        let path = dir.path().join(format!("a.{suffix}"));
        let whole = std::fs::read(&path).unwrap();
        let mut changed = whole.clone();
        change(&mut changed);
        std::fs::write(&path, &changed).unwrap();
        refused(suffix, append(), code, reason);
        assert_eq!(std::fs::read(&path).unwrap(), changed);
        std::fs::write(&path, whole).unwrap();
    };
    change("0", &|bytes| bytes.truncate(bytes.len() - 1), Error::LOGREC, "are left in the file");
    change("index", &|bytes| bytes.truncate(bytes.len() - 1), Error::LOGREC, "ends in the middle of an entry");
    change("meta", &|bytes| bytes.truncate(bytes.len() - 1), Error::LOGREC, "are left in the file");
    // Readers ignore a few bytes at the end, but not between records.
    change("meta", &|bytes| bytes.extend([0; 7]), Error::LOGREC, "the last whole record ends at byte");
    change("0", &|bytes| bytes.extend([0; 3]), Error::LOGREC, "the last whole record ends at byte");
    std::fs::rename(dir.path().join("a.index"), dir.path().join("i")).unwrap();
    refused("no index", append(), Error::LOGFILE, "the archive has no file .index to continue");
    std::fs::rename(dir.path().join("i"), dir.path().join("a.index")).unwrap();
    // Another user may have put a link there, which leads to a file of that user.
    std::fs::rename(dir.path().join("a.index"), dir.path().join("i")).unwrap();
    std::os::unix::fs::symlink("i", dir.path().join("a.index")).unwrap();
    assert_eq!(append().unwrap_err().code(), Error::from_errno(40), "ELOOP");
    std::fs::rename(dir.path().join("i"), dir.path().join("a.index")).unwrap();
    append().unwrap();
}
