//! Process between the agent and a script, which ends the script if the agent is killed.
//!
//! The supervisor is this program with another option. It leads the script's process group. Its standard input is a
//! socket whose other end only the agent has, so the kernel closes it whenever the agent ends, also by `SIGKILL`. The
//! supervisor then kills the whole group, itself included. Unlike `PR_SET_PDEATHSIG`, this reaches the processes that
//! the script has started, and depends neither on the thread that has started the script nor on the order of events.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::thread;

use nix::errno::Errno;
use nix::sys::prctl::set_name;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::getpgrp;

use crate::descriptors;

/// First argument of a supervisor. The second one is the path of the script.
const OPTION: &str = "--supervise";
/// Path of the running program, also after its file has been replaced.
const PROGRAM: &str = "/proc/self/exe";

/// Set if the running program can be a supervisor. Tests and other programs with this library cannot.
static IS_AGENT: OnceLock<()> = OnceLock::new();

/// Runs the program as the supervisor of a script, if its arguments say so, and returns its exit code. Otherwise
/// scripts get supervisors from now on.
///
/// The main function of a program must call it first.
pub fn supervise(args: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut args = args.into_iter().skip(1);
    let (option, script) = (args.next(), args.next());
    match script.filter(|_| option.is_some_and(|option| option == OPTION)) {
        Some(script) => Some(run(&script)),
        None => {
            let _ = IS_AGENT.set(());
            None
        }
    }
}

/// Starts the script, and reports the end of its process, or the error.
fn run(script: &OsStr) -> ExitCode {
    let _ = set_name(c"script");
    descriptors::lower();
    let Ok(socket) = io::stdin().as_fd().try_clone_to_owned() else { return ExitCode::FAILURE };
    let mut socket = UnixStream::from(socket);
    let report = match Command::new(script).stdin(Stdio::null()).spawn() {
        Ok(child) => ended(child, &socket),
        Err(e) => Err(e),
    };
    let bytes = match report {
        Ok(status) => encode(0, status.into_raw()),
        Err(e) => encode(1, e.raw_os_error().unwrap_or(Errno::EINVAL as i32)),
    };
    // If the agent has gone, nobody reads it.
    let _ = socket.write_all(&bytes);
    ExitCode::SUCCESS
}

/// Waits for the script, while a thread waits for the end of the agent.
fn ended(mut script: Child, socket: &UnixStream) -> io::Result<ExitStatus> {
    let mut agent = socket.try_clone()?;
    thread::Builder::new().spawn(move || {
        // The agent sends nothing.
        let _ = agent.read(&mut [0]);
        let _ = killpg(getpgrp(), Signal::SIGKILL);
    })?;
    script.wait()
}

/// Encodes a wait status (kind 0) or an error number (kind 1).
fn encode(kind: u8, number: i32) -> [u8; 5] {
    let [a, b, c, d] = number.to_ne_bytes();
    [kind, a, b, c, d]
}

/// The agent's end of a supervisor's socket. Dropping it kills the script's process group.
#[derive(Debug)]
pub(crate) struct Supervised(Option<UnixStream>);

/// Returns the command that runs a script in a process group of its own: by a supervisor, if the program can be one.
///
/// # Errors
/// Errors of creating a socket.
pub(crate) fn command(script: &Path) -> io::Result<(Command, Supervised)> {
    let (mut command, supervised) = if IS_AGENT.get().is_some() {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let mut command = Command::new(PROGRAM);
        command.arg(OPTION).arg(script).stdin(Stdio::from(OwnedFd::from(theirs)));
        (command, Supervised(Some(ours)))
    } else {
        let mut command = Command::new(script);
        command.stdin(Stdio::null());
        (command, Supervised(None))
    };
    command.process_group(0);
    Ok((command, supervised))
}

impl Supervised {
    /// Returns the status of the script, after the process that [`command`] has started has ended with `status`. A
    /// supervisor that was killed has not reported the status, so its own is returned.
    ///
    /// # Errors
    /// The error of starting the script.
    pub(crate) fn status(mut self, status: ExitStatus) -> io::Result<ExitStatus> {
        let Some(socket) = &mut self.0 else { return Ok(status) };
        let mut bytes = [0; 5];
        if socket.read_exact(&mut bytes).is_err() {
            return Ok(status);
        }
        let [kind, a, b, c, d] = bytes;
        let number = i32::from_ne_bytes([a, b, c, d]);
        if kind == 0 { Ok(ExitStatus::from_raw(number)) } else { Err(io::Error::from_raw_os_error(number)) }
    }
}
