//! Interpolation over records of the same time compared with libpcp.

use std::path::Path;

use pcp_archive::Archive;
use pcp_pdu::event::Stamp;
use pmapi::Semantics;

use super::interpolate::{Grid, Random, libpcp, ours};
use super::oracle;

const PMID: u32 = 253 << 22 | 1;

/// Writes an archive of version 2. Records have a time in seconds and a value, or none for a mark.
fn write(base: &Path, semantics: Semantics, records: &[(u32, Option<u32>)]) {
    let framed = |body: &[u8]| {
        let len = (body.len() as u32 + 8).to_be_bytes();
        [&len[..], body, &len].concat()
    };
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>();
    let label = |volume: i32| {
        let mut text = b"host".to_vec();
        text.resize(64, 0);
        text.extend(b"UTC");
        text.resize(104, 0);
        framed(&[words(&[0x5005_2602, 1, records[0].0, 0, volume as u32]), text].concat())
    };
    let desc = [words(&[1, PMID, 1, u32::MAX, semantics.code() as u32, 0, 1, 3]), b"a.b".to_vec()].concat();
    let data = records.iter().flat_map(|(time, value)| {
        let set = value.map(|value| words(&[1, PMID, 1, 0, u32::MAX, value])).unwrap_or_else(|| words(&[0]));
        framed(&[words(&[*time, 0]), set].concat())
    });
    std::fs::write(base.with_extension("meta"), [label(-1), framed(&desc)].concat()).unwrap();
    std::fs::write(base.with_extension("0"), [label(0), data.collect()].concat()).unwrap();
}

/// Each archive has one metric: with several, the value depends in libpcp on what it reads for the others.
#[test]
#[ignore = "needs PCP"]
// Slow: libpcp replays many small archives, too.
fn several_records_of_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let oracle = oracle(dir.path());
    let (mut values, mut differences) = (0, Vec::new());
    for round in 0..60 {
        let mut random = Random(round);
        let (mut time, mut value, mut records) = (1000, 0, Vec::new());
        let semantics = [Semantics::Counter, Semantics::Instant, Semantics::Discrete][random.below(3) as usize];
        for _ in 0..4 + random.below(8) {
            value += 1 + random.below(50) as u32;
            let is_mark = random.below(8) == 0 && !records.is_empty();
            records.push((time, Some(value).filter(|_| !is_mark)));
            time += [0, 0, 2, 5][random.below(4) as usize];
        }
        let base = dir.path().join(format!("x{round}"));
        write(&base, semantics, &records);
        let archive = Archive::open(&base).unwrap();
        let end = archive.end().unwrap().seconds;
        let at = |seconds: i64| Stamp { seconds, nanoseconds: 0 };
        let steps = [500, 1000, 2000, 5000, -500, -1000, -2000];
        let grids: Vec<_> = steps
            .iter()
            .flat_map(|step| (999..=end + 1).map(|origin| Grid { origin: at(origin), delta: *step, count: 12 }))
            .collect();
        let theirs = String::from_utf8(libpcp(&oracle, 1, "all", &base, &grids)).unwrap();
        let found = String::from_utf8(ours(&archive, 1, "all", &grids)).unwrap();
        let is_mark = |fetch: &str| {
            let second = fetch.split_whitespace().next().and_then(|time| time.strip_suffix(".000000"));
            records.iter().any(|(time, value)| value.is_none() && second == Some(&*time.to_string()))
        };
        for (a, b) in found.split("fetch ").zip(theirs.split("fetch ")) {
            // At the time of a mark, libpcp may return 0 or nothing in place of a discrete value.
            if a != b && !(semantics == Semantics::Discrete && is_mark(a)) {
                differences.push(format!("{semantics:?} {records:?}: ours {a}, libpcp's {b}"));
            }
            values += 1;
        }
    }
    assert!(differences.is_empty(), "{} differ: {}", differences.len(), differences.join("\n"));
    assert!(values > 20_000, "{values}");
}
