//! Objects by address. They are found without a lock.

use std::collections::VecDeque;
use std::ptr::{self, NonNull};
use std::sync::atomic::{
    AtomicPtr,
    Ordering::{Acquire, Release},
};

use super::Lock;

/// Largest number of removed objects that stay valid.
const KEPT: usize = 1024;
/// Largest number of bytes of removed objects that stay valid. The last removed object always stays valid.
const KEPT_BYTES: usize = 64 << 20;
/// Number of lists of objects.
const BUCKETS: usize = 1024;

/// An object of a [`Table`].
pub(crate) trait Keyed: Send + Sync + 'static {
    /// Returns the address that identifies the object: that of a page.
    fn key(&self) -> usize;
    /// Returns the memory of the object, in bytes.
    fn bytes(&self) -> usize;
    /// Ends the use of the object. Returns false if another call has done so.
    fn end(&self) -> bool;
}

/// Objects by their addresses.
pub(crate) struct Table<T> {
    /// The object that was added last; null after its removal. Most programs have one object only.
    newest: AtomicPtr<Node<T>>,
    buckets: [AtomicPtr<Node<T>>; BUCKETS],
    /// Removed objects. The lock also excludes other changes of the lists.
    changes: Lock<Changes<T>>,
}

struct Changes<T> {
    /// Number of objects in the lists.
    live: usize,
    /// Removed objects, the oldest first. It has capacity for all live ones, too: a removal allocates no memory.
    removed: VecDeque<Removed<T>>,
}

struct Node<T> {
    object: T,
    next: AtomicPtr<Node<T>>,
}

/// A removed node, which is in no list.
struct Removed<T>(NonNull<Node<T>>);

// SAFETY: a node is an object that threads may share, and is freed once.
unsafe impl<T: Send + Sync> Send for Removed<T> {}

impl<T> Removed<T> {
    fn object(&self) -> &T {
        // SAFETY: the node is freed by the drop only.
        unsafe { &self.0.as_ref().object }
    }
}

