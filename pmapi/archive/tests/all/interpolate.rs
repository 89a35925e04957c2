//! Interpolation: each value follows from the records around its time, in whatever order values are requested.
#![allow(clippy::panic, clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use pcp_archive::{Archive, Interpolation, Interpolator, Marks, Rule, Wrap};
use pcp_pdu::event::Stamp;
use pcp_pdu::profile::Profile;
use pcp_pdu::result::RawValue;
use pmapi::{Error, OptionWord as _, PmId};
use proptest::prelude::*;

const INDOM: u32 = 253 << 22 | 7;
const COUNTER: u32 = 253 << 22 | 1;
const INSTANT: u32 = 253 << 22 | 2;
const DISCRETE: u32 = 253 << 22 | 3;
const PMIDS: [u32; 3] = [COUNTER, INSTANT, DISCRETE];

/// Record: its time in milliseconds, and its values as metric, instance and value. A `<mark>` has no values.
type Recorded = (u64, Vec<Valued>);

/// Value of an instance: metric, instance, value.
type Valued = (u32, u32, u32);

fn framed(out: &mut Vec<u8>, body: &[u8]) {
    let len = (body.len() as u32 + 8).to_be_bytes();
    out.extend_from_slice(&[&len[..], body, &len].concat());
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn label(volume: i32) -> Vec<u8> {
    let mut out = Vec::new();
    framed(&mut out, &[words(&[0x5005_2602, 1, 0, 0, volume as u32]), vec![b'h'; 2], vec![0; 102]].concat());
    out
}

/// Writes an archive without an index: a counter and an instant metric of a domain, and a discrete singular one.
/// `instances` has the instances of the domain from a time on, in milliseconds.
fn write(dir: &Path, instances: &[(u64, Vec<u32>)], records: &[Recorded]) {
    let mut meta = label(-1);
    for (pmid, indom, semantics, name) in
        [(COUNTER, INDOM, 1, b'c'), (INSTANT, INDOM, 3, b'i'), (DISCRETE, u32::MAX, 4, b'd')]
    {
        framed(&mut meta, &[words(&[1, pmid, 1, indom, semantics, 0, 1, 1]), vec![name]].concat());
    }
    let time = |milli: u64| words(&[(milli / 1000) as u32, (milli % 1000 * 1000) as u32]);
    for (milli, insts) in instances {
        let offsets: Vec<u32> = (0..insts.len() as u32).map(|at| 2 * at).collect();
        let names: Vec<u8> = insts.iter().flat_map(|inst| [b'a' + (inst % 26) as u8, 0]).collect();
        let head = [words(&[2]), time(*milli), words(&[INDOM, insts.len() as u32])].concat();
        framed(&mut meta, &[head, words(insts), words(&offsets), names].concat());
    }
    let mut data = label(0);
    for (milli, values) in records {
        let mut pmids: Vec<u32> = values.iter().map(|(pmid, ..)| *pmid).collect();
        pmids.sort_unstable();
        pmids.dedup();
        let mut body = [time(*milli), words(&[pmids.len() as u32])].concat();
        for pmid in pmids {
            let set: Vec<_> = values.iter().filter(|value| value.0 == pmid).collect();
            body.extend(words(&[pmid, set.len() as u32, 0]));
            set.iter().for_each(|(_, inst, value)| body.extend(words(&[*inst, *value])));
        }
        framed(&mut data, &body);
    }
    fs::write(dir.join("x.meta"), meta).unwrap();
    fs::write(dir.join("x.0"), data).unwrap();
}

fn stamp(milli: u64) -> Stamp {
    Stamp { seconds: (milli / 1000) as i64, nanoseconds: (milli % 1000) as u32 * 1_000_000 }
}

fn pmids() -> Vec<PmId> {
    PMIDS.iter().filter_map(|word| PmId::from_word(*word)).collect()
}

/// Values as metric, instance, value.
fn values(interpolator: &mut Interpolator<'_>) -> Option<Vec<Valued>> {
    let sample = interpolator.fetch().unwrap()?;
    let sets = sample.sets().flat_map(|set| {
        set.values().map(move |(inst, value)| match value {
            RawValue::InSitu(word) => (set.pmid().word(), inst.word(), word),
            RawValue::Block(..) => panic!("block"),
        })
    });
    Some(sets.collect())
}

/// Returns the expected values, from all records, by the definition. `around` returns the last value at or before the
/// time and the first one at or after it, unless a `<mark>` is between. On a grid forward, a `<mark>` of exactly the time
/// is after it, unless the grid begins there.
fn expected(records: &[Recorded], at: u64, rule: Rule, is_continued: bool) -> Vec<Valued> {
    let mut found = Vec::new();
    for (pmid, insts) in [(COUNTER, &[0, 1, 2][..]), (INSTANT, &[0, 1, 2]), (DISCRETE, &[u32::MAX])] {
        for inst in insts {
            let value = |record: &Recorded| record.1.iter().find(|v| (v.0, v.1) == (pmid, *inst)).map(|v| v.2);
            let stops = |record: &&Recorded| record.1.is_empty() || value(record).is_some();
            let valued = |record: &Recorded| Some((record.0, value(record)?));
            let is_before =
                |record: &&Recorded| record.0 < at || (record.0 == at && !(is_continued && record.1.is_empty()));
            let prior = records.iter().rev().filter(is_before).find(stops).and_then(valued);
            let next = records.iter().filter(|record| record.0 >= at).find(stops).and_then(valued);
            let is_near = |prior: u64, next: u64| rule == Rule::Before632 || at - prior <= next - at;
            let value = match (pmid, prior, next) {
                (_, Some((time, value)), _) if time == at => value,
                (DISCRETE, Some((_, value)), None) => value,
                (COUNTER, Some((from, low)), Some((to, high))) => {
                    let second = |milli: u64| milli as f64 / 1000.0;
                    let part = (second(at) - second(from)) * (f64::from(high) - f64::from(low));
                    (0.5 + f64::from(low) + part / (second(to) - second(from))) as u32
                }
                (INSTANT | DISCRETE, Some((from, low)), Some((to, high))) => {
                    if is_near(from, to) {
                        low
                    } else {
                        high
                    }
                }
                _ => continue,
            };
            found.push((pmid, *inst, value));
        }
    }
    found
}

fn recorded() -> impl Strategy<Value = Vec<Recorded>> {
    let value = (0..3_usize, 0..3_u32, 0..1000_u32)
        .prop_map(|(nth, inst, value)| (PMIDS[nth], if nth == 2 { u32::MAX } else { inst }, value));
    let record = (1..20_u64, prop::collection::vec(value, 0..6));
    prop::collection::vec(record, 1..40).prop_map(|steps| {
        let mut time = 0;
        let record = |(step, mut values): (u64, Vec<Valued>)| {
            time += step * 125;
            values.sort_unstable();
            values.dedup_by_key(|value| (value.0, value.1));
            (time, values)
        };
        steps.into_iter().map(record).collect()
    })
}

/// Number of random archives.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(300)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn values_are_those_of_the_records_around(
        records in recorded(), from in 0..80_u64, step in 1..40_u64, is_new in any::<bool>(),
    ) {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &[(0, vec![0, 1, 2])], &records);
        let archive = Archive::open(dir.path().join("x")).unwrap();
        let rule = if is_new { Rule::Since632 } else { Rule::Before632 };
        let new = || archive.interpolator(&pmids(), &Profile::default(), Interpolation::new().rule(rule));
        let end = records.last().unwrap().0;
        let has_passed_mark = |from: u64, to: u64| records.iter().any(|r| r.1.is_empty() && (from..=to).contains(&r.0));
        let (mut forward, mut last) = (new(), None::<(u64, bool)>);
        forward.seek(stamp(from * 125), step as i64 * 125_000_000);
        let mut times = Vec::new();
        for at in (0..).map(|nth| (from + nth * step) * 125).take_while(|at| *at <= end) {
            times.push(at);
            let mut right = expected(&records, at, rule, last.is_some());
            let had = right.iter().any(|value| value.0 == COUNTER);
            // A counter that had values before a `<mark>` has none in the first fetch after it.
            let is_hidden = last.is_some_and(|(last, had)| had && has_passed_mark(last + 1, at));
            right.retain(|value| !is_hidden || value.0 != COUNTER);
            last = Some((at, had && !is_hidden));
            prop_assert_eq!(values(&mut forward), Some(right), "forward at {}", at);
            let mut fresh = new();
            fresh.seek(stamp(at), if at % 2 == 0 { 1 } else { -1 });
            prop_assert_eq!(values(&mut fresh), Some(expected(&records, at, rule, false)), "at {}", at);
        }
        prop_assert_eq!(values(&mut forward), None);
        let Some(latest) = times.last() else { return Ok(()) };
        let (mut backward, mut last) = (new(), None::<(u64, bool)>);
        backward.seek(stamp(*latest), -(step as i64) * 125_000_000);
        for at in times.into_iter().rev() {
            let mut right = expected(&records, at, rule, false);
            let had = right.iter().any(|value| value.0 == COUNTER);
            let is_hidden = last.is_some_and(|(last, had)| had && has_passed_mark(at, last - 1));
            right.retain(|value| !is_hidden || value.0 != COUNTER);
            last = Some((at, had && !is_hidden));
            prop_assert_eq!(values(&mut backward), Some(right), "backward at {}", at);
        }
    }
}

