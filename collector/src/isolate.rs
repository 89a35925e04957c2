//! Isolation of started processes from this one.

use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use crate::guard;

/// Closes all descriptors in a process but its standard input, output and error, on supported platforms.
pub(crate) fn descriptors(command: &mut Command) {
    #[cfg(all(target_endian = "little", target_pointer_width = "64"))]
    crate::dso::child::close_others(command);
    #[cfg(not(all(target_endian = "little", target_pointer_width = "64")))]
    let _ = command;
}

/// Makes a process the leader of a group of its own, which inherits only the three standard descriptors.
pub(crate) fn isolate(command: &mut Command) {
    descriptors(command);
    #[cfg(all(target_endian = "little", target_pointer_width = "64"))]
    crate::dso::child::end_with_parent(command);
    command.process_group(0);
}

/// The group of a process that was [isolated](isolate). It is killed with all processes that its leader has started.
#[derive(Debug)]
pub(crate) struct Group(u32);

impl Group {
    pub(crate) fn of(child: &Child) -> Group {
        guard::add(child.id());
        Group(child.id())
    }

    /// Waits until `until` for the leader of the group to end, and kills the group. Until the leader is waited for, no
    /// other process can have its number. Returns whether the leader has ended by itself.
    pub(crate) fn end(mut self, until: Instant) -> bool {
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
                // Other code in this process has waited for the leader. If its number is in use again, it belongs to
                // another process.
                Err(_) => break (true, !std::path::Path::new(&format!("/proc/{pid}")).exists()),
                Ok(_) => break (true, true),
            }
            std::thread::sleep(pause);
            pause = (2 * pause).min(Duration::from_millis(20));
        };
        if ours {
            // This fails when the whole group has ended.
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
