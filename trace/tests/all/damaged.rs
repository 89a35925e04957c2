//! Reading event records of files that are damaged, truncated or hostile.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::LazyLock;

use pcp_trace::protocol::Kind;
use pcp_trace::shared_memory::{Directory, ReadError, Reader, now};
use pcp_trace::{Fields, Options, Tag, Trace, Transport};
use proptest::prelude::*;

use crate::common::{files, ring};

const PAGE: u64 = 4096;

/// A file with two rings, and records with fields.
static GOOD: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let dir = tempfile::tempdir().unwrap();
    let directory = Directory::open(dir.path().join("4323"), dir.path()).unwrap();
    let options = Options::default().directory(directory.path()).ring_len(8192);
    let trace = Trace::new(options.transport(Transport::SharedMemory));
    for n in 0..70 {
        let tag = Tag::new(&format!("tag {n}")).unwrap();
        trace.point_with(&tag, &Fields::new().with("number", n).with("text", "x".repeat(n)));
        trace.begin(&tag).end();
        trace.observe(&tag, 0.5);
    }
    std::thread::scope(|scope| {
        let trace = &trace;
        _ = scope.spawn(move || trace.point(&Tag::new("tag of a thread").unwrap())).join();
    });
    fs::read(ring(&files(directory.files())[0])).unwrap()
});

fn file(bytes: &[u8]) -> File {
    let file = tempfile::tempfile().unwrap();
    file.write_all_at(bytes, 0).unwrap();
    file
}

/// Reads everything twice. Returns the number of records.
fn read(file: File) -> Result<usize, ReadError> {
    let mut reader = Reader::new(file)?;
    let mut records = 0;
    for _ in 0..2 {
        reader.look()?;
        let _ = reader.records(u64::MAX, |record| {
            records += 1;
            let _ = (record.value(Kind::Transact), record.duration(), record.fields().count());
        })?;
    }
    Ok(records)
}

#[test]
fn the_good_one() {
    let records = read(file(&GOOD)).unwrap();
    assert!((20..280).contains(&records), "{records}");
}

/// Reads the good file with some words replaced, by offset in bytes.
fn with(changes: &[(u64, u64)]) -> Result<usize, ReadError> {
    let file = file(&GOOD);
    changes.iter().for_each(|(at, word)| file.write_all_at(&word.to_ne_bytes(), *at).unwrap());
    read(file)
}

#[test]
fn headers_that_lie() {
    let end = 4 * 8;
    for (changes, reason) in [
        (&[(0, 0)][..], "not a trace file"),
        (&[(8, 1)], "unsupported version 1"),
        (&[(16, u64::MAX)], "damaged: process"),
        // An end of blocks far beyond the file, which must not keep the reader busy.
        (&[(end, u64::MAX)], "failed to fill whole buffer"),
        (&[(PAGE + 8, 0)], "damaged: length of a block"),
        (&[(PAGE + 8, 8)], "damaged: length of a block"),
        (&[(PAGE + 8, !(PAGE - 1))], "damaged: length of a block"),
        (&[(PAGE, 2), (PAGE + 8, 1 << 40)], "damaged: rings"),
    ] {
        assert_eq!(with(changes).unwrap_err().to_string(), reason, "{changes:?}");
    }
    // A block of an unknown kind is skipped.
    assert!(with(&[(PAGE, 77)]).is_ok());
}

#[test]
fn rings_that_lie() {
    // The first block is a ring of 8,192 bytes. Its cells begin at its ninth word.
    let (written, first) = (PAGE + 4 * 8, PAGE + 64);
    assert!(with(&[(written, u64::MAX)]).is_ok());
    let good = with(&[]).unwrap();
    // A huge number of records counts as no more missed records than possible.
    let file = file(&GOOD);
    (0..127).for_each(|cell| file.write_all_at(&(u64::MAX << 8).to_ne_bytes(), first + cell * 64).unwrap());
    let mut reader = Reader::new(file.try_clone().unwrap()).unwrap();
    let mut seen = 0;
    reader.look().unwrap();
    let missed = reader.records(u64::MAX, |_| seen += 1).unwrap();
    assert!(seen <= 128 && missed < 1000 && good > 0, "{seen} {missed}");
    // A number of cells that decreases is an error.
    file.write_all_at(&1_u64.to_ne_bytes(), written).unwrap();
    reader.look().unwrap();
    assert!(reader.records(u64::MAX, |_| ()).is_err());
}

#[test]
fn a_file_that_becomes_shorter_is_an_error() {
    let file = file(&GOOD);
    let mut reader = Reader::new(file.try_clone().unwrap()).unwrap();
    reader.look().unwrap();
    file.set_len(5000).unwrap();
    assert!(matches!(reader.records(u64::MAX, |_| ()), Err(ReadError::Io(_))));
    assert!(matches!(reader.look(), Err(ReadError::Io(_))));
    file.set_len(0).unwrap();
    assert!(matches!(reader.look(), Err(ReadError::Io(_))));
}

