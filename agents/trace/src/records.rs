//! Event records that wait for clients.
//!
//! Unlike [`pmda::EventQueue`](pmda::prelude::EventQueue) it knows of records that were never here: all records have
//! numbers, of those that processes have overwritten, too, and a client is told of gaps wherever they come from.

use std::collections::{HashMap, VecDeque};

use pmda::pmapi::pdu::event::{EventArray, Layout, Params};
use pmda::pmapi::{Domain, PmId};
use pmda::prelude::*;

use crate::filter::Filter;

/// Records in a fixed amount of memory. They are kept for clients that are yet to come, and when the memory is used up
/// the oldest give way.
#[derive(Debug)]
pub(crate) struct Records {
    domain: Domain,
    limit: usize,
    size: usize,
    records: VecDeque<Kept>,
    /// The number of the next record.
    next: u64,
    /// Of either metric.
    readers: HashMap<(i32, Layout), Reader>,
    array: EventArray,
}

#[derive(Debug)]
struct Kept {
    number: u64,
    time: Stamp,
    flags: EventFlags,
    params: Params,
}

#[derive(Debug, Default)]
struct Reader {
    /// The number of the next record that it reads; none before the first fetch.
    next: Option<u64>,
    filter: Option<Filter>,
}

impl Kept {
    fn size(&self) -> usize {
        size_of::<Kept>() + self.params.size()
    }
}

impl Records {
    pub(crate) fn new(domain: Domain, limit: usize) -> Records {
        Records {
            domain,
            limit,
            size: 0,
            records: VecDeque::new(),
            next: 0,
            readers: HashMap::new(),
            array: EventArray::new(Layout::Nano),
        }
    }

    /// Adds a record, after some that are missed.
    pub(crate) fn push<'v>(
        &mut self,
        missed: u64,
        time: Stamp,
        flags: EventFlags,
        values: impl IntoIterator<Item = (Item, Atom<'v>)>,
    ) -> Result {
        let number = self.next.saturating_add(missed);
        self.next = number.saturating_add(1);
        let mut params = Params::default();
        values.into_iter().try_for_each(|(item, value)| params.add(PmId::new(self.domain, item), value))?;
        let kept = Kept { number, time, flags, params };
        self.size += kept.size();
        self.records.push_back(kept);
        while self.size > self.limit
            && let Some(oldest) = self.records.pop_front()
        {
            self.size -= oldest.size();
        }
        Ok(())
    }

    /// Gives a client what it has not read, and as the first of what follows how many it has missed.
    pub(crate) fn fetch(&mut self, layout: Layout, out: &mut Values<'_>) -> Result {
        let reader = self.readers.entry((out.client().number(), layout)).or_default();
        let oldest = self.records.front().map_or(self.next, |record| record.number);
        let mut next = reader.next.unwrap_or(oldest);
        self.array.start(layout);
        let from = self.records.partition_point(|record| record.number < next);
        for record in self.records.range(from..) {
            let missed = u32::try_from(record.number.saturating_sub(next)).unwrap_or(u32::MAX);
            let passes = reader.filter.as_ref().is_none_or(|filter| filter.passes(&record.params));
            let gap = if missed > 0 { self.array.missed(record.time, missed) } else { Ok(()) };
            let full = gap.and_then(|()| {
                next = record.number;
                if passes { self.array.push(record.time, record.flags, &record.params) } else { Ok(()) }
            });
            // The rest goes with the next.
            if full.is_err() {
                break;
            }
            next = next.saturating_add(1);
        }
        reader.next = Some(next);
        if self.array.is_empty() { Ok(()) } else { out.put(self.array.atom()) }
    }

    pub(crate) fn set_filter(&mut self, client: Client, layout: Layout, filter: Option<Filter>) {
        self.readers.entry((client.number(), layout)).or_default().filter = filter;
    }

    pub(crate) fn forget(&mut self, client: Client) {
        self.readers.retain(|(number, _), _| *number != client.number());
    }

    /// Bytes.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Clients that read.
    pub(crate) fn readers(&self) -> usize {
        self.readers.values().filter(|reader| reader.next.is_some()).count()
    }
}
