//! Tests of refused metadata.

#![allow(clippy::unwrap_used)]

use pcp_archive::{Archive, Check};
use pcp_pdu::metadata::TextKind;
use pmapi::{Atom, Semantics, Type, Units};

use super::*;

fn pmid(item: u32) -> PmId {
    PmId::from_word(60 << 22 | item).unwrap()
}

fn indom(serial: u32) -> InDom {
    InDom::from_word(60 << 22 | serial).unwrap()
}

fn desc(item: u32, ty: Type) -> Desc {
    Desc { pmid: pmid(item), ty, indom: None, semantics: Semantics::Instant, units: Units::NONE }
}

/// Records one value of each metric, which has the type `U32`, without a request to an agent.
fn sample(recording: &mut Recording, descs: &[Desc]) {
    recording.begin();
    for desc in descs.iter().filter(|desc| recording.is_described(desc)).collect::<Vec<_>>() {
        recording.done.insert(desc.pmid);
        recording.values.begin_set(Some(desc.pmid));
        recording.values.push(None, Type::U32, Atom::U32(desc.pmid.word())).unwrap();
        recording.values.end_set(Ok(()));
    }
    recording.end();
}

fn warnings(recorder: &Recorder) -> Vec<String> {
    recorder.with(|state| std::mem::take(&mut state.warnings))
}

/// Returns the metrics in each record.
fn recorded(base: &Path) -> Vec<Vec<PmId>> {
    let archive = Archive::open(base).unwrap();
    let (mut cursor, mut records) = (archive.cursor(), Vec::new());
    while let Some(record) = cursor.forward().unwrap() {
        records.push(record.values.iter().filter_map(|set| set.pmid).collect());
    }
    records
}

#[test]
fn refused_metadata_is_left_out_with_one_warning() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().join("a");
    let recorder = Arc::new(Recorder::create(&base, None).unwrap());
    let mut odd = Recording::new(recorder.clone(), "odd", None);
    let long = "x".repeat(5000);
    let (first, second, third) = (desc(1, Type::U32), desc(2, Type::U32), desc(3, Type::U32));
    odd.describe(&[(first, "odd.first"), (second, "odd.second"), (third, &long)]);
    odd.batch().instances.push((indom(1), vec![(Inst::new(1), "one".to_owned())]));
    sample(&mut odd, &[first, second, third]);
    let said = warnings(&recorder);
    assert!(said.len() == 1 && said[0].starts_with("odd: the recording leaves out metric 60.0.3: "), "{said:?}");
    assert!(
        said[0].ends_with("\" of metric 60.0.3 is empty, too long, or has a NUL") && said[0].len() < 600,
        "{said:?}"
    );

    for _ in 0..2 {
        // The first name now means the second metric, the second metric has another type, and the third another name.
        odd.describe(&[(second, "odd.first"), (desc(2, Type::U64), "odd.second"), (third, "odd.third")]);
        let list = |inst: u32, name: &str| vec![(Inst::new(inst), name.to_owned())];
        let twice = [list(7, "a"), list(7, "b")].concat();
        odd.batch().instances.extend([(indom(1), twice), (indom(2), list(1 << 31, "a")), (indom(3), list(1, "a\0b"))]);
        odd.batch().texts.push((Subject::Metric(pmid(3)), TextKind::Help, "a\0b".to_owned()));
        odd.batch().texts.push((Subject::Metric(pmid(3)), TextKind::OneLine, "The third".to_owned()));
        sample(&mut odd, &[first, second, third]);
    }
    let said = warnings(&recorder);
    let subjects =
        said.iter().map(|line| line.split(": ").nth(1).unwrap().trim_start_matches("the recording leaves out "));
    assert_eq!(
        subjects.collect::<Vec<_>>(),
        [
            "metric 60.0.2",
            "a help text of metric 60.0.3",
            "a change of instance domain 60.1",
            "a change of instance domain 60.2",
            "a change of instance domain 60.3",
        ]
    );
    assert_eq!(recorder.failure(), None);
    recorder.finish().unwrap();

    assert_eq!(recorded(&base), [vec![pmid(1), pmid(2)], vec![pmid(3)], vec![pmid(3)]]);
    assert_eq!(Check::new().run(&base, |finding| println!("{finding}")), None);
    let archive = Archive::open(&base).unwrap();
    let meta = archive.metadata();
    assert_eq!(meta.names().pmid(b"odd.first").unwrap(), pmid(1));
    assert_eq!(meta.desc(pmid(2)).unwrap().ty, Type::U32);
    assert_eq!(meta.text(pmid(3), TextKind::OneLine).unwrap(), b"The third");
    // Without the help, the one-line help stands for it.
    assert_eq!(meta.text(pmid(3), TextKind::Help).unwrap(), b"The third");
    assert_eq!(meta.instances_ever(indom(1)).unwrap().len(), 1);
}

#[test]
fn an_agent_has_few_warnings() {
    let dir = tempfile::tempdir().unwrap();
    let recorder = Arc::new(Recorder::create(&dir.path().join("a"), None).unwrap());
    let names: Vec<_> = (0..100).map(|item| (desc(item, Type::U32), format!("{item}\0"))).collect();
    let names: Vec<_> = names.iter().map(|(desc, name)| (*desc, name.as_str())).collect();
    for agent in ["a", "b"] {
        Recording::new(recorder.clone(), agent, None).describe(&names);
        let said = warnings(&recorder);
        assert_eq!(said.len(), 11);
        assert_eq!(said[10], format!("{agent}: the recording leaves out more, without further warnings"));
    }
    assert_eq!(recorder.failure(), None);
}

#[test]
fn a_failed_write_ends_the_recording() {
    let dir = tempfile::tempdir().unwrap();
    let recorder = Arc::new(Recorder::create(&dir.path().join("a"), None).unwrap());
    let mut recording = Recording::new(recorder.clone(), "any", None);
    let failed = Archive::open(dir.path().join("none")).unwrap_err();
    assert!(!failed.is_refusal());
    let refusals = &mut recording.refusals;
    recorder.write(refusals, |_, _, refusals| refusals.check(Refused::Sample, Err(failed.clone())).map(drop));
    assert_eq!(recorder.failure(), Some(failed.to_string()));
    recording.describe(&[(desc(1, Type::U32), "any.metric")]);
    assert!(!recording.is_described(&desc(1, Type::U32)));
    assert_eq!(recorder.finish(), Err(failed));
}
