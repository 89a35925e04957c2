//! Reading files that are damaged, truncated or hostile.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::LazyLock;

use pcp_trace::shared_memory::{Directory, ReadError, Reader, now};
use pcp_trace::{Fields, Options, Tag, Trace, Transport};
use proptest::prelude::*;

const PAGE: u64 = 4096;

/// A file with blocks of all kinds, and records with fields.
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
    let file = fs::read_dir(directory.files()).unwrap().next().unwrap().unwrap().path();
    fs::read(file).unwrap()
});

fn file(bytes: &[u8]) -> File {
    let file = tempfile::tempfile().unwrap();
    file.write_all_at(bytes, 0).unwrap();
    file
}

/// Reads everything twice. Returns the numbers of changes and records.
fn read(file: File) -> Result<(usize, usize), ReadError> {
    let mut reader = Reader::new(file)?;
    let (mut changes, mut records) = (0, 0);
    for _ in 0..2 {
        reader.changes(|_, tag, change| changes += usize::from(change.count > 0 && !tag.is_empty()))?;
        let _ = reader.records(u64::MAX, |kind, _, record| {
            records += 1;
            let _ = (record.value(kind), record.duration(), record.fields().count());
        })?;
    }
    Ok((changes, records))
}

#[test]
fn the_good_one() {
    let (changes, records) = read(file(&GOOD)).unwrap();
    assert_eq!(changes, 3 * 70);
    assert!((20..280).contains(&records), "{records}");
}

/// Reads the good file with some words replaced, by offset in bytes.
fn with(changes: &[(u64, u64)]) -> Result<(usize, usize), ReadError> {
    let file = file(&GOOD);
    changes.iter().for_each(|(at, word)| file.write_all_at(&word.to_ne_bytes(), *at).unwrap());
    read(file)
}

