//! Texts and results.

use std::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::slice;

use libc::EIO;

use crate::sys::set_errno;

/// Returns a text without its NUL, or `None` for a null pointer.
///
/// # Safety
/// The pointer is null or points to a text with a NUL at its end, and nothing changes the text during `'a`.
pub(super) unsafe fn text<'a>(pointer: *const c_char) -> Option<&'a [u8]> {
    // SAFETY: by this function's contract.
    (!pointer.is_null()).then(|| unsafe { CStr::from_ptr(pointer) }.to_bytes())
}

/// Returns the beginning of a text, up to its NUL or `most` bytes.
///
/// # Safety
/// The pointer is null, or points to `most` bytes or to fewer with a NUL at their end.
pub(super) unsafe fn beginning<'a>(pointer: *const c_char, most: usize) -> Option<&'a [u8]> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: strnlen reads up to the NUL, or `most` bytes, which exist.
    let len = unsafe { libc::strnlen(pointer, most) };
    // SAFETY: these bytes were read by strnlen.
    Some(unsafe { slice::from_raw_parts(pointer.cast(), len) })
}

/// Returns the result of `work`, or `failed` if it panics.
#[inline(always)]
pub(super) fn guarded<R>(failed: R, work: impl FnOnce() -> R) -> R {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        set_errno(EIO);
        failed
    })
}

/// Returns the result of `work`. For an error, sets `errno` and returns `failed`, as C's library does.
pub(super) fn reported<R>(failed: R, work: impl FnOnce() -> Result<R, i32>) -> R {
    let result = catch_unwind(AssertUnwindSafe(work)).unwrap_or(Err(EIO));
    result.unwrap_or_else(|code| {
        set_errno(code);
        failed
    })
}
