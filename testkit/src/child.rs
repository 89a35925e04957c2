//! Forked children of the test process.
#![allow(unsafe_code)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};

/// A forked child that runs a closure, and exits with 0 unless it panics.
#[derive(Debug)]
pub struct Child(Pid);

impl Child {
    /// Forks this process.
    ///
    /// The child must not need a lock that another thread of this process may hold, other than the allocator's.
    ///
    /// # Panics
    /// When the process cannot be forked.
    pub fn new(work: impl FnOnce()) -> Child {
        // SAFETY: as the documentation requires, the child depends on no other thread.
        match unsafe { fork() }.unwrap() {
            ForkResult::Child => {
                let good = catch_unwind(AssertUnwindSafe(work)).is_ok();
                // SAFETY: the call is always safe, and skips the destructors of the test process.
                unsafe { nix::libc::_exit(i32::from(!good)) }
            }
            ForkResult::Parent { child } => Child(child),
        }
    }

    /// Returns the child's process ID.
    pub fn process(&self) -> i32 {
        self.0.as_raw()
    }

    /// Waits until the child has ended.
    ///
    /// # Panics
    /// When the child does not end within 2 minutes, or has panicked.
    #[track_caller]
    pub fn ends(&self) {
        let begin = Instant::now();
        loop {
            match waitpid(self.0, Some(WaitPidFlag::WNOHANG)).unwrap() {
                WaitStatus::StillAlive if begin.elapsed() < Duration::from_secs(120) => {
                    thread::sleep(Duration::from_millis(2));
                }
                WaitStatus::StillAlive => {
                    kill(self.0, Signal::SIGKILL).unwrap();
                    waitpid(self.0, None).unwrap();
                    panic!("the child hangs");
                }
                status => return assert_eq!(status, WaitStatus::Exited(self.0, 0)),
            }
        }
    }
}

/// Runs `work` as process 1 of a new PID namespace, created by clone(2), which calls no fork handlers. Needs root.
///
/// # Panics
/// When the process cannot be created, or `work` panics.
#[cfg(target_os = "linux")]
#[track_caller]
pub fn as_process_1(mut work: impl FnMut()) {
    use nix::sched::{CloneFlags, clone};
    let mut stack = vec![0; 1 << 20];
    let run = Box::new(|| {
        let good = catch_unwind(AssertUnwindSafe(|| {
            assert_eq!(std::process::id(), 1);
            work();
        }));
        isize::from(good.is_err())
    });
    // SAFETY: the stack is large enough, and the child exits when the closure returns. As for `Child::new`, it depends
    // on no other thread.
    let child = unsafe { clone(run, &mut stack, CloneFlags::CLONE_NEWPID, Some(Signal::SIGCHLD as i32)) }.unwrap();
    assert_eq!(waitpid(child, None).unwrap(), WaitStatus::Exited(child, 0));
}
