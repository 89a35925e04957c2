//! The agent behind an interface. Each function makes the PDU that pmcd would send to a daemon, and returns the
//! engine's answer in C's structures.

use std::any::TypeId;
use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};

use nix::libc;
use pcp_pdu::handshake::encode_error;
use pcp_pdu::result_writer::ResultWriter;
use pcp_pdu::{Header, Pdu};
use pmapi::{Domain, Error, Result};

use super::abi::{Ext, Interface, Private};
use super::values::Skeleton;
use crate::agent::Agent;
use crate::engine::own_domain;
use crate::engine::{Engine, Reply};
use crate::error::BoxError;

/// An agent, with the structures that the host of the shared object reads. The host keeps the address of the first
/// field until the process ends, so only the state is dropped.
#[repr(C)]
struct Host<A> {
    ext: UnsafeCell<Ext>,
    private: UnsafeCell<Private>,
    /// The thread that has the agent.
    thread: u64,
    state: Mutex<Option<State<A>>>,
}

pub(super) struct State<A> {
    engine: Engine<A>,
    request: Vec<u8>,
    reply: Vec<u8>,
    skeleton: Skeleton,
    /// Values of the last store.
    pub(super) values: ResultWriter,
    /// The last help text, which the shared object owns.
    text: Vec<u8>,
    /// The client that disconnected last. `None` once a client with the same number has sent a request.
    ended: Option<c_int>,
}

/// An agent that has been created, for calls that do not identify their agent.
struct Made {
    ext: *mut Ext,
    thread: u64,
    of: TypeId,
    domain: Domain,
    interface: unsafe fn(*mut Ext) -> *mut Interface,
    close: unsafe fn(*mut Ext, c_int),
    end: unsafe fn(*mut Ext),
}

// SAFETY: an agent need not be `Send`: its host is used only by the thread that created it ([`here`]). This suffices
// for pmcd and libpcp, which call all agents of a process from one thread.
unsafe impl Send for Made {}

static HOSTS: Mutex<Vec<Made>> = Mutex::new(Vec::new());

/// The process whose end ends the agents. The end of a process that it has forked does not.
static PROCESS: OnceLock<u32> = OnceLock::new();

/// Returns the number of the current thread, which no other thread ever has. Unlike [`std::thread::current`], this
/// also works while the process ends.
fn thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    thread_local!(static NUMBER: u64 = NEXT.fetch_add(1, Relaxed));
    NUMBER.with(|number| *number)
}

/// Calls `of` for each agent of this thread, and returns its results.
fn here<T>(of: impl FnMut(&Made) -> Option<T>) -> Vec<T> {
    let thread = thread();
    hosts().iter().filter(|made| made.thread == thread).filter_map(of).collect()
}

fn hosts() -> MutexGuard<'static, Vec<Made>> {
    HOSTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Drops all agents of this thread at the end of the process, so that they can save their state, and memory checkers
/// find no leaks of them. Later calls get an error.
extern "C" fn end_all() {
    if PROCESS.get() != Some(&std::process::id()) {
        return;
    }
    for (ext, end) in here(|made| Some((made.ext, made.end))) {
        // SAFETY: hosts live forever.
        _ = catch_unwind(AssertUnwindSafe(|| unsafe { end(ext) }));
    }
    _ = catch_unwind(crate::log::finish);
}

/// Arranges that the agents end with this process.
pub(super) fn end_with_process() {
    PROCESS.get_or_init(|| {
        // SAFETY: the code stays loaded.
        unsafe { libc::atexit(end_all) };
        std::process::id()
    });
}

/// Creates the agent of an interface, under the given name or that of its file.
///
/// # Safety
/// `interface` must be as for [`init`](super::init).
pub(super) unsafe fn start<A: Agent>(interface: *mut Interface, name: Option<String>) -> Result<*mut Ext, BoxError> {
    // SAFETY: by the caller's promise.
    unsafe { Host::<A>::start(interface, name) }
}

impl<A: Agent> Host<A> {
    unsafe fn start(interface: *mut Interface, name: Option<String>) -> Result<*mut Ext, BoxError> {
        let own = own_domain::<A>()?;
        // SAFETY: by the caller's promise.
        let domain = u16::try_from(unsafe { (*interface).domain }).ok();
        let domain = domain.and_then(Domain::new).unwrap_or(own);
        // Re-initializing an interface ends the agent that it belonged to.
        let again = Self::at(interface, domain);
        if let Some(ext) = again {
            // SAFETY: hosts live forever.
            unsafe { Self::end(ext) };
        }
        let mut builder = Engine::<A>::builder().domain(domain);
        if let Some(name) = name {
            builder = builder.name(name);
        }
        let mut engine = builder.build()?;
        engine.agent_mut().open()?;
        let state = State {
            engine,
            request: Vec::new(),
            reply: Vec::new(),
            skeleton: Skeleton::default(),
            values: ResultWriter::new(),
            text: Vec::new(),
            ended: None,
        };
        let ext = again.unwrap_or_else(|| Self::make(interface, domain));
        // SAFETY: hosts live forever.
        *unsafe { &(*ext.cast::<Self>()).state }.lock().unwrap_or_else(PoisonError::into_inner) = Some(state);
        Ok(ext)
    }

    /// Finds the agent that was created for this interface. Another agent may have had this address: local contexts
    /// move their interfaces without notice.
    fn at(interface: *mut Interface, domain: Domain) -> Option<*mut Ext> {
        let same = here(|made| {
            let same = made.of == TypeId::of::<A>() && made.domain == domain;
            // SAFETY: hosts are never freed, and this one belongs to this thread.
            (same && unsafe { (made.interface)(made.ext) } == interface).then_some(made.ext)
        });
        same.first().copied()
    }

