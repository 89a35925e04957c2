//! What an update does that must not happen while values move.

use super::fork::Forked;
use crate::sync::atomic::{AtomicU64, Ordering, fence};
use crate::sync::{Held, Lock};

/// Lets an update that cannot do without wait until the values are in their new file.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    lock: Lock<()>,
    /// Odd while values move.
    moves: AtomicU64,
}

impl Gate {
    /// While this guard lives no value moves, and nobody else holds the gate. Without a guard, in a
    /// [torn](crate::map::fork::is_torn) child, none moves ever again.
    pub(crate) fn hold(&self) -> Option<Held<'_, ()>> {
        self.lock.lock()
    }

    /// Whether nobody holds it.
    pub(crate) fn is_quiet(&self) -> bool {
        self.lock.is_quiet()
    }

    /// Moves values: `f` may move chunks and settle their values.
    pub(crate) fn while_moving<T>(&self, f: impl FnOnce() -> T) -> T {
        let _held = self.hold();
        self.moves.fetch_add(1, Ordering::SeqCst);
        let result = f();
        self.moves.fetch_add(1, Ordering::SeqCst);
        result
    }

    /// Reads something that makes sense only while no value moves.
    pub(crate) fn settled<T>(&self, read: impl Fn() -> T) -> T {
        let before = self.moves.load(Ordering::SeqCst);
        if before.is_multiple_of(2) {
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
