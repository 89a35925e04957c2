use std::cell::Cell;
use std::thread;

use pcp_pdu::event::{Record, records};
use proptest::prelude::*;

use super::*;

const A: Client = Client::new(1);
const B: Client = Client::new(2);
const NUMBER: Item = Item::new(0, 1);
const TEXT: Item = Item::new(0, 2);

fn queue(bytes: usize) -> (Ends, EventQueue) {
    let mut ends = Ends::default();
    let types = Types::default();
    types.set(vec![(NUMBER, Type::U64), (TEXT, Type::String)]).unwrap();
    let queue = EventQueue::new(Domain::new(400).unwrap(), bytes, types, &mut ends);
    (ends, queue)
}

/// Adds an event with 16 bytes of parameters.
fn push(queue: &EventQueue, n: u32) {
    queue.push(at(n), EventFlags::POINT, [(NUMBER, n.into())]).unwrap();
}

/// Sends the event of [`push`].
fn send(sender: &EventSender, n: u32) {
    sender.send(at(n), EventFlags::POINT, [(NUMBER, n.into())]).unwrap();
}

fn at(n: u32) -> Stamp {
    Stamp { seconds: n.into(), nanoseconds: 5000 }
}

const SIZE: usize = size_of::<Waiting>() + 16;

/// Reads as a client: returns the numbers of events, and the negated number of missed events.
fn read(queue: &EventQueue, client: Client) -> Vec<i64> {
    let mut found = Vec::new();
    let number = |record: Record<'_>| match (record.missed, record.params().next()) {
        (0, Some((_, Atom::U64(n)))) => n as i64,
        (missed, None) => -i64::from(missed),
        other => panic!("{other:?}"),
    };
    let put = |atom: Atom<'_>| {
        let Atom::HighResEvent(payload) = atom else { panic!("{atom:?}") };
        found = records(payload, Layout::Nano).unwrap().map(number).collect();
        assert!(!found.is_empty());
        Ok(())
    };
    queue.read(client, Layout::Nano, put).unwrap();
    found
}

#[test]
fn parameters_may_come_from_the_queue_itself() {
    let (_ends, queue) = queue(100 * SIZE);
    assert!(read(&queue, A).is_empty());
    let count = std::iter::once_with(|| {
        push(&queue, 7);
        (NUMBER, queue.count().into())
    });
    queue.push(at(8), EventFlags::POINT, count).unwrap();
    assert_eq!(read(&queue, A), [7, 1]);
}

#[test]
fn each_client_reads_each_event_once() {
    let (_ends, queue) = queue(100 * SIZE);
    push(&queue, 1);
    // No client was reading.
    assert_eq!((read(&queue, A), queue.count(), queue.memory()), (vec![], 1, 0));
    push(&queue, 2);
    push(&queue, 3);
    assert_eq!(read(&queue, A), [2, 3]);
    // No other client needs the events.
    assert_eq!(queue.memory(), 0);
    assert!(read(&queue, B).is_empty());
    push(&queue, 4);
    assert_eq!(read(&queue, A), [4]);
    push(&queue, 5);
    assert_eq!((queue.clients(), queue.memory()), (2, 2 * SIZE));
    assert_eq!(read(&queue, A), [5]);
    assert_eq!(read(&queue, B), [4, 5]);
    assert_eq!((read(&queue, A), read(&queue, B)), (vec![], vec![]));
    assert_eq!((queue.memory(), queue.count(), queue.bytes()), (0, 5, 5 * SIZE as u64));
}

#[test]
fn who_is_slow_misses_the_oldest_and_is_told() {
    let (_ends, queue) = queue(3 * SIZE);
    assert_eq!((read(&queue, A), read(&queue, B)), (vec![], vec![]));
    (1..=2).for_each(|n| push(&queue, n));
    assert_eq!(read(&queue, A), [1, 2]);
    (3..=6).for_each(|n| push(&queue, n));
    assert_eq!(queue.memory(), 3 * SIZE);
    assert_eq!(read(&queue, A), [-1, 4, 5, 6]);
    assert_eq!(read(&queue, B), [-3, 4, 5, 6]);
    assert_eq!((read(&queue, A), read(&queue, B)), (vec![], vec![]));
}

