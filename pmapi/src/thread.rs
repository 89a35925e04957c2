//! Threads that start also in a forked child.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{mem, ptr};

use nix::libc;

/// Size of the stack in bytes, as of the standard library's threads.
const STACK: usize = 2 << 20;

type Work = Box<dyn FnOnce() + Send>;

/// Starts a thread that nothing waits for. A panic of `work` ends the thread only.
///
/// A thread of the standard library acquires a lock when it starts and when it ends. If a thread of the parent held that
/// lock at a fork, the child's new threads would wait for it for ever. The threads of this function do not acquire it. In
/// return they do not report an overflow of their stack before it ends the process.
///
/// On Linux, `name` shows in lists of threads; the system cuts it after 15 bytes.
///
/// # Errors
/// Errors of `pthread_create(3)`, such as `EAGAIN` at the limit of threads.
pub fn spawn(name: &'static str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let named = move || {
        set_name(name);
        work();
    };
    let work: *mut Work = Box::into_raw(Box::new(Box::new(named)));
    // SAFETY: `work` comes from `Box::into_raw`.
    create(work).inspect_err(|_| drop(unsafe { Box::from_raw(work) }))
}

/// Starts a thread that runs `work`, and owns it unless there is an error.
fn create(work: *mut Work) -> io::Result<()> {
    let mut attributes = mem::MaybeUninit::uninit();
    // SAFETY: `attributes` is initialized by the first call, and destroyed once. The new thread owns `work`.
    unsafe {
        checked(libc::pthread_attr_init(attributes.as_mut_ptr()))?;
        let set = checked(libc::pthread_attr_setdetachstate(attributes.as_mut_ptr(), libc::PTHREAD_CREATE_DETACHED))
            .and_then(|()| checked(libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), STACK)))
            .and_then(|()| {
                let mut thread = mem::MaybeUninit::uninit();
                checked(libc::pthread_create(thread.as_mut_ptr(), attributes.as_ptr(), run, work.cast()))
            });
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        set
    }
}

fn checked(errno: libc::c_int) -> io::Result<()> {
    if errno == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(errno)) }
}

extern "C" fn run(work: *mut c_void) -> *mut c_void {
    // SAFETY: `create` passes a box that this thread owns.
    let work = unsafe { Box::from_raw(work.cast::<Work>()) };
    // The panic hook has reported a panic.
    let _ = catch_unwind(AssertUnwindSafe(*work));
    ptr::null_mut()
}

#[cfg(target_os = "linux")]
fn set_name(name: &str) {
    let mut bytes = [0_u8; 16];
    bytes.iter_mut().take(15).zip(name.bytes()).for_each(|(to, from)| *to = from);
    // SAFETY: the kernel reads up to 16 bytes, of which the last one is a NUL.
    unsafe { libc::prctl(libc::PR_SET_NAME, bytes.as_ptr()) };
}

#[cfg(not(target_os = "linux"))]
fn set_name(_: &str) {}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::sync::mpsc::channel;

    use super::*;

    /// Threads of the standard library start and end all the time while the process forks.
    #[test]
    fn a_thread_of_a_child_starts_whatever_other_threads_did_at_the_fork() {
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    while !ended.load(Relaxed) {
                        std::thread::spawn(|| ()).join().unwrap();
                    }
                });
            }
            let hung = (0..1000).find(|_| !starts_in_child());
            // Must come before the assertion: a panic would wait for these threads for ever.
            ended.store(true, Relaxed);
            assert_eq!(hung, None);
        });
    }

    /// Returns whether a thread runs in a forked child.
    fn starts_in_child() -> bool {
        // SAFETY: the child starts a thread, and exits without destructors. An alarm ends it if it hangs.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::alarm(30);
                let (sender, receiver) = channel();
                let started = spawn("child", move || _ = sender.send(()));
                libc::_exit(i32::from(started.is_err() || receiver.recv().is_err()));
            }
            let mut status = -1;
            libc::waitpid(child, &raw mut status, 0) == child && status == 0
        }
    }

    #[test]
    fn a_thread_runs_and_its_panic_ends_nothing_else() {
        let (sender, receiver) = channel();
        spawn("a-name-of-more-than-15-bytes", move || {
            let name = std::fs::read_to_string("/proc/thread-self/comm").unwrap_or_default();
            sender.send(name).unwrap();
            panic!("only this thread ends");
        })
        .unwrap();
        let name = receiver.recv().unwrap();
        assert!(name.is_empty() || name == "a-name-of-more-\n", "{name}");
        // The sender is dropped as the thread unwinds.
        assert!(receiver.recv().is_err());
    }
}
