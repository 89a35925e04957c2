//! State that a forked child does not share with its parent.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use once_cell::race::OnceBox;

use super::map::{self, Id};

/// State of a process that its forked children have a copy of.
pub(crate) trait Inherited: Default {
    /// Releases in a child the resources that the child would otherwise keep open. Does not wait for a lock.
    fn release(&self);

    /// Prepares the drop in a child: forgets values whose drop may need a lock that another thread held at the fork.
    fn forget(&mut self);
}

/// Returns the identity of this process.
#[inline]
pub(crate) fn this_process() -> Id {
    map::id().unwrap_or_default()
}

/// A value for each process among those that have a copy of it, the oldest process first.
///
/// A lock that another thread holds during a fork is never released in the child. So a child never waits for a lock in
/// the value of another process, and uses its own value. This type has no lock.
#[derive(Debug)]
pub(crate) struct PerProcess<T: Inherited> {
    /// The process, or 0 until one uses the value.
    id: AtomicU64,
    value: T,
    /// Value of the next process: a forked child.
    next: OnceBox<PerProcess<T>>,
}

impl<T: Inherited> PerProcess<T> {
    pub(crate) fn new() -> PerProcess<T> {
        PerProcess::of(0)
    }

    fn of(id: u64) -> PerProcess<T> {
        PerProcess { id: id.into(), value: T::default(), next: OnceBox::new() }
    }

    /// Returns the value of the oldest process.
    #[inline]
    pub(crate) fn first(&self) -> &T {
        &self.value
    }

    /// Returns the value of this process. The first call releases the values of its ancestors.
    #[inline]
    pub(crate) fn own(&self, id: Id) -> &T {
        if self.id.load(Relaxed) == id.word() { &self.value } else { self.find_or_create(id) }
    }

    /// Returns the value of this process, if there is one.
    pub(crate) fn find(&self, id: Id) -> Option<&T> {
        self.iter().find(|(owner, _)| *owner == id.word()).map(|(_, value)| value)
    }

    #[cold]
    fn find_or_create(&self, id: Id) -> &T {
        let mut at = self;
        loop {
            match at.id.compare_exchange(0, id.word(), Relaxed, Relaxed) {
                Err(other) if other != id.word() => {}
                _ => return &at.value,
            }
            at = at.next.get_or_init(|| {
                self.iter().for_each(|(_, value)| value.release());
                // Another thread of this process may do the same: one of the two values is used.
                Box::new(PerProcess::of(id.word()))
            });
        }
    }

    fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        let nodes = std::iter::successors(Some(self), |node| node.next.get());
        nodes.map(|node| (node.id.load(Relaxed), &node.value))
    }
}

impl<T: Inherited> Drop for PerProcess<T> {
    fn drop(&mut self) {
        let owner = *self.id.get_mut();
        if owner != 0 && owner != this_process().word() {
            self.value.release();
            self.value.forget();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    #[derive(Default)]
    struct Value(AtomicU32);

    impl Inherited for Value {
        fn release(&self) {
            self.0.fetch_add(100, Relaxed);
        }

        fn forget(&mut self) {}
    }

    #[test]
    fn each_process_has_a_value_of_its_own() {
        let values = PerProcess::<Value>::new();
        let ids: Vec<Id> = (1..=20).map(Id::new).collect();
        for (n, id) in (0..).zip(&ids) {
            assert!(values.find(*id).is_none());
            values.own(*id).0.store(n, Relaxed);
            assert_eq!(values.own(*id).0.load(Relaxed), n);
        }
        let value = |id: &Id| values.find(*id).unwrap().0.load(Relaxed);
        // Each process releases the values of its ancestors.
        assert!((0..).zip(&ids).all(|(n, id)| value(id) == n + 100 * (19 - n)));
        assert_eq!(values.first().0.load(Relaxed), 1900);
    }
}
