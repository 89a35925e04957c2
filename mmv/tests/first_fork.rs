//! A fork while a process creates its first registry. This file has only one test, because this happens only once in a
//! process.
#![cfg(all(target_os = "linux", target_env = "gnu"))]
#![allow(clippy::panic, clippy::unwrap_used, unsafe_code)]

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use testkit::Child;

use mmv::{Counter, Registry};
use nix::libc::{RTLD_NEXT, dlsym};

/// Whether the next registration of fork handlers forks first.
static FORKS: AtomicBool = AtomicBool::new(false);

type Handler = Option<unsafe extern "C" fn()>;
type Register = unsafe extern "C" fn(Handler, Handler, Handler, *mut c_void) -> c_int;

/// Replaces the function of glibc that `pthread_atfork(3)` calls. When it is called, there are no fork handlers yet.
// SAFETY: it has the type of glibc's function, and calls it.
#[unsafe(no_mangle)]
unsafe extern "C" fn __register_atfork(prepare: Handler, parent: Handler, child: Handler, dso: *mut c_void) -> c_int {
    if FORKS.swap(false, Relaxed) {
        // The child's memory is as if another thread had forked.
        Child::new(create_a_registry).ends();
    }
    // SAFETY: glibc has a function of this name and type.
    let register: Register = unsafe { std::mem::transmute(dlsym(RTLD_NEXT, c"__register_atfork".as_ptr())) };
    // SAFETY: these are the caller's arguments.
    unsafe { register(prepare, parent, child, dso) }
}

fn create_a_registry() {
    let dir = tempfile::tempdir().unwrap();
    let registry = Registry::builder("app").directory(dir.path()).build().unwrap();
    let counter: Counter = registry.counter("counter").register().unwrap();
    registry.try_start().unwrap();
    counter.inc();
    // The child's own fork handlers work.
    Child::new(|| assert_ne!(registry.path(), None)).ends();
}

#[test]
fn a_child_of_the_moment_of_the_first_registry_is_not_locked() {
    FORKS.store(true, Relaxed);
    create_a_registry();
    assert!(!FORKS.load(Relaxed), "the fork handlers were registered by another function");
}
