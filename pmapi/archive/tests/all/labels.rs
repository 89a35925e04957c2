//! Labels by time: what of a record repeats the record before.
#![allow(clippy::unwrap_used)]

use pcp_archive::{Archive, Create};
use pcp_pdu::event::Stamp;
use pcp_pdu::result_writer::ResultWriter;
use pmapi::{Atom, Desc, InDom, Inst, LabelLevel, LabelSet, PmId, Semantics, Type, Units};

/// Labels of instances are those of their record, unless all of it repeats the record before (since PCP 6.3.4). Labels on
/// other levels are those that the record before lacks.
#[test]
fn instances_have_the_labels_of_their_record() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().join("a");
    let (pmid, indom) = (PmId::from_word(253 << 22 | 1).unwrap(), InDom::from_word(253 << 22 | 7).unwrap());
    let desc = Desc { pmid, ty: Type::U32, indom: Some(indom), semantics: Semantics::Instant, units: Units::NONE };
    let mut writer = Create::new("host").create(&base).unwrap();
    writer.metric(&desc.into(), &[b"a.b"]).unwrap();
    let at = |seconds| Stamp { seconds, nanoseconds: 0 };
    let mut values = ResultWriter::new();
    for (time, instances) in [(1, [1, 2]), (2, [1, 3]), (3, [1, 3]), (4, [3, 1])] {
        let sets =
            instances.map(|inst| (Some(Inst::new(inst)), LabelSet::parse(&format!("{{\"pid\":{inst}}}")).unwrap()));
        let sets: Vec<_> = sets.iter().map(|(inst, set)| (*inst, set)).collect();
        writer.labels(at(time), (LabelLevel::Instances, indom.word()), &sets).unwrap();
        writer.labels(at(time), (LabelLevel::Item, pmid.word()), &[(None, sets[0].1)]).unwrap();
        values.begin();
        values.begin_set(Some(pmid));
        values.push(Some(Inst::new(1)), Type::U32, Atom::U32(1)).unwrap();
        values.end_set(Ok(()));
        writer.values(at(time), &mut values).unwrap();
    }
    writer.finish().unwrap();
    let archive = Archive::open(&base).unwrap();
    let records = |level: LabelLevel| {
        let all = archive.metadata().label_records().filter(move |record| record.level == level.code());
        all.map(|record| (record.time.seconds, record.sets().map(|set| set.inst).collect::<Vec<_>>()))
            .collect::<Vec<_>>()
    };
    assert_eq!(records(LabelLevel::Instances), [(1, vec![1, 2]), (2, vec![1, 3]), (4, vec![3, 1])]);
    assert_eq!(records(LabelLevel::Item), [(1, vec![u32::MAX]), (4, vec![u32::MAX])]);
    for (time, expected) in [(1, [1, 2]), (3, [1, 3])] {
        let found = archive.metadata().labels(LabelLevel::Instances, indom.word(), at(time)).unwrap().unwrap();
        assert_eq!(found.sets().map(|set| set.inst).collect::<Vec<_>>(), expected);
    }
}
