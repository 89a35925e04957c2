//! Scripts, whose standard output is a document. They are no agents, which `pcp_collector` would start and keep running: a
//! script ends with its document, and the tasks of one thread read hundreds of them.

use std::ffi::CString;
use std::fs::File;
use std::future::{Future, pending};
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::Stdio;
use std::ptr;
use std::time::Duration;

use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, getpid, getppid};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::time::{Instant, Interval, interval_at, sleep_until};

use crate::document::{Document, Full};
use crate::http::Failure;
use crate::runtime::{Permits, TURN, USUAL};

/// Number of bytes of standard error that are reported.
const ERRORS: usize = 1000;
/// Largest number of bytes that are read at once.
const PIECE: usize = 16 << 10;
/// Most bytes that a pipe holds when a script has ended.
const PIPE: usize = 1 << 20;
/// Time between two checks whether a script is still of use.
const CHECK: Duration = Duration::from_secs(1);

/// Output of a script.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) document: Document,
    /// Beginning of the standard error.
    pub(crate) errors: Vec<u8>,
}

/// Limits of a script.
pub(crate) struct Bounds<'a> {
    pub(crate) permits: &'a Permits,
    /// Longest time.
    pub(crate) time: Duration,
    /// Largest length of the output, in bytes.
    pub(crate) bytes: u64,
}

/// A running script, whose process group is killed when this is dropped.
struct Script {
    /// `None` while a task waits for the process that was killed.
    child: Option<Child>,
    group: Option<Pid>,
}

impl Script {
    /// Starts a script in a process group of its own. If the agent's thread ends, the kernel kills the script.
    fn start(path: &Path) -> io::Result<Script> {
        let mut command = Command::new(path);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        prepare(&mut command, CString::new(path.as_os_str().as_bytes())?);
        let child = command.spawn()?;
        let group = child.id().and_then(|pid| i32::try_from(pid).ok()).map(Pid::from_raw);
        Ok(Script { child: Some(child), group })
    }

    /// Waits for the end of the script. Returns the reason why it has failed.
    async fn ended(&mut self) -> Result<(), String> {
        let Some(child) = &mut self.child else { return pending().await };
        let status = child.wait().await.map_err(|e| e.to_string())?;
        self.child = None;
        match (status.code(), status.signal()) {
            (Some(0), _) => Ok(()),
            (Some(code), _) => Err(format!("its exit status was {code}")),
            (None, signal) => Err(format!("it was killed by signal {}", signal.unwrap_or_default())),
        }
    }

    /// Kills the whole group. One that has ended is not an error.
    fn kill(&mut self) {
        if let Some(group) = self.group.take() {
            let _ = killpg(group, Signal::SIGKILL);
        }
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        self.kill();
        if let (Some(mut child), Ok(runtime)) = (self.child.take(), Handle::try_current()) {
            // Otherwise it would stay a zombie.
            runtime.spawn(async move { _ = child.wait().await });
        }
    }
}

/// Lets a new process end with this thread, have the usual limit of open files, and run a script.
///
/// The standard library would run it by execvp(3), for which a file without an interpreter is a script of the shell.
#[allow(unsafe_code)]
fn prepare(command: &mut Command, path: CString) {
    let agent = getpid();
    let begin = move || {
        set_pdeathsig(Signal::SIGKILL)?;
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
        setrlimit(Resource::RLIMIT_NOFILE, soft.min(USUAL), hard)?;
        // The agent may have ended before the first call.
        if getppid() == agent {
            let argv = [path.as_ptr(), ptr::null()];
            // SAFETY: the strings end with NUL, and the array with a null pointer. They live until the call fails.
            unsafe { libc::execv(path.as_ptr(), argv.as_ptr()) };
        }
        Err(io::Error::last_os_error())
    };
    // SAFETY: these are system calls, which need no memory of the heap and no lock.
    unsafe { command.pre_exec(begin) };
}

/// Runs a script until it has ended, although other processes may keep its output open. Then kills the rest of its process
/// group. `is_wanted` is called every second, and ends a script that is of no more use.
///
/// # Errors
/// The reason why there is no document.
pub(crate) async fn run<W: Future<Output = bool>>(
    path: &Path,
    bounds: &Bounds<'_>,
    is_wanted: impl Fn() -> W,
) -> Result<Output, Failure> {
    let mut permit = bounds.permits.script().await;
    let begin = Instant::now();
    let mut script = Script::start(path).map_err(|e| e.to_string())?;
    let child = script.child.as_mut();
    let (mut stdout, mut stderr) = child.map_or((None, None), |child| (child.stdout.take(), child.stderr.take()));
    let mut output = Output { document: Document::new(bounds.permits, bounds.bytes, 0), errors: Vec::new() };
    let (mut piece, mut error, mut checks) = (vec![0; PIECE], [0; ERRORS], checks(begin));
    loop {
        tokio::select! {
            read = receive(&mut stdout, &mut piece) => match read? {
                0 => stdout = None,
                len => output.document.extend(piece.get(..len).unwrap_or_default()).map_err(too_long)?,
            },
            read = receive(&mut stderr, &mut error) => match read? {
                0 => stderr = None,
                len => {
                    output.errors.extend_from_slice(error.get(..len).unwrap_or_default());
                    output.errors.truncate(ERRORS);
                }
            },
            ended = script.ended() => {
                ended?;
                break;
            }
            () = sleep_until(begin + TURN), if permit.is_some() => permit = None,
            () = sleep_until(begin + bounds.time) => {
                return Err(Failure::late("it has not ended in time, and was killed"));
            }
            _ = checks.tick() => if !is_wanted().await {
                return Err("it was killed, because its file has changed".into());
            },
        }
    }
    script.kill();
    if let Some(stdout) = stdout {
        rest(stdout.into_owned_fd(), |piece| output.document.extend(piece).map_err(too_long))?;
    }
    if let Some(stderr) = stderr {
        rest(stderr.into_owned_fd(), |piece| {
            output.errors.extend_from_slice(piece);
            Ok(())
        })?;
        output.errors.truncate(ERRORS);
    }
    Ok(output)
}

