//! Events from other threads.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use pcp_pdu::event::{EventFlags, Params, Stamp};
use pmapi::{Atom, Item, Result};

use super::store::{Store, size};
use super::{Event, ParamTypes};

/// A handle by which any thread or async task adds events to an [`EventQueue`](super::EventQueue), from
/// [`EventQueue::sender`](super::EventQueue::sender).
///
/// The agent takes the events at each use of its queue: for a client's fetch, and for the queue's own numbers. Between
/// two uses, the events of all senders wait in as much memory as the queue itself has. When it is full, the oldest are
/// dropped, and clients that read the queue get their number as missed events. So a sender never waits for a client.
///
/// Start the thread in [`Agent::open`](crate::Agent::open), which does not run for `--write-pmda`.
///
/// ```
/// # use pmda::prelude::*;
/// # use pmda::{EventFlags, EventQueue, EventSender, Stamp};
/// const RECORDS: Item = Item::new(0, 0);
/// const LINE: Item = Item::new(0, 1);
///
/// struct Lines {
///     queue: EventQueue,
/// }
///
/// fn read(lines: EventSender) -> Result {
///     for line in std::io::stdin().lines() {
///         lines.send(Stamp::now(), EventFlags::POINT, [(LINE, line?.as_str().into())])?;
///     }
///     Ok(())
/// }
///
/// impl Agent for Lines {
/// #   const NAME: &'static str = "lines";
/// #   const DOMAIN: u16 = 400;
///     // …
/// #   fn new(setup: &mut Setup) -> Result<Self, BoxError> {
/// #       setup.metric("lines.records", RECORDS, Type::Event).help("Lines as they come", "");
/// #       setup.metric("lines.line", LINE, Type::String).parameter();
/// #       Ok(Lines { queue: setup.event_queue(64 << 10) })
/// #   }
///     fn open(&mut self) -> Result<(), BoxError> {
///         let lines = self.queue.sender();
///         std::thread::spawn(move || read(lines));
///         Ok(())
///     }
///
///     fn fetch(&mut self, _: Item, out: &mut Values<'_>) -> Result {
///         out.put_events(&self.queue)
///     }
/// }
/// ```
#[derive(Clone)]
pub struct EventSender(Weak<Inbox>);

/// The events of senders that the queue has not taken yet.
pub(super) struct Inbox {
    params: ParamTypes,
    store: Mutex<Store>,
}

impl EventSender {
    pub(super) fn new(inbox: &Arc<Inbox>) -> EventSender {
        EventSender(Arc::downgrade(inbox))
    }

    /// Adds an event, as [`EventQueue::push`](super::EventQueue::push) does. Does not wait. When the agent has dropped
    /// the queue, the event is dropped.
    ///
    /// # Errors
    /// Those of [`EventQueue::push`](super::EventQueue::push).
    pub fn send<'v>(
        &self,
        time: Stamp,
        flags: EventFlags,
        params: impl IntoIterator<Item = (Item, Atom<'v>)>,
    ) -> Result {
        let Some(inbox) = self.0.upgrade() else { return Ok(()) };
        let mut packed = Params::default();
        inbox.params.pack(&mut packed, flags, params)?;
        let mut store = inbox.lock();
        store.admit(size(&packed))?;
        // The clone has no spare capacity, which the size does not count.
        store.keep(Event { time, flags, params: packed.clone() });
        Ok(())
    }

    /// Counts events that were lost before they could be sent, as [`EventQueue::lost`](super::EventQueue::lost) does.
    pub fn lost(&self, time: Stamp, count: u32) {
        if let Some(inbox) = self.0.upgrade() {
            inbox.lock().lost(time, count.into());
        }
    }

    /// Returns whether the agent has dropped the queue, so that no more events are needed.
    pub fn is_closed(&self) -> bool {
        self.0.strong_count() == 0
    }
}

impl fmt::Debug for EventSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventSender").field("waiting", &self.0.upgrade().map(|inbox| inbox.lock().size())).finish()
    }
}

impl Inbox {
    /// Creates an inbox for `limit` bytes of events.
    pub(super) fn new(params: ParamTypes, limit: usize) -> Inbox {
        Inbox { params, store: Mutex::new(Store::new(limit)) }
    }

    /// Takes the events that have been sent; `None` without any.
    pub(super) fn take(&self) -> Option<Store> {
        let mut store = self.lock();
        if store.count == 0 {
            return None;
        }
        let empty = Store::new(store.limit());
        Some(std::mem::replace(&mut *store, empty))
    }

    /// Locks the events. The lock is held only while an event is added, or all are taken.
    fn lock(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
