//! Compressed volumes: the values are those of the plain file, and only the needed blocks are decompressed.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use pcp_archive::{Archive, Create, Direction, Interpolation};
use pcp_pdu::event::Stamp;
use pcp_pdu::profile::Profile;
use pcp_pdu::result::RawValue;
use pcp_pdu::result_writer::ResultWriter;
use pmapi::{Atom, Desc, InDom, Inst, PmId, Semantics, Type, Units};

const INSTANCES: u32 = 300;
const RECORDS: u32 = 80;

fn pmid(item: u32) -> PmId {
    PmId::from_word(253 << 22 | item).unwrap()
}

/// Writes an archive with a long singular text, a domain of numbers, and a singular number after it in each record.
fn write(dir: &Path) -> PathBuf {
    write_from(dir.join("a"), 1_700_000_000)
}

fn write_from(base: PathBuf, start: i64) -> PathBuf {
    let mut writer = Create::new("localhost").create(&base).unwrap();
    let indom = InDom::from_word(253 << 22 | 1).unwrap();
    let metrics = [(1, Type::String, None), (2, Type::U64, Some(indom)), (3, Type::U32, None)];
    for (item, ty, indom) in metrics {
        let desc = Desc { pmid: pmid(item), ty, indom, semantics: Semantics::Instant, units: Units::NONE };
        writer.metric(&desc.into(), &[format!("m.n{item}").as_bytes()]).unwrap();
    }
    let names: Vec<String> = (0..INSTANCES).map(|inst| format!("i{inst}")).collect();
    let list: Vec<_> = (0..).zip(&names).map(|(inst, name)| (Inst::new(inst), name.as_bytes())).collect();
    let mut values = ResultWriter::new();
    for nth in 0..RECORDS {
        let time = Stamp { seconds: start + i64::from(nth), nanoseconds: 0 };
        writer.instances(time, indom, &list).unwrap();
        values.begin();
        values.begin_set(Some(pmid(1)));
        let text = format!("{nth} ").repeat(15_000);
        values.push(None, Type::String, Atom::String(text.as_bytes())).unwrap();
        values.end_set(Ok(()));
        values.begin_set(Some(pmid(2)));
        for inst in 0..INSTANCES {
            let number = u64::from(nth.wrapping_mul(inst).wrapping_mul(2_654_435_761));
            values.push(Some(Inst::new(inst)), Type::U64, Atom::U64(number)).unwrap();
        }
        values.end_set(Ok(()));
        values.begin_set(Some(pmid(3)));
        values.push(None, Type::U32, Atom::U32(nth)).unwrap();
        values.end_set(Ok(()));
        writer.values(time, &mut values).unwrap();
    }
    writer.finish().unwrap();
    base
}