#[test]
fn the_missed_ones_have_the_time_of_the_next() {
    let (_ends, queue) = queue(SIZE);
    queue.read(A, Layout::Micro, |_| Ok(())).unwrap();
    (1..=3).for_each(|n| push(&queue, n));
    queue.lost(at(4), 1);
    let put = |atom: Atom<'_>| {
        let Atom::Event(payload) = atom else { panic!("{atom:?}") };
        let found: Vec<_> = records(payload, Layout::Micro).unwrap().map(|r| (r.time, r.flags)).collect();
        let missed = |n| (at(n), EventFlags::MISSED);
        assert_eq!(found, [missed(3), (at(3), EventFlags::POINT), missed(4)]);
        Ok(())
    };
    queue.read(A, Layout::Micro, put).unwrap();
}

#[test]
fn who_reads_is_told_of_what_was_lost_elsewhere() {
    let (_ends, queue) = queue(3 * SIZE);
    read(&queue, A);
    queue.lost(at(1), 2);
    // The other client was not reading yet.
    assert_eq!((read(&queue, A), read(&queue, B)), (vec![-2], vec![]));
    push(&queue, 1);
    queue.lost(at(1), 3);
    queue.lost(at(2), 4);
    push(&queue, 2);
    assert_eq!(read(&queue, A), [1, -7, 2]);
    queue.lost(at(3), 5);
    assert_eq!((read(&queue, A), read(&queue, A)), (vec![-5], vec![]));
    // The missed events include those that were dropped here.
    (3..=6).for_each(|n| push(&queue, n));
    assert_eq!((read(&queue, A), read(&queue, B)), (vec![-1, 4, 5, 6], vec![-15, 4, 5, 6]));
    assert_eq!((queue.count(), queue.bytes(), queue.memory()), (20, 6 * SIZE as u64, 0));
    // The number exceeds that of a record.
    (7..=8).for_each(|n| queue.lost(at(n), u32::MAX));
    push(&queue, 9);
    assert_eq!((read(&queue, A), read(&queue, A)), (vec![-i64::from(u32::MAX), 9], vec![]));
}

#[test]
fn a_client_reads_each_event_once_in_either_layout() {
    let (_ends, queue) = queue(100 * SIZE);
    let read_micro = || {
        let mut count = 0;
        let put = |atom: Atom<'_>| {
            let Atom::Event(payload) = atom else { panic!("{atom:?}") };
            count = records(payload, Layout::Micro).unwrap().count();
            Ok(())
        };
        queue.read(A, Layout::Micro, put).unwrap();
        count
    };
    assert_eq!((read_micro(), queue.clients()), (0, 1));
    push(&queue, 1);
    assert_eq!((read(&queue, A), read_micro(), queue.memory()), (vec![1], 1, 0));
    (2..=3).for_each(|n| push(&queue, n));
    assert_eq!((read_micro(), queue.memory(), queue.clients()), (2, 2 * SIZE, 1));
    assert_eq!((read(&queue, A), queue.memory()), (vec![2, 3], 0));
}

#[test]
fn an_event_larger_than_the_queue_is_refused_and_nothing_lost() {
    let (_ends, queue) = queue(2 * SIZE);
    read(&queue, A);
    push(&queue, 1);
    let text = "x".repeat(2 * SIZE);
    assert_eq!(queue.push(at(2), EventFlags::POINT, [(TEXT, text.as_str().into())]), Err(Error::TOOBIG));
    assert_eq!((read(&queue, A), queue.count()), (vec![1], 2));
}

#[test]
fn a_value_that_is_full_leaves_the_rest_for_the_next() {
    let (_ends, queue) = queue(100 << 20);
    read(&queue, A);
    let half = vec![b'x'; 9 << 20];
    let push =
        |n: u32, text: &[u8]| queue.push(at(n), EventFlags::POINT, [(NUMBER, n.into()), (TEXT, Atom::String(text))]);
    (1..=3).for_each(|n| push(n, &half).unwrap());
    // The largest event that fits into a value, and one byte more.
    let largest = (1 << 24) - 1 - 4 - (4 + 24 + 16 + 8);
    assert_eq!(push(4, &vec![b'x'; largest + 1]), Err(Error::TOOBIG));
    push(5, &vec![b'x'; largest / 4 * 4]).unwrap();
    push(6, b"").unwrap();
    let reads: Vec<_> = (0..6).map(|_| read(&queue, A)).collect();
    assert_eq!(reads, [vec![1], vec![2], vec![3], vec![5], vec![6], vec![]]);
    assert_eq!(queue.memory(), 0);
}