fn all(archive: &Archive, rules: Interpolation, from: u64, step: i64) -> Vec<Recorded> {
    let mut interpolator = archive.interpolator(&pmids(), &Profile::default(), rules);
    interpolator.seek(stamp(from), step * 1_000_000);
    let times = (0..).map(|nth| (from as i64 + nth * step) as u64);
    times.map_while(|time| Some((time, values(&mut interpolator)?))).collect()
}

#[test]
fn instances_of_a_large_domain_are_born_and_die() {
    let dir = tempfile::tempdir().unwrap();
    let insts = |without: u32| (0..17).filter(|inst| *inst != without).collect::<Vec<_>>();
    // Instance 3 is born at 2 s, and 5 dies at 3 s.
    let domains = [(0, insts(3)), (2000, (0..17).collect()), (3000, insts(5))];
    let records: Vec<Recorded> =
        (0..5).map(|s| (s * 1000, vec![(INSTANT, 3, s as u32), (INSTANT, 5, s as u32), (INSTANT, 6, 1)])).collect();
    write(dir.path(), &domains, &records);
    let archive = Archive::open(dir.path().join("x")).unwrap();
    for (from, step) in [(0, 500), (4000, -500)] {
        for (time, values) in all(&archive, Interpolation::new(), from, step) {
            let has = |inst: u32| values.iter().any(|value| value.1 == inst);
            assert_eq!((has(3), has(5), has(6)), (time >= 2000, time <= 3000, true), "at {time}");
        }
    }
}

