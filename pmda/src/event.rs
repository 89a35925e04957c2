//! Event queues: events that are kept until the clients have read them (pmdaEventQueueAppend(3)).

use std::borrow::Cow;
use std::cell::{RefCell, RefMut};
use std::collections::HashMap;
use std::fmt;
use std::rc::{Rc, Weak};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use pcp_pdu::event::{EventArray, EventFlags, Layout, Params, Stamp};
use pmapi::{Atom, Domain, Error, Item, PmId, Result, Type};
use tracing::warn;

use crate::client::{self, Client, Ends, PerClient};
use crate::fixed_limit::FixedLimit;
use crate::work::Work;

mod sender;
mod store;

pub use sender::EventSender;
use sender::Inbox;
use store::{Store, Waiting, size};

/// A queue of events in a fixed amount of memory, each of which a client reads once. It is made with
/// [`Setup::event_queue`](crate::Setup::event_queue). A clone is another handle to the same queue.
///
/// A client reads the queue, beginning with its first fetch. While no client reads, events are counted and dropped.
/// When the memory is full, the oldest events are dropped. A client that has not read them gets the number of missed
/// events, in a record before the next event and with the time of that event. That number includes events that were
/// [lost elsewhere](EventQueue::lost). Metrics of both event types may show the same queue; a client reads each event
/// once in each type.
///
/// The parameters of an event are values of metrics. Declare these metrics with
/// [`MetricDef::parameter`](crate::MetricDef::parameter), so that clients know their names and units.
///
/// ```
/// # use pmda::prelude::*;
/// # use pmda::{EventFlags, EventQueue, Stamp};
/// const RECORDS: Item = Item::new(0, 0);
/// const LINE: Item = Item::new(0, 1);
///
/// struct Lines {
///     queue: EventQueue,
/// }
///
/// impl Agent for Lines {
///     const NAME: &'static str = "lines";
///     const DOMAIN: u16 = 400;
///
///     fn new(setup: &mut Setup) -> Result<Self, BoxError> {
///         setup.metric("lines.records", RECORDS, Type::Event).help("Lines as they come", "");
///         setup.metric("lines.line", LINE, Type::String).parameter();
///         Ok(Lines { queue: setup.event_queue(64 << 10) })
///     }
///
///     fn fetch(&mut self, _: Item, out: &mut Values<'_>) -> Result {
///         out.put_events(&self.queue)
///     }
/// }
///
/// impl Lines {
///     fn line(&mut self, text: &str) -> Result {
///         self.queue.push(Stamp::now(), EventFlags::POINT, [(LINE, text.into())])
///     }
/// }
/// ```
#[derive(Clone)]
pub struct EventQueue(Rc<RefCell<Queue>>);

/// An event in a queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    time: Stamp,
    flags: EventFlags,
    params: Params,
}

/// Types of the declared metrics, sorted by item; set when the declarations are complete.
pub(crate) type Types = Arc<OnceLock<Vec<(Item, Type)>>>;

type Filter = Box<dyn FnMut(&Event) -> bool>;

/// Longest processor time in the filter of a client during a fetch.
const FILTERING: Duration = Duration::from_millis(10);

struct Queue {
    params: ParamTypes,
    store: Store,
    /// Events of other threads, once there is a sender.
    inbox: Option<Arc<Inbox>>,
    keeps: bool,
    restricted: bool,
    readers: HashMap<i32, Reader>,
    /// Parameters of the event that is being added.
    buffer: Params,
    /// Records that are being sent.
    array: EventArray,
}

/// What the parameters of events need to be encoded.
#[derive(Clone)]
struct ParamTypes {
    domain: Domain,
    types: Types,
}

#[derive(Default)]
struct Reader {
    /// Number of the next event to read in either layout; `None` before the first fetch.
    next: [Option<u64>; 2],
    access: bool,
    filter: Option<Filter>,
}

impl Reader {
    fn reads(&self) -> bool {
        self.next.iter().any(Option::is_some)
    }
}

impl Event {
    /// Returns the time of the event.
    pub fn time(&self) -> Stamp {
        self.time
    }

