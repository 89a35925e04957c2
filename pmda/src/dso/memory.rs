//! Memory of libc's allocator. pmcd frees memory that a shared object returns, and vice versa.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::NonNull;

use nix::libc;
use pmapi::{Error, Result};

use super::abi::{CInstances, CLabel, CLabelSet};

/// Types for which zero bytes are a valid value.
///
/// # Safety
/// The pattern of all zeros must be valid. There must be nothing to drop, and the alignment must be at most that of
/// malloc.
pub(super) unsafe trait Plain {}

// SAFETY: integers, raw pointers, and structures of these.
unsafe impl Plain for u8 {}
// SAFETY: as above.
unsafe impl Plain for u64 {}
// SAFETY: as above.
unsafe impl Plain for c_int {}
// SAFETY: as above.
unsafe impl Plain for *mut c_char {}
// SAFETY: as above.
unsafe impl Plain for CInstances {}
// SAFETY: as above.
unsafe impl Plain for CLabelSet {}
// SAFETY: as above.
unsafe impl Plain for CLabel {}

/// An array from malloc, freed unless it is released.
pub(super) struct Heap<T: Plain> {
    at: NonNull<T>,
    len: usize,
}

impl<T: Plain> Heap<T> {
    /// Allocates an array of zeros. `-ENOMEM` without memory.
    pub(super) fn zeroed(len: usize) -> Result<Self> {
        // SAFETY: calloc accepts any sizes. Even an empty array has an address.
        let at = unsafe { libc::calloc(len.max(1), size_of::<T>()) };
        let at = NonNull::new(at.cast()).ok_or(Error::from_errno(libc::ENOMEM))?;
        Ok(Heap { at, len })
    }

    pub(super) fn as_mut(&mut self) -> &mut [T] {
        // SAFETY: the array belongs only to this object, has `len` elements, and has at least been zeroed.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr(), self.len) }
    }

    /// Passes ownership to the receiver of the array, which must free it.
    pub(super) fn release(self) -> *mut T {
        let at = self.at.as_ptr();
        std::mem::forget(self);
        at
    }
}

impl<T: Plain> Drop for Heap<T> {
    fn drop(&mut self) {
        // SAFETY: the array is from calloc and has not been released.
        unsafe { free(self.at.as_ptr()) }
    }
}

/// Frees memory of libc's allocator.
///
/// # Safety
/// `at` is null, or comes from this allocator and has not been freed.
pub unsafe fn free<T>(at: *mut T) {
    // SAFETY: by the caller's promise.
    unsafe { libc::free(at.cast::<c_void>()) }
}

/// Copies a string and adds a NUL. Bytes after an inner NUL are lost.
pub(super) fn string(text: &[u8]) -> Result<*mut c_char> {
    let text = text.split(|&b| b == 0).next().unwrap_or_default();
    let mut copy = Heap::<u8>::zeroed(text.len() + 1)?;
    copy.as_mut()[..text.len()].copy_from_slice(text);
    Ok(copy.release().cast())
}

/// Copies strings into one allocation, after an array of pointers to them.
pub(super) fn strings(list: &[&[u8]]) -> Result<*mut *mut c_char> {
    let head = list.len() * size_of::<*mut c_char>();
    let len = list.iter().map(|text| text.len() + 1).sum::<usize>();
    let words = (head + len).div_ceil(size_of::<u64>());
    let start = Heap::<u64>::zeroed(words)?.release();
    let mut at = head;
    for (i, text) in list.iter().enumerate() {
        // SAFETY: `head` and `len` have room for every pointer and every string. The terminating NUL is already there,
        // because the array is zeroed.
        unsafe {
            let copy = start.cast::<u8>().add(at);
            start.cast::<*mut u8>().add(i).write(copy);
            copy.copy_from_nonoverlapping(text.as_ptr(), text.len());
        }
        at += text.len() + 1;
    }
    Ok(start.cast())
}
