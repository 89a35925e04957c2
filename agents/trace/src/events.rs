//! Event records of trace events, with fields and parents: the metrics and their queue.

use std::borrow::Cow;
use std::cell::RefCell;
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

use pmda::limits::{Caps, Quota};
use pmda::prelude::*;
use pmda::{EventFlags, EventQueue, Stamp};
use trace::protocol::{Data, Kind};
use trace::shared_memory::{ReadError, Reader, Record, now};
use tracing::warn;

use crate::fields::{Fields, Occurrence};
use crate::filter::{Filter, Token};
use crate::limits::{self, Account, Limits};
use crate::names::{shown, shown_lines};
use crate::records::{
    self, CLIENTS, COUNT, DURATION, FIELD, HIGHRES_RECORDS, ID, KIND, MEMORY, MISSED, PARENT, PROCESS, RECORDS, TAG,
    VALUE, kind_name,
};
use crate::sums::Sums;

/// Largest number of bytes of records that wait for clients. Beyond it the oldest records are dropped.
const MEMORY_LIMIT: usize = 4 << 20;
/// Bytes of records that accounts may put into the queue in a second if there are several: as many as it holds. So a
/// client that reads every second misses none of them.
const RATE: Caps = Caps { each: MEMORY_LIMIT as u64, all: MEMORY_LIMIT as u64, floor: MEMORY_LIMIT as u64 / 128 };
/// Largest number of cells read from a process at a time: more than the queue can hold.
const AT_ONCE: u64 = 1 << 15;
/// Largest number of records of TCP clients that wait to be sorted.
const MOST_PENDING: usize = 1 << 12;
/// Largest number of missed records that one record can report: a hostile file may claim any number.
const MOST_MISSED: u32 = 1 << 26;
/// Number of bits of a process's own identifier in an identifier that is unique on the host. The process is in the bits
/// above.
const ID_BITS: u32 = 42;

/// The event metrics and their queue.
#[derive(Debug)]
pub(crate) struct Events {
    queue: EventQueue,
    names: Dynamic,
    fields: Fields,
    filters: Rc<RefCell<Quota<Account>>>,
    /// Records that wait to be sorted by time, of all processes and clients.
    pending: Vec<Pending>,
    missed: u64,
    rate: Rate,
    start: Instant,
    forget_time: Duration,
    /// Time at which unused fields were last removed, in seconds since the start.
    swept: u32,
}

/// Bytes of records that accounts have put into the queue in the current second. An account that is alone in this second
/// and the last one has no limit.
#[derive(Debug)]
struct Rate {
    quota: Quota<Account>,
    /// The current second since the start.
    second: u32,
    /// Whether several accounts had records in the last second.
    several: bool,
}

impl Rate {
    fn new() -> Rate {
        let quota = Quota::new("bytes of event records in a second, at most 4 MiB of all users and hosts", RATE);
        Rate { quota, second: 0, several: false }
    }

    /// Counts `size` bytes of records, if the account may put them into the queue.
    fn admits(&mut self, second: u32, account: Account, size: u64) -> bool {
        if second != self.second {
            self.several = second == self.second + 1 && self.quota.accounts().count() > 1;
            self.second = second;
            self.quota.clear();
        }
        let is_alone = !self.several && self.quota.accounts().all(|(other, _)| *other == account);
        (is_alone && self.quota.check(&account, size).is_err()) || self.quota.try_add(&account, size).is_ok()
    }
}

#[derive(Debug)]
struct Pending {
    account: Account,
    time: u64,
    flags: EventFlags,
    /// Number of earlier records of its lane that were overwritten before they could be read.
    missed: u32,
    kind: Kind,
    tag: String,
    duration: Option<u64>,
    value: Option<f64>,
    id: u64,
    parent: u64,
    process: u32,
    fields: Vec<(String, String)>,
}

impl Events {
    pub(crate) fn new(setup: &mut Setup, limits: &Limits) -> Events {
        records::declare(setup);
        let fields = format!("{}.event.field", setup.name());
        Events {
            names: setup.dynamic([fields.clone()]),
            queue: setup.event_queue(MEMORY_LIMIT).keeping(),
            fields: Fields::new(fields, limits),
            filters: Rc::new(RefCell::new(limits::quota("filters of event records", limits.filters, limits.filters))),
            pending: Vec::new(),
            missed: 0,
            rate: Rate::new(),
            start: Instant::now(),
            forget_time: limits.forget_time,
            swept: 0,
        }
    }

    pub(crate) fn names(&self) -> &Dynamic {
        &self.names
    }

