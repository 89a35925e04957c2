//! Agents as separate processes, behind pipes or a socket.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use pcp_pdu::handshake::{Features, encode_creds};
use pcp_pdu::{Frames, Pdu};
use pmda::host::Address;

use super::{Each, Host, Kind, PATIENCE, Scene};
use crate::Outcome;
use crate::job::Job;
use crate::patience::scaled;
use crate::procs::{Guarded, tail};
use crate::spec::Spec;

/// An agent's process, and the two directions of its connection.
#[derive(Debug)]
pub(crate) struct Streams {
    child: Guarded,
    input: File,
    output: File,
    frames: Frames,
    log: std::path::PathBuf,
}

/// Returns an agent's command line, without the options of the transport.
pub(crate) fn command(spec: &Spec, bin: &Path, scene: &Scene) -> Command {
    let mut command = Command::new(bin.join(format!("pmda{}", spec.name)));
    command.args(["-d", &spec.domain.to_string(), "-l"]).arg(scene.log(spec.name));
    match spec.name {
        "trace" => _ = command.args(["-I", &scene.trace_port.to_string()]),
        "replay" => _ = command.args(["--loop", "--speed", "60", "-a"]).arg(scene.recording()),
        "derived" => _ = command.arg("-c").arg(scene.derived()),
        _ => {}
    }
    command.current_dir(scene.logs());
    command.stderr(Stdio::null());
    command
}

impl Streams {
    pub(crate) fn start(spec: &Spec, kind: Kind, job: &Job, scene: &Scene) -> Outcome<Streams> {
        let mut command = command(spec, &job.order.bin, scene);
        let port = scene.trace_port + 1;
        let address = match kind {
            Kind::Inet => Address::Inet(port),
            Kind::Ipv6 => Address::Ipv6(port),
            Kind::Unix => Address::Unix(scene.dir().join("agent.socket")),
            _ => return Self::over_pipes(spec, command, scene),
        };
        command.args(address.option());
        let child = Guarded::spawn(command.stdin(Stdio::null()).stdout(Stdio::null()))?;
        let begin = Instant::now();
        let fd = loop {
            match address.connect() {
                Ok(fd) => break fd,
                Err(e) if begin.elapsed() > scaled(PATIENCE) => {
                    return Err(format!("connecting to {}: {e}", spec.name).into());
                }
                Err(_) => sleep(Duration::from_millis(1)),
            }
        };
        Self::greet(child, fd.try_clone()?.into(), fd.into(), scene.log(spec.name))
    }

    /// Starts an agent over pipes.
    pub(crate) fn over_pipes(spec: &Spec, mut command: Command, scene: &Scene) -> Outcome<Streams> {
        let mut child = Guarded::spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()))?;
        let (Some(to), Some(from)) = (child.0.stdin.take(), child.0.stdout.take()) else {
            return Err("a child without pipes".into());
        };
        Self::greet(child, OwnedFd::from(from).into(), OwnedFd::from(to).into(), scene.log(spec.name))
    }

    /// Exchanges the CREDS PDUs with which a connection begins.
    fn greet(child: Guarded, input: File, output: File, log: std::path::PathBuf) -> Outcome<Streams> {
        for file in [&input, &output] {
            let flags = OFlag::from_bits_retain(fcntl(file, FcntlArg::F_GETFL)?);
            fcntl(file, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
        }
        let mut streams = Streams { child, input, output, frames: Frames::new(), log };
        let mut greeting = Vec::new();
        encode_creds(&mut greeting, 1, Features::default())?;
        streams.exchange(&[], 1, &mut |header, bytes| match Pdu::decode(header, bytes)? {
            Pdu::Creds(creds) if creds.version().is_some() => Ok(()),
            _ => Err(format!("{} PDU in place of CREDS", header.pdu).into()),
        })?;
        streams.exchange(&greeting, 0, &mut |_, _| Ok(()))?;
        Ok(streams)
    }

    /// Describes the end of a process that has closed its connection, with the last lines of its log.
    fn ended(&mut self) -> String {
        let status = self.child.ends_within(Duration::from_secs(1));
        let status = status.map_or_else(|| "the agent has closed the connection".to_owned(), |s| format!("ended: {s}"));
        format!("{status}; its log ends: {}", tail(&self.log, 4))
    }
}

impl Host for Streams {
    fn exchange(&mut self, mut pdus: &[u8], mut answers: usize, each: Each<'_>) -> Outcome {
        let mut end = Instant::now() + scaled(PATIENCE);
        loop {
            while let Some((header, bytes)) = self.frames.next_pdu()? {
                if answers == 0 {
                    return Err(format!("{} PDU without a request", header.pdu).into());
                }
                answers -= 1;
                each(header, bytes)?;
                end = Instant::now() + scaled(PATIENCE);
            }
            if answers == 0 && pdus.is_empty() {
                return Ok(());
            }
            let mut fds = [
                PollFd::new(self.input.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.output.as_fd(), PollFlags::POLLOUT),
            ];
            let fds = if pdus.is_empty() { &mut fds[..1] } else { &mut fds[..] };
            let left = end.saturating_duration_since(Instant::now());
            let timeout = PollTimeout::try_from(left.as_millis() + 1).unwrap_or(PollTimeout::MAX);
            if poll(fds, timeout)? == 0 {
                let limit = scaled(PATIENCE);
                return Err(format!("no answer within {limit:?}, {answers} are missing").into());
            }
            match self.output.write(pdus) {
                Ok(n) => pdus = pdus.get(n..).unwrap_or_default(),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(e) if e.kind() == ErrorKind::BrokenPipe => return Err(self.ended().into()),
                Err(e) => return Err(e.into()),
            }
            match self.input.read(self.frames.space()) {
                Ok(0) => return Err(self.ended().into()),
                Ok(n) => self.frames.filled(n),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(e) if e.kind() == ErrorKind::ConnectionReset => return Err(self.ended().into()),
                Err(e) => return Err(e.into()),
            }
        }
    }

    fn pid(&self) -> u32 {
        self.child.pid()
    }

    fn break_off(&mut self, bytes: &[u8]) -> Outcome {
        // The agent may exit before it has read all bytes.
        let _ = self.output.write_all(bytes);
        self.output = File::options().write(true).open("/dev/null")?;
        match self.child.ends_within(scaled(PATIENCE)) {
            Some(status) if status.code().is_some_and(|code| code < 100) => Ok(()),
            Some(status) => Err(format!("a broken stream ended it: {status}; {}", tail(&self.log, 4)).into()),
            None => Err("a broken stream does not end the agent".into()),
        }
    }
}
