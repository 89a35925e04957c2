//! The process with the agent, as the proxy sees it.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use tracing::warn;

use crate::agent::MAX_REPLY;
use crate::link::{Link, widen};

/// Time for killed processes to end. One that has become another user's, or that waits for a device, does not end.
const KILLED: Duration = Duration::from_secs(1);

/// A process with the agent. It is killed, with all processes that it has started, when the value is dropped.
#[derive(Debug)]
pub(crate) struct AgentProcess {
    child: Child,
}

impl AgentProcess {
    /// Starts this program again, with the same arguments. Returns the process, and the pipes to it.
    pub(crate) fn start() -> io::Result<(AgentProcess, Link)> {
        // A program that has been replaced has no path. The path is better, because it names the process in ps(1), and valgrind
        // cannot run the link.
        let path = std::env::current_exe().ok().filter(|path| path.is_file());
        let mut command = Command::new(path.unwrap_or_else(|| "/proc/self/exe".into()));
        let mut arguments = std::env::args_os();
        command.arg0(arguments.next().unwrap_or_else(|| "pmda-host".into()));
        command.arg(format!("--serve={}", std::process::id())).args(arguments);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0).spawn()?;
        let pipes = child.stdout.take().zip(child.stdin.take());
        let process = AgentProcess { child };
        let (answers, requests) = pipes.ok_or(io::ErrorKind::BrokenPipe)?;
        let link = Link::new(OwnedFd::from(answers).into(), OwnedFd::from(requests).into(), MAX_REPLY as u32)?;
        widen(link.input());
        Ok((process, link))
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Reaps processes that the agent has started, and that have ended after their parents.
    pub(crate) fn reap_orphans(&self) {
        for pid in children().into_iter().filter(|pid| pid.as_raw() != self.child.id() as i32) {
            let _ = waitpid(pid, Some(WaitPidFlag::WNOHANG));
        }
    }

    /// Kills the process if a signal has stopped it: it can neither answer nor begin a call that could be watched.
    /// Returns whether it was stopped.
    pub(crate) fn kill_stopped(&mut self) -> bool {
        let id = Id::Pid(Pid::from_raw(self.child.id() as i32));
        let stopped = matches!(waitid(id, WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG), Ok(WaitStatus::Stopped(..)));
        if stopped {
            let _ = self.child.kill();
        }
        stopped
    }

    /// Returns the exit status if the process has ended.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Ends the process, and returns its status; `None` if it has not ended by itself until a time, or until a signal asks
    /// this process to end.
    pub(crate) fn end(mut self, until: Instant, terminated: &AtomicBool) -> Option<ExitStatus> {
        while Instant::now() < until && !terminated.load(Relaxed) {
            if let Some(status) = self.ended() {
                return Some(status);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        None
    }
}

impl Drop for AgentProcess {
    fn drop(&mut self) {
        let id = Pid::from_raw(self.child.id() as i32);
        // The number cannot belong to another group until the process has been waited for, and afterwards while one of
        // the group's processes lives. The call fails if all have ended.
        let _ = killpg(id, Signal::SIGKILL);
        let _ = self.child.kill();
        let until = Instant::now() + KILLED;
        // Also ends processes that have left the group, and those that they start meanwhile. When a process ends, its
        // children become children of this process. A wait for one of them could last forever, and pmcd waits, too.
        loop {
            let mut left = children();
            left.retain(|pid| *pid != id);
            left.extend(Some(id).filter(|_| self.ended().is_none()));
            if left.is_empty() {
                return;
            }
            if Instant::now() > until {
                warn!("processes of the agent cannot be killed, and go on: {left:?}");
                return;
            }
            for pid in left.into_iter().filter(|pid| *pid != id) {
                let _ = kill(pid, Signal::SIGKILL);
                let _ = waitpid(pid, Some(WaitPidFlag::WNOHANG));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Makes this process the parent of processes that the agent has started, when their own parents end.
pub(crate) fn adopt_orphans() -> io::Result<()> {
    Ok(set_child_subreaper(true)?)
}

/// Makes signals that end this process set a flag and wake its loop, so that it kills all processes of the agent before it
/// ends. A second signal ends the process at once.
pub(crate) fn catch_termination(terminated: &Arc<AtomicBool>, wake: &UnixStream) -> io::Result<()> {
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        flag::register_conditional_default(signal, terminated.clone())?;
        flag::register(signal, terminated.clone())?;
        signal_hook::low_level::pipe::register(signal, wake.try_clone()?)?;
    }
    Ok(())
}

/// Returns the children of this process; none if the kernel does not list them.
fn children() -> Vec<Pid> {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<i32>>())
        .map(Pid::from_raw)
        .collect()
}

/// How a process has ended.
pub(crate) struct Ending(pub(crate) Option<ExitStatus>);

impl std::fmt::Display for Ending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(status) => status.fmt(f),
            None => f.write_str("killed"),
        }
    }
}
