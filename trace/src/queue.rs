//! The queue of the asynchronous TCP transport, and the thread that sends its PDUs.

use std::io::{self, Write as _};
use std::net::TcpStream;
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};
use pcp_base::backoff::Backoff;
use pcp_base::file::Kept;
use pcp_base::thread;

use crate::link::{Looks, broke, connect};
use crate::options::State;
use crate::protocol::{self, Prepared};
use crate::status::Shared;

/// Largest size of the queue, in bytes. Trace events beyond it are missed.
const LIMIT: usize = 1 << 20;
/// Size in bytes from which the sender no longer waits for more PDUs.
const ENOUGH: usize = LIMIT / 4;
/// How long the sender waits for more PDUs, so that it writes many at a time.
const GATHER: Duration = Duration::from_millis(2);

#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    /// Wakes the sender: the queue has PDUs, a flush has begun, or the queue is closed.
    filled: Condvar,
    /// Wakes threads that wait in [`Queue::flush`], when all PDUs are sent or missed.
    emptied: Condvar,
    /// Whether the sender runs, and pauses between attempts to start it.
    has_sender: AtomicBool,
    starts: Mutex<Backoff>,
}

#[derive(Debug, Default)]
struct Waiting {
    pdus: Vec<u8>,
    count: u64,
    /// A thread flushes the queue.
    hurry: bool,
    closed: bool,
    /// The next trace event must check for the shared-memory transport.
    look: bool,
    /// The sender waits for PDUs without a timeout.
    asleep: bool,
    /// The sender has taken PDUs, and not sent them yet.
    sending: bool,
}

/// Why a PDU was not queued.
#[derive(Debug)]
pub(crate) enum Refused {
    /// The queue is full.
    Full,
    /// The caller must check for the shared-memory transport first. It is in use if the queue is closed.
    Look,
}

impl Queue {
    /// Starts the thread that sends PDUs, unless it runs. If that fails, for example at the limit of threads, a later call
    /// tries again; PDUs wait meanwhile.
    #[inline]
    pub(crate) fn ensure_sender(self: &Arc<Self>, shared: &Arc<Shared>) {
        if !self.has_sender.load(Relaxed) {
            self.start_sender(shared);
        }
    }

    #[cold]
    fn start_sender(self: &Arc<Self>, shared: &Arc<Shared>) {
        // Another thread may be starting it.
        let Ok(mut starts) = self.starts.try_lock() else { return };
        if self.has_sender.load(Relaxed) || !starts.is_due() {
            return;
        }
        let sender = (Arc::clone(self), Arc::clone(shared));
        match thread::spawn_without_signals("pcp-trace", move || sender.0.send_all(&sender.1)) {
            Ok(()) => self.has_sender.store(true, Relaxed),
            Err(e) => {
                starts.failed(&shared.options.reconnect);
                shared.down(e.into());
            }
        }
    }

    /// Queues a PDU.
    pub(crate) fn push(&self, pdu: &Prepared<'_>) -> Result<(), Refused> {
        let mut waiting = self.lock();
        if waiting.closed || std::mem::take(&mut waiting.look) {
            return Err(Refused::Look);
        }
        let before = waiting.pdus.len();
        if before + pdu.prepared.len() > LIMIT {
            return Err(Refused::Full);
        }
        protocol::append(&mut waiting.pdus, pdu);
        waiting.count += 1;
        let enough = before < ENOUGH && waiting.pdus.len() >= ENOUGH;
        if std::mem::take(&mut waiting.asleep) || enough {
            drop(waiting);
            self.filled.notify_one();
        }
        Ok(())
    }

    /// Waits until all PDUs are sent or missed. Returns false after `timeout`.
    pub(crate) fn flush(&self, timeout: Duration) -> bool {
        let mut waiting = self.lock();
        waiting.hurry = true;
        self.filled.notify_one();
        let waited =
            self.emptied.wait_timeout_while(waiting, timeout, |waiting| !waiting.pdus.is_empty() || waiting.sending);
        let (mut waiting, result) = waited.unwrap_or_else(PoisonError::into_inner);
        waiting.hurry = false;
        !result.timed_out()
    }

    /// Ends the sender after it has sent the queued PDUs.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.filled.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Swaps the queue with the empty buffer `pdus`, and returns the number of PDUs. `None` when the queue is closed.
    fn take(&self, pdus: &mut Vec<u8>) -> Option<u64> {
        pdus.clear();
        let mut waiting = self.lock();
        waiting.sending = false;
        while waiting.pdus.is_empty() {
            self.emptied.notify_all();
            if waiting.closed {
                return None;
            }
            waiting.asleep = true;
            waiting = self.filled.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        waiting.asleep = false;
        let waited = self.filled.wait_timeout_while(waiting, GATHER, |waiting| {
            waiting.pdus.len() < ENOUGH && !waiting.hurry && !waiting.closed
        });
        let (mut waiting, _) = waited.unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut waiting.pdus, pdus);
        waiting.sending = true;
        Some(std::mem::take(&mut waiting.count))
    }

    /// Sends PDUs until the queue is closed.
    pub(crate) fn send_all(&self, shared: &Shared) {
        let mut connection: Option<(Kept<TcpStream>, Instant)> = None;
        let (mut backoff, mut looks) = (Backoff::default(), Looks::default());
        let mut pdus = Vec::new();
        while let Some(count) = self.take(&mut pdus) {
            shared.say(State::PDUBUF, || format!("{count} PDUs, {} bytes to send", pdus.len()));
            // Writing to a connection that the agent has closed would succeed, and lose the PDUs.
            if let Some((_, since)) = connection.take_if(|(stream, _)| is_closed(stream)) {
                broke(&mut backoff, since, &shared.options);
                shared.down(io::Error::from(io::ErrorKind::ConnectionReset).into());
            }
            let connects = connection.is_none() && backoff.is_due();
            if looks.is_due(connects, &shared.options) {
                self.lock().look = true;
            }
            if connects {
                match connect(&shared.options) {
                    Ok(stream) => {
                        shared.up();
                        connection = Some((stream, Instant::now()));
                    }
                    Err(failure) => {
                        backoff.failed(&shared.options.reconnect);
                        shared.down(failure);
                    }
                }
            }
            match connection.as_mut().map(|(stream, _)| stream.get()?.write_all(&pdus)) {
                Some(Ok(())) => shared.add_sent(count),
                None => shared.add_missed(count),
                Some(Err(e)) => {
                    if let Some((_, since)) = connection.take() {
                        broke(&mut backoff, since, &shared.options);
                    }
                    shared.down(e.into());
                    shared.add_missed(count);
                }
            }
        }
    }
}

/// Returns whether the agent has closed a connection, or the program its socket. Data from the agent is ignored, because none is expected after
/// the greeting.
fn is_closed(stream: &Kept<TcpStream>) -> bool {
    let Ok(stream) = stream.get() else { return true };
    let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
    matches!(recv(stream.as_raw_fd(), &mut [0], flags), Ok(0) | Err(Errno::ECONNRESET | Errno::EPIPE))
}
