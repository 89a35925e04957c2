//! Memory that the kernel, other threads and other processes share with the library.
//!
//! # Invariants
//! 1. From `Pages::map` on, the whole pages of `base - front..base + len` are mapped readable and writable: memory in
//!    front, then the file, or after [`Pages::retire`] memory of this process. They are never unmapped once they are in
//!    [`Files`].
//! 2. All bytes of the file were written before it was mapped, so an access needs no room on the disk. If the file's
//!    owner or root truncates it, the first access to each lost page replaces the page by memory of this process
//!    ([`catch_lost_pages`]).
//! 3. The library accesses the pages only as atomics, and as floating-point numbers while there is one thread. A 32-bit
//!    value is accessed only as two 32-bit atomics, and each other value as a 64-bit one, so no two atomics overlap in
//!    part. The program itself may store values through its `pmAtomValue *`.
#![allow(unsafe_code)]

mod fault;
mod number;
mod pages;
mod process;

pub(crate) use fault::catch_lost_pages;
pub(crate) use number::{to_i32, to_i64, to_u32, to_u64};
pub(crate) use pages::{Files, Pages, Value};
pub(crate) use process::{
    KeepThread, check_memory, file_size_limit, local_time, now, set_errno, single_threaded, this_thread, watch_threads,
};
