//! Scripts, whose standard output is a document.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{ChildStderr, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use crate::document::Document;
use crate::supervisor;

/// Number of bytes of standard error that are reported.
const ERRORS: usize = 1000;
/// Largest number of bytes that are read at once.
const PIECE: usize = 16 << 10;
/// Time in which processes that have been killed close their files, in milliseconds.
const KILLED: u8 = 50;
/// Longest time between two checks whether a script that writes nothing must end.
const CHECK: Duration = Duration::from_secs(1);
/// Time between two checks of a script that has closed its output but still runs.
const PAUSE: Duration = Duration::from_millis(2);

/// Output of a script.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) document: Document,
    /// Beginning of the standard error.
    pub(crate) errors: Vec<u8>,
}

/// What ends a script that goes on.
pub(crate) struct Bounds<'a> {
    pub(crate) deadline: Instant,
    /// Largest length of the output, in bytes.
    pub(crate) bytes: u64,
    /// Returns whether the output is still of use.
    pub(crate) is_wanted: &'a dyn Fn() -> bool,
}

impl Bounds<'_> {
    /// Returns the time until the deadline.
    ///
    /// # Errors
    /// The reason why the script must end now.
    fn left(&self) -> Result<Duration, String> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err("it has not ended in time, and was killed".to_owned());
        }
        if (self.is_wanted)() { Ok(left) } else { Err("it was killed, because its file has changed".to_owned()) }
    }
}

