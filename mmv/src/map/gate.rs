//! Synchronizes moves of values to another file with updates that must not run during a move.

use crate::fork::Forked;
use crate::sync::atomic::{AtomicU64, Ordering, fence};
use crate::sync::{Held, Lock};

/// A gate for rare updates, which wait until moving values are in their new file.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    lock: Lock<()>,
    /// Counter that is odd while values move.
    moves: AtomicU64,
}

impl Gate {
    /// Returns a guard: while it lives, no value moves, and no other thread holds the gate. Returns `None` in a
    /// [torn](crate::fork::is_torn) child, where no value ever moves again.
    pub(crate) fn hold(&self) -> Option<Held<'_, ()>> {
        self.lock.lock()
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
