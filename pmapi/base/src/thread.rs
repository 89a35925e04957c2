//! Threads that can also be started in a forked child.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{mem, ptr};

use nix::libc;
use nix::sys::signal::{SigSet, SigmaskHow, Signal};

/// Size of the stack in bytes, as of the standard library's threads.
const STACK: usize = 2 << 20;

type Work = Box<dyn FnOnce() + Send>;

/// Starts a thread that nothing waits for. A panic of `work` ends the thread only.
///
/// A thread of the standard library acquires a lock when it starts and when it ends. If a thread of the parent held
/// that lock at a fork, the child's new threads would wait for it forever. The threads of this function do not acquire
/// it. In return they do not report an overflow of their stack before it ends the process.
///
/// On Linux, lists of threads show `name`, truncated to 15 bytes.
///
/// # Errors
/// Errors of `pthread_create(3)`, such as `EAGAIN` at the limit of threads.
pub fn spawn(name: &'static str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let work: *mut Work = Box::into_raw(Box::new(Box::new(move || {
        set_name(name);
        work();
    })));
    // SAFETY: `work` comes from `Box::into_raw`.
    create(work).inspect_err(|_| drop(unsafe { Box::from_raw(work) }))
}

/// Starts a thread as [`spawn`] does, to which the system delivers no signal of the process; see [`without_signals`].
///
/// # Errors
/// Errors of [`spawn`].
pub fn spawn_without_signals(name: &'static str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    without_signals(|| spawn(name, work))
}

/// Calls `start`, whose new threads get no signal of the process. Libraries start their threads in programs of others by
/// this function.
///
/// A program that blocks a signal in its own threads, to wait for it with sigwait(3) or signalfd(2), would otherwise be
/// ended by it: the kernel delivers a signal of the process to any thread that does not block it. And handlers of the
/// program would run on a thread that it does not know. Signals of faults, such as `SIGSEGV`, are not blocked: the thread
/// that they concern cannot go on. Processes that the thread starts inherit the blocked signals.
///
/// # Errors
/// Those of `start` and of `pthread_sigmask(3)`.
pub fn without_signals<T>(start: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let mut blocked = SigSet::all();
    let faults = [Signal::SIGBUS, Signal::SIGFPE, Signal::SIGILL, Signal::SIGSEGV, Signal::SIGSYS, Signal::SIGTRAP];
    faults.into_iter().for_each(|fault| blocked.remove(fault));
    // The new thread inherits the signals that this one blocks.
    let before = blocked.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
    let started = start();
    before.thread_set_mask()?;
    started
}

/// Makes the threads that start later share one heap.
///
/// By default, the allocator of glibc has up to eight heaps for each processor. Each one keeps the memory of the largest
/// documents, files or requests that its threads have worked on. If threads work by turns, the process thus grows for days
/// to a multiple of what one heap needs. Threads that allocate all the time may have to wait for each other with one heap.
///
/// Other allocators do not change. Answers to `mallopt(3)` with `M_ARENA_MAX`.
pub fn share_heap() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: changes a number of the allocator, which it reads when a thread needs a heap.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Returns the free pages of the heap to the system.
///
/// The allocator of glibc returns only those at the heap's end. If threads need much memory for short times, the heap
/// stays as large as it was when most of them needed memory at once. The call looks at all free memory, which takes some
/// milliseconds for a heap of 100 MiB. Other threads cannot allocate during that time.
///
/// Other allocators do nothing. Answers to `malloc_trim(3)`.
pub fn trim_heap() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: the allocator locks its heaps.
    unsafe {
        libc::malloc_trim(0);
    }
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
    // Slow: 1,000 forks beside six threads.
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
            // This must come before the assertion. A panic would wait for these threads forever.
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
    fn a_thread_of_a_library_blocks_all_signals_but_faults() {
        let (sender, receiver) = channel();
        let before = SigSet::thread_get_mask().unwrap();
        spawn_without_signals("quiet", move || sender.send(SigSet::thread_get_mask().unwrap()).unwrap()).unwrap();
        let mask = receiver.recv().unwrap();
        assert!([Signal::SIGTERM, Signal::SIGCHLD, Signal::SIGUSR1].iter().all(|signal| mask.contains(*signal)));
        assert!(![Signal::SIGSEGV, Signal::SIGBUS].iter().any(|signal| mask.contains(*signal)));
        assert_eq!(SigSet::thread_get_mask().unwrap(), before);
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
