//! Rings under loom, which tries all orders of accesses.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use loom::thread;

use super::super::format::Words;
use super::{Consumer, Mark, Producer, Source, word_of};

/// Words of loom in place of those of a mapped file.
struct Tried(Vec<AtomicU64>);

impl Words for Tried {
    fn load(&self, at: usize, order: Ordering) -> u64 {
        self.0[at].load(order)
    }

    fn store(&self, at: usize, word: u64, order: Ordering) {
        self.0[at].store(word, order);
    }

    fn fence(&self, order: Ordering) {
        fence(order);
    }
}

/// Reads records and checks that each is intact. Returns the numbers of records read and missed.
fn read(consumer: &mut Consumer, ring: &Tried) -> (u64, u64) {
    let mut seen = 0;
    let written = { ring }.written().unwrap();
    let missed = consumer.read(ring, written, u64::MAX, &mut Vec::new(), |record| {
        seen += 1;
        let n = record.time;
        assert_eq!((record.tag, record.value, record.id, record.parent), (n as u32, n, n, n));
    });
    (seen, missed.unwrap())
}

/// In every order of accesses, each record that is written during two reads is either read whole or counted as missed.
///
/// # Panics
///
/// If a record is damaged or lost.
pub fn records_are_whole_or_missed() {
    // Room for two records, and three are written while one thread reads twice.
    const ROOM: usize = 2;
    const WRITTEN: u64 = 3;
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let ring = Arc::new(Tried((0..word_of(ROOM)).map(|_| AtomicU64::new(0)).collect()));
        let writer = thread::spawn({
            let ring = Arc::clone(&ring);
            move || {
                let mut producer = Producer::new(ROOM);
                for n in 1..=WRITTEN {
                    producer.write(&*ring, n as u32, &Mark { time: n, value: n, id: n, parent: n, ..Mark::default() });
                }
            }
        });
        let mut consumer = Consumer::new(ROOM, 1);
        let first = read(&mut consumer, &ring);
        writer.join().unwrap();
        let last = read(&mut consumer, &ring);
        assert_eq!(first.0 + first.1 + last.0 + last.1, WRITTEN);
        assert!(last.0 + first.0 > 0);
    });
}
