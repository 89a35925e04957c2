//! Forked children of the test process.
#![allow(dead_code, reason = "each test uses a part")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};

/// A forked child that runs a closure, and exits with 0 unless it panics.
pub(crate) struct Child(Pid);

impl Child {
    pub(crate) fn new(work: impl FnOnce()) -> Child {
        // SAFETY: the child does what children of applications do, and needs no lock of other threads.
        match unsafe { fork() }.unwrap() {
            ForkResult::Child => {
                let good = catch_unwind(AssertUnwindSafe(work)).is_ok();
                // SAFETY: the call is always safe, and skips the destructors of the test process.
                unsafe { nix::libc::_exit(i32::from(!good)) }
            }
            ForkResult::Parent { child } => Child(child),
        }
    }

    pub(crate) fn process(&self) -> i32 {
        self.0.as_raw()
    }

    /// Asserts that the child ends, and without a panic.
    pub(crate) fn ends(&self) {
        let begin = Instant::now();
        loop {
            match waitpid(self.0, Some(WaitPidFlag::WNOHANG)).unwrap() {
                WaitStatus::StillAlive if begin.elapsed() < Duration::from_secs(30) => {
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
