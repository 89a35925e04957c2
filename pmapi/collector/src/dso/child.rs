//! The code of a child process between fork(2) and exec(2).

use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use nix::libc;
use nix::sys::prctl;
use nix::sys::signal::Signal;

/// Largest number of descriptors closed one by one, on kernels before Linux 5.11, which lack `close_range(2)`.
const MOST: libc::rlim_t = 65_536;

/// Closes all descriptors in a process but its standard input, output and error. A host of shared objects such as pmcd
/// has descriptors that are not close-on-exec: listening sockets, its clients, the pipes of other agents.
pub(crate) fn close_others(command: &mut Command) {
    // SAFETY: the child of a process with possibly several threads makes only system calls here.
    unsafe { command.pre_exec(keep_only_standard) };
}

/// Starts a program with execvp(3) instead of `posix_spawn(3)`.
pub(crate) fn use_execvp(command: &mut Command) {
    // SAFETY: nothing is called in the child.
    unsafe { command.pre_exec(|| Ok(())) };
}

/// Kills a process when the thread that has started it ends.
pub(crate) fn end_with_parent(command: &mut Command) {
    // SAFETY: as above.
    unsafe { command.pre_exec(|| Ok(prctl::set_pdeathsig(Signal::SIGKILL)?)) };
}

/// Lets a process write `+ ENTRY:PID`, with its own identifier.
pub(crate) fn tell(command: &mut Command, to: OwnedFd, entry: u32) {
    // SAFETY: as above. The numbers are formatted without memory of the heap.
    unsafe {
        command.pre_exec(move || {
            let mut line = [0; 32];
            let mut rest = &mut line[..];
            writeln!(rest, "+ {entry}:{}", libc::getpid())?;
            let len = 32 - rest.len();
            // The reader may be gone. The signal's action is the default at this point, as it is in the program.
            libc::signal(libc::SIGPIPE, libc::SIG_IGN);
            // If this fails, the parent finds it out when it writes the line itself.
            libc::write(to.as_raw_fd(), line.as_ptr().cast(), len);
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
            Ok(())
        })
    };
}

/// Marks all other descriptors close-on-exec. They are not closed yet, because the standard library needs one to report
/// an error.
fn keep_only_standard() -> io::Result<()> {
    // SAFETY: changes flags of descriptors, in a process that is about to be another program.
    unsafe {
        if libc::close_range(3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC as libc::c_int) == 0 {
            return Ok(());
        }
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) != 0 {
            return Err(io::Error::last_os_error());
        }
        for fd in 3..limit.rlim_cur.min(MOST) {
            // Most of them are not open.
            libc::fcntl(fd as libc::c_int, libc::F_SETFD, libc::FD_CLOEXEC);
        }
    }
    Ok(())
}
