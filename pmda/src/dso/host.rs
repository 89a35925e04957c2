//! The agent behind an interface. Each function makes the PDU that pmcd would send to a daemon, and returns the
//! engine's answer in C's structures.

use std::any::TypeId;
use std::cell::UnsafeCell;
use std::ffi::{CStr, CString, OsStr, c_int, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};

use nix::libc;
use pcp_pdu::handshake::encode_error;
use pcp_pdu::result_writer::ResultWriter;
use pcp_pdu::{Header, Pdu};
use pmapi::config::Config;
use pmapi::{Domain, Error, Result};
use tracing::error;

use super::abi::{Ext, Interface, Private};
use super::calls;
use super::values::Skeleton;
use crate::agent::{Agent, Start};
use crate::engine::{Engine, Reply};
use crate::options;
use crate::schema::Identity;

/// An agent, with the structures that the host of the shared object reads. The host has the address of the first field
/// until the process ends; therefore only the state is dropped.
#[repr(C)]
struct Host<A> {
    ext: UnsafeCell<Ext>,
    private: UnsafeCell<Private>,
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
    /// The client that disconnected last, until a client with its number sends a request.
    ended: Option<c_int>,
}

/// An agent that has been created, for calls that do not say which one they mean.
struct Made {
    ext: *mut Ext,
    of: TypeId,
    domain: Domain,
    interface: unsafe fn(*mut Ext) -> *mut Interface,
    close: unsafe fn(*mut Ext, c_int),
    end: unsafe fn(*mut Ext),
}

// SAFETY: the pointer is to a `Host`, whose state has a lock; agents are called under that lock only.
unsafe impl Send for Made {}

static HOSTS: Mutex<Vec<Made>> = Mutex::new(Vec::new());

/// The process whose end is that of the agents, but not the processes that it forks.
static PROCESS: OnceLock<u32> = OnceLock::new();

fn hosts() -> MutexGuard<'static, Vec<Made>> {
    HOSTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the entry point of a shared object; see [`dso!`](crate::dso!).
///
/// # Safety
/// `interface` must be a `pmdaInterface` of pmcd, dbpmda or a local context, with the domain filled in. The functions
/// that it gets must be called as pmcd calls them.
pub unsafe fn init<A: Agent>(interface: *mut Interface) {
    if interface.is_null() {
        return;
    }
    let status = catch_unwind(|| {
        stay_loaded(init::<A> as *const c_void);
        PROCESS.get_or_init(|| {
            // SAFETY: the code stays loaded.
            unsafe { libc::atexit(end_all) };
            std::process::id()
        });
        crate::log::subscribe(&program(), Default::default());
        crate::log::panics();
        // SAFETY: as the caller says.
        match unsafe { Host::<A>::start(interface) } {
            Ok(()) => 0,
            Err(e) => {
                error!("{}: {e}", A::NAME);
                Error::GENERIC.code()
            }
        }
    });
    // SAFETY: as the caller says.
    unsafe { (*interface).status = status.unwrap_or(Error::GENERIC.code()) }
}

/// Drops all agents at the end of the process, so that they can save their state, and memory checkers find no leaks of
/// them. Later calls get an error.
extern "C" fn end_all() {
    if PROCESS.get() != Some(&std::process::id()) {
        return;
    }
    crate::log::begin_exit();
    let all: Vec<_> = hosts().iter().map(|made| (made.ext, made.end)).collect();
    for (ext, end) in all {
        // SAFETY: hosts live for ever.
        _ = catch_unwind(AssertUnwindSafe(|| unsafe { end(ext) }));
    }
    _ = catch_unwind(crate::log::finish);
}

/// Returns the name of the process, for log lines.
fn program() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    path.file_name().map_or_else(|| "pmda".into(), |name| name.to_string_lossy().into_owned())
}

/// Returns the file that contains a function.
fn file_of(function: *const c_void) -> Option<PathBuf> {
    let mut info =
        libc::Dl_info { dli_fname: null_mut(), dli_fbase: null_mut(), dli_sname: null_mut(), dli_saddr: null_mut() };
    // SAFETY: `info` is written only when the address is in a loaded file, whose name is then there.
    unsafe {
        let found = libc::dladdr(function, &mut info) != 0 && !info.dli_fname.is_null();
        found.then(|| OsStr::from_bytes(CStr::from_ptr(info.dli_fname).to_bytes()).into())
    }
}

/// Keeps the code in memory after the file is closed. Threads of the agent may still run, and threads of the host may
/// have thread-locals to destroy.
fn stay_loaded(function: *const c_void) {
    let Some(path) = file_of(function) else { return };
    let Ok(path) = CString::new(path.into_os_string().into_encoded_bytes()) else { return };
    // SAFETY: the file is loaded already; this only marks it.
    unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE) };
}

/// Returns the name of an agent whose file is `pmda_NAME.so`. A file with an entry point of that name has its own name,
/// and agents in it may have others: `None`.
fn name_of(file: &Path) -> Option<String> {
    let name = file.file_stem()?.to_str()?.strip_prefix("pmda_")?;
    let path = CString::new(file.as_os_str().as_bytes()).ok()?;
    let entry = CString::new(format!("{name}_init")).ok()?;
    // SAFETY: the file is loaded already, and the address is not used.
    let has_entry = unsafe {
        let file = libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        !file.is_null() && !libc::dlsym(file, entry.as_ptr()).is_null()
    };
    (!has_entry).then(|| name.to_owned())
}