/// Runs a script in a new process group, until it has ended and no process has its output open. Then kills the rest of
/// the process group. Processes outside of the group that keep the output open for too long are killed, too. If the
/// agent is killed, so is the group.
///
/// # Errors
/// The reason why there is no document.
pub(crate) fn run(path: &Path, bounds: &Bounds<'_>) -> Result<Output, String> {
    let (mut command, supervised) = supervisor::command(path).map_err(|e| e.to_string())?;
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(|e| e.to_string())?;
    // The command holds the other end of the supervisor's socket.
    drop(command);
    let pid = i32::try_from(child.id()).map(Pid::from_raw).map_err(|e| e.to_string())?;
    let (mut stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let done = output(&mut stdout, stderr, bounds);
    let done = done.and_then(|output| finish(pid, bounds).map(|()| output));
    // No other process group can get this number until the script has been waited for. A group that has ended is not an
    // error.
    let _ = killpg(pid, Signal::SIGKILL);
    let status = child.wait();
    if let Some(stdout) = stdout.filter(has_writers) {
        let _ = kill_writers(stdout);
    }
    let status = status.map_err(|e| e.to_string())?;
    let output = done?;
    let status = supervised.status(status).map_err(|e| e.to_string())?;
    match (status.code(), status.signal()) {
        (Some(0), _) => Ok(output),
        (Some(code), _) => Err(format!("its exit status was {code}")),
        (None, signal) => Err(format!("it was killed by signal {}", signal.unwrap_or_default())),
    }
}

/// Reads the output to its end, where `stdout` becomes `None`.
fn output(
    stdout: &mut Option<ChildStdout>,
    mut stderr: Option<ChildStderr>,
    bounds: &Bounds<'_>,
) -> Result<Output, String> {
    let mut output = Output { document: Document::new(0), errors: Vec::new() };
    // A process that the script has started may keep standard error open.
    while let Some(out) = stdout {
        let mut fds = vec![PollFd::new(out.as_fd(), PollFlags::POLLIN)];
        fds.extend(stderr.as_ref().map(|err| PollFd::new(err.as_fd(), PollFlags::POLLIN)));
        wait(&mut fds, bounds.left()?)?;
        let ready: Vec<bool> = fds.iter().map(|fd| fd.any().unwrap_or(false)).collect();
        if let Some(err) = stderr.as_mut().filter(|_| ready.get(1) == Some(&true)) {
            if !receive(err, &mut output.errors).map_err(|e| e.to_string())? {
                stderr = None;
            }
        }
        output.errors.truncate(ERRORS);
        if ready.first() == Some(&true) && !receive(out, &mut output.document).map_err(|e| e.to_string())? {
            *stdout = None;
        }
        if output.document.len() as u64 > bounds.bytes {
            return Err(format!("its output is longer than {} bytes", bounds.bytes));
        }
    }
    Ok(output)
}

/// Waits for output for some time.
fn wait(fds: &mut [PollFd<'_>], left: Duration) -> Result<(), String> {
    // Whole milliseconds, rounded up.
    let time = PollTimeout::try_from(left.min(CHECK) + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
    match poll(fds, time) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(e) => Err(e.to_string()),
    }
}

/// Reads the output that has arrived. Returns false at the end.
fn receive(from: &mut impl Read, to: &mut impl Write) -> io::Result<bool> {
    let mut buffer = [0; PIECE];
    let len = from.read(&mut buffer)?;
    to.write_all(buffer.get(..len).unwrap_or_default())?;
    Ok(len > 0)
}

/// Returns whether a process can write to a pipe, also after [`KILLED`]. To find that process takes long on a host with many
/// processes, and most scripts that are killed leave none.
fn has_writers(pipe: &ChildStdout) -> bool {
    let mut fds = [PollFd::new(pipe.as_fd(), PollFlags::empty())];
    let _ = poll(&mut fds, PollTimeout::from(KILLED));
    fds.iter().all(|fd| !fd.revents().is_some_and(|events| events.contains(PollFlags::POLLHUP)))
}

/// Kills the processes that can write to a pipe. A script may have started them as daemons, one at each reading.
fn kill_writers(pipe: ChildStdout) -> io::Result<()> {
    let pipe = File::from(std::os::fd::OwnedFd::from(pipe));
    let target = format!("pipe:[{}]", pipe.metadata()?.ino());
    let own = nix::unistd::getpid().as_raw();
    for process in fs::read_dir("/proc")?.flatten() {
        // This process may have the writing end of another thread's script, before it has started.
        let pid = process.file_name().to_str().and_then(|name| name.parse().ok()).filter(|pid| *pid != own);
        // The files of other users' processes cannot be read, unless the agent is root.
        let (Some(pid), Ok(fds)) = (pid, fs::read_dir(process.path().join("fd"))) else { continue };
        let is_writer = fds.flatten().any(|fd| {
            let is_open_for_writing = fd.metadata().is_ok_and(|link| link.mode() & 0o200 != 0);
            is_open_for_writing && fs::read_link(fd.path()).is_ok_and(|link| link.as_os_str() == &*target)
        });
        if is_writer {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
    Ok(())
}

/// Waits until a script that has closed its output ends. It stays a zombie.
fn finish(script: Pid, bounds: &Bounds<'_>) -> Result<(), String> {
    loop {
        let ended = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        match waitid(Id::Pid(script), ended).map_err(|e| e.to_string())? {
            WaitStatus::StillAlive => {
                bounds.left()?;
                std::thread::sleep(PAUSE);
            }
            _ => return Ok(()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;

    use super::*;

    fn script(text: &str, limit: Duration) -> Result<Output, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("script");
        testkit::executable(&path, text, 0o755);
        let is_wanted = || path.exists();
        run(&path, &Bounds { deadline: Instant::now() + limit, bytes: 100_000, is_wanted: &is_wanted })
    }

    const LIMIT: Duration = Duration::from_secs(60);

    #[test]
    fn output_and_errors() {
        let output = script("#!/bin/sh\necho hello\necho oops >&2\n", LIMIT).unwrap();
        assert_eq!((&output.document[..], &output.errors[..]), (&b"hello\n"[..], &b"oops\n"[..]));
    }

    #[test]
    fn failures() {
        let short = Duration::from_millis(200);
        for (text, limit, reason) in [
            ("#!/bin/sh\nexit 3\n", LIMIT, "its exit status was 3"),
            ("#!/bin/sh\nkill -9 $$\n", LIMIT, "it was killed by signal 9"),
            ("#!/bin/sh\nexec sleep 1000\n", short, "it has not ended in time, and was killed"),
            // A child of the script keeps its output open.
            ("#!/bin/sh\nsleep 1000 &\n", short, "it has not ended in time, and was killed"),
            ("#!/bin/sh\nexec >&-; exec sleep 1000\n", short, "it has not ended in time, and was killed"),
            ("#!/bin/sh\nrm $0; exec sleep 1000\n", LIMIT, "it was killed, because its file has changed"),
            ("#!/bin/sh\nrm $0; exec >&-; exec sleep 1000\n", LIMIT, "it was killed, because its file has changed"),
            ("#!/bin/sh\nexec yes\n", LIMIT, "its output is longer than 100000 bytes"),
            ("no interpreter\n", LIMIT, "Exec format error (os error 8)"),
        ] {
            assert_eq!(script(text, limit).unwrap_err(), reason, "{text}");
        }
    }

    #[test]
    fn what_a_script_leaves_is_killed() {
        let text = "#!/bin/sh\nsleep 1000 >/dev/null 2>&1 &\necho $!\n";
        let output = script(text, LIMIT).unwrap();
        assert_killed(&output.document.into_text().unwrap());
    }

    /// Runs a script that does not end, and returns the identifier that its process writes to a file. On a busy machine
    /// the process may need longer than the first limit.
    fn left_behind(text: &str, pid: &std::path::Path) -> String {
        let written = [1, 8, 60].into_iter().find_map(|limit| {
            script(text, Duration::from_secs(limit)).unwrap_err();
            fs::read_to_string(pid).ok().filter(|pid| !pid.trim().is_empty())
        });
        written.unwrap()
    }

    #[test]
    fn daemons_that_keep_the_output_are_killed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pid");
        let text = format!("#!/bin/sh\nsetsid sh -c 'echo $$ >{0}; exec sleep 1000' &\nsleep 1000\n", path.display());
        assert_killed(&left_behind(&text, &path));
    }

    #[test]
    fn the_whole_group_is_killed() {
        let dir = tempfile::tempdir().unwrap();
        let pid = dir.path().join("pid");
        let text = format!("#!/bin/sh\n(echo $$ >{0}; exec sleep 1000) &\nsleep 1000\n", pid.display());
        assert_killed(&left_behind(&text, &pid));
    }

    /// Waits until a process that runs sleep is gone. If nobody waits for it, it stays without a command line.
    fn assert_killed(pid: &str) {
        let begin = Instant::now();
        while fs::read(format!("/proc/{}/cmdline", pid.trim())).is_ok_and(|line| line.starts_with(b"sleep")) {
            assert!(begin.elapsed() < LIMIT, "{pid} is still there");
            std::thread::sleep(PAUSE);
        }
    }
}