fn checks(begin: Instant) -> Interval {
    interval_at(begin + CHECK, CHECK)
}

fn too_long(full: Full) -> Failure {
    full.of("its output is ").into()
}

/// Reads some bytes. Never returns without a pipe.
async fn receive(pipe: &mut Option<impl AsyncRead + Unpin>, bytes: &mut [u8]) -> Result<usize, Failure> {
    match pipe {
        Some(pipe) => pipe.read(bytes).await.map_err(|e| e.to_string().into()),
        None => pending().await,
    }
}

/// Reads what a script has left in a pipe, which another process may keep open.
fn rest(pipe: io::Result<OwnedFd>, mut add: impl FnMut(&[u8]) -> Result<(), Failure>) -> Result<(), Failure> {
    let mut pipe = File::from(pipe.map_err(|e| e.to_string())?);
    let mut piece = [0; PIECE];
    for _ in 0..PIPE / PIECE {
        let mut ready = [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)];
        let is_ready = poll(&mut ready, PollTimeout::ZERO).is_ok_and(|ready| ready > 0);
        let len = if is_ready { pipe.read(&mut piece).map_err(|e| e.to_string())? } else { 0 };
        if len == 0 {
            break;
        }
        add(piece.get(..len).unwrap_or_default())?;
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;

    use super::*;
    use crate::runtime;

    fn script(text: &str, time: Duration) -> Result<Output, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("script");
        testkit::executable(&path, text, 0o755);
        let permits = Permits::new(1, 1 << 20, 1 << 30);
        let bounds = Bounds { permits: &permits, time, bytes: 100_000 };
        let run = runtime::run(run(&path, &bounds, || async { path.exists() })).unwrap();
        run.map_err(|failure| failure.reason)
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
            ("#!/bin/sh\nexec >&-; exec sleep 1000\n", short, "it has not ended in time, and was killed"),
            ("#!/bin/sh\nrm $0; exec sleep 1000\n", LIMIT, "it was killed, because its file has changed"),
            ("#!/bin/sh\nrm $0; exec >&-; exec sleep 1000\n", LIMIT, "it was killed, because its file has changed"),
            ("#!/bin/sh\nexec yes\n", LIMIT, "its output is longer than 100000 bytes"),
            ("no interpreter\n", LIMIT, "Exec format error (os error 8)"),
        ] {
            assert_eq!(script(text, limit).unwrap_err(), reason, "{text}");
        }
    }

    /// A helper keeps the output open, within the script's process group or outside.
    #[test]
    fn the_output_counts_when_the_script_has_ended() {
        for helper in ["sleep 1000", "setsid sleep 5"] {
            let lines = "echo line\n".repeat(1000);
            let begin = std::time::Instant::now();
            let output = script(&format!("#!/bin/sh\n{helper} &\n{lines}"), LIMIT).unwrap();
            assert_eq!(output.document.len(), 5000, "{helper}");
            assert!(begin.elapsed() < LIMIT);
        }
    }

    #[test]
    fn what_a_script_leaves_is_killed() {
        let text = "#!/bin/sh\nsleep 1000 >/dev/null 2>&1 &\necho $!\n";
        let output = script(text, LIMIT).unwrap();
        assert_killed(&output.document.into_text(None).unwrap());
    }

    /// Runs a script that does not end, and returns the identifier that its process writes to a file. On a busy machine
    /// the process may need longer than the first limit.
    fn left_behind(text: &str, pid: &Path) -> String {
        let written = [1, 8, 60].into_iter().find_map(|limit| {
            script(text, Duration::from_secs(limit)).unwrap_err();
            fs::read_to_string(pid).ok().filter(|pid| !pid.trim().is_empty())
        });
        written.unwrap()
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
        let begin = std::time::Instant::now();
        while fs::read(format!("/proc/{}/cmdline", pid.trim())).is_ok_and(|line| line.starts_with(b"sleep")) {
            assert!(begin.elapsed() < LIMIT, "{pid} is still there");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}
