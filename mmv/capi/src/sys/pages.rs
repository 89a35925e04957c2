//! Files at addresses of this process, and the values in them.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::AcqRel, Ordering::Relaxed};

use mmv::format::VALUE_LEN;

use super::{Keyed, Table, single_threaded};

/// A mapped file.
#[derive(Debug)]
pub(crate) struct Pages {
    base: NonNull<u8>,
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
    /// Whether dropping unmaps the pages. False once another file is mapped at their addresses.
    owned: AtomicBool,
}

// SAFETY: the pages are accessed as atomics only (invariant 3); the other fields do not change.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Pages {
    /// Maps a file of `len` bytes with `count` values from `values_at` on, at the address of retired pages of the same length,
    /// if there are any. The values' metrics are at the offsets `metrics`, with their types in the second half of the word
    /// at `of_type`.
    pub(crate) fn map(
        file: &File,
        len: usize,
        (values_at, count): (usize, usize),
        (metrics, of_type): (Range<usize>, usize),
        retired: Option<&Pages>,
    ) -> io::Result<Pages> {
        let values = count.checked_mul(VALUE_LEN).and_then(|bytes| bytes.checked_add(values_at));
        if len == 0 || values_at % 8 != 0 || values.is_none_or(|end| end > len) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // Of several threads, only one may take over the range.
        let taken = retired.filter(|old| old.len == len && old.owned.swap(false, AcqRel));
        let at = taken.map_or(ptr::null_mut(), |old| old.base.as_ptr());
        let fixed = if at.is_null() { 0 } else { libc::MAP_FIXED };
        // SAFETY: without an address the kernel chooses free pages. With an address, the pages belonged only to
        // `taken`, and stay mapped for late accesses through it (invariant 1).
        let base = unsafe { map(at, len, libc::MAP_SHARED | fixed, file.as_raw_fd()) };
        // After a failure the range stays reserved: the kernel might have unmapped it.
        let base = base?;
        // SAFETY: `values_at` is at most `len`.
        let values = unsafe { base.as_ptr().add(values_at) };
        Ok(Pages { base, len, values, count, metrics, of_type, owned: AtomicBool::new(true) })
    }

    /// Returns the address that programs use as their handle.
    pub(crate) fn address(&self) -> usize {
        self.base.as_ptr().addr()
    }

    /// Returns the handle of the program.
    pub(crate) fn handle(&self) -> *mut libc::c_void {
        self.base.as_ptr().cast()
    }

    /// Returns the length of the file, in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
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

    /// Replaces the file by memory of this process: the program may still store values there. If the kernel refuses,
    /// the file stays mapped.
    pub(crate) fn retire(&self) {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        // SAFETY: the range belongs to these pages, and stays mapped (invariant 1).
        _ = unsafe { map(self.base.as_ptr(), self.len, flags, -1) };
    }
}

/// Replaces the page at an address by memory of this process, if it is a page of an object of the table. Returns whether it
/// is. A signal handler may call this. Other threads may remove and free objects meanwhile.
pub(crate) fn replace_page<T: Keyed>(address: usize, table: &Table<T>) -> bool {
    // SAFETY: the call is always safe.
    let Some(size) = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).ok().filter(|size| *size > 0) else {
        return false;
    };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    let page = ptr::without_provenance_mut(address - address % size);
    // SAFETY: the page belongs to an object, and stays mapped (invariant 1): the caller accesses the object, so that it
    // cannot be freed meanwhile (invariant 5).
    table.covers(address, size) && unsafe { map(page, size, flags, -1) }.is_ok()
}

impl Drop for Pages {
    fn drop(&mut self) {
        if *self.owned.get_mut() {
            // SAFETY: the range was mapped by `map` and belongs to these pages; `Table` drops them when no reference to
            // them is left (invariant 5).
            unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
        }
    }
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
    pub(crate) fn address(self) -> *mut libc::c_void {
        self.at.cast()
    }

    /// Returns the pages that contain the value.
    pub(crate) fn pages(self) -> &'a Pages {
        self.pages
    }
}
