//! Scripts, whose standard output is a document.

use std::io::{self, Read};
use std::os::fd::AsFd as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

/// Most bytes of standard error that are reported.
const ERRORS: usize = 1000;
/// Time between two looks at a script that has closed its output but still runs.
const PAUSE: Duration = Duration::from_millis(2);

/// What a script has written.
#[derive(Debug, Default)]
pub(crate) struct Output {
    pub(crate) document: Vec<u8>,
    /// Begin of the standard error.
    pub(crate) errors: Vec<u8>,
}

/// Runs a script in a process group of its own, until it has ended and nothing can write to its output any more. What is
/// left of the process group is killed then.
///
/// # Errors
/// The reason why there is no document.
pub(crate) fn run(path: &Path, deadline: Instant, limit: u64) -> Result<Output, String> {
    let mut command = Command::new(path);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().map_err(|e| e.to_string())?;
    let pid = i32::try_from(child.id()).map(Pid::from_raw).map_err(|e| e.to_string())?;
    let done = output(&mut child, deadline, limit).and_then(|output| finish(pid, deadline).map(|()| output));
    // Until the script is waited for, no other process group can have its number. A group that has ended is no error.
    let _ = killpg(pid, Signal::SIGKILL);
    let status = child.wait().map_err(|e| e.to_string())?;
    let output = done?;
    match (status.code(), status.signal()) {
        (Some(0), _) => Ok(output),
        (Some(code), _) => Err(format!("its exit status was {code}")),
        (None, signal) => Err(format!("it was killed by signal {}", signal.unwrap_or_default())),
    }
}

fn output(child: &mut Child, deadline: Instant, limit: u64) -> Result<Output, String> {
    let mut output = Output::default();
    let (mut stdout, mut stderr) = (child.stdout.take(), child.stderr.take());
    // Something that the script has left behind may keep standard error open.
    while let Some(out) = &mut stdout {
        let mut fds = vec![PollFd::new(out.as_fd(), PollFlags::POLLIN)];
        fds.extend(stderr.as_ref().map(|err| PollFd::new(err.as_fd(), PollFlags::POLLIN)));
        wait(&mut fds, deadline)?;
        let ready: Vec<bool> = fds.iter().map(|fd| fd.any().unwrap_or(false)).collect();
        if let Some(err) = stderr.as_mut().filter(|_| ready.get(1) == Some(&true)) {
            if !receive(err, &mut output.errors).map_err(|e| e.to_string())? {
                stderr = None;
            }
        }
        output.errors.truncate(ERRORS);
        if ready.first() == Some(&true) && !receive(out, &mut output.document).map_err(|e| e.to_string())? {
            stdout = None;
        }
        if output.document.len() as u64 > limit {
            return Err(format!("its output is longer than {limit} bytes"));
        }
    }
    Ok(output)
}

fn wait(fds: &mut [PollFd<'_>], deadline: Instant) -> Result<(), String> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(late());
    }
    // Whole milliseconds, rounded up.
    let left = PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
    match poll(fds, left) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(e) => Err(e.to_string()),
    }
}

fn late() -> String {
    "it has not ended in time, and was killed".to_owned()
}

/// Reads what is there. Returns false at the end.
fn receive(from: &mut impl Read, to: &mut Vec<u8>) -> io::Result<bool> {
    let mut buffer = [0; 65536];
    let len = from.read(&mut buffer)?;
    to.extend_from_slice(buffer.get(..len).unwrap_or_default());
    Ok(len > 0)
}

/// Waits until a script has ended that has closed its output. It stays a zombie.
fn finish(script: Pid, deadline: Instant) -> Result<(), String> {
    loop {
        let ended = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        match waitid(Id::Pid(script), ended).map_err(|e| e.to_string())? {
            WaitStatus::StillAlive if Instant::now() >= deadline => return Err(late()),
            WaitStatus::StillAlive => std::thread::sleep(PAUSE),
            _ => return Ok(()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn script(text: &str, limit: Duration) -> Result<Output, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("script");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        // Another thread's fork may have the file open for writing for a moment.
        let begin = Instant::now();
        loop {
            match run(&path, Instant::now() + limit, 100_000) {
                Err(e) if e.contains("busy") && begin.elapsed() < LIMIT => std::thread::sleep(PAUSE),
                done => return done,
            }
        }
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
        let pid: i32 = String::from_utf8(output.document).unwrap().trim().parse().unwrap();
        let begin = Instant::now();
        // A zombie has no command line.
        while fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.starts_with(b"sleep")) {
            assert!(begin.elapsed() < LIMIT, "{pid} is still there");
            std::thread::sleep(PAUSE);
        }
    }

    #[test]
    fn the_whole_group_is_killed() {
        let dir = tempfile::tempdir().unwrap();
        let pid = dir.path().join("pid");
        let text = format!("#!/bin/sh\n(echo $$ >{0}; exec sleep 1000) &\nsleep 1000\n", pid.display());
        script(&text, Duration::from_millis(500)).unwrap_err();
        let Ok(pid) = fs::read_to_string(pid) else { return };
        let begin = Instant::now();
        let group = || killpg(Pid::from_raw(pid.trim().parse().unwrap()), None);
        while group().is_ok() {
            assert!(begin.elapsed() < LIMIT, "the group of {pid} is still there");
            std::thread::sleep(PAUSE);
        }
    }
}