    /// Returns the flags of the event.
    pub fn flags(&self) -> EventFlags {
        self.flags
    }

    /// Returns the first value of a parameter.
    pub fn param(&self, item: Item) -> Option<Atom<'_>> {
        self.params.iter().find(|(pmid, _)| pmid.is_some_and(|pmid| pmid.item() == item)).map(|(_, value)| value)
    }

    /// Returns the bytes of a parameter that is a text; `None` for another type, or if the event does not have it.
    pub fn bytes(&self, item: Item) -> Option<&[u8]> {
        match self.param(item) {
            Some(Atom::String(bytes)) => Some(bytes),
            _ => None,
        }
    }

    /// Returns a parameter that is a text, as [`Event::bytes`] does. Bytes that are not UTF-8 become `U+FFFD`.
    pub fn text(&self, item: Item) -> Option<Cow<'_, str>> {
        self.bytes(item).map(String::from_utf8_lossy)
    }
}

impl EventQueue {
    pub(crate) fn new(domain: Domain, limit: usize, types: Types, ends: &mut Ends) -> Self {
        let queue = Rc::new(RefCell::new(Queue {
            params: ParamTypes { domain, types },
            store: Store::new(limit),
            inbox: None,
            keeps: false,
            restricted: false,
            readers: HashMap::new(),
            buffer: Params::default(),
            array: EventArray::new(Layout::Micro),
        }));
        let weak: Weak<RefCell<Queue>> = Rc::downgrade(&queue);
        ends.add(weak);
        EventQueue(queue)
    }

    /// Keeps events while no client reads, up to the limit of memory (pmdaEventNewActiveQueue(3)).
    #[must_use]
    pub fn keeping(self) -> Self {
        self.0.borrow_mut().keeps = true;
        self
    }

    /// Refuses clients with `PM_ERR_PERMISSION`, unless they have a filter or have been granted access.
    #[must_use]
    pub fn restricted(self) -> Self {
        self.0.borrow_mut().restricted = true;
        self
    }

    /// Adds an event (pmdaEventQueueAppend(3)). Values are converted as by [`Values::put`](crate::Values::put).
    ///
    /// # Errors
    /// `PM_ERR_TOOBIG` for an event that is larger than the queue. `PM_ERR_TYPE`, `PM_ERR_SIGN` or `PM_ERR_TRUNC` when
    /// a value does not convert to the type of its metric. `PM_ERR_CONV` for a text with a NUL byte, and when `flags` has
    /// [`EventFlags::MISSED`].
    pub fn push<'v>(
        &self,
        time: Stamp,
        flags: EventFlags,
        params: impl IntoIterator<Item = (Item, Atom<'v>)>,
    ) -> Result {
        let (mut buffer, types) = {
            let queue = &mut *self.0.borrow_mut();
            (std::mem::take(&mut queue.buffer), queue.params.clone())
        };
        // The queue is not borrowed: the iterator may use it.
        let packed = types.pack(&mut buffer, flags, params);
        let queue = &mut *self.current();
        queue.buffer = buffer;
        packed.and_then(|()| queue.push(time, flags))
    }

    /// Counts events that were lost before they reached the queue. Clients see them as missed events, in order with the
    /// other events (pmdaEventAddMissedRecord(3)).
    pub fn lost(&self, time: Stamp, count: u32) {
        self.current().store.lost(time, count.into());
    }

    /// Returns a handle by which other threads and async tasks add events.
    pub fn sender(&self) -> EventSender {
        let queue = &mut *self.0.borrow_mut();
        let limit = queue.store.limit();
        let inbox = queue.inbox.get_or_insert_with(|| Arc::new(Inbox::new(queue.params.clone(), limit)));
        EventSender::new(inbox)
    }