#[test]
fn counters_wrap_and_marks_are_ignored_on_request() {
    let dir = tempfile::tempdir().unwrap();
    let records = [(0, vec![(COUNTER, 0, u32::MAX)]), (1000, vec![]), (4000, vec![(COUNTER, 0, 3)])];
    write(dir.path(), &[(0, vec![0])], &records);
    let archive = Archive::open(dir.path().join("x")).unwrap();
    let at_3s = |rules| all(&archive, rules, 3000, 1000).first().map(|(_, values)| values.clone());
    assert_eq!(at_3s(Interpolation::new()), Some(vec![]));
    let ignored = Interpolation::new().marks(Marks::Ignored);
    assert_eq!(at_3s(ignored), Some(vec![(COUNTER, 0, 1_073_741_826)]));
    assert_eq!(at_3s(ignored.wrap(Wrap::Wraps)), Some(vec![(COUNTER, 0, 2)]));
}

#[test]
fn unknown_metrics_and_damage() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &[(0, vec![0])], &[(0, vec![(DISCRETE, u32::MAX, 1)]), (1000, vec![(DISCRETE, u32::MAX, 2)])]);
    let archive = Archive::open(dir.path().join("x")).unwrap();
    let unknown = PmId::from_word(9).unwrap();
    let mut interpolator = archive.interpolator(&[unknown], &Profile::default(), Interpolation::new());
    let sample = interpolator.fetch().unwrap().unwrap();
    assert_eq!(sample.sets().map(|set| set.error()).collect::<Vec<_>>(), [Some(Error::PMID_LOG)]);
    assert_eq!(sample.sets().next().unwrap().values().len(), 0);
    // A value in a block, although the type is an integer.
    let mut data = fs::read(dir.path().join("x.0")).unwrap();
    data[156..160].copy_from_slice(&1_u32.to_be_bytes());
    fs::write(dir.path().join("x.0"), data).unwrap();
    let archive = Archive::open(dir.path().join("x")).unwrap();
    let mut interpolator = archive.interpolator(&pmids(), &Profile::default(), Interpolation::new());
    let error = interpolator.fetch().unwrap_err();
    assert!(error.code() == Error::LOGREC && error.to_string().contains("x.0: byte "), "{error}");
}

