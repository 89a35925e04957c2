//! Event records for each client: filters, and missed records.

use std::time::Duration;

use pmapi::{Atom, Error, Item};
use trace::{Trace, Transport};

use super::scene::*;

#[test]
fn each_client_has_its_own_records_and_filter() {
    let mut served = Served::start(&[]);
    let trace = served.shared_memory();
    let (_, _) = (served.records(1), served.records(2));
    let [outer, inner, point] = ["outer", "inner", "point"].map(tag);
    let mut transaction = trace.begin(&outer);
    transaction.field("user", 7);
    transaction.begin_part(&inner).end();
    transaction.point(&point);
    transaction.end();
    trace.point_with(&point, &trace::Fields::new().with("user", 8).with("user name", "x"));
    let (records, missed) = served.records(1);
    let seen: Vec<_> = records.iter().map(|record| (record.tag.as_str(), record.flags)).collect();
    // Flags: 1 point, 2 start, 4 end, 8 identifier, 16 parent.
    let expected = [
        ("outer", 2 | 8),
        ("inner", 2 | 8 | 16),
        ("inner", 4 | 8 | 16),
        ("point", 1 | 16),
        ("outer", 4 | 8),
        ("point", 1),
    ];
    assert_eq!((&seen[..], missed), (&expected[..], 0));
    assert!(records.is_sorted_by_key(|record| record.time));
    let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as i128;
    assert!(records.iter().all(|record| (0..60_000_000_000).contains(&(wall - record.time))), "{records:?}");
    let param = |item| Item::new(1, item);
    assert_eq!(records[2].params, [14, 15, 10, 11, 12, 16].map(param));
    assert_eq!(records[4].params, [&[14, 10, 11, 12, 16].map(param)[..], &[Item::new(2, 0)]].concat());
    assert_eq!(served.agent.pmid("trace.event.field.user_name").unwrap().item(), Item::new(2, 1));

    assert_eq!(served.records(2).0.len(), 6);
    for (filter, left) in [
        ("tag=inner", 2),
        ("tag~^(inner|outer)$; kind=transact", 4),
        ("user=7", 1),
        ("user~.", 2),
        ("user=7; longer=3600", 0),
        ("longer=0", 2),
        ("process=1", 0),
        ("new field=1", 0),
        ("", 6),
    ] {
        served.agent.as_client(2).store(pmid(1, 5), None, Atom::from(filter)).unwrap();
        let mut transaction = trace.begin(&outer);
        transaction.field("user", 7);
        transaction.begin_part(&inner).end();
        transaction.point(&point);
        transaction.end();
        trace.point_with(&point, &trace::Fields::new().with("user", 8));
        assert_eq!(served.records(2).0.len(), left, "{filter}");
        assert_eq!(served.records(1).0.len(), 6);
    }
    for bad in ["inner", "tag~(", "longer=soon"] {
        let stored = served.agent.as_client(2).store(pmid(1, 5), None, Atom::from(bad));
        assert_eq!(stored.map_err(|e| e.code()), Err(Error::BADSTORE), "{bad}");
    }
}

#[test]
// Slow: 100,000 records, more than the queue of 4 MiB holds.
fn who_is_slow_misses_records_and_is_told() {
    let mut served = Served::start(&[]);
    let trace = served.shared_memory();
    let _ = (served.records(1), served.records(2));
    let (mut prompt, mut slow) = (0, 0);
    // More points than the queue holds, in parts that fit the ring.
    for _ in 0..100 {
        (0..1000).for_each(|_| trace.point(&tag("tag")));
        let (records, missed) = served.records(1);
        assert_eq!(missed, 0);
        prompt += records.len();
    }
    let (records, missed) = served.records(2);
    slow += records.len();
    assert_eq!((prompt, slow as u64 + missed), (100_000, 100_000));
    assert!(missed > 0 && slow > 1000, "{missed} {slow}");
    // Both clients learn of records that were overwritten in the ring.
    (0..10_000).for_each(|_| trace.point(&tag("tag")));
    let told = [1, 2].map(|client| {
        let (records, missed) = served.records(client);
        assert_eq!(records.len() as u64 + missed, 10_000);
        missed
    });
    assert!(told[0] > 0 && told[0] == told[1]);
    assert_eq!(served.own(1, 2), told[0]);
}

#[test]
fn over_tcp_records_are_for_those_who_read() {
    let mut served = Served::start(&[]);
    let trace = Trace::new(served.options().transport(Transport::Tcp));
    trace.point(&tag("before"));
    assert!(served.records(1).0.is_empty());
    trace.transact(&tag("work"), Duration::from_millis(5));
    trace.observe(&tag("size"), 5.0);
    let records = served.records(1).0;
    let seen: Vec<_> = records.iter().map(|record| (record.tag.as_str(), record.flags)).collect();
    assert_eq!(seen, [("work", 2 | 4), ("size", 1)]);
}
