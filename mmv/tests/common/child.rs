//! Children of the test's process.
#![allow(dead_code, reason = "each test uses a part")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};

/// A child of this process that has done something without a panic.
pub(crate) struct Child(Pid);

impl Child {
    pub(crate) fn new(work: impl FnOnce()) -> Child {
        // SAFETY: the child does what children of applications do; nothing here is held by other threads.
        match unsafe { fork() }.unwrap() {
            ForkResult::Child => {
                let good = catch_unwind(AssertUnwindSafe(work)).is_ok();
                // SAFETY: it is always safe, and leaves the tests' own threads and files alone.
                unsafe { nix::libc::_exit(i32::from(!good)) }
            }
            ForkResult::Parent { child } => Child(child),
        }
    }

    pub(crate) fn process(&self) -> i32 {
        self.0.as_raw()
    }

    /// Whether it ends well, and at all.
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
