//! An agent's process, and the exchange of requests with it.

use std::ffi::{OsStr, OsString};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use pcp_pdu::handshake::{Features, encode_creds};
use pcp_pdu::{Header, Pdu, PduType};

use super::encode;

/// The program and command line of an agent.
#[derive(Clone)]
pub(crate) struct Program {
    pub(super) label: &'static str,
    path: PathBuf,
    arguments: Vec<OsString>,
    environment: Vec<(&'static str, OsString)>,
}

impl Program {
    pub(crate) fn new(label: &'static str, path: impl Into<PathBuf>) -> Program {
        Program { label, path: path.into(), arguments: Vec::new(), environment: Vec::new() }
    }

    pub(crate) fn arg(mut self, argument: impl Into<OsString>) -> Program {
        self.arguments.push(argument.into());
        self
    }

    pub(crate) fn env(mut self, name: &'static str, value: impl Into<OsString>) -> Program {
        self.environment.push((name, value.into()));
        self
    }

    fn command(&self) -> Command {
        self.under::<&OsStr>(&self.path, &[])
    }

    /// Returns a command that runs the program under a tracer.
    pub(super) fn under<S: AsRef<OsStr>>(&self, tracer: &Path, options: &[S]) -> Command {
        let mut command = Command::new(tracer);
        command.args(options);
        if tracer != self.path {
            command.arg(&self.path);
        }
        command.args(&self.arguments).envs(self.environment.iter().cloned());
        command
    }

    pub(super) fn start(&self) -> Agent {
        Agent::start(self.command()).unwrap_or_else(|e| panic!("{} ({}): {e}", self.label, self.path.display()))
    }
}

/// A running agent, after the version exchange.
pub(super) struct Agent {
    child: Child,
    to: ChildStdin,
    from: ChildStdout,
    clock: ClockId,
    reply: Vec<u8>,
}

impl Agent {
    pub(super) fn start(mut command: Command) -> std::io::Result<Agent> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (to, from) = child.stdin.take().zip(child.stdout.take()).expect("two pipes");
        let clock = clock_getcpuclockid(Pid::from_raw(child.id() as i32))?;
        let mut agent = Agent { child, to, from, clock, reply: vec![0; 1 << 16] };
        let creds = agent.receive()?;
        let header = Header::parse(creds).ok().flatten().expect("a PDU");
        assert_eq!(header.pdu, PduType::CREDS);
        agent.tell(&encode(|out| encode_creds(out, 0, Features::default())))?;
        Ok(agent)
    }

    /// Sends a PDU that has no answer.
    pub(super) fn tell(&mut self, pdu: &[u8]) -> std::io::Result<()> {
        self.to.write_all(pdu)
    }

    /// Sends a request and returns the reply.
    pub(super) fn ask(&mut self, request: &[u8]) -> &[u8] {
        self.tell(request).expect("an agent that reads");
        self.receive().expect("an agent that answers")
    }

    fn receive(&mut self) -> std::io::Result<&[u8]> {
        let (mut have, mut want) = (0, 12);
        while have < want {
            if self.reply.len() < want {
                self.reply.resize(want, 0);
            }
            match self.from.read(&mut self.reply[have..])? {
                0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                n => have += n,
            }
            if have >= 12 {
                if let Ok(Some(header)) = Header::parse(&self.reply) {
                    want = header.len as usize;
                }
            }
        }
        assert_eq!(have, want, "one reply to one request");
        Ok(&self.reply[..have])
    }

    /// Returns the CPU time of the process so far.
    pub(super) fn cpu(&self) -> Duration {
        clock_gettime(self.clock).expect("the clock of a live process").into()
    }

    /// Returns the bytes of memory that the process shares with no other.
    pub(super) fn private_memory(&self) -> u64 {
        let path = format!("/proc/{}/smaps_rollup", self.child.id());
        let text = std::fs::read_to_string(path).expect("the memory of a live process");
        let private = text.lines().filter(|line| line.starts_with("Private_"));
        private.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).sum::<u64>() * 1024
    }

    /// Closes the pipes, which ends the agent.
    pub(super) fn stop(mut self) {
        drop(self.to);
        drop(self.from);
        self.child.wait().expect("the end of the agent");
    }
}

/// Returns the number of values or instances in a reply. An invalid reply ends the bench.
pub(super) fn values(reply: &[u8]) -> usize {
    let header = Header::parse(reply).ok().flatten().expect("a PDU");
    match Pdu::decode(header, reply).expect("a good PDU") {
        Pdu::Result(result) => result
            .sets()
            .map(|set| {
                assert!(set.error.is_none(), "{:?}: {:?}", set.pmid, set.error);
                set.len()
            })
            .sum(),
        Pdu::Instance(instances) => instances.len(),
        Pdu::Desc(_) | Pdu::Text(_) => 1,
        other => panic!("{other:?} is no answer"),
    }
}