    pub(crate) fn fetch(&mut self, item: Item, out: &mut Values<'_>) -> Result {
        match item {
            RECORDS | HIGHRES_RECORDS => out.put_events(&self.queue),
            COUNT => out.put(self.queue.count() - self.missed),
            MISSED => out.put(self.missed),
            MEMORY => out.put(self.queue.memory() as u64),
            CLIENTS => out.put(self.queue.clients() as u32),
            _ => Err(Error::PMID),
        }
    }

    /// Sets a client's filter.
    pub(crate) fn store(&mut self, item: Item, value: Atom<'_>, client: Client) -> Result {
        let Atom::String(text) = value else { return Err(Error::CONV) };
        let text = std::str::from_utf8(text).map_err(|_| Error::CONV)?;
        if !matches!(item, RECORDS | HIGHRES_RECORDS) {
            return Err(Error::PERMISSION);
        }
        if text.trim().is_empty() {
            self.queue.clear_filter(client);
            return Ok(());
        }
        let uid = client.uid();
        let account = uid.map_or(Account::Host(Ipv4Addr::UNSPECIFIED), Account::User);
        let token = Token::new(&self.filters, account).map_err(|_| Error::PERMISSION)?;
        let filter = Filter::parse(text, token).map_err(|e| {
            let of = |uid| format!("uid {uid}");
            let of = uid.map_or_else(|| "another host".to_owned(), of);
            warn!(source = %of, "filter of {of}: {e}");
            Error::BADSTORE
        })?;
        let fields = self.fields.clone();
        self.queue.set_filter(client, move |event| filter.passes(event, &fields));
        Ok(())
    }

    /// Returns the number of filters that were refused, and of fields that got no metric.
    pub(crate) fn left_out(&self) -> [u64; 2] {
        [self.filters.borrow().refused(), self.fields.left_out()]
    }

    /// Returns whether any client reads records.
    pub(crate) fn are_wanted(&self) -> bool {
        self.queue.clients() > 0
    }

    /// Adds a trace event of a TCP client, if any client reads records.
    #[inline]
    pub(crate) fn add(&mut self, account: Account, data: &Data<'_>) {
        if self.are_wanted() {
            self.pending.push(Pending::over_tcp(account, data));
            if self.pending.len() >= MOST_PENDING {
                self.publish();
            }
        }
    }

    /// Reads new records of a process. `process` is 0 if the identifier is not known on this host. Records whose tags are not
    /// in the file of the sums are missed.
    pub(crate) fn read(
        &mut self,
        account: Account,
        reader: &mut Reader,
        sums: &Sums,
        process: u32,
    ) -> Result<(), ReadError> {
        let limit = AT_ONCE / reader.lanes().max(1) as u64;
        let (pending, mut without_tag) = (&mut self.pending, 0);
        reader.records(limit, |record| match sums.tag(record.tag) {
            Some((kind, tag)) => pending.push(Pending::new(account, process, kind, tag, record)),
            None => without_tag += 1,
        })?;
        if without_tag > 0 {
            self.lose(SystemTime::now().into(), without_tag);
        }
        // Records of all files are sorted together, unless there are more than the queue can hold.
        if self.pending.len() as u64 > AT_ONCE {
            self.publish();
        }
        Ok(())
    }

    /// Puts pending records into the queue, in the order of time.
    pub(crate) fn publish(&mut self) {
        let second = u32::try_from(self.start.elapsed().as_secs()).unwrap_or(u32::MAX);
        self.forget(second);
        let mut pending = std::mem::take(&mut self.pending);
        pending.sort_by_key(|record| record.time);
        let (wall, clock) = (SystemTime::now(), now());
        for record in pending.drain(..) {
            // A file may have any time, but no record may be in the future.
            let time = wall.checked_sub(Duration::from_nanos(clock.saturating_sub(record.time)));
            let time = time.unwrap_or(wall).into();
            if self.rate.admits(second, record.account, record.size()) {
                self.push(time, &record, second);
            } else {
                self.lose(time, 1);
            }
        }
        self.pending = pending;
    }

    /// Removes metrics of fields that were not used for long.
    fn forget(&mut self, now: u32) {
        let forget = u32::try_from(self.forget_time.as_secs()).unwrap_or(u32::MAX);
        if now - self.swept >= (forget / 8).clamp(1, 600) {
            self.swept = now;
            self.fields.forget(now.saturating_sub(forget), &mut self.names);
        }
    }

