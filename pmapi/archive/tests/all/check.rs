//! Findings in archives that are damaged on purpose.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use pcp_archive::{Check, Create, Place, Version, Weight};
use pcp_pdu::desc::RawDesc;
use pcp_pdu::event::Stamp;
use pcp_pdu::result_writer::ResultWriter;
use pmapi::{Atom, InDom, Inst, PmId, Type};

fn at(seconds: i64) -> Stamp {
    Stamp { seconds, nanoseconds: 0 }
}

/// Writes a counter with these values, one a second.
fn write(base: &Path, version: Version, values: &[Option<u32>]) {
    let mut writer = Create::new("host").version(version).create(base).unwrap();
    let pmid = PmId::from_word(253 << 22 | 1).unwrap();
    let indom = InDom::from_word(253 << 22 | 2).unwrap();
    let desc = RawDesc { pmid: Some(pmid), ty: Type::U32.code(), indom: Some(indom), semantics: 1, units: 0 };
    writer.metric(&desc, &[b"a.count"]).unwrap();
    let mut record = ResultWriter::new();
    for (second, value) in (1..).zip(values) {
        writer.instances(at(second), indom, &[(Inst::new(7), b"seven")]).unwrap();
        let Some(value) = value else {
            writer.mark(at(second)).unwrap();
            continue;
        };
        record.begin();
        record.begin_set(Some(pmid));
        record.push(Some(Inst::new(7)), Type::U32, Atom::U32(*value)).unwrap();
        record.end_set(Ok(()));
        writer.values(at(second), &mut record).unwrap();
    }
    writer.finish().unwrap();
}

fn findings(base: &Path) -> Vec<(Place, Weight, String)> {
    let mut found = Vec::new();
    let worst = Check::new().run(base, |finding| found.push((finding.place, finding.weight, finding.to_string())));
    assert_eq!(worst, found.iter().map(|(_, weight, _)| *weight).max());
    found
}

#[test]
fn counters_that_go_back() {
    let dir = tempfile::tempdir().unwrap();
    for version in [Version::V2, Version::V3] {
        let base = dir.path().join(version.number().to_string());
        write(&base, version, &[Some(1), Some(5), None, Some(2), Some(2)]);
        assert_eq!(findings(&base), []);
    }
    let base = dir.path().join("wrap");
    write(&base, Version::V3, &[Some(5), Some(3)]);
    let found = findings(&base);
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].0, found[0].1), (Place::Time(at(2)), Weight::Wrap));
    let text = "counter a.count[seven] of type U32 went back from 5 at 1.000000000 to 3";
    assert!(found[0].2.ends_with(text), "{}", found[0].2);
}

#[test]
fn damage() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().join("a");
    write(&base, Version::V3, &[Some(1), Some(2)]);
    let with = |suffix: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let path = dir.path().join(format!("a.{suffix}"));
        let whole = std::fs::read(&path).unwrap();
        let mut changed = whole.clone();
        change(&mut changed);
        std::fs::write(&path, changed).unwrap();
        let found = findings(&base);
        std::fs::write(&path, whole).unwrap();
        found
    };
    let one = |suffix: &str, change: &dyn Fn(&mut Vec<u8>), place, weight, text: &str| {
        let found = with(suffix, change);
        assert!(found[0].0 == place && found[0].1 == weight && found[0].2.contains(text), "{suffix}: {found:?}");
    };
    one("0", &|bytes| bytes.truncate(bytes.len() - 1), Place::Record(2), Weight::Fatal, "but 43 are left in the file");
    one(
        "0",
        &|bytes| *bytes.last_mut().unwrap() += 1,
        Place::Record(2),
        Weight::Fatal,
        "length at the end of the record",
    );
    one("meta", &|bytes| bytes[7] = 9, Place::Record(0), Weight::Fatal, "the label is invalid");
    one("index", &|bytes| bytes.push(0), Place::Entry(3), Weight::Fatal, "1 bytes in place of an entry of 32");
    one("index", &|bytes| bytes[808 + 31] = 0, Place::Entry(1), Weight::Warning, "is in the label");
    one("index", &|bytes| bytes[808 + 15] = 1, Place::Entry(1), Weight::Warning, "volume 1 is missing");
    one("index", &|bytes| bytes[808 + 3] = 9, Place::Entry(2), Weight::Warning, "of the entry before");
    let over = Stamp { seconds: 2, nanoseconds: 0xff00_0000 };
    let second = 808 + 44;
    one(
        "0",
        &|bytes| bytes[second + 12] = 0xff,
        Place::Time(over),
        Weight::Warning,
        "4278190080 nanoseconds, over a second",
    );
    let semantics = 808 + 8 + 15;
    one("meta", &|bytes| bytes[semantics] = 77, Place::File, Weight::Warning, "metric a.count (253.0.1): semantics 77");
    std::fs::remove_file(dir.path().join("a.meta")).unwrap();
    assert!(findings(&base)[0].2.contains("no metadata"));
}
