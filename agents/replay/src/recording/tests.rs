//! Tests of the values and instances at a position in the recording.

use super::*;
use pcp_archive::Create;
use pcp_pdu::result_writer::ResultWriter;
use pmapi::{Desc, Domain, Units};

fn pmid(item: u32) -> PmId {
    PmId::from_word(60 << 22 | item).unwrap()
}

fn at(seconds: u32) -> Stamp {
    Stamp { seconds: seconds.into(), nanoseconds: 0 }
}

/// Writes a counter at each second from 100 to 110, whose value is twice the second. It has one instance, and from
/// 105 on two.
fn recording(dir: &std::path::Path) -> Recording {
    let mut writer = Create::new("host").create(dir.join("a")).unwrap();
    let indom = InDom::from_word(60 << 22 | 1).unwrap();
    let (ty, semantics) = (Type::U32, Semantics::Counter);
    let desc = Desc { pmid: pmid(1), ty, indom: Some(indom), semantics, units: Units::NONE };
    writer.metric(&desc.into(), &[b"a.twice"]).unwrap();
    let mut values = ResultWriter::new();
    for second in 100..=110_u32 {
        let names: [(Inst, &[u8]); 2] = [(Inst::new(0), b"zero"), (Inst::new(1), b"o\x1bne")];
        let names = if second < 105 { &names[..1] } else { &names };
        writer.instances(at(second), indom, names).unwrap();
        values.begin();
        values.begin_set(Some(pmid(1)));
        for (inst, _) in names {
            values.push(Some(*inst), Type::U32, Atom::U32(2 * second)).unwrap();
        }
        values.end_set(Ok(()));
        writer.values(at(second), &mut values).unwrap();
    }
    writer.finish().unwrap();
    let archive: &'static Archive = Box::leak(Box::new(Archive::open(dir.join("a")).unwrap()));
    let metrics = Metrics::original(archive.metadata(), Domain::new(60).unwrap(), "replay.domain60");
    Recording::new(archive, &metrics).unwrap()
}

#[test]
fn no_values_between_two_archives() {
    let dir = tempfile::tempdir().unwrap();
    for (name, second) in [("a", 100), ("b", 120)] {
        let mut writer = Create::new("host").create(dir.path().join(name)).unwrap();
        let (ty, semantics) = (Type::U32, Semantics::Discrete);
        let desc = Desc { pmid: pmid(1), ty, indom: None, semantics, units: Units::NONE };
        writer.metric(&desc.into(), &[b"a.second"]).unwrap();
        let mut values = ResultWriter::new();
        values.begin();
        values.begin_set(Some(pmid(1)));
        values.push(None, Type::U32, Atom::U32(second)).unwrap();
        values.end_set(Ok(()));
        writer.values(at(second), &mut values).unwrap();
        writer.finish().unwrap();
    }
    let archive: &'static Archive = Box::leak(Box::new(Archive::open(dir.path()).unwrap()));
    let metrics = Metrics::original(archive.metadata(), Domain::new(60).unwrap(), "replay.domain60");
    let mut recording = Recording::new(archive, &metrics).unwrap();
    for (seconds, expected) in [(0, &[100][..]), (10, &[]), (20, &[120]), (10, &[]), (0, &[100]), (20, &[120])] {
        assert_eq!(values(&mut recording, 0, seconds), expected, "{seconds}");
    }
}