    fn make(interface: *mut Interface, domain: Domain) -> *mut Ext {
        let host = Box::into_raw(Box::new(Self {
            ext: UnsafeCell::new(Ext::new(domain.get().into(), null_mut(), end_context::<A>)),
            private: UnsafeCell::new(Private::new(interface)),
            thread: thread(),
            state: Mutex::new(None),
        }));
        let ext = host.cast::<Ext>();
        // SAFETY: no other code uses the host yet.
        unsafe { (*ext).private = (*host).private.get() };
        let of = TypeId::of::<A>();
        let (interface, close, end) = (Self::interface, Self::close, Self::end);
        hosts().push(Made { ext, thread: thread(), of, domain, interface, close, end });
        ext
    }

    unsafe fn interface(ext: *mut Ext) -> *mut Interface {
        // SAFETY: hosts live forever.
        unsafe { (*(*ext.cast::<Self>()).private.get()).interface }
    }

    /// Drops the agent, unless a request is running: the process then ends within that request.
    unsafe fn end(ext: *mut Ext) {
        // SAFETY: hosts live forever.
        let state = match unsafe { &(*ext.cast::<Self>()).state }.try_lock() {
            Ok(mut state) => state.take(),
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner().take(),
            Err(TryLockError::WouldBlock) => None,
        };
        drop(state);
    }

    unsafe fn close(ext: *mut Ext, client: c_int) {
        // SAFETY: hosts live forever.
        let _ = unsafe {
            locked::<A, ()>(ext, |state, _| match state.ended.replace(client) {
                // Another agent of this type has already reported the end.
                Some(before) if before == client => Ok(()),
                _ => state.ask(|out| encode_error(out, client, Err(Error::NOTCONN)), |_, _| Ok(())),
            })
        };
    }
}

/// Runs a request. Returns its result. A panic never leaves this function.
pub(super) unsafe fn call<A: Agent, T>(ext: *mut Ext, f: impl FnOnce(&mut State<A>, i32) -> Result<T>) -> Result<T> {
    // SAFETY: by the caller's promise.
    unsafe {
        locked::<A, T>(ext, |state, client| {
            state.ended.take_if(|ended| *ended == client);
            f(state, client)
        })
    }
}

unsafe fn locked<A: Agent, T>(ext: *mut Ext, f: impl FnOnce(&mut State<A>, i32) -> Result<T>) -> Result<T> {
    if ext.is_null() {
        return Err(Error::GENERIC);
    }
    catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the address comes from `start`, hosts are never freed, and their thread does not change.
        if unsafe { (&raw const (*ext.cast::<Host<A>>()).thread).read() } != thread() {
            return Err(Error::THREAD);
        }
        // SAFETY: as above, and the host belongs to this thread.
        let host = unsafe { &*ext.cast::<Host<A>>() };
        // SAFETY: the caller of the function wrote it, and waits for this function.
        let client = unsafe { (*host.ext.get()).context };
        let mut state = host.state.lock().unwrap_or_else(PoisonError::into_inner);
        f(state.as_mut().ok_or(Error::NOAGENT)?, client)
    }))
    .unwrap_or(Err(Error::GENERIC))
}

impl<A: Agent> State<A> {
    /// Encodes a PDU, lets the engine answer it, and decodes the answer. Returns `None` if the PDU has no answer.
    pub(super) fn ask<T>(
        &mut self,
        encode: impl FnOnce(&mut Vec<u8>) -> Result,
        take: impl FnOnce(Option<(Pdu<'_>, &[u8])>, &mut Kept<'_>) -> Result<T>,
    ) -> Result<T> {
        self.request.clear();
        encode(&mut self.request)?;
        let header = Header::parse(&self.request)?.ok_or(Error::IPC)?;
        let mut kept = Kept { skeleton: &mut self.skeleton, text: &mut self.text };
        self.engine.handle(header, &self.request, |reply| match reply {
            Reply::None => take(None, &mut kept),
            Reply::Pdu(head, []) => answer(head).and_then(|pdu| take(Some((pdu, head)), &mut kept)),
            Reply::Pdu(head, rest) => {
                self.reply.clear();
                self.reply.extend_from_slice(head);
                self.reply.extend_from_slice(rest);
                answer(&self.reply).and_then(|pdu| take(Some((pdu, &self.reply)), &mut kept))
            }
        })
    }
}

/// Decodes an answer. An ERROR PDU becomes an error.
fn answer(bytes: &[u8]) -> Result<Pdu<'_>> {
    let header = Header::parse(bytes)?.ok_or(Error::IPC)?;
    let pdu = Pdu::decode(header, bytes).map_err(|_| Error::IPC)?;
    if let Pdu::Error(e) = pdu {
        e.status()?;
    }
    Ok(pdu)
}

/// The memory that outlives an answer.
pub(super) struct Kept<'a> {
    pub(super) skeleton: &'a mut Skeleton,
    pub(super) text: &'a mut Vec<u8>,
}

unsafe extern "C" fn end_context<A: Agent>(client: c_int) {
    let of = TypeId::of::<A>();
    for (ext, close) in here(|made| (made.of == of).then_some((made.ext, made.close))) {
        // SAFETY: hosts live forever.
        unsafe { close(ext, client) }
    }
}

#[cfg(test)]
mod tests;
