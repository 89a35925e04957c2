//! The handle of an application.

use std::sync::Arc;
use std::time::Duration;

use crate::options::{EnvError, Options, State};
use crate::protocol::{Kind, Prepared as Pdu};
use crate::queue::Refused;
use crate::shared_memory::{self, Fields, Mark, SharedMemory};
use crate::status::{Shared, StateError, Status};
use crate::tag::Tag;
use crate::ways::{Way, Ways};

/// Handle for tracing to one agent, for any number of threads.
///
/// The first trace event opens the connection or the mapped file. Clones share it.
///
/// ```no_run
/// let trace = pcp_trace::Trace::from_env()?;
/// trace.point(&pcp_trace::Tag::new("started")?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Trace(pub(crate) Arc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) shared: Arc<Shared>,
    ways: Ways,
}

impl Trace {
    /// Creates a handle with these options. Nothing is opened before the first trace event.
    pub fn new(mut options: Options) -> Trace {
        // The program may change its working directory, as daemons do.
        options.directory = options.directory.map(|path| std::path::absolute(&path).unwrap_or(path));
        Trace(Arc::new(Inner { shared: Arc::new(Shared::new(options)), ways: Ways::new() }))
    }

    /// Creates a handle with the options that the environment sets: [`Options::from_env`].
    ///
    /// # Errors
    /// [`EnvError`] for a variable whose value is not valid.
    pub fn from_env() -> Result<Trace, EnvError> {
        Options::from_env().map(Trace::new)
    }

    /// Counts a transaction that has ended, with the time that the application has measured.
    pub fn transact(&self, tag: &Tag, took: Duration) {
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX - 1);
        self.end(tag, Mark { value: nanoseconds, ..Mark::default() }, true);
    }

    /// Counts a point that the application has reached (pmtracepoint(3)).
    pub fn point(&self, tag: &Tag) {
        self.mark(Kind::Point, tag, -1.0, Mark::default());
    }

    /// Counts a point, with fields for its event record. TCP transports ignore the fields.
    pub fn point_with(&self, tag: &Tag, fields: &Fields) {
        self.mark(Kind::Point, tag, -1.0, Mark { fields: fields.bytes(), ..Mark::default() });
    }

    /// Counts an observation with its value (pmtraceobs(3)).
    pub fn observe(&self, tag: &Tag, value: f64) {
        self.mark(Kind::Observe, tag, value, Mark { value: value.to_bits(), ..Mark::default() });
    }

    /// Records the value of an increasing counter, such as bytes written so far (pmtracecounter(3)).
    pub fn counter(&self, tag: &Tag, value: f64) {
        self.mark(Kind::Counter, tag, value, Mark { value: value.to_bits(), ..Mark::default() });
    }

    /// Replaces all state flags, and returns the previous ones (pmtracestate(3)).
    ///
    /// [`State::ASYNC`] must be set before the first trace event. Clearing it later has no effect.
    ///
    /// # Errors
    /// - [`StateError::TooLate`] when `state` adds [`State::ASYNC`] and the synchronous TCP transport is in use.
    /// - [`StateError::SharedMemory`] when `state` adds [`State::ASYNC`] and shared memory is in use. Shared memory
    ///   never waits for the agent, and the handle does not switch back.
    ///
    /// After an error, the flags are unchanged.
    pub fn set_state(&self, state: State) -> Result<State, StateError> {
        let shared = &self.0.shared;
        if state.contains(State::ASYNC) && !shared.is_asynchronous() && self.in_use().is_some() {
            return Err(StateError::SharedMemory);
        }
        shared.set_state(state)
    }

    /// Returns how many trace events were sent and missed, and the state of the connection.
    pub fn status(&self) -> Status {
        let mut status = self.0.shared.status();
        if let Some(shared_memory) = self.in_use() {
            let (sent, connected) = shared_memory.status();
            status.sent += sent;
            status.connected = connected;
        }
        status
    }

    /// Returns the shared-memory transport, if this process already uses it.
    fn in_use(&self) -> Option<&SharedMemory> {
        let ways = &self.0.ways;
        ways.shared_memory().or_else(|| ways.used()?.found())
    }

    /// Waits until the asynchronous transport has sent or missed all queued trace events. Returns false when `timeout`
    /// has passed before.
    ///
    /// Dropping the last handle flushes as well, for up to 500 ms. A `static` is never dropped.
    pub fn flush(&self, timeout: Duration) -> bool {
        self.0.ways.used().is_none_or(|way| way.flush(timeout))
    }

    /// Traces an event that is not a transaction, with the current time. `value` is for TCP, `mark` for shared memory.
    #[inline]
    pub(crate) fn mark(&self, kind: Kind, tag: &Tag, value: f64, mark: Mark<'_>) {
        let shared = &*self.0.shared;
        shared.say(State::API, || format!("{kind:?} {tag} {value}"));
        if shared.state().contains(State::NOAGENT) {
            return;
        }
        if let Some(shared_memory) = self.shared_memory().or_else(|| self.send(kind, tag, value)) {
            shared_memory.mark(shared, tag, kind, &Mark { time: shared_memory::now(), ..mark }, true);
        }
    }

    /// Traces the end of a transaction, `mark.value` nanoseconds long. `counts` is false for an aborted one.
    #[inline]
    pub(crate) fn end(&self, tag: &Tag, mark: Mark<'_>, counts: bool) {
        let shared = &*self.0.shared;
        shared.say(State::API, || {
            let took = Duration::from_nanos(mark.value);
            if counts { format!("transaction {tag} ends: {took:?}") } else { format!("transaction {tag} is aborted") }
        });
        if shared.state().contains(State::NOAGENT) {
            return;
        }
        if let Some(shared_memory) = self
            .shared_memory()
            .or_else(|| if counts { self.send(Kind::Transact, tag, mark.value as f64 / 1e9) } else { None })
        {
            let time = if mark.time == 0 { shared_memory::now() } else { mark.time };
            shared_memory.mark(shared, tag, Kind::Transact, &Mark { time, ..mark }, counts);
        }
    }

    /// Returns the shared-memory transport, if it is in use.
    #[inline]
    pub(crate) fn shared_memory(&self) -> Option<&SharedMemory> {
        let ways = &self.0.ways;
        ways.shared_memory().or_else(|| ways.own().1.shared_memory(&self.0.shared))
    }

    /// Sends a trace event over TCP. Returns the shared-memory transport instead if it has become available.
    fn send(&self, kind: Kind, tag: &Tag, value: f64) -> Option<&SharedMemory> {
        let shared = &self.0.shared;
        let (pid, way) = self.0.ways.own();
        if shared.choose() {
            return self.put_aside(way, &Pdu { prepared: tag.prepared(), pid, kind, value, reply: false });
        }
        let pdu = Pdu { prepared: tag.prepared(), pid, kind, value, reply: true };
        let mut link = way.link();
        // A second attempt when the agent has closed the connection: it may have restarted.
        for _ in 0..2 {
            if link.is_time_to_look(&shared.options) {
                if let Some(shared_memory) = way.look(shared) {
                    link.close();
                    return Some(shared_memory);
                }
            }
            if link.send(shared, &pdu) {
                return None;
            }
        }
        shared.add_missed(1);
        None
    }

    fn put_aside<'a>(&'a self, way: &'a Way, pdu: &Pdu<'_>) -> Option<&'a SharedMemory> {
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
                    if let Some(shared_memory) = way.look(shared) {
                        // The thread sends the queued PDUs, and ends.
                        queue.close();
                        return Some(shared_memory);
                    }
                }
            }
        }
    }
}