/// A step over more records than are searched must not keep values from before a mark, or from before a later value.
#[test]
fn a_long_step_keeps_no_values() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Create::new("host").create(dir.path().join("a")).unwrap();
    for (item, name) in [(1, "a.rare"), (2, "a.second")] {
        let (ty, semantics) = (Type::U32, Semantics::Instant);
        let desc = Desc { pmid: pmid(item), ty, indom: None, semantics, units: Units::NONE };
        writer.metric(&desc.into(), &[name.as_bytes()]).unwrap();
    }
    let mut written = ResultWriter::new();
    for second in 0..2000 {
        if second == 900 {
            writer.mark(at(second)).unwrap();
            continue;
        }
        written.begin();
        for (item, _) in [(2, true), (1, [0, 700].contains(&second))].into_iter().filter(|(_, is_here)| *is_here) {
            written.begin_set(Some(pmid(item)));
            written.push(None, Type::U32, Atom::U32(second)).unwrap();
            written.end_set(Ok(()));
        }
        writer.values(at(second), &mut written).unwrap();
    }
    writer.finish().unwrap();
    let archive: &'static Archive = Box::leak(Box::new(Archive::open(dir.path().join("a")).unwrap()));
    let metrics = Metrics::original(archive.metadata(), Domain::new(60).unwrap(), "replay.domain60");
    let mut recording = Recording::new(archive, &metrics).unwrap();
    let steps = [(10, &[0][..]), (400, &[0]), (899, &[700]), (10, &[0]), (700, &[700]), (10, &[0]), (1500, &[])];
    for (seconds, expected) in steps {
        assert_eq!(values(&mut recording, 0, seconds), expected, "{seconds}");
    }
}

fn values(recording: &mut Recording, round: u64, seconds: u64) -> Vec<u32> {
    recording.go(Position { round, offset: Duration::from_secs(seconds) }).unwrap();
    let mut found = Vec::new();
    let put = |_, atom: Result<Atom<'_>, Error>| {
        found.extend(u32::try_from(atom?));
        Ok(())
    };
    recording.values(pmid(1), Type::U32, put).unwrap();
    found
}

#[test]
fn recordings_of_any_length() {
    let seconds = |seconds| Stamp { seconds, nanoseconds: 0 };
    assert_eq!(between(seconds(0), seconds(1 << 62)), Duration::from_secs(1 << 62));
    assert_eq!(between(seconds(i64::MIN), seconds(i64::MAX)), Duration::from_secs(u64::MAX));
    assert_eq!(between(seconds(5), seconds(4)), Duration::ZERO);
    let odd = Stamp { seconds: 7, nanoseconds: 4_000_000_000 };
    assert_eq!(between(seconds(7), odd), Duration::from_secs(4));
    assert_eq!(plus(odd, Duration::from_secs(u64::MAX)).seconds, i64::MAX);
}

#[test]
fn counters_go_on_when_it_begins_anew() {
    let dir = tempfile::tempdir().unwrap();
    let mut recording = recording(dir.path());
    assert_eq!(recording.length(), Duration::from_secs(10));
    assert_eq!(values(&mut recording, 0, 0), [200]);
    assert_eq!(values(&mut recording, 0, 3), [206]);
    assert_eq!(values(&mut recording, 0, 7), [214, 214]);
    // The end was 220, and the start is 200.
    assert_eq!(values(&mut recording, 1, 3), [226]);
    // The other instance continues from 220 when it reappears.
    assert_eq!(values(&mut recording, 1, 5), [230, 220]);
    assert_eq!(values(&mut recording, 3, 4), [268]);
    // A position that a client has stored does not start a round.
    assert_eq!(values(&mut recording, 3, 1), [262]);
    // Between two requests there may be any number of rounds.
    for round in [4, 6, 9, 50, 1_000_000, 1_000_001] {
        assert_eq!(values(&mut recording, round, 4), [208 + 20 * round as u32]);
    }
    // The counter has wrapped.
    assert_eq!(values(&mut recording, u64::MAX, 4), [208_u32.wrapping_sub(20)]);
}

#[test]
fn instances_are_those_of_the_time() {
    let dir = tempfile::tempdir().unwrap();
    let mut recording = recording(dir.path());
    let indom = InDom::from_word(60 << 22 | 1).unwrap();
    for (seconds, expected) in [(0, &["zero"][..]), (4, &["zero"]), (5, &["zero", r"o\u{1b}ne"]), (2, &["zero"])] {
        values(&mut recording, 0, seconds);
        recording.update_instances(indom);
        let mut names = Vec::new();
        recording.instances(indom).unwrap().each(&mut |_, name| names.push(name.to_owned()));
        assert_eq!(names, expected, "{seconds}");
    }
    assert_eq!(recording.instances(indom).unwrap().name(Inst::new(1)), None);
}
