//! Groups of processes that end with their leader.

use std::process::Child;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use crate::guard;

/// The group of a process that was [isolated](crate::isolate::isolate). It is killed with all processes that its leader
/// has started.
#[derive(Debug)]
pub(crate) struct ProcessGroup {
    /// The number of the leader, or 0 if the group has been killed.
    pid: u32,
    _entry: guard::Entry,
}

impl ProcessGroup {
    pub(crate) fn new(child: &Child, entry: guard::Entry) -> ProcessGroup {
        entry.started(child);
        ProcessGroup { pid: child.id(), _entry: entry }
    }

    /// Waits until `until` for the leader of the group to end, and kills the group. The leader is reaped only
    /// afterwards, so that no other process gets its number before the group is killed. Returns whether the leader has
    /// ended by itself.
    pub(crate) fn end(mut self, until: Instant) -> bool {
        self.kill(until)
    }

    fn kill(&mut self, until: Instant) -> bool {
        let pid = Pid::from_raw(self.pid as i32);
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        let mut pause = Duration::from_millis(1);
        let (ended, ours) = loop {
            match waitid(Id::Pid(pid), flags) {
                Ok(WaitStatus::StillAlive) if Instant::now() < until => {}
                Ok(WaitStatus::StillAlive) => break (false, true),
                Err(Errno::EINTR) => {}
                // Other code in this process has waited for the leader. If its number is in use again, it belongs to
                // another process.
                Err(_) => break (true, kill(pid, None) == Err(Errno::ESRCH)),
                Ok(_) => break (true, true),
            }
            std::thread::sleep(pause);
            pause = (2 * pause).min(Duration::from_millis(20));
        };
        if ours {
            // This fails when the whole group has ended.
            let _ = killpg(pid, Signal::SIGKILL);
        }
        self.pid = 0;
        ended
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if self.pid != 0 {
            self.kill(Instant::now());
        }
    }
}
