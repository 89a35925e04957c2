//! Files at addresses of this process, and the values in them.

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::iter;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{
    AtomicPtr, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use mmv::format::VALUE_LEN;

use super::single_threaded;

/// Smallest size of a page, in bytes. Each handle is a multiple of it.
const LEAST_PAGE: usize = 4096;

/// A mapped file, and a page of memory in front of it, whose last words lead to the file's owner in [`Files`].
#[derive(Debug)]
pub(crate) struct Pages {
    base: NonNull<u8>,
    /// Size of the page in front, in bytes.
    front: usize,
    /// Length of the file, in bytes.
    len: usize,
    /// The first value, at an address that is a multiple of 8.
    values: *mut u8,
    /// Number of values.
    count: usize,
    /// Offsets of the metrics in the file.
    metrics: Range<usize>,
    /// Offset in a metric of the word that has its item and its type.
    of_type: usize,
}

// SAFETY: the pages are accessed as atomics only (invariant 3); the other fields do not change.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Pages {
    /// Maps a file of `len` bytes with `count` values from `values_at` on. The values' metrics are at the offsets
    /// `metrics`, with their types in the second half of the word at `of_type`.
    ///
    /// # Errors
    /// Those of mmap(2).
    pub(crate) fn map(
        file: &File,
        len: usize,
        (values_at, count): (usize, usize),
        (metrics, of_type): (Range<usize>, usize),
    ) -> io::Result<Pages> {
        let values = count.checked_mul(VALUE_LEN).and_then(|bytes| bytes.checked_add(values_at));
        let front = page_size()?;
        let Some(all) = len.checked_add(front) else { return Err(io::ErrorKind::OutOfMemory.into()) };
        if len == 0 || values_at % 8 != 0 || values.is_none_or(|end| end > len) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: the kernel chooses free pages.
        let start = unsafe { map(ptr::null_mut(), all, MEMORY, -1) }?;
        // SAFETY: both offsets are at most `all`.
        let (base, values) = unsafe { (start.add(front), start.as_ptr().add(front + values_at)) };
        let pages = Pages { base, front, len, values, count, metrics, of_type };
        pages.map_again(file)?;
        Ok(pages)
    }

    /// Maps another file of the same length in the place of the memory that [`Pages::retire`] has put there.
    ///
    /// # Errors
    /// Those of mmap(2).
    pub(crate) fn map_again(&self, file: &File) -> io::Result<()> {
        // SAFETY: the range belongs to these pages, and stays mapped (invariant 1).
        unsafe { map(self.base.as_ptr(), self.len, libc::MAP_SHARED | libc::MAP_FIXED, file.as_raw_fd()) }.map(|_| ())
    }

    /// Returns the handle of the program.
    pub(crate) fn handle(&self) -> *mut c_void {
        self.base.as_ptr().cast()
    }

    /// Returns the value at an address, and its type, which its metric has.
    #[inline(always)]
    pub(crate) fn value_at(&self, address: usize) -> Option<(Value<'_>, u8)> {
        const { assert!(VALUE_LEN.is_power_of_two()) };
        let within = address.wrapping_sub(self.values.addr());
        // The bits of a remainder become the highest ones, which no index has.
        let value = self.value(within.rotate_right(VALUE_LEN.trailing_zeros()))?;
        let metric = value.metric().load(Relaxed) as usize;
        if !self.metrics.contains(&metric) {
            return None;
        }
        let word = self.word(metric + self.of_type)?.load(Relaxed);
        let [.., ty, _, _, _] = word.to_ne_bytes();
        Some((value, if cfg!(target_endian = "little") { ty } else { word as u8 }))
    }

    /// Returns the value with an index.
    #[inline(always)]
    pub(crate) fn value(&self, index: usize) -> Option<Value<'_>> {
        // SAFETY: `index` is less than `count`, and `map` has checked that this many values are in the file.
        (index < self.count).then(|| Value { at: unsafe { self.values.add(index * VALUE_LEN) }, pages: self })
    }

    /// Returns the 64-bit word at an offset, which must not be that of a value of 32 bits.
    pub(crate) fn word(&self, at: usize) -> Option<&AtomicU64> {
        let inside = at % 8 == 0 && at.checked_add(8).is_some_and(|end| end <= self.len);
        // SAFETY: the word is within the pages (invariant 1), aligned, and accessed as an atomic only (invariant 3).
        inside.then(|| unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(at).cast()) })
    }

    /// Returns `count` 64-bit words at an offset, none of which may be a value of 32 bits.
    pub(crate) fn words(&self, at: usize, count: usize) -> Option<&[AtomicU64]> {
        let end = count.checked_mul(8).and_then(|bytes| at.checked_add(bytes));
        let inside = at % 8 == 0 && end.is_some_and(|end| end <= self.len);
        // SAFETY: the words are within the pages (invariant 1), aligned, and accessed as atomics only (invariant 3).
        inside.then(|| unsafe { slice::from_raw_parts(self.base.as_ptr().add(at).cast::<AtomicU64>(), count) })
    }

    /// Ends the use of the handle, and replaces the file by memory of this process: the program may still store values
    /// there. If the kernel refuses, the file stays mapped.
    pub(crate) fn retire(&self) {
        let [files, owner] = front(self.handle());
        files.store(ptr::null_mut(), Release);
        owner.store(ptr::null_mut(), Release);
        // The page in front, too: memory that is not used costs nothing.
        let start = self.base.as_ptr().wrapping_sub(self.front);
        // SAFETY: the range belongs to these pages, and stays mapped (invariant 1).
        _ = unsafe { map(start, self.front + self.len, MEMORY | libc::MAP_FIXED, -1) };
    }

    fn covers(&self, address: usize) -> bool {
        address.wrapping_sub(self.base.as_ptr().addr()) < self.len.next_multiple_of(self.front)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        let start = self.base.as_ptr().wrapping_sub(self.front);
        // SAFETY: the range was mapped by `map` and belongs to these pages, which are in no `Files`: those keep them for ever.
        unsafe { libc::munmap(start.cast(), self.front + self.len) };
    }
}

