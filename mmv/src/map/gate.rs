//! Synchronizes moves of values to another file with updates that must not run during a move.

use nix::sys::signal::{SigSet, Signal};

use crate::fork::Forked;
use crate::sync::atomic::{AtomicU64, Ordering, fence};
use crate::sync::{Held, Lock};

/// A gate for rare updates, which wait until moving values are in their new file.
///
/// No signal handler runs on the thread that holds it: a handler may update values, and would wait for its own thread.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    lock: Lock<()>,
    /// Counter that is odd while values move.
    moves: AtomicU64,
}

/// A guard: while it lives, no value moves, and no other thread holds the gate.
pub(crate) struct Still<'a> {
    // Fields drop in order: the gate is released before a signal is delivered.
    _held: Held<'a, ()>,
    _blocked: Blocked,
}

impl Gate {
    /// Returns a guard, or `None` in a [torn](crate::fork::is_torn) child, where no value ever moves again.
    pub(crate) fn hold(&self) -> Option<Still<'_>> {
        let blocked = Blocked::new();
        Some(Still { _held: self.lock.lock()?, _blocked: blocked })
    }

    /// Returns whether no thread holds the gate.
    pub(crate) fn is_quiet(&self) -> bool {
        self.lock.is_quiet()
    }

    /// Runs `f`, which may move segments and transfer their values, while holding the gate.
    pub(crate) fn while_moving<T>(&self, f: impl FnOnce() -> T) -> T {
        let _held = self.hold();
        self.moves.fetch_add(1, Ordering::SeqCst);
        let result = f();
        self.moves.fetch_add(1, Ordering::SeqCst);
        result
    }

    /// Reads a value while no value moves: `read` is repeated if its result may be wrong.
    pub(crate) fn read_unmoved<T>(&self, read: impl Fn() -> T) -> T {
        let before = self.moves.load(Ordering::SeqCst);
        if before % 2 == 0 {
            let result = read();
            fence(Ordering::Acquire);
            if self.moves.load(Ordering::SeqCst) == before {
                return result;
            }
        }
        let _held = self.hold();
        read()
    }
}

/// A guard: while it lives, the thread gets no signals but those of faults, which would end the process.
struct Blocked {
    /// The signals that the thread has blocked before.
    before: Option<SigSet>,
}

impl Blocked {
    fn new() -> Blocked {
        let mut signals = SigSet::all();
        let faults = [Signal::SIGBUS, Signal::SIGFPE, Signal::SIGILL, Signal::SIGSEGV, Signal::SIGSYS, Signal::SIGTRAP];
        faults.into_iter().for_each(|fault| signals.remove(fault));
        Blocked { before: signals.thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_BLOCK).ok() }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            _ = before.thread_set_mask();
        }
    }
}

#[cfg(all(test, not(mmv_loom)))]
mod tests {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::thread;
    use std::time::Duration;

    use nix::sys::signal::{SaFlags, SigAction, SigHandler, raise, sigaction};
    use testkit::Child;

    use super::*;

    static GATE: OnceLock<Gate> = OnceLock::new();
    static HANDLED: AtomicBool = AtomicBool::new(false);

    extern "C" fn update(_: i32) {
        HANDLED.store(GATE.get().is_some_and(|gate| gate.hold().is_some()), Relaxed);
    }

    #[test]
    #[allow(unsafe_code, reason = "a signal handler")]
    fn a_signal_handler_does_not_wait_for_the_thread_that_it_interrupts() {
        let child = Child::new(|| {
            let gate = GATE.get_or_init(Gate::default);
            let action = SigAction::new(SigHandler::Handler(update), SaFlags::empty(), SigSet::empty());
            // SAFETY: the handler only takes a lock, which its thread does not hold.
            unsafe { sigaction(Signal::SIGUSR1, &action) }.unwrap();
            // The test fails by this instead of hanging.
            thread::spawn(|| {
                thread::sleep(Duration::from_secs(20));
                std::process::abort();
            });
            gate.while_moving(|| {
                raise(Signal::SIGUSR1).unwrap();
                assert!(!HANDLED.load(Relaxed));
            });
            assert!(HANDLED.load(Relaxed));
            let held = gate.hold();
            raise(Signal::SIGUSR1).unwrap();
            drop(held);
            assert!(SigSet::thread_get_mask().is_ok_and(|mask| !mask.contains(Signal::SIGUSR1)));
        });
        child.ends();
    }
}
