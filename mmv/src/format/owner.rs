//! The process that a file depends on.

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;

use super::{Flags, Header};

impl Header {
    /// Returns the process that the file depends on, if any: the file is valid only while it runs.
    pub fn owner(&self) -> Option<i32> {
        (self.flags.contains(Flags::PROCESS) && self.process != 0).then_some(self.process)
    }
}

/// Returns whether there is a process with this identifier.
pub fn process_exists(process: i32) -> bool {
    process > 0 && kill(Pid::from_raw(process), None) != Err(Errno::ESRCH)
}
