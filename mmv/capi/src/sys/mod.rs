//! Memory that the kernel, other threads and other processes share with the library.
//!
//! # Invariants
//! 1. From `Pages::map` until its drop, the whole pages of `base..base + len` are mapped readable and writable: first
//!    the file, after [`Pages::retire`] memory of this process, or the file of the `Pages` that took the range over.
//! 2. All bytes of the file were written before it was mapped, so an access needs no room on the disk. If the file's
//!    owner or root truncates it, the first access to each lost page replaces the page by memory of this process
//!    ([`catch_lost_pages`]).
//! 3. The library accesses the pages only as atomics, and as floating-point numbers while there is one thread. A 32-bit
//!    value is accessed only as two 32-bit atomics, and each other value as a 64-bit one, so no two atomics overlap in
//!    part. The program itself may store values through its `pmAtomValue *`.
//! 4. The lists of a [`Table`] only grow: their nodes are never freed, never move to another list, and have only atomics
//!    that change. So a look-up may pass the nodes of any objects while other threads remove these.
//! 5. The object of a [`Table`] is freed under the lock, once it was removed and [`KEPT`] further objects, or objects of
//!    [`KEPT_BYTES`] further bytes, were removed after it. Without the lock, only the object with the address that the
//!    program passes is read, never one that it only passes by. So a thread can lose an object only if the program stops
//!    that export, and all these others, during one call of this thread for that export.
#![allow(unsafe_code)]

mod fault;
mod lock;
mod number;
mod pages;
mod process;
mod table;

pub(crate) use fault::catch_lost_pages;
pub(crate) use lock::Lock;
pub(crate) use number::{to_i32, to_i64, to_u32, to_u64};
pub(crate) use pages::{Pages, Value, replace_page};
pub(crate) use process::{
    KeepThread, before_first_start, check_memory, file_size_limit, is_torn, keep_whole, local_time, now, set_errno,
    share_values, single_threaded, this_thread,
};
pub(crate) use table::{Keyed, Table};
