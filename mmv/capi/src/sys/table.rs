//! Objects by address. They are found without a lock.

use std::collections::VecDeque;
use std::iter;
use std::ptr::{self, NonNull};
use std::sync::atomic::{
    AtomicPtr, AtomicUsize,
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
    /// Returns the address that identifies the object: that of a page. It does not change.
    fn key(&self) -> usize;
    /// Returns the memory of the object from its address on, in bytes. It does not change.
    fn bytes(&self) -> usize;
    /// Ends the use of the object. Returns false if another call has done so.
    fn end(&self) -> bool;
}

/// Objects by their addresses.
pub(crate) struct Table<T: 'static> {
    /// The node of the object that was added last. Most programs have one object only.
    newest: AtomicPtr<Node<T>>,
    /// The first node of each list.
    buckets: [AtomicPtr<Node<T>>; BUCKETS],
    /// Removed objects. The lock also excludes other changes of the nodes.
    changes: Lock<Changes<T>>,
}

struct Changes<T> {
    /// Number of objects in the lists.
    live: usize,
    /// Removed objects, the oldest first. It has capacity for all live ones, too: a removal allocates no memory.
    removed: VecDeque<Removed<T>>,
}

/// A place for an object in a list. It is never freed and never leaves its list (invariant 4), so any thread may read it
/// at any time. Another object of the same list uses it after a removal.
struct Node<T: 'static> {
    /// The key of the object; 0 without one.
    key: AtomicUsize,
    /// The object's number of bytes.
    bytes: AtomicUsize,
    object: AtomicPtr<T>,
    next: Option<&'static Node<T>>,
}

impl<T: 'static> Node<T> {
    /// Returns the node that the pointer refers to, unless it is null.
    #[inline(always)]
    fn at(pointer: &AtomicPtr<Node<T>>) -> Option<&'static Node<T>> {
        // SAFETY: the pointers to nodes come from `Table::insert`, and nodes are never freed (invariant 4).
        unsafe { pointer.load(Acquire).as_ref() }
    }
}

/// An object that was removed from a table, and is freed once no reader can have it.
struct Removed<T>(NonNull<T>);

// SAFETY: threads may share the object, which is freed once.
unsafe impl<T: Send + Sync> Send for Removed<T> {}

impl<T> Removed<T> {
    fn object(&self) -> &T {
        // SAFETY: the object is freed by the drop only.
        unsafe { self.0.as_ref() }
    }
}