#[test]
fn headers_that_lie() {
    let end = 4 * 8;
    for (changes, reason) in [
        (&[(0, 0)][..], "not a trace file"),
        (&[(8, 2)], "unsupported version 2"),
        (&[(16, u64::MAX)], "damaged: process"),
        // An end of blocks far beyond the file, which must not keep the reader busy.
        (&[(end, u64::MAX)], "failed to fill whole buffer"),
        (&[(5 * 8, u64::MAX)], "damaged: number of tags"),
        (&[(5 * 8, 60_000)], "damaged: tags without a block"),
        (&[(PAGE + 8, 0)], "damaged: length of a block"),
        (&[(PAGE + 8, 8)], "damaged: length of a block"),
        (&[(PAGE + 8, !(PAGE - 1))], "damaged: length of a block"),
        (&[(PAGE, 2), (PAGE + 8, 1 << 40)], "damaged: rings"),
        (&[(PAGE, 3), (PAGE + 24, 5)], "damaged: first tag of sums"),
        (&[(PAGE, 1), (PAGE + 24, 630)], "damaged: order of tags"),
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
    let (_, good) = with(&[]).unwrap();
    // A huge number of records counts as no more missed records than possible.
    let file = file(&GOOD);
    (0..127).for_each(|cell| file.write_all_at(&(u64::MAX << 8).to_ne_bytes(), first + cell * 64).unwrap());
    let mut reader = Reader::new(file.try_clone().unwrap()).unwrap();
    let mut seen = 0;
    let missed = reader.records(u64::MAX, |_, _, _| seen += 1).unwrap();
    assert!(seen <= 127 && missed < 1000 && good > 0, "{seen} {missed}");
    // A number of cells that decreases is an error.
    file.write_all_at(&1_u64.to_ne_bytes(), written).unwrap();
    assert!(reader.records(u64::MAX, |_, _, _| ()).is_err());
}

#[test]
fn counts_that_go_back_are_none() {
    let file = file(&GOOD);
    let mut reader = Reader::new(file.try_clone().unwrap()).unwrap();
    reader.changes(|_, _, _| ()).unwrap();
    file.write_all_at(&vec![0; GOOD.len() - 20_000], 20_000).unwrap();
    reader.changes(|_, _, change| panic!("{change:?}")).unwrap();
}

#[test]
fn a_file_that_becomes_shorter_is_an_error() {
    let file = file(&GOOD);
    let mut reader = Reader::new(file.try_clone().unwrap()).unwrap();
    reader.changes(|_, _, _| ()).unwrap();
    file.set_len(5000).unwrap();
    assert!(matches!(reader.changes(|_, _, _| ()), Err(ReadError::Io(_))));
    assert!(matches!(reader.records(1, |_, _, _| ()), Err(ReadError::Io(_))));
    file.set_len(0).unwrap();
    assert!(matches!(reader.changes(|_, _, _| ()), Err(ReadError::Io(_))));
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

#[test]
fn holes_are_nothing() {
    // 4,000 empty blocks of sums: a sparse file of 16 GiB that takes 16 MiB on disk.
    const LEN: u64 = PAGE << 10;
    let file = file(&GOOD);
    let (from, blocks) = (GOOD.len() as u64, 4000);
    let block: Vec<u8> = [3, LEN, 0, 0].iter().flat_map(|word: &u64| word.to_ne_bytes()).collect();
    (0..blocks).for_each(|n| file.write_all_at(&block, from + n * LEN).unwrap());
    file.set_len(from + blocks * LEN).unwrap();
    file.write_all_at(&(from + blocks * LEN).to_ne_bytes(), 4 * 8).unwrap();
    assert_eq!(read(file.try_clone().unwrap()).unwrap(), read(self::file(&GOOD)).unwrap());
    // One hundred more blocks exceed the limit.
    (0..100).for_each(|n| file.write_all_at(&block, from + (blocks + n) * LEN).unwrap());
    file.set_len(from + (blocks + 100) * LEN).unwrap();
    file.write_all_at(&(from + (blocks + 100) * LEN).to_ne_bytes(), 4 * 8).unwrap();
    assert_eq!(read(file).unwrap_err().to_string(), "damaged: number of sums");
}

/// A limit of blocks at a time changes nothing but the number of calls.
#[test]
fn a_file_that_is_read_in_parts_counts_as_one_that_is_read_at_once() {
    let mut at_once = Reader::new(with_sums(10)).unwrap();
    let mut count = 0;
    assert!(at_once.changes(|_, _, change| count += change.count).unwrap());
    let mut in_parts = Reader::new(with_sums(10)).unwrap();
    in_parts.limit_blocks(3);
    let (mut counted, mut calls) = (0, 1);
    while !in_parts.changes(|_, _, change| counted += change.count).unwrap() {
        calls += 1;
    }
    assert_eq!((counted, count > 0), (count, true));
    assert!((4..12).contains(&calls), "{calls}");
    // Nothing has changed since.
    (0..calls).for_each(|_| _ = in_parts.changes(|_, _, change| panic!("{change:?}")).unwrap());
}

/// Returns the good file with additional blocks of sums, in which every entry is used.
fn with_sums(blocks: u64) -> File {
    const LEN: u64 = 8192;
    let file = file(&GOOD);
    let words = (0..LEN / 8).map(|at| [3, LEN, 0, 0, 0, 0, 0, 0].get(at as usize).copied().unwrap_or(1));
    let block: Vec<u8> = words.flat_map(u64::to_ne_bytes).collect();
    (0..blocks).for_each(|n| file.write_all_at(&block, GOOD.len() as u64 + n * LEN).unwrap());
    file.write_all_at(&(GOOD.len() as u64 + blocks * LEN).to_ne_bytes(), 4 * 8).unwrap();
    file
}

#[test]
fn memory_follows_what_a_file_holds_and_is_given_back() {
    let file = with_sums(1000);
    let mut reader = Reader::new(file.try_clone().unwrap()).unwrap();
    let empty = reader.memory();
    reader.changes(|_, _, _| ()).unwrap();
    let full = reader.memory();
    assert!(full > 1000 * 63 * 128, "{full}");
    // The blocks become empty.
    file.write_all_at(&vec![0; 1000 * 8192], GOOD.len() as u64).unwrap();
    reader.changes(|_, _, _| ()).unwrap();
    assert!(reader.memory() < empty + 300_000, "{}", reader.memory());
}

#[test]
fn what_is_beyond_the_memory_of_a_reader_waits_for_some() {
    let mut reader = Reader::new(with_sums(100)).unwrap();
    let count = |reader: &mut Reader| {
        let mut count = 0;
        reader.changes(|_, _, change| count += change.count).unwrap();
        count
    };
    reader.limit_memory(200_000);
    let some = count(&mut reader);
    assert!(some > 0 && reader.memory() <= 200_000 && reader.left_out() > 3000, "{some} {reader:?}");
    assert_eq!(count(&mut reader), 0);
    reader.limit_memory(usize::MAX);
    // Each of the 70 tags of three kinds once, and 63 entries of each block.
    assert_eq!((some + count(&mut reader), reader.left_out()), (6300 + 3 * 70, 0));
    // Without memory for names the reader reports nothing, and no error.
    let mut reader = Reader::new(file(&GOOD)).unwrap();
    reader.limit_memory(0);
    assert_eq!((count(&mut reader), reader.left_out()), (0, 3 * 70));
    assert!(reader.records(u64::MAX, |_, _, _| panic!("no names")).is_ok());
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
    reader
        .records(u64::MAX, |_, _, record| {
            seen += 1;
            assert!(record.time <= now());
        })
        .unwrap();
    assert!(seen > 0 && reader.missed() == 0, "{seen} {}", reader.missed());
    file.write_all_at(&7_u64.to_ne_bytes(), 7 * 8).unwrap();
    reader.changes(|_, _, _| ()).unwrap();
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
