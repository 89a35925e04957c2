//! Contexts of archives that the tests write.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use pcp_archive::Create;
use pcp_context::{Context, FetchGroup, Mode, Value};
use pcp_pdu::event::Stamp;
use pcp_pdu::result_writer::ResultWriter;
use pmapi::{Atom, Desc, Error, InDom, Inst, PmId, Semantics, Type, Units};

const NAMES: [&[u8]; 3] = [b"000010 first", b"000020 second", b"000030 third"];

/// Writes nine records from `start` on, every 10 seconds: the first three have the first instance only, and so on.
fn write(base: &Path, start: i64) {
    let (pmid, indom) = (PmId::from_word(245 << 22 | 1).unwrap(), InDom::from_word(245 << 22 | 1).unwrap());
    let desc = Desc { pmid, ty: Type::U64, indom: Some(indom), semantics: Semantics::Instant, units: Units::NONE };
    let mut writer = Create::new("host").create(base).unwrap();
    writer.metric(&desc.into(), &[b"p.cpu"]).unwrap();
    let mut values = ResultWriter::new();
    for record in 0..9 {
        let (time, nth) = (Stamp { seconds: start + 10 * record, nanoseconds: 0 }, record as usize / 3);
        let inst = Inst::new(10 * (nth as u32 + 1));
        if record % 3 == 0 {
            writer.instances(time, indom, &[(inst, NAMES[nth])]).unwrap();
        }
        values.begin();
        values.begin_set(Some(pmid));
        values.push(Some(inst), Type::U64, Atom::U64(1000 * (nth as u64 + 1) + record as u64)).unwrap();
        values.end_set(Ok(()));
        writer.values(time, &mut values).unwrap();
    }
    writer.finish().unwrap();
}

/// An instance that exists only in the middle of an archive has a name that a fetch group finds at any position.
#[test]
fn instances_at_any_time() {
    let dir = tempfile::tempdir().unwrap();
    write(&dir.path().join("a"), 1_700_000_000);
    for (name, kept) in [("000010", 0..3), ("000020", 3..6), ("000020 second", 3..6), ("000030 third", 6..9)] {
        for mode in [Mode::Forward, Mode::Interpolated { step: 10_000_000_000 }] {
            let mut context = Context::open_archive(dir.path().join("a")).unwrap();
            context.set_mode(mode, None).unwrap();
            let mut group = FetchGroup::new(context);
            let item = group.item("p.cpu", Some(name), None, Type::Double).unwrap();
            for record in 0..9_u32 {
                group.fetch().unwrap();
                let expected = Value::Double(f64::from(1000 * (record / 3 + 1) + record));
                // The last value of an instance has none after it, between which a time would be.
                let found = group.value(item).cloned();
                let is_there = kept.contains(&record);
                assert_eq!(found, if is_there { Ok(expected) } else { Err(Error::VALUE) }, "{name} {mode:?} {record}");
            }
        }
    }
    let mut group = FetchGroup::new(Context::open_archive(dir.path().join("a")).unwrap());
    let error = group.item("p.cpu", Some("000040"), None, Type::Double).unwrap_err();
    assert_eq!(error.code(), Error::INST_LOG);
}

#[test]
fn a_damaged_archive_of_a_folder() {
    let dir = tempfile::tempdir().unwrap();
    for (name, start) in [("a", 1000), ("b", 2000), ("c", 3000)] {
        write(&dir.path().join(name), start);
    }
    std::fs::write(dir.path().join("b.meta"), b"").unwrap();
    let mut context = Context::open_archive(dir.path()).unwrap();
    let skipped = context.archive().unwrap().take_skipped();
    let text = skipped.iter().map(ToString::to_string).collect::<String>();
    assert!(text.contains("b.meta: ") && text.ends_with("the file is empty; the archive is skipped"), "{text}");
    let pmid = context.lookup_name("p.cpu").unwrap();
    let mut seconds = Vec::new();
    while let Ok(sample) = context.fetch(&[pmid]) {
        seconds.push(sample.time().seconds);
    }
    assert_eq!(seconds, [1000, 3000].iter().flat_map(|start| (0..9).map(move |n| start + 10 * n)).collect::<Vec<_>>());
}