    /// Sets a filter: the client gets only the events for which it returns true (pmdaEventSetFilter(3)). A client with
    /// a filter has access. The filter is dropped with the client, or when the client gets another one.
    ///
    /// Clients choose filters, which may be slow. A fetch ends after 10 ms of processor time in the filter, and the
    /// client's next fetch continues with the following event.
    ///
    /// The filter must not use the queue: that would panic.
    pub fn set_filter(&self, client: Client, filter: impl FnMut(&Event) -> bool + 'static) {
        let before = self.reader(client).filter.replace(Box::new(filter));
        drop(before);
    }

    /// Removes a client's filter.
    pub fn clear_filter(&self, client: Client) {
        let before = self.reader(client).filter.take();
        drop(before);
    }

    /// Gives a client access to a [restricted](EventQueue::restricted) queue (pmdaEventSetAccess(3)).
    pub fn grant_access(&self, client: Client) {
        self.reader(client).access = true;
    }

    /// Revokes the access of a client to a [restricted](EventQueue::restricted) queue.
    pub fn revoke_access(&self, client: Client) {
        self.reader(client).access = false;
    }

    /// Returns the number of events since the start, including lost ones (pmdaEventQueueCounter(3)).
    pub fn count(&self) -> u64 {
        self.current().store.count
    }

    /// Returns the bytes of all events that were added since the start (pmdaEventQueueBytes(3)).
    pub fn bytes(&self) -> u64 {
        self.current().store.bytes
    }

    /// Returns the bytes of the events in the queue (pmdaEventQueueMemory(3)), at most the limit of
    /// [`Setup::event_queue`](crate::Setup::event_queue).
    pub fn memory(&self) -> usize {
        self.current().store.size()
    }

    /// Returns the number of clients that read the queue (pmdaEventQueueClients(3)).
    pub fn clients(&self) -> usize {
        self.0.borrow().readers.values().filter(|reader| reader.reads()).count()
    }

    /// Returns the clients that read the queue, by their numbers. Their attributes are not known here.
    pub fn readers(&self) -> Vec<Client> {
        let queue = self.0.borrow();
        let reading = queue.readers.iter().filter(|(_, reader)| reader.reads());
        let mut numbers: Vec<_> = reading.map(|(number, _)| *number).collect();
        numbers.sort_unstable();
        numbers.into_iter().map(Client::new).collect()
    }

    /// Returns the queue with the events that senders have added.
    fn current(&self) -> RefMut<'_, Queue> {
        let mut queue = self.0.borrow_mut();
        queue.receive();
        queue
    }

    fn reader(&self, client: Client) -> RefMut<'_, Reader> {
        self.make_room(client);
        RefMut::map(self.0.borrow_mut(), |queue| queue.readers.entry(client.number()).or_default())
    }

    /// Drops a reader when there is no room for another one, because pmcd has not reported the end of some clients.
    fn make_room(&self, client: Client) {
        let mut queue = self.0.borrow_mut();
        let readers = &mut queue.readers;
        if readers.len() < client::MOST || readers.contains_key(&client.number()) {
            return;
        }
        FixedLimit::Clients.count();
        let any = readers.keys().next().copied();
        let dropped = any.and_then(|any| readers.remove(&any));
        // The filter is dropped after the borrow has ended: it may hold a handle to the queue.
        drop(queue);
        drop(dropped);
    }

    /// Packs the events that a client has not read, and passes them to `put` (pmdaEventQueueRecords(3)).
    pub(crate) fn read(&self, client: Client, layout: Layout, put: impl FnOnce(Atom<'_>) -> Result) -> Result {
        self.make_room(client);
        let queue = &mut *self.current();
        let packed = queue.pack(client, layout);
        // A client without access has passed the events, too.
        queue.trim();
        packed?;
        if queue.array.is_empty() { Ok(()) } else { put(queue.array.atom()) }
    }
}

impl ParamTypes {
    /// Encodes the parameters of an event with these flags into `buffer`.
    fn pack<'v>(
        &self,
        buffer: &mut Params,
        flags: EventFlags,
        params: impl IntoIterator<Item = (Item, Atom<'v>)>,
    ) -> Result {
        if flags.contains(EventFlags::MISSED) {
            return Err(Error::CONV);
        }
        buffer.clear();
        params.into_iter().try_for_each(|(item, value)| {
            let parameter = PmId::new(self.domain, item);
            let added = buffer.add(parameter, self.typed(item, value)?);
            if added == Err(Error::CONV) {
                warn!(source = "events", "event dropped: parameter {parameter} is a text with a NUL byte");
            }
            added
        })
    }

