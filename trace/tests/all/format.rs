//! The bytes of the files, as `shared_memory::format` describes them.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use pcp_trace::protocol::Kind;
use pcp_trace::shared_memory::sums::Word;
use pcp_trace::shared_memory::{Directory, Process, now};
use pcp_trace::{Fields, Options, Tag, Trace, Transport};

use crate::common::files;

#[test]
fn every_word_is_where_it_is_said_to_be() {
    let dir = tempfile::tempdir().unwrap();
    let directory = Directory::open(dir.path().join("4323"), dir.path()).unwrap();
    let options = Options::default().directory(directory.path()).ring_len(8192);
    let trace = Trace::new(options.transport(Transport::SharedMemory));
    let [size, work] = ["size", "work"].map(|name| Tag::new(name).unwrap());
    let before = now();
    trace.observe(&size, 2.5);
    trace.transact(&work, Duration::from_millis(250));
    let transaction = trace.begin(&work);
    transaction.begin_part(&work).abort();
    trace.point_with(&size, &Fields::new().with("user", 7).with("path", "/cart/of/goods"));
    let file = files(directory.files()).remove(0);
    let bytes = fs::read(crate::common::ring(&file)).unwrap();
    let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
    let words = |at: usize, count: usize| (0..count).map(|n| word(at + 8 * n)).collect::<Vec<_>>();

    let this = Process::find(std::process::id()).unwrap();
    assert_eq!(bytes[..8], *b"PCPTRACE");
    assert_eq!(words(8, 3), [2, this.pid.into(), this.start]);
    let (ring, end) = (4096, 4096 + 8192);
    assert_eq!(words(32, 4), [end, 0, 0, 0]);
    assert_eq!((bytes.len() as u64, words(ring, 5)), (end, vec![2, 8192, 0, 0, 7]));

    let tags = BTreeMap::from([(0, "size".to_owned()), (1, "work".to_owned()), (2, "size".to_owned())]);
    assert_eq!(crate::common::tags(&file), tags);
    let sums = crate::common::sums(&file);
    let sum = |kind, word| sums.iter().find(|sum| (sum.0, sum.2) == (kind, word)).map(|sum| sum.3);
    let recent = before..=now();
    assert_eq!([Word::Count, Word::Last].map(|word| sum(Kind::Observe, word)), [Some(1), Some(2.5_f64.to_bits())]);
    assert!(sum(Kind::Observe, Word::When).is_some_and(|when| recent.contains(&when)));
    assert_eq!([Word::Count, Word::Total].map(|word| sum(Kind::Transact, word)), [Some(1), Some(250_000_000)]);
    let (cell, record) = (|n: usize| ring + 64 + 64 * n, |number: u64, part: u64| number << 8 | part);
    let epoch = word(cell(1) + 8) >> 30;
    let of_epoch = (epoch % 4) as usize;
    let quarter = 0.25_f32.to_bits();
    assert_eq!(sum(Kind::Transact, Word::Shortest(of_epoch)), Some(epoch << 32 | u64::from(!quarter)));
    assert_eq!(sum(Kind::Transact, Word::Longest(of_epoch)), Some(epoch << 32 | u64::from(quarter)));
    assert_eq!((sum(Kind::Point, Word::Count), sum(Kind::Point, Word::Total)), (Some(1), None));

    assert!((0..6).all(|n| recent.contains(&word(cell(n) + 8))));
    let head = |tag: u64, flags: u64, cells: u64, fields: u64| tag | flags << 32 | cells << 40 | fields << 48;
    let but_time = |n: usize| [&words(cell(n), 1)[..], &words(cell(n) + 16, 4)].concat();
    assert_eq!(but_time(0), [record(0, 0), head(0, 0, 1, 0), 2.5_f64.to_bits(), 0, 0]);
    assert_eq!(but_time(1), [record(1, 0), head(1, 6, 1, 0), 250_000_000, 1, 0]);
    assert_eq!(but_time(2), [record(2, 0), head(1, 2, 1, 0), 0, 2, 0]);
    assert_eq!(but_time(3), [record(3, 0), head(1, 2, 1, 0), 0, 3, 2]);
    assert_eq!(but_time(4), [record(4, 0), head(1, 4, 1, 0), u64::MAX, 3, 2]);
    let fields = b"\x04\x01\0user7\x04\x0e\0path/cart/of/goods";
    assert_eq!(but_time(5), [record(5, 0), head(2, 0, 2, fields.len() as u64), 0, 0, 0]);
    assert_eq!(bytes[cell(5) + 48..cell(6)], fields[..16]);
    assert_eq!(word(cell(6)), record(5, 1));
    assert_eq!(bytes[cell(6) + 8..][..fields.len() - 16], fields[16..]);

    drop(transaction);
    drop(trace);
    let bytes = fs::read(crate::common::ring(&file)).unwrap();
    assert_eq!((bytes[48], bytes[ring + 32]), (1, 8));
}
