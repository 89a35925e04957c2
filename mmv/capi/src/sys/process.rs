//! The process: its threads, its forks, and `errno`.

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

/// Byte that [`SINGLE`] refers to before the first start, and if the C library does not report the number of threads.
static UNKNOWN: AtomicU8 = AtomicU8::new(0);
/// Byte that [`SINGLE`] refers to after a fork, when processes share a file.
static SEVERAL: AtomicU8 = AtomicU8::new(0);

/// Address of a byte that is not zero while this process has one thread and shares its files with no other process:
/// `__libc_single_threaded` of glibc until the first fork.
static SINGLE: AtomicPtr<u8> = AtomicPtr::new(UNKNOWN.as_ptr());

/// Returns whether no other thread or process can update values at the same time.
#[inline(always)]
pub(crate) fn single_threaded() -> bool {
    // SAFETY: the byte is a static of this library or of the C library, which is never unloaded. The C library changes
    // its byte only while there is one thread.
    unsafe { AtomicU8::from_ptr(SINGLE.load(Relaxed)) }.load(Relaxed) != 0
}

/// Finds the C library's flag for a single thread, and notices forks from now on. Calls after the first do nothing.
pub(crate) fn watch_threads() {
    static DONE: AtomicBool = AtomicBool::new(false);
    if DONE.load(Acquire) {
        return;
    }
    // Two threads may both register the function.
    // SAFETY: the function is of this library, which is never unloaded (`-z nodelete`), and cannot unwind.
    let registered = unsafe { libc::pthread_atfork(Some(share_values), None, None) };
    // Without a handler the library would not notice a fork.
    if registered == 0 {
        // SAFETY: the name ends in a NUL.
        let single = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__libc_single_threaded".as_ptr()) };
        if !single.is_null() {
            // After a fork, processes share files.
            let _ = SINGLE.compare_exchange(UNKNOWN.as_ptr(), single.cast(), AcqRel, Relaxed);
        }
    }
    DONE.store(true, Release);
}

/// Makes all updates exact from now on, whatever the number of threads.
extern "C" fn share_values() {
    SINGLE.store(SEVERAL.as_ptr(), Relaxed);
}

/// Returns a number that no other thread of this process has.
pub(crate) fn this_thread() -> usize {
    // SAFETY: the call is always safe.
    unsafe { libc::__errno_location() }.addr()
}

/// Protects the functions of this library from `pthread_cancel(3)` while it exists: the thread ends at its next
/// cancellation point after that. Rust's functions cannot be unwound from the system calls that are cancellation
/// points: the process would end.
pub(crate) struct KeepThread(c_int);

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// State of a thread that cannot be cancelled (`PTHREAD_CANCEL_DISABLE`).
const CANCEL_DISABLE: c_int = 1;

impl KeepThread {
    pub(crate) fn new() -> KeepThread {
        let mut before = CANCEL_DISABLE;
        // SAFETY: the number is written to, and lives as long as the call.
        unsafe { pthread_setcancelstate(CANCEL_DISABLE, &raw mut before) };
        KeepThread(before)
    }
}

impl Drop for KeepThread {
    fn drop(&mut self) {
        // SAFETY: the state is one that the C library has returned. The call is no cancellation point.
        unsafe { pthread_setcancelstate(self.0, ptr::null_mut()) };
    }
}

/// Returns the time since 1970 in microseconds.
pub(crate) fn now() -> f64 {
    let mut now = libc::timeval { tv_sec: 0, tv_usec: 0 };
    // SAFETY: the structure is written to, and lives as long as the call.
    unsafe { libc::gettimeofday(&raw mut now, ptr::null_mut()) };
    now.tv_sec as f64 * 1e6 + now.tv_usec as f64
}

/// Memory for the small data of a call, in bytes. With glibc, a block of this size is free for smaller ones after its
/// release, unlike one of at most 1,032 bytes. One of 4 KiB would begin a page, whose first use costs as much as writing
/// a file of four.
const SMALL: usize = 1100;

/// Returns an error code if there is no memory for small data and `bytes`. Rust ends a process in which a small allocation
/// fails.
pub(crate) fn check_memory(bytes: usize) -> Result<(), i32> {
    let mut room = Vec::<u8>::new();
    let found = bytes.checked_add(SMALL).is_some_and(|bytes| room.try_reserve_exact(bytes).is_ok());
    // Without this, the compiler may omit the allocation.
    std::hint::black_box(&mut room);
    if found { Ok(()) } else { Err(libc::ENOMEM) }
}

/// Sets the C library's `errno`.
pub(crate) fn set_errno(code: i32) {
    // SAFETY: the address of this thread's `errno` is valid as long as the thread lives.
    unsafe { ptr::write(libc::__errno_location(), code) };
}

/// Returns the largest size of a file that this process may write, in bytes.
pub(crate) fn file_size_limit() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is written to, and lives as long as the call.
    let found = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
    (found == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// Returns the local time as ctime(3) writes it, without the year.
pub(crate) fn local_time() -> String {
    let mut text = [0_u8; 64];
    // SAFETY: the structures live as long as the calls, and the length is that of the buffer.
    let len = unsafe {
        let now = libc::time(ptr::null_mut());
        let mut parts = std::mem::zeroed::<libc::tm>();
        libc::localtime_r(&raw const now, &raw mut parts);
        libc::strftime(text.as_mut_ptr().cast(), text.len(), c"%a %b %e %H:%M:%S".as_ptr(), &raw const parts)
    };
    String::from_utf8_lossy(text.get(..len).unwrap_or_default()).into_owned()
}