impl<A: Agent> Host<A> {
    unsafe fn start(interface: *mut Interface) -> Start<()> {
        // SAFETY: as the caller of `init` says.
        let interface_ref = unsafe { &mut *interface };
        let own = Identity::of::<A>()?;
        let domain = u16::try_from(interface_ref.domain).ok().and_then(Domain::new).unwrap_or(own.domain);
        // Re-initializing an interface ends the agent that it belonged to.
        let again = Self::at(interface, domain);
        if let Some(ext) = again {
            // SAFETY: hosts live for ever.
            unsafe { Self::end(ext) };
        }
        let name = file_of(init::<A> as *const c_void).as_deref().and_then(name_of).unwrap_or(own.name);
        let mut engine = Engine::<A>::with(Identity { name, domain }, Config::load(), options::none::<A>()?)?;
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
        // SAFETY: hosts live for ever.
        *unsafe { &(*ext.cast::<Self>()).state }.lock().unwrap_or_else(PoisonError::into_inner) = Some(state);
        calls::fill::<A>(interface_ref, ext);
        Ok(())
    }

    /// Finds the agent that was created for this interface. Another agent may have had this address: local contexts
    /// move their interfaces without notice.
    fn at(interface: *mut Interface, domain: Domain) -> Option<*mut Ext> {
        let hosts = hosts();
        let mut same = hosts.iter().filter(|made| made.of == TypeId::of::<A>() && made.domain == domain);
        // SAFETY: hosts live for ever.
        same.find(|made| unsafe { (made.interface)(made.ext) } == interface).map(|made| made.ext)
    }

    fn make(interface: *mut Interface, domain: Domain) -> *mut Ext {
        let host = Box::into_raw(Box::new(Self {
            ext: UnsafeCell::new(Ext::new(domain.get().into(), null_mut(), end_context::<A>)),
            private: UnsafeCell::new(Private::new(interface)),
            state: Mutex::new(None),
        }));
        let ext = host.cast::<Ext>();
        // SAFETY: no other code has the host yet.
        unsafe { (*ext).private = (*host).private.get() };
        let of = TypeId::of::<A>();
        hosts().push(Made { ext, of, domain, interface: Self::interface, close: Self::close, end: Self::end });
        ext
    }

    unsafe fn interface(ext: *mut Ext) -> *mut Interface {
        // SAFETY: hosts live for ever.
        unsafe { (*(*ext.cast::<Self>()).private.get()).interface }
    }

    /// Drops the agent, unless a request is running: the process then ends within that request.
    unsafe fn end(ext: *mut Ext) {
        // SAFETY: hosts live for ever.
        let state = match unsafe { &(*ext.cast::<Self>()).state }.try_lock() {
            Ok(mut state) => state.take(),
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner().take(),
            Err(TryLockError::WouldBlock) => None,
        };
        drop(state);
    }

    unsafe fn close(ext: *mut Ext, client: c_int) {
        // SAFETY: hosts live for ever.
        let _ = unsafe {
            locked::<A, ()>(ext, |state, _| match state.ended.replace(client) {
                // Another agent of this type has reported the end already.
                Some(before) if before == client => Ok(()),
                _ => state.ask(|out| encode_error(out, client, Err(Error::NOTCONN)), |_, _| Ok(())),
            })
        };
    }
}

/// Runs a request. Only its result leaves this function, never a panic.
pub(super) unsafe fn call<A: Agent, T>(ext: *mut Ext, f: impl FnOnce(&mut State<A>, i32) -> Result<T>) -> Result<T> {
    // SAFETY: as the caller says.
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
        // SAFETY: the address is what `start` has given, and hosts live for ever.
        let host = unsafe { &*ext.cast::<Host<A>>() };
        // SAFETY: the caller of the function wrote it, and now waits for us.
        let client = unsafe { (*host.ext.get()).context };
        let mut state = host.state.lock().unwrap_or_else(PoisonError::into_inner);
        f(state.as_mut().ok_or(Error::NOAGENT)?, client)
    }))
    .unwrap_or(Err(Error::GENERIC))
}

impl<A: Agent> State<A> {
    /// Makes a PDU, lets the engine answer it, and decodes the answer; `None` for no answer.
    pub(super) fn ask<T>(
        &mut self,
        encode: impl FnOnce(&mut Vec<u8>) -> Result,
        take: impl FnOnce(Option<(Pdu<'_>, &[u8])>, &mut Kept<'_>) -> Result<T>,
    ) -> Result<T> {
        self.request.clear();
        encode(&mut self.request)?;
        let header = Header::parse(&self.request)?.ok_or(Error::IPC)?;
        let mut kept = Kept { skeleton: &mut self.skeleton, text: &mut self.text };
        let taken = match self.engine.handle(header, &self.request) {
            Reply::None => take(None, &mut kept),
            Reply::Pdu(head, []) => answer(head).and_then(|pdu| take(Some((pdu, head)), &mut kept)),
            Reply::Pdu(head, rest) => {
                self.reply.clear();
                self.reply.extend_from_slice(head);
                self.reply.extend_from_slice(rest);
                answer(&self.reply).and_then(|pdu| take(Some((pdu, &self.reply)), &mut kept))
            }
        };
        self.engine.sent();
        taken
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
    let of: Vec<_> =
        hosts().iter().filter(|made| made.of == TypeId::of::<A>()).map(|made| (made.ext, made.close)).collect();
    for (ext, close) in of {
        // SAFETY: hosts live for ever.
        unsafe { close(ext, client) }
    }
}

#[cfg(test)]
mod tests;