/// Returns the two words in front of a file: the addresses of its [`Files`], which another copy of the library in this
/// process does not have, and of its owner.
#[inline(always)]
fn front<'a>(handle: *mut c_void) -> &'a [AtomicPtr<c_void>; 2] {
    // SAFETY: the words are in the page in front of the file, aligned, and accessed as atomics only. The page stays mapped
    // (invariant 1).
    unsafe { &*handle.cast::<[AtomicPtr<c_void>; 2]>().wrapping_sub(1) }
}

/// The files that a process has mapped so far, with their owners. All stay allocated: threads may use any of them at any
/// time.
pub(crate) struct Files<T: 'static> {
    newest: AtomicPtr<Node<T>>,
}

struct Node<T> {
    owner: T,
    next: AtomicPtr<Node<T>>,
}

impl<T: AsRef<Pages> + Send + Sync> Files<T> {
    pub(crate) const fn new() -> Files<T> {
        Files { newest: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Returns the owner of the file with this handle, unless its use has ended. A signal handler may call this.
    ///
    /// # Safety
    /// The handle is that of a file in any `Files`, or no multiple of the size of a page, or null.
    #[inline(always)]
    pub(crate) unsafe fn find(&'static self, handle: *mut c_void) -> Option<&'static T> {
        if handle.is_null() || handle.addr() % LEAST_PAGE != 0 {
            return None;
        }
        let [files, owner] = front(handle);
        if !ptr::addr_eq(files.load(Acquire), self) {
            return None;
        }
        // SAFETY: the word is null or was stored by `publish`, and owners stay allocated.
        unsafe { owner.load(Acquire).cast::<T>().as_ref() }
    }

    /// Adds a file. It is not found before [`Files::publish`].
    ///
    /// # Errors
    /// The owner, if there is no memory for it.
    pub(crate) fn insert(&'static self, owner: T) -> Result<&'static T, T> {
        let mut place = Vec::new();
        if place.try_reserve_exact(1).is_err() {
            return Err(owner);
        }
        place.push(Node { owner, next: AtomicPtr::new(ptr::null_mut()) });
        let node: &'static Node<T> = &Vec::leak(place)[0];
        let new = ptr::from_ref(node).cast_mut();
        _ = self.newest.fetch_update(Release, Relaxed, |newest| {
            node.next.store(newest, Relaxed);
            Some(new)
        });
        Ok(&node.owner)
    }

    /// Makes [`Files::find`] return the owner of a file.
    pub(crate) fn publish(&'static self, of: &'static T) {
        let [files, owner] = front(of.as_ref().handle());
        owner.store(ptr::from_ref(of).cast_mut().cast(), Release);
        files.store(ptr::from_ref(self).cast_mut().cast(), Release);
    }

    /// Returns all owners, the newest first. A signal handler may call this.
    pub(crate) fn all(&'static self) -> impl Iterator<Item = &'static T> {
        // SAFETY: the pointers to nodes come from `insert`, and nodes stay allocated.
        let at = |pointer: &AtomicPtr<Node<T>>| unsafe { pointer.load(Acquire).as_ref::<'static>() };
        iter::successors(at(&self.newest), move |node| at(&node.next)).map(|node| &node.owner)
    }

    /// Replaces the page at an address by memory of this process, if it is a page of a file. Returns whether it is. A
    /// signal handler may call this.
    pub(crate) fn replace_page(&'static self, address: usize) -> bool {
        let Some(pages) = self.all().map(AsRef::as_ref).find(|pages| pages.covers(address)) else { return false };
        let page = ptr::without_provenance_mut(address - address % pages.front);
        // SAFETY: the page belongs to a file, and stays mapped (invariant 1).
        unsafe { map(page, pages.front, MEMORY | libc::MAP_FIXED, -1) }.is_ok()
    }
}

/// Memory that costs nothing until it is used.
const MEMORY: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;

fn page_size() -> io::Result<usize> {
    // SAFETY: the call is always safe.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).ok().filter(|size| size.is_power_of_two()).ok_or_else(io::Error::last_os_error)
}

/// # Safety
/// With `MAP_FIXED`, the range at `at` must belong to the caller.
unsafe fn map(at: *mut u8, len: usize, flags: i32, fd: i32) -> io::Result<NonNull<u8>> {
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the caller owns the range; otherwise the kernel chooses free pages.
    let base = unsafe { libc::mmap(at.cast(), len, rights, flags, fd, 0) };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(base.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

/// A value in a mapped file (`mmv_disk_value_t`).
#[derive(Clone, Copy)]
pub(crate) struct Value<'a> {
    /// Address of the value. Not a `NonNull`, with which each test of an `Option<Value>` would be another comparison.
    at: *mut u8,
    pages: &'a Pages,
}

impl<'a> Value<'a> {
    /// Returns the value of 64 bits.
    #[inline(always)]
    pub(crate) fn word(self) -> &'a AtomicU64 {
        // SAFETY: the value is within the pages, which `'a` keeps mapped. The word is its first field, and aligned to 8
        // bytes.
        unsafe { AtomicU64::from_ptr(self.at.cast()) }
    }

    /// Returns the value of 32 bits.
    #[inline(always)]
    pub(crate) fn half(self) -> &'a AtomicU32 {
        // SAFETY: as for `word`. A value of 32 bits is accessed by this function and `rest` only.
        unsafe { AtomicU32::from_ptr(self.at.cast()) }
    }

    /// Returns the bytes after the value of 32 bits.
    pub(crate) fn rest(self) -> &'a AtomicU32 {
        // SAFETY: as for `half`: the second half of the first field.
        unsafe { AtomicU32::from_ptr(self.at.add(4).cast()) }
    }

    /// Returns the second field: the start of an interval, or the offset of a string.
    #[inline(always)]
    pub(crate) fn extra(self) -> &'a AtomicU64 {
        // SAFETY: as for `word`: a value has 32 bytes, and this is its second word.
        unsafe { AtomicU64::from_ptr(self.at.add(8).cast()) }
    }

    /// Returns the offset of the metric.
    #[inline(always)]
    pub(crate) fn metric(self) -> &'a AtomicU64 {
        // SAFETY: as for `extra`.
        unsafe { AtomicU64::from_ptr(self.at.add(16).cast()) }
    }

    /// Returns the offset of the instance.
    pub(crate) fn instance(self) -> &'a AtomicU64 {
        // SAFETY: as for `extra`.
        unsafe { AtomicU64::from_ptr(self.at.add(24).cast()) }
    }

    /// Adds to a value of type double, if there is only one thread. Returns whether there is.
    ///
    /// An atomic word would take a detour through an integer register.
    #[inline(always)]
    pub(crate) fn add_double_alone(self, number: f64) -> bool {
        let alone = single_threaded();
        if alone {
            let at = self.at.cast::<f64>();
            // SAFETY: as for `word`. No other thread can access the value meanwhile.
            unsafe { at.write_volatile(at.read_volatile() + number) };
        }
        alone
    }

    /// Adds to a value of type float, if there is only one thread. Returns whether there is.
    #[inline(always)]
    pub(crate) fn add_float_alone(self, number: f32) -> bool {
        let alone = single_threaded();
        if alone {
            let at = self.at.cast::<f32>();
            // SAFETY: as for `half`. No other thread can access the value meanwhile.
            unsafe { at.write_volatile(at.read_volatile() + number) };
        }
        alone
    }

    /// Returns the program's pointer to the value.
    pub(crate) fn address(self) -> *mut c_void {
        self.at.cast()
    }

    /// Returns the pages that contain the value.
    pub(crate) fn pages(self) -> &'a Pages {
        self.pages
    }
}
