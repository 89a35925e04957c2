//! Pages of a file that another process has truncated: they are replaced by memory of this process.

use std::ffi::{c_int, c_void};
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering::AcqRel};

use libc::{SA_NODEFER, SA_ONSTACK, SA_RESTART, SA_SIGINFO, SIG_DFL, SIG_IGN, SIGBUS, sigaction, siginfo_t};
use once_cell::race::OnceBox;

use super::set_errno;

/// Handlers of SIGBUS.
struct Handlers {
    /// Replaces the page at an address. Returns whether the page was one of this library.
    replace: fn(usize) -> bool,
    /// Handler of the program.
    before: sigaction,
}

static HANDLERS: OnceBox<Handlers> = OnceBox::new();

type WithInfo = extern "C" fn(c_int, *mut siginfo_t, *mut c_void);
type Plain = extern "C" fn(c_int);

/// Calls `replace` with the address of each access to a page that its file has lost (SIGBUS). `replace` must be a
/// function that a signal handler may call. A signal for another reason goes to the handler that the program had
/// before. A handler that the program sets later replaces this one. Calls after the first do nothing.
pub(crate) fn catch_lost_pages(replace: fn(usize) -> bool) {
    static DONE: AtomicBool = AtomicBool::new(false);
    if DONE.swap(true, AcqRel) {
        return;
    }
    // SAFETY: all fields of the structure may be zero.
    let mut before: sigaction = unsafe { mem::zeroed() };
    // SAFETY: the structure lives as long as the call, which only reads the handler.
    if unsafe { libc::sigaction(SIGBUS, ptr::null(), &raw mut before) } != 0 {
        return;
    }
    let mut own = before;
    own.sa_sigaction = on_bus_error as WithInfo as usize;
    own.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART | (before.sa_flags & SA_NODEFER);
    _ = HANDLERS.set(Box::new(Handlers { replace, before }));
    // SAFETY: the handler only calls what signal handlers may call, and the library is never unloaded (`-z nodelete`).
    unsafe { libc::sigaction(SIGBUS, &raw const own, ptr::null_mut()) };
}

extern "C" fn on_bus_error(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let Some(handlers) = HANDLERS.get() else { return };
    // SAFETY: the kernel passes a structure that is valid during the call; with this code it has an address.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr().addr()) };
    // SAFETY: the C library's address of this thread's `errno` is valid as long as the thread.
    let errno = unsafe { *libc::__errno_location() };
    if code == libc::BUS_ADRERR && (handlers.replace)(address) {
        set_errno(errno);
        return;
    }
    pass_on(&handlers.before, code, signal, info, context);
}

/// Handles a signal as it would be handled without this library.
fn pass_on(before: &sigaction, code: c_int, signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // Positive codes are those of the kernel, for an access that is repeated when the handler returns.
    let sent = code <= 0;
    match before.sa_sigaction {
        SIG_IGN if sent => {}
        SIG_DFL | SIG_IGN => {
            // SAFETY: both calls are valid with any signal. A signal that was sent is delivered when the handler returns.
            unsafe {
                libc::signal(SIGBUS, SIG_DFL);
                if sent {
                    libc::raise(SIGBUS);
                }
            }
        }
        handler if before.sa_flags & SA_SIGINFO != 0 => {
            // SAFETY: the program has set this handler with SA_SIGINFO, so it has three arguments.
            let handler: WithInfo = unsafe { mem::transmute(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: the program has set this handler without SA_SIGINFO, so it has one argument.
            let handler: Plain = unsafe { mem::transmute(handler) };
            handler(signal);
        }
    }
}
