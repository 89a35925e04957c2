//! What a process that is started has of this one.

use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use super::guard;

/// Leaves a process its standard input, output and error alone, where this crate knows how to.
pub(super) fn descriptors(command: &mut Command) {
    #[cfg(all(target_endian = "little", target_pointer_width = "64"))]
    crate::dso::child::close_others(command);
    #[cfg(not(all(target_endian = "little", target_pointer_width = "64")))]
    let _ = command;
}

/// Makes a process the first of a group of its own that has nothing of this one but three descriptors.
pub(super) fn isolate(command: &mut Command) {
    descriptors(command);
    #[cfg(all(target_endian = "little", target_pointer_width = "64"))]
    crate::dso::child::end_with_parent(command);
    command.process_group(0);
}

/// The group of a process that was [isolated](isolate): killed with all that the process has started.
#[derive(Debug)]
pub(super) struct Group(u32);

impl Group {
    pub(super) fn of(child: &Child) -> Group {
        guard::add(child.id());
        Group(child.id())
    }

    /// Waits until the first process of the group has ended, for a limited time, and kills the group. While the process
    /// has not been waited for its number is no other's. Returns whether the process has ended by itself.
    pub(super) fn end(mut self, until: Instant) -> bool {
        self.kill(until)
    }

    fn kill(&mut self, until: Instant) -> bool {
        let pid = Pid::from_raw(self.0.cast_signed());
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        let mut pause = Duration::from_millis(1);
        let (ended, ours) = loop {
            match waitid(Id::Pid(pid), flags) {
                Ok(WaitStatus::StillAlive) if Instant::now() < until => {}
                Ok(WaitStatus::StillAlive) => break (false, true),
                Err(Errno::EINTR) => {}
                // Somebody else in this process has waited for it: if the number is a process's again, it is not ours.
                Err(_) => break (true, !std::path::Path::new(&format!("/proc/{pid}")).exists()),
                Ok(_) => break (true, true),
            }
            std::thread::sleep(pause);
            pause = (2 * pause).min(Duration::from_millis(20));
        };
        if ours {
            // It fails for a group of which nothing is left.
            let _ = killpg(pid, Signal::SIGKILL);
        }
        guard::remove(self.0);
        self.0 = 0;
        ended
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.0 != 0 {
            self.kill(Instant::now());
        }
    }
}
