//! Marks what an application does, for the metrics of Performance Co-Pilot's trace agent: what libpcp_trace
//! (pmdatrace(3)) is in C.
//!
//! ```
//! use pcp_trace::{Tag, Trace};
//!
//! let trace = Trace::from_env()?;
//! let (order, refused, size) = (Tag::new("order")?, Tag::new("order refused")?, Tag::new("order size")?);
//!
//! let transaction = trace.begin(&order);
//! # fn take_order() -> Option<f64> { None }
//! match take_order() {
//!     Some(items) => {
//!         trace.observe(&size, items);
//!         transaction.end();
//!     }
//!     None => trace.point(&refused), // and the transaction, dropped without an end, is not counted
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The agent has counts, rates and times of all tags: `trace.transact.count`, `trace.point.rate`, …
//!
//! Nothing here fails because the agent is away, or has gone: what is traced meanwhile is
//! [missed](Status::missed), and the connection tried again after 5, 10, 20, 40 and then every 80
//! seconds. The environment says where the agent is and how long it is waited for: see [`Options`].
//!
//! There are three ways to the agent:
//!
//! * **[light]**: a call writes into a mapped file, which the agent on the same host reads: some 40 ns, without a system
//!   call, a lock, or anything that is waited for. Besides counts and times the agent has then event records of
//!   transactions and points, with their [`Fields`]. This is the way if the agent takes files, or as soon as there is one
//!   that does, unless [`Options::transport`] says otherwise;
//! * **synchronous**: a call returns when the agent has counted. The very first waits for the connection, up to
//!   [`Options::connect_timeout`], and one that the agent does not answer takes [`Options::request_timeout`];
//! * **asynchronous** ([`State::ASYNC`]): a call puts aside what is to be sent, and a thread sends it some
//!   milliseconds later. When a megabyte waits, because the agent is slow, what comes then is missed.
//!
//! After a fork the child has a connection of its own, or a file: neither the parent's socket nor what it has put aside.
//! Its [`Status`] goes on from the parent's.
//!
//! With the feature `tracing` spans and events of that crate are traced: see the module `layer`.
//!
//! | in C | here |
//! |---|---|
//! | `pmtracebegin`, `pmtraceend`, `pmtraceabort` | [`Trace::begin`], [`Transaction::end`], [`Transaction::abort`] or none of them |
//! | `pmtracepoint`, `pmtraceobs`, `pmtracecounter` | [`Trace::point`], [`Trace::observe`], [`Trace::counter`] |
//! | `pmtracestate` | [`Trace::set_state`] |
//! | `pmtraceerrstr` | [`Status::failure`] |

#[cfg(feature = "tracing")]
pub mod layer;
pub mod light;
mod link;
mod options;
pub mod protocol;
mod queue;
mod status;
mod tag;
mod transaction;
mod ways;

use std::sync::Arc;
use std::time::Duration;

pub use light::Fields;
pub use link::Failure;
pub use options::{EnvError, Options, State, Transport};
pub use status::{Status, TooLate};
pub use tag::{Tag, TagError};
pub use transaction::Transaction;

use light::{Light, Mark};
use protocol::{Kind, Prepared as Pdu};
use queue::Refused;
use status::Shared;
use ways::{Way, Ways};

/// The way to the trace agent, for any number of threads. A copy is another handle of the same
/// connection, which is made when something is traced for the first time.
#[derive(Clone, Debug)]
pub struct Trace(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    ways: Ways,
}

impl Trace {
    /// With options from elsewhere.
    pub fn new(options: Options) -> Trace {
        Trace(Arc::new(Inner { shared: Arc::new(Shared::new(options)), ways: Ways::new() }))
    }

    /// With what the environment says.
    pub fn from_env() -> Result<Trace, EnvError> {
        Options::from_env().map(Trace::new)
    }

    /// Begins a transaction (pmtracebegin(3)). Any number of one tag may be in progress.
    pub fn begin<'a>(&'a self, tag: &'a Tag) -> Transaction<'a> {
        Transaction::begin(self, tag, 0)
    }

