//! Starts agents, and connects to them.

use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use pmda::host::Address;

use crate::group::ProcessGroup;
use crate::guard::Entry;
use crate::process::reap;
use crate::stderr::StandardError;
use crate::{Collector, Error, Process, Result, Stream, isolate};

/// The way to start and reach an agent, like a line of `pmcd.conf`.
///
/// The agent has the environment of the command, and uses the directories that it names. A test sets at least
/// `PCP_VAR_DIR`, or else the agent's instance numbers are those of the PCP of this host. [`Local`](crate::Local) has
/// directories of its own.
#[derive(Debug)]
#[must_use = "it starts nothing until Launch::start"]
pub struct Launch {
    address: Option<Address>,
    command: Option<Command>,
    not_ready: bool,
    handshake: Option<Duration>,
    timeout: Option<Duration>,
    limit: Option<u32>,
    isolated: bool,
    /// Name of the agent in log lines, if its standard error is logged.
    logged: Option<String>,
}

impl Launch {
    /// Longest time until a started agent listens.
    const LISTEN: Duration = Duration::from_secs(10);

    fn new(address: Option<Address>, command: Option<Command>) -> Launch {
        let handshake = Some(Collector::<Process>::HANDSHAKE_TIMEOUT);
        let timeout = Some(Collector::<Process>::TIMEOUT);
        Launch { address, command, not_ready: false, handshake, timeout, limit: None, isolated: false, logged: None }
    }

    /// Starts the agent with pipes as its standard input and output (`pipe binary`). Standard error is that of the
    /// command, by default that of this process.
    pub fn pipe(command: Command) -> Launch {
        Launch::new(None, Some(command))
    }

    /// Connects to an agent that listens on a socket (`socket inet|ipv6|unix`). The agent already runs, or
    /// [`Launch::command`] starts it.
    pub fn socket(address: Address) -> Launch {
        Launch::new(Some(address), None)
    }

    /// Sets the command that starts an agent which then listens. Its standard input and output are those of the
    /// command.
    pub fn command(mut self, command: Command) -> Launch {
        self.command = Some(command);
        self
    }

    /// Declares that the agent reports when it is ready (`notready`); see [`Collector::wait_ready`].
    pub fn not_ready(mut self) -> Launch {
        self.not_ready = true;
        self
    }

    /// Sets the longest time until the agent's CREDS PDU, by default 3 s; `None` forever.
    pub fn handshake_timeout(mut self, timeout: Option<Duration>) -> Launch {
        self.handshake = timeout;
        self
    }

    /// Sets the longest time for an answer, by default 5 s; `None` forever.
    pub fn timeout(mut self, timeout: Option<Duration>) -> Launch {
        self.timeout = timeout;
        self
    }

    /// Sets the longest PDU that the agent may send, in bytes; 256 MiB by default, and at most.
    pub fn limit(mut self, bytes: u32) -> Launch {
        self.limit = Some(bytes);
        self
    }

    /// Isolates the agent: it inherits only its standard input, output and error. It is killed with all processes that
    /// it has started, when its connection is dropped or this process ends, even by SIGKILL. The thread that starts the
    /// agent must outlive it.
    pub fn isolated(mut self) -> Launch {
        self.isolated = true;
        self
    }

    /// Logs each line that the agent writes to standard error as a warning about agent `name`.
    pub fn logged(mut self, name: impl Into<String>) -> Launch {
        self.logged = Some(name.into());
        self
    }

    /// Starts the agent, connects, and performs the version exchange.
    ///
    /// # Errors
    /// The errors of [`Launch::open`] and [`Starting::wait`].
    pub fn start(self) -> Result<Collector<Process>> {
        let handshake = self.handshake;
        self.begin()?.wait(handshake)
    }

    /// Starts the agent and connects; [`Starting::wait`] performs the version exchange.
    ///
    /// # Errors
    /// The errors of [`Launch::open`].
    pub fn begin(self) -> Result<Starting> {
        let (not_ready, timeout, limit) = (self.not_ready, self.timeout, self.limit);
        let mut process = self.open()?;
        if let Some(limit) = limit {
            process.set_limit(limit);
        }
        Ok(Starting { process: Some(process), not_ready, timeout })
    }

