//! Numbered events in a fixed amount of memory.

use std::collections::VecDeque;
use std::fmt;

use pcp_pdu::event::{Params, Stamp};
use pmapi::{Error, Result};
use tracing::warn;

use super::Event;

/// Events in the order of their numbers. When the memory is full, the oldest are dropped, which leaves a gap in the
/// numbers.
pub(super) struct Store {
    limit: usize,
    waiting: VecDeque<Waiting>,
    size: usize,
    /// Number of the next event. Lost events have numbers as well.
    pub(super) next: u64,
    /// Time of the last [`Store::lost`].
    pub(super) lost: Stamp,
    /// Number of all events, with those that were lost, dropped or refused.
    pub(super) count: u64,
    /// Bytes of all events that were added, dropped or refused.
    pub(super) bytes: u64,
}

/// An event and its number.
pub(super) struct Waiting {
    pub(super) number: u64,
    pub(super) event: Event,
}

/// Returns the memory that an event takes, in bytes.
pub(super) fn size(params: &Params) -> usize {
    size_of::<Waiting>() + params.size()
}

impl Store {
    /// Creates a store for `limit` bytes, whose first event has number 0.
    pub(super) fn new(limit: usize) -> Store {
        let (waiting, lost) = (VecDeque::new(), Stamp::default());
        Store { limit, waiting, size: 0, next: 0, lost, count: 0, bytes: 0 }
    }

    /// Returns the largest memory of the events, in bytes.
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// Returns the memory of the events, in bytes.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Returns the number of the oldest event.
    pub(super) fn first(&self) -> u64 {
        self.waiting.front().map_or(self.next, |waiting| waiting.number)
    }

    /// Returns the events from this number on.
    pub(super) fn from(&self, number: u64) -> impl Iterator<Item = &Waiting> {
        self.waiting.range(self.waiting.partition_point(|waiting| waiting.number < number)..)
    }

    /// Counts an event of this size. `PM_ERR_TOOBIG` if the store is too small for it.
    pub(super) fn admit(&mut self, size: usize) -> Result {
        self.count += 1;
        self.bytes += size as u64;
        if size > self.limit {
            warn!(source = "events", "event of {size} bytes dropped: the queue holds {} bytes", self.limit);
            return Err(Error::TOOBIG);
        }
        Ok(())
    }

    /// Adds an event that was admitted.
    pub(super) fn keep(&mut self, event: Event) {
        let size = size(&event.params);
        while self.size + size > self.limit && self.drop_first() {}
        self.size += size;
        self.waiting.push_back(Waiting { number: self.next, event });
        self.next += 1;
    }

    /// Counts events that were lost elsewhere.
    pub(super) fn lost(&mut self, time: Stamp, count: u64) {
        self.count += count;
        self.skip(time, count);
    }

    /// Leaves a gap in the numbers.
    fn skip(&mut self, time: Stamp, count: u64) {
        self.next += count;
        self.lost = time;
    }

    /// Adds the events of a new store with the same limit, or only their numbers if `keeps` is false.
    pub(super) fn append(&mut self, other: Store, keeps: bool) {
        self.count += other.count;
        self.bytes += other.bytes;
        if !keeps {
            return;
        }
        let mut expected = 0;
        for Waiting { number, event } in other.waiting {
            self.skip(event.time, number - expected);
            self.keep(event);
            expected = number + 1;
        }
        if other.next > expected {
            self.skip(other.lost, other.next - expected);
        }
    }

    /// Drops the oldest event; false when there is none.
    pub(super) fn drop_first(&mut self) -> bool {
        let first = self.waiting.pop_front();
        self.size -= first.as_ref().map_or(0, |waiting| size(&waiting.event.params));
        first.is_some()
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} events, {} of {} bytes", self.waiting.len(), self.size, self.limit)
    }
}