    /// A transaction that has ended and took some time, which the application has measured.
    pub fn transact(&self, tag: &Tag, took: Duration) {
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX - 1);
        self.end(tag, Mark { value: nanoseconds, ..Mark::default() }, true);
    }

    /// A point that the application passes (pmtracepoint(3)).
    pub fn point(&self, tag: &Tag) {
        self.mark(Kind::Point, tag, -1.0, Mark::default());
    }

    /// A point with fields for its event record.
    pub fn point_with(&self, tag: &Tag, fields: &Fields) {
        self.mark(Kind::Point, tag, -1.0, Mark { fields: fields.bytes(), ..Mark::default() });
    }

    /// A value that the application observes (pmtraceobs(3)).
    pub fn observe(&self, tag: &Tag, value: f64) {
        self.mark(Kind::Observe, tag, value, Mark { value: value.to_bits(), ..Mark::default() });
    }

    /// A value that counts up, such as bytes written so far (pmtracecounter(3)).
    pub fn counter(&self, tag: &Tag, value: f64) {
        self.mark(Kind::Counter, tag, value, Mark { value: value.to_bits(), ..Mark::default() });
    }

    /// Sets all flags and gives those before (pmtracestate(3)). [`State::ASYNC`] has to be set before
    /// anything is traced, and cannot be taken back: without it the flags of the diagnostics change alone.
    pub fn set_state(&self, state: State) -> Result<State, TooLate> {
        self.0.shared.set_state(state)
    }

    /// What has become of what was traced.
    pub fn status(&self) -> Status {
        let mut status = self.0.shared.status();
        let ways = &self.0.ways;
        if let Some(light) = ways.light().or_else(|| ways.used()?.found()) {
            let (sent, connected) = light.status();
            status.sent += sent;
            status.connected = connected;
        }
        status
    }

    /// Waits until what the asynchronous protocol has put aside is sent, or missed; false when that takes
    /// longer. The last handle does it by itself, but a `static` is never dropped.
    pub fn flush(&self, timeout: Duration) -> bool {
        self.0.ways.used().is_none_or(|way| way.flush(timeout))
    }

    /// Marks something other than a transaction, now. TCP has a value for all of them.
    #[inline]
    fn mark(&self, kind: Kind, tag: &Tag, value: f64, mark: Mark<'_>) {
        let shared = &*self.0.shared;
        shared.say(State::API, || format!("{kind:?} {tag} {value}"));
        if shared.state().has(State::NOAGENT) {
            return;
        }
        if let Some(light) = self.light().or_else(|| self.send(kind, tag, value)) {
            light.mark(shared, tag, kind, &Mark { time: light::now(), ..mark }, true);
        }
    }

    /// Marks the end of a transaction, with its nanoseconds as the value; it counts, or it was aborted.
    #[inline]
    fn end(&self, tag: &Tag, mark: Mark<'_>, counts: bool) {
        let shared = &*self.0.shared;
        shared.say(State::API, || {
            let took = Duration::from_nanos(mark.value);
            if counts { format!("transaction {tag} ends: {took:?}") } else { format!("transaction {tag} is aborted") }
        });
        if shared.state().has(State::NOAGENT) {
            return;
        }
        let send = || if counts { self.send(Kind::Transact, tag, mark.value as f64 / 1e9) } else { None };
        if let Some(light) = self.light().or_else(send) {
            let time = if mark.time == 0 { light::now() } else { mark.time };
            light.mark(shared, tag, Kind::Transact, &Mark { time, ..mark }, counts);
        }
    }

    /// The light transport, if that is the way.
    #[inline]
    fn light(&self) -> Option<&Light> {
        let ways = &self.0.ways;
        ways.light().or_else(|| ways.own()?.1.light(&self.0.shared))
    }

    /// Sends a mark over TCP; or gives the light way, if it has been found before that.
    fn send(&self, kind: Kind, tag: &Tag, value: f64) -> Option<&Light> {
        let shared = &self.0.shared;
        let Some((pid, way)) = self.0.ways.own() else {
            shared.add_missed(1);
            return None;
        };
        if shared.choose() {
            return self.put_aside(way, &Pdu { prepared: tag.prepared(), pid, kind, value, reply: false });
        }
        let pdu = Pdu { prepared: tag.prepared(), pid, kind, value, reply: true };
        let mut link = way.link();
        // Once more when the agent has closed the connection, for it may be back.
        for _ in 0..2 {
            if link.is_time_to_look(&shared.options)
                && let Some(light) = way.look(shared)
            {
                link.close();
                return Some(light);
            }
            if link.send(shared, &pdu) {
                return None;
            }
        }
        shared.add_missed(1);
        None
    }

    fn put_aside<'a>(&'a self, way: &'a Way, pdu: &Pdu<'_>) -> Option<&'a Light> {
        let shared = &self.0.shared;
        let queue = way.queue(shared);
        loop {
            match queue.push(pdu) {
                Ok(()) => return None,
                Err(Refused::Full) => {
                    shared.add_missed(1);
                    return None;
                }
                Err(Refused::Look) => {
                    if let Some(light) = way.look(shared) {
                        // What it has is sent.
                        queue.close();
                        return Some(light);
                    }
                }
            }
        }
    }
}
