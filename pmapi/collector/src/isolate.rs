//! Isolation of started processes from this one.

use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// Closes all descriptors in a process but its standard input, output and error, on supported platforms.
pub(crate) fn descriptors(command: &mut Command) {
    #[cfg(all(target_endian = "little", target_pointer_width = "64"))]
    crate::dso::child::close_others(command);
    #[cfg(not(all(target_endian = "little", target_pointer_width = "64")))]
    let _ = command;
}

/// Starts a program with execvp(3) instead of `posix_spawn(3)`, on supported platforms.
pub(crate) fn use_execvp(command: &mut Command) {
    #[cfg(all(target_endian = "little", target_pointer_width = "64"))]
    crate::dso::child::use_execvp(command);
    #[cfg(not(all(target_endian = "little", target_pointer_width = "64")))]
    let _ = command;
}

/// Makes a process the leader of a new group, and lets it inherit only the three standard descriptors.
pub(crate) fn isolate(command: &mut Command) {
    descriptors(command);
    #[cfg(all(target_endian = "little", target_pointer_width = "64"))]
    crate::dso::child::end_with_parent(command);
    command.process_group(0);
}

/// Lets a process write `+ ENTRY:PID`, with its own identifier, before it executes the program, on supported platforms.
pub(crate) fn tell(command: &mut Command, to: OwnedFd, entry: u32) {
    #[cfg(all(target_endian = "little", target_pointer_width = "64"))]
    crate::dso::child::tell(command, to, entry);
    #[cfg(not(all(target_endian = "little", target_pointer_width = "64")))]
    let _ = (command, to, entry);
}