impl<T> Drop for Removed<T> {
    fn drop(&mut self) {
        // SAFETY: the object came from `allocate`, and `Table::remove` takes each object once. No reader refers to it any
        // more (invariant 5).
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

impl<T: Keyed> Changes<T> {
    /// Frees the oldest removed objects, except for the last [`KEPT`] of at most [`KEPT_BYTES`].
    fn free_oldest(&mut self) {
        let mut bytes: usize = self.removed.iter().map(|removed| removed.object().bytes()).sum();
        while self.removed.len() > 1 && (self.removed.len() > KEPT || bytes > KEPT_BYTES) {
            let oldest = self.removed.pop_front();
            bytes -= oldest.map_or(0, |removed| removed.object().bytes());
        }
    }
}

/// Moves a value to memory of its own, which `Box::from_raw` accepts. Returns the value if there is no memory.
fn allocate<T>(value: T) -> Result<*mut T, T> {
    let mut place = Vec::new();
    if place.try_reserve_exact(1).is_err() {
        return Err(value);
    }
    place.push(value);
    Ok(Box::into_raw(place.into_boxed_slice()).cast())
}

/// Returns the nodes of a list.
#[inline(always)]
fn nodes<T: 'static>(bucket: &AtomicPtr<Node<T>>) -> impl Iterator<Item = &'static Node<T>> {
    iter::successors(Node::at(bucket), |node| node.next)
}

/// Returns a node of a list that has no object. Adds one to the list if there is none, and fails if there is no memory for
/// it. The caller must hold the lock.
fn vacant<T: 'static>(bucket: &AtomicPtr<Node<T>>) -> Option<&'static Node<T>> {
    if let Some(node) = nodes(bucket).find(|node| node.key.load(Acquire) == 0) {
        return Some(node);
    }
    let object = AtomicPtr::new(ptr::null_mut());
    let node = Node { key: AtomicUsize::new(0), bytes: AtomicUsize::new(0), object, next: Node::at(bucket) };
    bucket.store(allocate(node).ok()?, Release);
    Node::at(bucket)
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

    /// Returns the node of the object with this address.
    #[inline(always)]
    fn node(&self, key: usize) -> Option<&'static Node<T>> {
        if key == 0 {
            return None;
        }
        let newest = Node::at(&self.newest).filter(|newest| newest.key.load(Acquire) == key);
        newest.or_else(|| nodes(self.bucket(key)).find(|node| node.key.load(Acquire) == key))
    }

    /// Returns the object with this address. Reads no other object: other threads may remove and free those.
    #[inline(always)]
    pub(crate) fn find(&'static self, key: usize) -> Option<&'static T> {
        let object = self.node(key)?.object.load(Acquire);
        // SAFETY: the object was live when the pointer was loaded (invariant 5).
        unsafe { object.as_ref() }
    }

    /// Adds an object and returns it. Frees the oldest removed objects if there are too many.
    ///
    /// # Errors
    /// The object, if there is no memory for it, or in a signal handler that has interrupted a change of the table.
    pub(crate) fn insert(&'static self, object: T) -> Result<&'static T, T> {
        let (key, bytes) = (object.key(), object.bytes());
        let bucket = self.bucket(key);
        let Some(mut changes) = self.changes.lock() else { return Err(object) };
        let room = changes.live + 1;
        if changes.removed.try_reserve(room).is_err() {
            return Err(object);
        }
        changes.free_oldest();
        let Some(node) = vacant(bucket) else { return Err(object) };
        let place = allocate(object)?;
        changes.live = room;
        node.bytes.store(bytes, Release);
        node.object.store(place, Release);
        node.key.store(key, Release);
        self.newest.store(ptr::from_ref(node).cast_mut(), Release);
        // SAFETY: the object was allocated above; `free_oldest` frees it after its removal (invariant 5).
        Ok(unsafe { &*place })
    }

    /// Returns whether an address is in the pages of an object, in a system with pages of `page` bytes. Reads no object.
    /// A signal handler may call this.
    pub(crate) fn covers(&self, address: usize, page: usize) -> bool {
        self.buckets.iter().flat_map(nodes).any(|node| {
            let key = node.key.load(Acquire);
            let within = address.wrapping_sub(key) < node.bytes.load(Acquire).next_multiple_of(page);
            // Another object may have begun to use the node between the two loads.
            key != 0 && within && node.key.load(Acquire) == key
        })
    }

    /// Ends and removes the object with this address if `wanted` selects it, after calling `last` with it. Returns false
    /// if there is no such object. Of several threads that remove an object, one succeeds.
    ///
    /// A signal handler may call this: no memory is allocated or freed. If the handler has interrupted a change of the
    /// table, the object ends, and stays in its list.
    pub(crate) fn remove(&'static self, key: usize, wanted: impl FnOnce(&T) -> bool, last: impl FnOnce(&T)) -> bool {
        // Objects are freed under the lock only. So `wanted` may read an object that belongs to another thread. Without
        // the lock, this thread has it, or no thread can take it.
        let changes = self.changes.lock();
        let Some(node) = self.node(key) else { return false };
        let Some(place) = NonNull::new(node.object.load(Acquire)) else { return false };
        // SAFETY: the object is live, and removed by this call at the earliest (invariant 5).
        let object = unsafe { place.as_ref() };
        if !wanted(object) {
            return false;
        }
        last(object);
        if !object.end() {
            return false;
        }
        if let Some(mut changes) = changes {
            node.key.store(0, Release);
            node.object.store(ptr::null_mut(), Release);
            changes.live -= 1;
            changes.removed.push_back(Removed(place));
        }
        true
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use super::*;

    struct Page(usize, AtomicBool);

    impl Keyed for Page {
        fn key(&self) -> usize {
            self.0
        }

        fn bytes(&self) -> usize {
            KEPT_BYTES
        }

        fn end(&self) -> bool {
            !self.1.swap(true, Release)
        }
    }

    /// Returns the key of an object in a list. The objects do not overlap.
    fn key(bucket: usize, number: usize) -> usize {
        (bucket << 12) | ((number + 1) * KEPT_BYTES)
    }

    /// A thread that uses its own object only is often preempted within `find`. Meanwhile other threads remove so many
    /// objects of the same list that the oldest are freed, and their memory is used for objects of another list.
    #[test]
    // Slow: threads race for a while.
    fn look_ups_survive_the_removal_of_other_objects() {
        static TABLE: Table<Page> = Table::new();
        let insert = |key| assert!(TABLE.insert(Page(key, AtomicBool::new(false))).is_ok());
        let (own, done) = (key(0, 0), AtomicBool::new(false));
        insert(own);
        let read = || {
            while !done.load(Acquire) {
                assert_eq!(TABLE.find(own).map(Keyed::key), Some(own));
                assert!(TABLE.covers(own + 1, 1 << 12));
                assert!(!TABLE.covers(key(0, 100), 1 << 12));
            }
        };
        let churn = |thread: usize| {
            for round in 0..400_000 {
                let other = key(round & 1, 1 + thread + 2 * (round % 8));
                insert(other);
                assert!(TABLE.remove(other, |_| true, |_| ()));
            }
        };
        thread::scope(|scope| {
            let readers = [(); 4].map(|()| scope.spawn(read));
            let churns = [0, 1].map(|thread| scope.spawn(move || churn(thread)));
            let churned = churns.map(thread::ScopedJoinHandle::join);
            done.store(true, Release);
            churned.into_iter().chain(readers.map(thread::ScopedJoinHandle::join)).for_each(Result::unwrap);
        });
    }
}
