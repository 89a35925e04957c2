//! The time until the supervisor serves pmcd: the first process with the agent, and pmcd's greeting.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, fcntl};
use nix::poll::{PollFd, PollFlags};
use pcp_base::backoff::Backoff;
use pcp_pdu::Pdu;
use pcp_pdu::handshake::{Features, VERSION};
use pmda::Failure;
use pmda::host::{Program, SessionError};
use signal_hook::consts::SIGCHLD;
use tracing::warn;

use super::{Stage, Supervisor};
use crate::child::{AgentProcess, Ending, adopt_orphans, inherited};
use crate::clients::Clients;
use crate::control::Message;
use crate::input::Input;
use crate::memory::Shared;
use crate::options::Options;
use crate::output::Output;
use crate::wire::wait;

/// Time for loading the agent before pmcd gets the version, for which it waits three seconds.
const PROMPT: Duration = Duration::from_secs(2);

/// Size of the pipe to pmcd, in bytes: the largest that users may set by default.
const PIPE: i32 = 1 << 20;

impl<'a> Supervisor<'a> {
    /// Creates a supervisor for the agent that the options name.
    ///
    /// # Errors
    /// The errors of the system for a signal handler, a socket, or the shared memory.
    pub(crate) fn new(options: &Options, program: &'a Program, input: File, output: File) -> io::Result<Self> {
        let shared = Shared::create()?;
        let inherited = [inherited(&input)?, inherited(&output)?, inherited(shared.file())?];
        let (ended, signalled) = UnixStream::pair()?;
        ended.set_nonblocking(true)?;
        // A large answer then goes to pmcd at once, instead of in parts that each need a change of process. Sockets
        // refuse this. A pipe keeps its size if the user's pipes already take too much memory.
        let _ = fcntl(&output, FcntlArg::F_SETPIPE_SZ(PIPE));
        adopt_orphans()?;
        signal_hook::low_level::pipe::register(SIGCHLD, signalled.try_clone()?)?;
        Ok(Supervisor {
            name: options.name(),
            entry: options.entry(),
            patience: options.patience,
            program,
            input: Input::new(input),
            output: Output::new(output),
            shared,
            inherited,
            ended,
            signalled,
            terminated: Arc::default(),
            process: None,
            stage: Stage::Gone(Instant::now()),
            since: Instant::now(),
            look: None,
            closed: None,
            refused: false,
            features: Features::default(),
            clients: Clients::default(),
            backoff: Backoff::default(),
        })
    }

    /// Starts the first process, and returns the features of its agent. pmcd does not wait for an agent that takes long to
    /// load: the returned features then ask for all attributes of clients.
    pub(super) fn load(&mut self) -> Result<Features, Failure> {
        self.start()?;
        let until = Instant::now() + PROMPT;
        loop {
            if let Some(process) = &mut self.process {
                match process.control.poll() {
                    Ok(Some(Message::Loaded(features))) => {
                        self.stage = Stage::Loaded;
                        return Ok(features & (Features::AUTHORIZE | Features::CONTAINER));
                    }
                    Ok(Some(Message::Failed(reason))) => return Err(reason.into()),
                    Ok(Some(_)) => {}
                    Err(e) if e.kind() == ErrorKind::WouldBlock && Instant::now() < until => {
                        wait(&mut [PollFd::new(process.control.as_fd(), PollFlags::POLLIN)], Some(until))?;
                    }
                    Err(e) if e.kind() == ErrorKind::WouldBlock => {
                        warn!("{}: {} has not returned for {PROMPT:?}", self.name, self.entry);
                        return Ok(Features::AUTHORIZE | Features::CONTAINER);
                    }
                    Ok(None) | Err(_) => {
                        let status = self.process.take().and_then(AgentProcess::end);
                        return Err(format!("{} has ended the process: {}", self.entry, Ending(status)).into());
                    }
                }
            }
        }
    }

    /// Reads the CREDS PDU of pmcd; false at the end of file.
    pub(super) fn greet(&mut self) -> Result<bool, Failure> {
        let Some((header, pdu)) = self.input.next()? else { return Ok(false) };
        match Pdu::decode(header, &pdu) {
            Ok(Pdu::Creds(creds)) => match creds.version() {
                Some((VERSION, _)) | None => Ok(true),
                Some((version, _)) => Err(SessionError::Version(version).into()),
            },
            _ => Err(SessionError::Greeting(header.pdu).into()),
        }
    }
}