impl<T> Drop for Removed<T> {
    fn drop(&mut self) {
        // SAFETY: the node came from `Box::into_raw` in `Table::insert`, as a slice of one node, and `Table::unlink`
        // takes each node once. No reader refers to it any more (invariant 4).
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

impl<T: Keyed> Changes<T> {
    /// Frees the oldest removed objects, except for the last [`KEPT`] of at most [`KEPT_BYTES`].
    fn free_oldest(&mut self) {
        let mut bytes: usize = self.removed.iter().map(|node| node.object().bytes()).sum();
        while self.removed.len() > 1 && (self.removed.len() > KEPT || bytes > KEPT_BYTES) {
            let oldest = self.removed.pop_front();
            bytes -= oldest.map_or(0, |node| node.object().bytes());
        }
    }
}

impl<T: Keyed> Table<T> {
    pub(crate) const fn new() -> Table<T> {
        let buckets = [const { AtomicPtr::new(ptr::null_mut()) }; BUCKETS];
        let changes = Lock::new(Changes { live: 0, removed: VecDeque::new() });
        Table { newest: AtomicPtr::new(ptr::null_mut()), buckets, changes }
    }

    #[inline(always)]
    fn bucket(&self, key: usize) -> &AtomicPtr<Node<T>> {
        &self.buckets[(key >> 12) % BUCKETS]
    }

    /// Returns the object with this address.
    #[inline(always)]
    pub(crate) fn find(&'static self, key: usize) -> Option<&'static T> {
        // SAFETY: the newest object is in a list, or has just been removed (invariant 4).
        let newest = unsafe { self.newest.load(Acquire).as_ref() };
        if let Some(found) = newest.filter(|newest| newest.object.key() == key) {
            return Some(&found.object);
        }
        let mut node = self.bucket(key).load(Acquire);
        loop {
            // SAFETY: a node in a list is valid, and so is one that has just been removed (invariant 4). Its `next`
            // still leads to the rest of the list.
            let found = unsafe { node.as_ref() }?;
            if found.object.key() == key {
                return Some(&found.object);
            }
            node = found.next.load(Acquire);
        }
    }

    /// Adds an object and returns it. Frees the oldest removed objects if there are too many.
    ///
    /// # Errors
    /// The object, if there is no memory for it, or in a signal handler that has interrupted a change of the table.
    pub(crate) fn insert(&'static self, object: T) -> Result<&'static T, T> {
        let bucket = self.bucket(object.key());
        let Some(mut changes) = self.changes.lock() else { return Err(object) };
        let mut place = Vec::new();
        let room = changes.live + 1;
        if place.try_reserve_exact(1).is_err() || changes.removed.try_reserve(room).is_err() {
            return Err(object);
        }
        changes.free_oldest();
        changes.live = room;
        place.push(Node { object, next: AtomicPtr::new(bucket.load(Acquire)) });
        let node: *mut Node<T> = Box::into_raw(place.into_boxed_slice()).cast();
        bucket.store(node, Release);
        self.newest.store(node, Release);
        // SAFETY: the node was allocated above; `free_oldest` frees it after its removal (invariant 4).
        Ok(unsafe { &(*node).object })
    }

    /// Returns whether `wanted` selects an object. A signal handler may call this.
    pub(crate) fn any(&'static self, wanted: impl Fn(&T) -> bool) -> bool {
        self.buckets.iter().any(|bucket| {
            let mut node = bucket.load(Acquire);
            // SAFETY: as in `find`.
            while let Some(found) = unsafe { node.as_ref() } {
                if wanted(&found.object) {
                    return true;
                }
                node = found.next.load(Acquire);
            }
            false
        })
    }

    /// Ends and removes the object with this address, after calling `last` with it. Returns false if there is no such
    /// object. Of several threads that remove an object, one succeeds.
    ///
    /// A signal handler may call this: no memory is allocated or freed. If the handler has interrupted a change of the
    /// table, the object ends, and stays in its list.
    pub(crate) fn remove(&'static self, key: usize, last: impl FnOnce(&T)) -> bool {
        let changes = self.changes.lock();
        let Some(object) = self.find(key) else { return false };
        last(object);
        if !object.end() {
            return false;
        }
        if let Some(mut changes) = changes {
            let node = self.unlink(key);
            changes.live -= usize::from(node.is_some());
            changes.removed.extend(node);
        }
        true
    }

    /// Takes the node with this address out of its list. The caller must hold the lock.
    fn unlink(&self, key: usize) -> Option<Removed<T>> {
        let mut place = self.bucket(key);
        loop {
            let pointer = NonNull::new(place.load(Acquire))?;
            // SAFETY: the lists only change under the lock, and their nodes are valid.
            let node = unsafe { pointer.as_ref() };
            if node.object.key() == key {
                place.store(node.next.load(Acquire), Release);
                if self.newest.load(Acquire) == pointer.as_ptr() {
                    self.newest.store(ptr::null_mut(), Release);
                }
                return Some(Removed(pointer));
            }
            place = &node.next;
        }
    }

    /// Calls `use_it` with the newest removed object that `wanted` selects.
    pub(crate) fn with_removed<R>(&self, wanted: impl Fn(&T) -> bool, use_it: impl FnOnce(Option<&T>) -> R) -> R {
        let Some(changes) = self.changes.lock() else { return use_it(None) };
        use_it(changes.removed.iter().rev().map(Removed::object).find(|object| wanted(object)))
    }

    /// Takes the lock for a fork. Returns whether it was free in time.
    pub(crate) fn hold(&self, tries: u32) -> bool {
        self.changes.acquire(tries)
    }

    /// Frees the lock after [`Table::hold`].
    pub(crate) fn release(&self) {
        self.changes.release();
    }
}