    /// Converts a value to the type of its metric. Metrics that are not declared accept any type.
    fn typed<'v>(&self, item: Item, value: Atom<'v>) -> Result<Atom<'v>> {
        let types = self.types.get().map(Vec::as_slice).unwrap_or_default();
        match types.binary_search_by_key(&item, |(item, _)| *item).ok().and_then(|at| types.get(at)) {
            Some((_, ty)) if *ty != value.ty() => value.exactly(*ty),
            _ => Ok(value),
        }
    }
}

impl Queue {
    fn push(&mut self, time: Stamp, flags: EventFlags) -> Result {
        self.store.admit(size(&self.buffer))?;
        if self.is_needed() {
            // The clone of a buffer has no spare capacity.
            self.store.keep(Event { time, flags, params: self.buffer.clone() });
        }
        Ok(())
    }

    /// Returns whether events are kept for clients.
    fn is_needed(&self) -> bool {
        self.keeps || self.readers.values().any(Reader::reads)
    }

    /// Adds the events of senders.
    fn receive(&mut self) {
        let Some(sent) = self.inbox.as_ref().and_then(|inbox| inbox.take()) else { return };
        let is_needed = self.is_needed();
        self.store.append(sent, is_needed);
    }

    /// Drops the events that all clients have read.
    fn trim(&mut self) {
        if self.keeps {
            return;
        }
        let read = self.readers.values().flat_map(|reader| reader.next).flatten().min();
        while read.is_none_or(|read| self.store.first() < read) && self.store.drop_first() {}
    }

    fn pack(&mut self, client: Client, layout: Layout) -> Result {
        let first = self.store.first();
        let reader = self.readers.entry(client.number()).or_default();
        let [micro, nano] = &mut reader.next;
        let position = if layout == Layout::Micro { micro } else { nano };
        self.array.start(layout);
        if self.restricted && !reader.access && reader.filter.is_none() {
            *position = Some(self.store.next);
            return Err(Error::PERMISSION);
        }
        let mut next = position.unwrap_or(first);
        let Queue { array, store, .. } = self;
        let time = reader.filter.is_some().then(|| Work::up_to(FILTERING));
        let packed = store.from(next).try_for_each(|Waiting { number, event }| {
            put_missed(array, event.time, number - next)?;
            next = *number;
            if reader.filter.as_mut().is_none_or(|passes| passes(event)) {
                array.push(event.time, event.flags, &event.params)?;
            }
            next = number + 1;
            // At least one event is filtered, so that each fetch makes progress.
            if time.as_ref().is_some_and(Work::is_over) { Err(Error::AGAIN) } else { Ok(()) }
        });
        // When the value is full, or the filter takes long, the remaining events are sent with the next fetch.
        if packed.and_then(|()| put_missed(array, store.lost, store.next - next)).is_ok() {
            next = store.next;
        }
        *position = Some(next);
        Ok(())
    }
}

fn put_missed(array: &mut EventArray, time: Stamp, count: u64) -> Result {
    if count == 0 { Ok(()) } else { array.missed(time, u32::try_from(count).unwrap_or(u32::MAX)) }
}

impl PerClient for RefCell<Queue> {
    fn forget(&self, client: Option<i32>) {
        let mut queue = self.borrow_mut();
        let gone = match client {
            Some(number) => queue.readers.remove(&number).into_iter().collect(),
            None => std::mem::take(&mut queue.readers).into_values().collect::<Vec<_>>(),
        };
        queue.trim();
        drop(queue);
        drop(gone);
    }
}

impl fmt::Debug for EventQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queue = self.0.borrow();
        let mut out = f.debug_struct("EventQueue");
        out.field("store", &queue.store);
        out.field("clients", &queue.readers.len()).finish()
    }
}

#[cfg(test)]
mod tests;