#[test]
fn what_is_no_file_is_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRUSR).unwrap();
    assert!(matches!(Reader::open(&fifo), Err(ReadError::NotRegular)));
    assert!(matches!(Reader::open(dir.path()), Err(ReadError::NotRegular)));
    let link = dir.path().join("link");
    std::os::unix::fs::symlink("/etc/passwd", &link).unwrap();
    assert!(matches!(Reader::open(&link), Err(ReadError::Io(_))));
    assert!(Reader::open(Path::new("/dev/zero")).is_err());
}

/// Returns the good file with additional rings in its end.
fn with_rings(rings: u64) -> File {
    const LEN: u64 = 8192;
    let file = file(&GOOD);
    let (from, ring) = (GOOD.len() as u64, [2, LEN, 0, 0, 0].map(u64::to_ne_bytes).concat());
    (0..rings).for_each(|n| file.write_all_at(&ring, from + n * LEN).unwrap());
    file.set_len(from + rings * LEN).unwrap();
    file.write_all_at(&(from + rings * LEN).to_ne_bytes(), 4 * 8).unwrap();
    file
}

/// Reads what a file has. Returns the number of records.
fn read_all(reader: &mut Reader) -> Result<u64, ReadError> {
    let mut seen = 0;
    loop {
        reader.look()?;
        reader.records(u64::MAX, |_| seen += 1)?;
        if reader.is_complete() {
            return Ok(seen);
        }
    }
}

#[test]
fn a_file_has_a_number_of_rings() {
    let known = Reader::new(file(&GOOD)).map(|mut reader| read_all(&mut reader).map(|seen| (seen, reader.lanes())));
    let (seen, lanes) = known.unwrap().unwrap();
    let most = 4096 - lanes as u64;
    let mut reader = Reader::new(with_rings(most)).unwrap();
    assert_eq!((read_all(&mut reader).unwrap(), reader.lanes()), (seen, 4096));
    assert_eq!(read_all(&mut Reader::new(with_rings(most + 1)).unwrap()).unwrap_err().to_string(), "damaged: rings");
}

#[test]
fn rings_beyond_the_memory_of_a_reader_wait_for_some() {
    let mut reader = Reader::new(with_rings(1000)).unwrap();
    reader.limit_memory(20_000);
    read_all(&mut reader).unwrap();
    assert!(reader.lanes() > 10 && reader.memory() < 21_000, "{} {}", reader.lanes(), reader.memory());
    reader.limit_memory(usize::MAX);
    read_all(&mut reader).unwrap();
    assert_eq!(reader.lanes(), 1002);
}

#[test]
fn times_and_numbers_that_cannot_be_are_not_handed_over() {
    let file = file(&GOOD);
    let mut reader = Reader::new(file.try_clone().unwrap()).unwrap();
    // Replaces the time of each record, in its first cell (part 0), and the number of trace events without room.
    let first = PAGE + 64;
    for cell in 0..127 {
        let mut stamp = [0; 8];
        file.read_exact_at(&mut stamp, first + cell * 64).unwrap();
        if stamp[0] == 0 {
            file.write_all_at(&u64::MAX.to_ne_bytes(), first + cell * 64 + 8).unwrap();
        }
    }
    file.write_all_at(&u64::MAX.to_ne_bytes(), 7 * 8).unwrap();
    let mut seen = 0;
    reader.look().unwrap();
    reader
        .records(u64::MAX, |record| {
            seen += 1;
            assert!(record.time <= now());
        })
        .unwrap();
    assert!(seen > 0 && reader.missed() == 0, "{seen} {}", reader.missed());
    file.write_all_at(&7_u64.to_ne_bytes(), 7 * 8).unwrap();
    reader.look().unwrap();
    assert_eq!(reader.missed(), 7);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn words_may_be_anything(
        changes in prop::collection::vec((0..GOOD.len() / 8, prop_oneof![
            any::<u64>(), 0..256_u64, Just(u64::MAX), Just(PAGE), (0..64_u32).prop_map(|bit| 1 << bit),
        ]), 1..20),
        headers in prop::collection::vec((0..16_usize, 0..5_usize, 0..8192_u64), 0..4),
    ) {
        let file = file(&GOOD);
        for (word, value) in changes {
            file.write_all_at(&value.to_ne_bytes(), word as u64 * 8).unwrap();
        }
        for (block, word, value) in headers {
            file.write_all_at(&value.to_ne_bytes(), block as u64 * PAGE + word as u64 * 8).unwrap();
        }
        let _ = read(file);
    }

    #[test]
    fn it_may_end_anywhere(len in 0..GOOD.len()) {
        let _ = read(file(&GOOD[..len]));
    }
}
