//! The bytes of a file, as `shared_memory::format` describes them.

use std::fs;
use std::time::Duration;

use pcp_trace::shared_memory::{Directory, Process, now};
use pcp_trace::{Fields, Options, Tag, Trace, Transport};

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
    let bytes = fs::read(fs::read_dir(directory.files()).unwrap().next().unwrap().unwrap().path()).unwrap();
    let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
    let words = |at: usize, count: usize| (0..count).map(|n| word(at + 8 * n)).collect::<Vec<_>>();

    let this = Process::find(std::process::id()).unwrap();
    assert_eq!(bytes[..8], *b"PCPTRACE");
    assert_eq!(words(8, 3), [1, this.pid.into(), this.start]);
    // A ring, then tags, then sums. There are three tags.
    let (ring, tags, sums, end) = (4096, 4096 + 8192, 4096 + 8192 + 16384, 4096 + 8192 + 16384 + 8192);
    assert_eq!(words(32, 4), [end, 3, 0, 0]);
    assert_eq!((bytes.len() as u64, words(ring, 5)), (end, vec![2, 8192, 0, 0, 7]));
    assert_eq!(words(tags, 5), [1, 16384, 0, 0, 0]);
    assert_eq!(words(sums, 5), [3, 8192, 0, 0, 0]);

    let entry = |n: usize| &bytes[tags + 64 + 256 * n..][..7];
    assert_eq!([entry(0), entry(1), entry(2)], [b"\x03\x04size\0", b"\x01\x04work\0", b"\x02\x04size\0"]);
    let sum = |n: usize| words(sums + 64 + 128 * n, 12);
    let recent = before..=now();
    assert_eq!(sum(0)[..3], [1, 0, 2.5_f64.to_bits()]);
    assert!(recent.contains(&sum(0)[3]), "{:?}", sum(0));
    assert_eq!(sum(1)[..4], [1, 250_000_000, 0, 0]);
    let of_epoch = |epoch: u64| 4 + 2 * (epoch % 4) as usize;
    let (cell, record) = (|n: usize| ring + 64 + 64 * n, |number: u64, part: u64| number << 8 | part);
    let epoch = word(cell(1) + 8) >> 30;
    let quarter = epoch << 32 | u64::from(0.25_f32.to_bits());
    assert_eq!(sum(1)[of_epoch(epoch)..][..2], [quarter, quarter]);
    assert_eq!(sum(2), [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);

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
    let bytes = fs::read(fs::read_dir(directory.files()).unwrap().next().unwrap().unwrap().path()).unwrap();
    assert_eq!((bytes[48], bytes[ring + 32]), (1, 8));
}