/// Returns values as text, long ones by a checksum.
fn shown<'v>(values: impl Iterator<Item = (Option<Inst>, RawValue<'v>)>) -> Vec<String> {
    let sum = |bytes: &[u8]| bytes.iter().fold(0_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
    let value = |(inst, value)| match value {
        RawValue::Block(code, bytes) => format!("{inst:?} {code} {} {:x}", bytes.len(), sum(bytes)),
        RawValue::InSitu(word) => format!("{inst:?} {word}"),
    };
    values.map(value).collect()
}

/// Reads all values in every way, as text.
fn read(base: &Path) -> Vec<String> {
    let archive = Archive::open(base).unwrap();
    let mut all = vec![format!("{:?}", archive.end().unwrap())];
    for direction in [Direction::Forward, Direction::Backward] {
        let mut cursor = archive.cursor();
        cursor.seek(if direction == Direction::Forward { archive.label().start } else { archive.end().unwrap() });
        while let Some(record) = cursor.next(direction).unwrap() {
            all.push(format!(
                "{:?} {:?}",
                record.time,
                record.values.iter().map(|set| shown(set.values())).collect::<Vec<_>>()
            ));
        }
        cursor.seek(if direction == Direction::Forward { archive.label().start } else { archive.end().unwrap() });
        while let Some(fetched) = cursor.fetch(direction, &[pmid(3)], &Profile::default()).unwrap() {
            all.push(format!("{:?} {:?}", fetched.time, shown(fetched.sets()[0].values())));
        }
    }
    let mut values = archive.interpolator(&[pmid(2), pmid(3)], &Profile::default(), Interpolation::new());
    values.seek(archive.label().start, 7_300_000_000);
    while let Some(sample) = values.fetch().unwrap() {
        all.push(format!("{:?} {:?}", sample.time, sample.sets().map(|set| shown(set.values())).collect::<Vec<_>>()));
    }
    all
}

fn xz(base: &Path, args: &[&str]) {
    let file = base.with_extension("0");
    assert!(Command::new("xz").args(args).arg(file).status().unwrap().success());
}

/// Compresses as compress(1) may do: all codes are bytes, and the table is cleared before they would get wider.
fn compress(bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![0x1f, 0x9d, 0x90];
    for part in bytes.chunks(248) {
        // 256 clears the table, and ends a group of eight codes.
        let codes: Vec<u32> = part.iter().map(|byte| u32::from(*byte)).chain([256, 0, 0, 0, 0, 0, 0, 0]).collect();
        let (mut bits, mut have) = (0, 0);
        for code in codes {
            (bits, have) = (bits | code << have, have + 9);
            while have >= 8 {
                out.push(bits as u8);
                (bits, have) = (bits >> 8, have - 8);
            }
        }
        if have > 0 {
            out.push(bits as u8);
        }
    }
    out
}

/// Only the wanted value sets of long records are read.
#[test]
fn few_metrics_of_long_records() {
    let dir = tempfile::tempdir().unwrap();
    let archive = Archive::open(write(dir.path())).unwrap();
    for pmids in [&[pmid(1)][..], &[pmid(2)], &[pmid(3)], &[pmid(3), pmid(1)]] {
        let (mut whole, mut few, profile) = (archive.cursor(), archive.cursor(), Profile::default());
        while let Some(record) = whole.forward().unwrap() {
            let fetched = few.fetch(Direction::Forward, pmids, &profile).unwrap().unwrap();
            assert_eq!(fetched.time, record.time);
            for (pmid, set) in pmids.iter().zip(fetched.sets()) {
                let expected = record.values.iter().find(|set| set.pmid == Some(*pmid)).unwrap();
                assert!(shown(set.values()) == shown(expected.values()), "{pmid} at {:?}", record.time);
            }
        }
        assert!(few.fetch(Direction::Forward, pmids, &profile).unwrap().is_none());
    }
}

/// The end of a compressed archive is searched for only once.
#[test]
fn a_gap_behind_a_compressed_volume() {
    let dir = tempfile::tempdir().unwrap();
    let first = write(dir.path());
    let last = Archive::open(&first).unwrap().end().unwrap();
    xz(&first, &[]);
    write_from(dir.path().join("b"), last.seconds + 100);
    let archive = Archive::open(dir.path()).unwrap();
    let at = |seconds| Stamp { seconds: last.seconds + seconds, ..last };
    assert!(archive.is_gap(at(50)).unwrap());
    let used = allocation_counter::measure(|| {
        assert!(!archive.is_gap(last).unwrap());
        assert!(archive.is_gap(at(99)).unwrap());
        assert!(!archive.is_gap(at(100)).unwrap());
    });
    assert_eq!(used.bytes_total, 0);
}

#[test]
// Slow: the test's own compressor is a plain one.
fn a_volume_of_compress() {
    let dir = tempfile::tempdir().unwrap();
    let base = write(dir.path());
    let plain = read(&base);
    for suffix in ["0", "meta", "index"] {
        let file = base.with_extension(suffix);
        fs::write(base.with_extension(format!("{suffix}.Z")), compress(&fs::read(&file).unwrap())).unwrap();
        fs::remove_file(file).unwrap();
    }
    assert!(read(&base) == plain);
}

#[test]
#[cfg(feature = "xz")]
#[ignore = "needs PCP"]
fn blocks_of_xz() {
    let dir = tempfile::tempdir().unwrap();
    let base = write(dir.path());
    let plain = read(&base);
    let len = base.with_extension("0").metadata().unwrap().len();
    assert!(len > 5 << 19);
    xz(&base, &["-0", "--block-size=65536"]);
    assert!(read(&base) == plain);

    // The end, and a time in the middle, need a few blocks.
    let used = allocation_counter::measure(|| {
        let archive = Archive::open(&base).unwrap();
        let (mut cursor, profile) = (archive.cursor(), Profile::default());
        cursor.seek(Stamp { seconds: 1_700_000_040, nanoseconds: 0 });
        let fetched = cursor.fetch(Direction::Forward, &[pmid(3)], &profile).unwrap().unwrap();
        assert_eq!(fetched.time.seconds, 1_700_000_040);
    });
    assert!(used.bytes_max < len / 2, "{} bytes", used.bytes_max);

    // Several streams in sequence, with padding between them.
    let file = base.with_extension("0.xz");
    let whole = fs::read(&file).unwrap();
    xz_parts(&base, &file);
    assert!(read(&base) == plain);

    // A single block is decompressed as a whole.
    fs::write(&file, &whole).unwrap();
    assert!(Command::new("xz").arg("-d").arg(&file).status().unwrap().success());
    xz(&base, &["-0"]);
    assert!(read(&base) == plain);

    // Damage in the middle: data before it can be read, and the error has its position.
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 1;
    fs::write(&file, damaged).unwrap();
    let archive = Archive::open(&base).unwrap();
    let (mut cursor, mut count) = (archive.cursor(), 0);
    let error = loop {
        match cursor.forward() {
            Ok(record) => count += usize::from(record.is_some()),
            Err(e) => break e.to_string(),
        }
    };
    assert!(count > 20 && error.contains("a.0.xz: compressed block "), "{count} records, {error}");

    // A cut file has no index, and is decompressed up to the cut.
    fs::write(&file, &whole[..whole.len() / 2]).unwrap();
    let error = Archive::open(&base).unwrap_err().to_string();
    assert!(error.contains("a.0.xz"), "{error}");
}

/// Replaces a compressed volume by three streams with the same bytes.
fn xz_parts(base: &Path, file: &Path) {
    assert!(Command::new("xz").arg("-dk").arg(file).status().unwrap().success());
    let plain = base.with_extension("0");
    let bytes = fs::read(&plain).unwrap();
    let mut parts = Vec::new();
    for part in bytes.chunks(bytes.len() / 3 + 1) {
        fs::write(&plain, part).unwrap();
        let compressed =
            Command::new("xz").args(["-0", "-c", "--block-size=100000"]).arg(&plain).output().unwrap().stdout;
        parts.extend(compressed);
        parts.extend([0; 8]);
    }
    fs::write(file, parts).unwrap();
    fs::remove_file(plain).unwrap();
}