#[test]
fn values_are_those_of_the_parameters_metrics() {
    let (_ends, queue) = queue(1000);
    let push = |params: &[(Item, Atom<'_>)]| queue.push(at(0), EventFlags::POINT, params.iter().copied());
    assert_eq!(push(&[(NUMBER, Atom::I32(-1))]), Err(Error::SIGN));
    assert_eq!(push(&[(TEXT, 1u32.into())]), Err(Error::TYPE));
    assert_eq!(push(&[(NUMBER, Atom::Event(b""))]), Err(Error::TYPE));
    assert_eq!(queue.push(at(0), EventFlags::MISSED, []), Err(Error::CONV));
    assert_eq!(queue.count(), 0);
    // An item that is not declared may become a metric later.
    assert_eq!(push(&[(NUMBER, 1u8.into()), (Item::new(9, 9), 1.5.into()), (NUMBER, 2i64.into())]), Ok(()));
}

#[test]
fn filters_and_access() {
    let (ends, queue) = queue(100 * SIZE);
    let queue = queue.restricted();
    assert_eq!(queue.read(A, Layout::Nano, |_| Ok(())), Err(Error::PERMISSION));
    let alive = Rc::new(());
    let held = Rc::clone(&alive);
    queue.set_filter(B, move |event| {
        let _ = &held;
        matches!(event.param(NUMBER), Some(Atom::U64(n)) if n % 2 == 0)
    });
    (1..=4).for_each(|n| push(&queue, n));
    // The queue holds events for client 2, which has not read, and for client 1, which has no access.
    assert_eq!(read(&queue, B), [2, 4]);
    assert_eq!(queue.read(A, Layout::Nano, |_| Ok(())), Err(Error::PERMISSION));
    (5..=6).for_each(|n| push(&queue, n));
    queue.grant_access(A);
    assert_eq!((read(&queue, A), read(&queue, B)), (vec![5, 6], vec![6]));
    queue.revoke_access(A);
    assert_eq!(queue.read(A, Layout::Nano, |_| Ok(())), Err(Error::PERMISSION));
    queue.clear_filter(B);
    assert_eq!((queue.read(B, Layout::Nano, |_| Ok(())), Rc::strong_count(&alive)), (Err(Error::PERMISSION), 1));
    let held = Rc::clone(&alive);
    queue.set_filter(B, move |_| Rc::strong_count(&held) > 0);
    ends.forget(Some(B.number()));
    assert_eq!((Rc::strong_count(&alive), queue.clients()), (1, 1));
}

/// pmdaEventQueueRecords(3) drops these events as well: pmdalogger's `queuemem` stays 0.
#[test]
fn clients_without_access_keep_no_events_that_they_have_passed() {
    let (_ends, queue) = queue(100 * SIZE);
    let queue = queue.restricted();
    let refused = |client| assert_eq!(queue.read(client, Layout::Nano, |_| Ok(())), Err(Error::PERMISSION));
    refused(A);
    for n in 1..=3 {
        push(&queue, n);
        refused(A);
        assert_eq!(queue.memory(), 0);
    }
    queue.grant_access(B);
    read(&queue, B);
    (4..=5).for_each(|n| push(&queue, n));
    refused(A);
    assert_eq!(queue.memory(), 2 * SIZE);
    assert_eq!((read(&queue, B), queue.memory()), (vec![4, 5], 0));
    push(&queue, 6);
    queue.revoke_access(B);
    refused(A);
    refused(B);
    assert_eq!(queue.memory(), 0);
}

#[test]
fn a_slow_filter_spreads_events_over_several_fetches() {
    let (_ends, queue) = queue(100 * SIZE);
    assert!(read(&queue, A).is_empty());
    let calls = Rc::new(Cell::new(0));
    let counted = Rc::clone(&calls);
    queue.set_filter(A, move |event| {
        counted.set(counted.get() + 1);
        let work = Work::up_to(FILTERING / 4);
        while !work.is_over() {}
        event.param(NUMBER) != Some(Atom::U64(7))
    });
    (1..=20).for_each(|n| push(&queue, n));
    let mut found = Vec::new();
    while found.last() != Some(&20) {
        calls.set(0);
        found.extend(read(&queue, A));
        assert!((1..=5).contains(&calls.get()), "{} calls in one fetch", calls.get());
    }
    assert_eq!(found, (1..=20).filter(|n| *n != 7).collect::<Vec<_>>());
}

#[test]
fn what_waits_for_a_client_goes_with_it() {
    let (ends, queue) = queue(100 * SIZE);
    read(&queue, A);
    read(&queue, B);
    push(&queue, 1);
    read(&queue, A);
    assert_eq!(queue.memory(), SIZE);
    ends.forget(Some(B.number()));
    assert_eq!((queue.memory(), queue.clients()), (0, 1));
    push(&queue, 2);
    ends.forget(None);
    assert_eq!((queue.memory(), queue.clients()), (0, 0));
}

#[test]
fn a_queue_that_keeps_has_a_past_for_new_clients() {
    let (_ends, queue) = queue(2 * SIZE);
    let queue = queue.keeping();
    (1..=3).for_each(|n| push(&queue, n));
    assert_eq!(read(&queue, A), [2, 3]);
    queue.lost(at(4), 5);
    push(&queue, 4);
    assert_eq!((read(&queue, A), read(&queue, B)), (vec![-5, 4], vec![3, -5, 4]));
}

#[test]
fn senders_add_events_from_any_thread() {
    fn is_handle<H: Clone + Send + Sync>(_: &H) {}
    let (_ends, queue) = queue(10_000 * SIZE);
    let sender = queue.sender();
    is_handle(&sender);
    send(&sender, 1);
    // No client was reading.
    assert_eq!((queue.count(), read(&queue, A), queue.memory()), (1, vec![], 0));
    push(&queue, 2);
    send(&sender, 3);
    push(&queue, 4);
    sender.lost(at(5), 2);
    assert_eq!((queue.count(), queue.bytes(), queue.memory()), (6, 4 * SIZE as u64, 3 * SIZE));
    assert_eq!((read(&queue, A), read(&queue, A)), (vec![2, 3, 4, -2], vec![]));

    let threads = [10_000, 20_000].map(|from| {
        let sender = queue.sender();
        thread::spawn(move || (from..from + 1000).for_each(|n| send(&sender, n)))
    });
    let mut found = Vec::new();
    while found.len() < 2000 {
        found.extend(read(&queue, A));
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let [first, second] = [10_000, 20_000].map(|from| {
        let of_thread = found.iter().copied().filter(|n| (from..from + 1000).contains(n));
        of_thread.eq(from..from + 1000)
    });
    assert!(first && second && read(&queue, A).is_empty());
}

#[test]
fn events_that_were_sent_wait_in_the_memory_of_a_queue_and_the_newest_stay() {
    let (_ends, queue) = queue(3 * SIZE);
    let sender = queue.sender();
    read(&queue, A);
    (1..=2).for_each(|n| push(&queue, n));
    (3..=4).for_each(|n| send(&sender, n));
    assert_eq!(read(&queue, A), [-1, 2, 3, 4]);
    (5..=1000).for_each(|n| send(&sender, n));
    let inbox = queue.0.borrow().inbox.as_ref().map(|inbox| format!("{sender:?} {}", Arc::strong_count(inbox)));
    assert_eq!(inbox.unwrap(), format!("EventSender {{ waiting: Some({}) }} 1", 3 * SIZE));
    assert_eq!(read(&queue, A), [-993, 998, 999, 1000]);
    assert_eq!((queue.count(), queue.bytes(), queue.memory()), (1000, 1000 * SIZE as u64, 0));
    let text = "x".repeat(3 * SIZE);
    assert_eq!(sender.send(at(2), EventFlags::POINT, [(TEXT, text.as_str().into())]), Err(Error::TOOBIG));
    assert_eq!((queue.count(), read(&queue, A)), (1001, vec![]));
}

#[test]
fn what_is_sent_is_checked_by_the_sender_and_ends_with_the_queue() {
    let (ends, queue) = queue(3 * SIZE);
    let sender = queue.sender();
    let send = |params: &[(Item, Atom<'_>)]| sender.send(at(0), EventFlags::POINT, params.iter().copied());
    assert_eq!(send(&[(NUMBER, Atom::I32(-1))]), Err(Error::SIGN));
    assert_eq!(send(&[(TEXT, 1u32.into())]), Err(Error::TYPE));
    assert_eq!(send(&[(TEXT, "a\0b".into())]), Err(Error::CONV));
    assert_eq!(sender.send(at(0), EventFlags::MISSED, []), Err(Error::CONV));
    assert_eq!((queue.count(), sender.is_closed()), (0, false));
    drop((queue, ends));
    assert!(sender.is_closed());
    assert_eq!(send(&[(NUMBER, 1u32.into())]), Ok(()));
    sender.lost(at(0), 1);
}

#[test]
fn readers_are_known_by_number() {
    let (ends, queue) = queue(3 * SIZE);
    queue.set_filter(A, |_| true);
    assert!(queue.readers().is_empty());
    [B, A].iter().for_each(|client| _ = read(&queue, *client));
    assert_eq!((queue.readers(), queue.clients()), (vec![A, B], 2));
    ends.forget(Some(A.number()));
    assert_eq!(queue.readers(), [B]);
}

#[test]
fn a_filter_reads_texts() {
    let (_ends, queue) = queue(10 * SIZE);
    queue.set_filter(A, |event| {
        assert_eq!((event.bytes(NUMBER), event.text(NUMBER), event.text(Item::new(0, 3))), (None, None, None));
        event.text(TEXT).is_some_and(|text| text.contains("s\u{fffd}v")) && event.bytes(TEXT) == Some(b"s\xffven")
    });
    read(&queue, A);
    for (n, text) in [(6, &b"six"[..]), (7, b"s\xffven")] {
        queue.push(at(n), EventFlags::POINT, [(NUMBER, n.into()), (TEXT, Atom::String(text))]).unwrap();
    }
    assert_eq!(read(&queue, A), [7]);
}

proptest! {
    /// Compares queues with a model: the events that a client has read and those that it has missed are all events
    /// since its first fetch. The memory stays within its limit.
    #[test]
    fn nothing_is_lost_untold(steps in prop::collection::vec(0..8u8, 0..300), limit in 1..8usize) {
        let (ends, queue) = queue(limit * SIZE);
        let sender = queue.sender();
        let mut last = 0;
        let mut read_to = [None::<i64>; 2];
        for step in steps {
            match step {
                0..=1 => {
                    last += 1;
                    push(&queue, last);
                }
                2..=3 => {
                    last += 1;
                    send(&sender, last);
                }
                6 => {
                    last += 2;
                    queue.lost(at(last), 2);
                }
                7 => {
                    last += 2;
                    sender.lost(at(last), 2);
                }
                n => {
                    let to = &mut read_to[usize::from(n - 4)];
                    let found = read(&queue, Client::new(n.into()));
                    // The first fetch returns all events in the queue.
                    let mut at = to.unwrap_or_else(|| match found.first() {
                        Some(first) => first - 1,
                        None => last.into(),
                    });
                    for n in found {
                        at += if n < 0 { -n } else { 1 };
                        prop_assert!(n < 0 || n == at);
                    }
                    prop_assert_eq!(at, i64::from(last));
                    *to = Some(at);
                }
            }
            prop_assert!(queue.0.borrow().store.size() <= limit * SIZE);
        }
        prop_assert_eq!(queue.count(), u64::from(last));
        ends.forget(None);
        prop_assert_eq!(queue.memory(), 0);
    }
}

/// pmcd does not report the end of a client while it waits for the agent.
#[test]
fn clients_without_number_cost_a_limited_amount() {
    let (_ends, queue) = queue(100 * SIZE);
    let before = FixedLimit::Clients.exceeded();
    for number in 0..client::MOST as i32 + 100 {
        queue.set_filter(Client::new(number), |_| true);
    }
    assert_eq!(queue.0.borrow().readers.len(), client::MOST);
    for number in -100..0 {
        assert!(read(&queue, Client::new(number)).is_empty());
    }
    assert_eq!((queue.0.borrow().readers.len(), queue.clients() > 90), (client::MOST, true));
    assert!(FixedLimit::Clients.exceeded() >= before + 200);
    push(&queue, 7);
    assert_eq!(read(&queue, Client::new(-1)), [7]);
}