    fn lose(&mut self, time: Stamp, count: u32) {
        self.queue.lost(time, count);
        self.missed = self.missed.saturating_add(count.into());
    }

    fn push(&mut self, time: Stamp, record: &Pending, now: u32) {
        let (known, names, account) = (&self.fields, &mut self.names, record.account);
        let fields: Vec<(Item, Cow<'_, str>)> = record
            .fields
            .iter()
            .map(|(key, value)| match known.item(Occurrence { key, account, now }, names) {
                Some(item) => (item, value.into()),
                None => (FIELD, format!("{key}={value}").into()),
            })
            .collect();
        let id = |id: u64| u64::from(record.process) << ID_BITS | id & ((1 << ID_BITS) - 1);
        let present = |number: u64| (number != 0).then_some(number);
        let (own, parent) = (present(record.id).map(id), present(record.parent).map(id));
        let flag = |present: bool, flag| if present { flag } else { EventFlags::empty() };
        let flags = record.flags | flag(own.is_some(), EventFlags::ID);
        let flags = flags | flag(parent.is_some(), EventFlags::PARENT);
        // The parameters that the flags announce, identifier and parent, come first.
        let params = own.map(|id| (ID, id.into())).into_iter().chain(parent.map(|parent| (PARENT, parent.into())));
        let params = params.chain([(TAG, record.tag.as_str().into()), (KIND, kind_name(record.kind).into())]);
        let params = params.chain(record.duration.map(|duration| (DURATION, duration.into())));
        let params = params.chain(record.value.map(|value| (VALUE, value.into())));
        let params = params.chain((record.process != 0).then(|| (PROCESS, record.process.into())));
        let params = params.chain(fields.iter().map(|(item, value)| (*item, value.as_ref().into())));
        self.lose(time, record.missed);
        if let Err(e) = self.queue.push(time, flags, params) {
            warn!(source = %record.account, "event record dropped: {e}");
        }
    }
}

impl Pending {
    fn new(account: Account, process: u32, kind: Kind, tag: &[u8], record: &Record<'_>) -> Pending {
        let flags = match (record.begin, record.end) {
            (true, false) => EventFlags::START,
            (false, true) => EventFlags::END,
            (true, true) => EventFlags::START | EventFlags::END,
            (false, false) => EventFlags::POINT,
        };
        let text = |bytes| shown_lines(bytes).into_owned();
        Pending {
            account,
            time: record.time,
            flags,
            missed: record.missed.try_into().unwrap_or(u32::MAX).min(MOST_MISSED),
            kind,
            tag: shown(tag).into_owned(),
            duration: record.duration(),
            value: record.value(kind).filter(|_| kind != Kind::Transact),
            id: record.id,
            parent: record.parent,
            process,
            fields: record.fields().map(|(key, value)| (text(key), text(value))).collect(),
        }
    }

    /// Approximate size in the queue, in bytes.
    fn size(&self) -> u64 {
        let fields: usize = self.fields.iter().map(|(key, value)| 24 + key.len() + value.len()).sum();
        (160 + self.tag.len() + fields) as u64
    }

    fn over_tcp(account: Account, data: &Data<'_>) -> Pending {
        let transact = data.kind == Kind::Transact;
        let duration = Duration::try_from_secs_f64(data.value).ok().filter(|_| transact);
        Pending {
            account,
            time: now(),
            flags: if transact { EventFlags::START | EventFlags::END } else { EventFlags::POINT },
            missed: 0,
            kind: data.kind,
            tag: shown(data.tag).into_owned(),
            duration: duration.map(|duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)),
            value: matches!(data.kind, Kind::Observe | Kind::Counter).then_some(data.value).filter(|v| v.is_finite()),
            id: 0,
            parent: 0,
            process: 0,
            fields: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_puts_much_into_the_queue_takes_no_room_from_others() {
        let [one, two] = [1, 2].map(Account::User);
        let mut rate = Rate::new();
        // An account that is alone has no limit.
        assert!((0..10).all(|_| rate.admits(1, one, RATE.all)));
        assert!((0..10).all(|_| rate.admits(1, one, RATE.all / 20)));
        assert!(rate.admits(1, two, RATE.floor) && !rate.admits(1, one, RATE.all / 20));
        // In the next second, room is kept for the accounts of this one.
        assert!(rate.admits(2, one, RATE.all / 2 + RATE.floor) && !rate.admits(2, one, 1));
        assert!(rate.admits(2, two, RATE.floor) && !rate.admits(2, two, 1));
        assert!((0..10).all(|_| rate.admits(9, one, RATE.all)));
    }
}