    /// Starts the agent and connects, without the version exchange.
    ///
    /// # Errors
    /// [`Error::Spawn`] when the program cannot be started, [`Error::Exited`] when it ends before it listens,
    /// [`Error::Connect`] when the address cannot be reached, [`Error::Io`] when descriptors cannot be set up.
    pub fn open(mut self) -> Result<Process> {
        let isolated = self.isolated;
        let mut command = self.command.take();
        let errors = match (self.logged.take(), &mut command) {
            (Some(name), Some(command)) => Some((StandardError::of(command)?, name)),
            _ => None,
        };
        let entry = command.as_mut().filter(|_| isolated).map(|command| {
            isolate::isolate(command);
            Entry::of(command)
        });
        let group = |child: &Child| entry.map(|entry| ProcessGroup::new(child, entry));
        let process = match self.address {
            None => {
                let mut command = command.ok_or(Error::Closed)?;
                command.stdin(Stdio::piped()).stdout(Stdio::piped());
                let mut child = spawn(command)?;
                let group = group(&child);
                match (child.stdout.take(), child.stdin.take()) {
                    (Some(from), Some(to)) => {
                        let stream = Stream::new(OwnedFd::from(from), OwnedFd::from(to))?;
                        Ok(Process::new(stream, Some(child), group))
                    }
                    _ => Err(Error::Closed),
                }
            }
            Some(address) => match command {
                None => match connect(&address) {
                    Ok(stream) => Ok(Process::new(stream, None, None)),
                    Err(source) => Err(Error::Connect { address, source }),
                },
                Some(command) => {
                    let child = spawn(command)?;
                    let group = group(&child);
                    connect_to(child, group, address)
                }
            },
        }?;
        if let Some((errors, name)) = errors {
            errors.log(name)?;
        }
        Ok(process)
    }
}

/// An agent that is connected, but may not have sent its CREDS PDU yet.
#[derive(Debug)]
pub struct Starting {
    /// The process. `None` after the version exchange.
    process: Option<Process>,
    not_ready: bool,
    timeout: Option<Duration>,
}

impl Starting {
    /// Waits for the agent's CREDS PDU, and returns the connection.
    ///
    /// # Errors
    /// [`Error::TimedOut`] without a PDU in time, after which another call continues to wait. Any other error ends the
    /// agent: [`Error::Exited`], [`Error::NoVersion`], [`Error::Unexpected`], those of the connection, or
    /// [`Error::Dropped`] in a call after the end.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<Collector<Process>> {
        let mut process = self.process.take().ok_or(Error::Dropped)?;
        match Collector::handshake(&mut process, timeout) {
            Ok(flags) => {
                let mut collector = Collector::with_features(process, flags);
                collector.set_timeout(self.timeout);
                if self.not_ready {
                    collector.set_not_ready();
                }
                Ok(collector)
            }
            Err(e @ Error::TimedOut(_)) => {
                self.process = Some(process);
                Err(e)
            }
            Err(Error::Ended(status)) => Err(Error::Exited(status)),
            Err(e) => Err(e),
        }
    }
}

fn spawn(mut command: Command) -> Result<Child> {
    let mut spawned = command.spawn();
    if spawned.as_ref().is_err_and(|e| e.raw_os_error() == Some(Errno::ENOEXEC as i32)) {
        // As in pmcd, a script without `#!` is for the shell.
        isolate::use_execvp(&mut command);
        spawned = command.spawn();
    }
    spawned.map_err(|source| Error::Spawn { program: command.get_program().into(), source })
}

fn connect(address: &Address) -> io::Result<Stream> {
    Stream::socket(address.connect()?)
}

/// Connects to an agent that has just been started, as soon as it listens. An agent accepts a single connection, so the
/// first one that succeeds is kept.
fn connect_to(mut child: Child, group: Option<ProcessGroup>, address: Address) -> Result<Process> {
    let end = Instant::now() + Launch::LISTEN;
    let mut pause = Duration::from_millis(2);
    loop {
        match connect(&address) {
            Ok(stream) => return Ok(Process::new(stream, Some(child), group)),
            Err(e)
                if matches!(e.kind(), ErrorKind::ConnectionRefused | ErrorKind::NotFound | ErrorKind::WouldBlock)
                    && Instant::now() < end =>
            {
                if let Ok(Some(status)) = child.try_wait() {
                    return Err(Error::Exited(status));
                }
            }
            Err(source) => {
                reap(child, Duration::ZERO);
                return Err(Error::Connect { address, source });
            }
        }
        thread::sleep(pause);
        pause = (2 * pause).min(Duration::from_millis(50));
    }
}