/// Memory of a grid depends on the number of values wanted: not on the length of the archive, nor on its other metrics.
#[test]
fn memory_of_a_grid() {
    let used = |records: u64, instances: u32, pmid: u32| {
        let dir = tempfile::tempdir().unwrap();
        let values = |at: u64| {
            let number = (at / 7) as u32;
            let mut values: Vec<Valued> = (0..instances).map(|inst| (INSTANT, inst, number + inst)).collect();
            values.push((DISCRETE, u32::MAX, number));
            values
        };
        let records: Vec<Recorded> = (1..=records).map(|at| (at * 100, values(at))).collect();
        write(dir.path(), &[(0, (0..instances).collect())], &records);
        let archive = Archive::open(dir.path().join("x")).unwrap();
        let mut count = 0;
        let used = allocation_counter::measure(|| {
            let pmids = [PmId::from_word(pmid).unwrap()];
            let mut grid = archive.interpolator(&pmids, &Profile::default(), Interpolation::new());
            grid.seek(Stamp { seconds: 1, nanoseconds: 0 }, 500_000_000);
            while let Some(sample) = grid.fetch().unwrap() {
                count += sample.sets().map(|set| set.values().len()).sum::<usize>();
            }
        });
        assert!(count > records.len() / 6, "{count}");
        used.bytes_max
    };
    let (single, all) = (used(2000, 100, DISCRETE), used(2000, 100, INSTANT));
    // Most of it is the part of the file that is in memory.
    assert!(single < 512 << 10, "{single}");
    assert!(all < single + 100 * 1024, "{single} {all}");
    let (long_single, long_all) = (used(8000, 100, DISCRETE), used(8000, 100, INSTANT));
    assert_eq!((long_single, long_all), (single, all));
}

/// On a grid forward, the first of several records of a time has the value at that time; libpcp has the last one at the
/// origin of a grid, and backward. Between two times, the last one before and the first one after count.
#[test]
fn several_records_of_a_time() {
    let record = |second: u64, value: u32| (second * 1000, vec![(COUNTER, 0, value), (INSTANT, 0, value)]);
    let records: Vec<Recorded> = [(0, 0), (0, 100), (10, 200), (10, 250), (10, 300), (20, 400), (20, 500)]
        .map(|(at, value)| record(at, value))
        .into();
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &[(0, vec![0])], &records);
    let archive = Archive::open(dir.path().join("x")).unwrap();
    let grid = |pmid: u32, origin: u64, step: i64, count: usize| {
        let pmids = [PmId::from_word(pmid).unwrap()];
        let mut interpolator = archive.interpolator(&pmids, &Profile::default(), Interpolation::new());
        interpolator.seek(stamp(origin * 1000), step * 1_000_000_000);
        (0..count).map(|_| values(&mut interpolator).unwrap()[0].2).collect::<Vec<_>>()
    };
    assert_eq!(grid(COUNTER, 0, 5, 5), [100, 150, 200, 350, 400]);
    assert_eq!(grid(COUNTER, 10, 5, 3), [300, 350, 400]);
    assert_eq!(grid(COUNTER, 20, -5, 5), [500, 350, 300, 150, 100]);
    assert_eq!(grid(INSTANT, 0, 5, 5), [100, 100, 200, 300, 400]);
    assert_eq!(grid(COUNTER, 1, 1, 20)[9..12], [200, 310, 320]);
}
