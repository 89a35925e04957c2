//! The conversation with pmcd over any reader and writer.

use std::io::{self, IoSlice, Read, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use pcp_pdu::handshake::{self, Features};
use pcp_pdu::{FrameError, Frames, Header, Pdu, PduType};
use thiserror::Error;
use tracing::{debug, error, warn};

use crate::agent::Agent;
use crate::engine::{Answer, Engine, Reply, Startup};
use crate::fixed_limit::FixedLimit;
use crate::log;
use crate::poll::{PollSet, Wake};

/// Longest PDU that is accepted from pmcd, in bytes. Clients may send pmcd 64 KiB, unless its option `-L` sets another
/// limit.
const LONGEST: u32 = 64 << 20;

/// A connection to pmcd over any reader and writer.
#[derive(Debug)]
pub struct Session<R, W> {
    input: R,
    output: W,
    frames: Frames,
    greeted: bool,
    /// An answer that has not been sent completely, and the number of its bytes that have been sent.
    unsent: Option<(Answer, usize)>,
}

/// The reason why a session ended before the end of file.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The input is not a stream of PDUs.
    #[error("IPC error: {0}")]
    Frame(#[from] FrameError),
    /// The first PDU of pmcd was not CREDS.
    #[error("version exchange failure, got {0} PDU expecting CREDS")]
    Greeting(PduType),
    /// pmcd has another PDU version.
    #[error("version exchange failure, pmcd has PDU version {0}")]
    Version(u8),
    /// The input ended within a PDU.
    #[error("end of file after {0} bytes of a PDU")]
    Cut(usize),
    /// Reading failed.
    #[error("reading from pmcd: {0}")]
    Read(#[source] io::Error),
    /// Writing failed.
    #[error("writing to pmcd: {0}")]
    Write(#[source] io::Error),
    /// pmcd has closed the connection instead of reading an answer.
    #[error(
        "pmcd has closed the connection before the answer to its request, as it does when an agent takes too long \
         (option -t of pmcd, 5 seconds by default)"
    )]
    Left,
}

impl<R: Read, W: Write> Session<R, W> {
    /// Sends the CREDS PDU of the agent, which begins the version exchange. pmcd waits three seconds for it.
    ///
    /// # Errors
    /// [`SessionError::Write`] when the PDU cannot be written.
    pub fn open(input: R, mut output: W, features: Features) -> Result<Self, SessionError> {
        let mut creds = Vec::new();
        let pid = std::process::id() as i32;
        handshake::encode_creds(&mut creds, pid, features).map_err(|e| SessionError::Write(io::Error::other(e)))?;
        output.write_all(&creds).and_then(|()| output.flush()).map_err(SessionError::Write)?;
        Ok(Session { input, output, frames: Frames::new(), greeted: false, unsent: None })
    }

    /// Answers PDUs until the end of file. The agent's [sources](Agent::sources) are not served.
    ///
    /// # Errors
    /// A [`SessionError`] when the connection fails. [`SessionError::Write`] with [`io::ErrorKind::WouldBlock`] when
    /// the output is non-blocking and full.
    pub fn run<A: Agent>(&mut self, engine: &mut Engine<A>) -> Result<(), SessionError> {
        while self.receive(engine)? {
            if self.unsent.is_some() {
                return Err(SessionError::Write(io::ErrorKind::WouldBlock.into()));
            }
        }
        Ok(())
    }

    /// Answers PDUs until the end of file, wakes the agent for its [sources](Agent::sources), and notifies pmcd when
    /// the agent becomes ready (pmdaMain(3)). `startup` corresponds to the agent's line in `pmcd.conf`.
    ///
    /// Sources are served even while pmcd does not read an answer. Its further requests wait.
    ///
    /// # Errors
    /// A [`SessionError`] when the connection fails.
    pub fn serve<A: Agent>(&mut self, engine: &mut Engine<A>, startup: Startup) -> Result<(), SessionError>
    where
        R: AsFd,
        W: AsFd,
    {
        engine.can_tell(startup);
        let mut waits = Waits::default();
        let mut blocks = true;
        loop {
            log::tick();
            if self.unsent.is_some() {
                let pmcd = Pmcd::<R, W>::Reads(&self.output);
                if waits.wait(&pmcd, engine).map_err(SessionError::Write)? {
                    self.send(engine)?;
                    while self.step(engine)? {}
                }
                continue;
            }
            if self.greeted && engine.becomes_ready() {
                self.tell_ready()?;
            }
            let pmcd = Pmcd::<R, W>::Sends(&self.input);
            let asked = waits.wait(&pmcd, engine).map_err(SessionError::Read)?;
            if blocks && waits.serves {
                set_nonblocking(&self.output).map_err(SessionError::Write)?;
                blocks = false;
            }
            if asked && !self.receive(engine)? {
                return Ok(());
            }
        }
    }

    fn tell_ready(&mut self) -> Result<(), SessionError>
    where
        W: AsFd,
    {
        let mut ready = Vec::new();
        handshake::encode_ready(&mut ready).map_err(|e| SessionError::Write(io::Error::other(e)))?;
        debug!(target: "pdu", "sending that the agent is ready");
        let mut written = 0;
        while !write(&mut self.output, &mut written, &ready, &[]).map_err(SessionError::Write)? {
            // The PDU has only a few bytes, for which there is room soon.
            let mut fds = [PollFd::new(self.output.as_fd(), PollFlags::POLLOUT)];
            match poll(&mut fds, PollTimeout::NONE) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(e) => return Err(SessionError::Write(e.into())),
            }
        }
        Ok(())
    }

    /// Reads once, and answers the complete PDUs. Returns false at the end of file.
    fn receive<A: Agent>(&mut self, engine: &mut Engine<A>) -> Result<bool, SessionError> {
        let n = match self.input.read(self.frames.space()) {
            Ok(0) if self.frames.pending() > 0 => return Err(SessionError::Cut(self.frames.pending())),
            Ok(0) => {
                if !self.greeted {
                    error!(critical = true, "version exchange failure, end of file expecting CREDS");
                }
                return Ok(false);
            }
            Ok(n) => n,
            Err(e) if matches!(e.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => return Ok(true),
            Err(e) => return Err(SessionError::Read(e)),
        };
        self.frames.filled(n);
        while self.step(engine)? {}
        match Header::parse(self.frames.unread())? {
            Some(header) if header.len > LONGEST => {
                FixedLimit::Pdus.count();
                Err(FrameError::TooLong(header.len as i32).into())
            }
            _ => Ok(true),
        }
    }

    /// Answers one PDU, if a complete one has arrived and the previous answer has been sent.
    fn step<A: Agent>(&mut self, engine: &mut Engine<A>) -> Result<bool, SessionError> {
        if self.unsent.is_some() {
            return Ok(false);
        }
        let Some((header, bytes)) = self.frames.next_pdu()? else { return Ok(false) };
        debug!(target: "pdu", "got {} PDU, {} bytes, from {}", header.pdu, header.len, header.from);
        if !self.greeted {
            self.greeted = true;
            return match Pdu::decode(header, bytes) {
                Ok(Pdu::Creds(creds)) => match creds.version() {
                    Some((handshake::VERSION, features)) => {
                        // Only dbpmda(1) lacks the flag. It has no clients.
                        if !features.contains(Features::AUTHORIZE) {
                            engine.trust_collector();
                        }
                        Ok(true)
                    }
                    Some((version, _)) => Err(SessionError::Version(version)),
                    None => {
                        warn!("CREDS PDU without a version");
                        Ok(true)
                    }
                },
                Err(e) => {
                    error!("{e}");
                    Err(SessionError::Greeting(header.pdu))
                }
                Ok(_) => Err(SessionError::Greeting(header.pdu)),
            };
        }
        let answer = engine.answer(header, bytes);
        if !answer.reply().is_empty() {
            debug!(target: "pdu", "sending {} bytes", answer.reply().len());
        }
        self.unsent = Some((answer, 0));
        self.send(engine)?;
        Ok(true)
    }

    /// Writes the rest of the answer, as far as pmcd reads it without delay.
    fn send<A: Agent>(&mut self, engine: &mut Engine<A>) -> Result<(), SessionError> {
        let Some((answer, mut written)) = self.unsent.take() else { return Ok(()) };
        if let Reply::Pdu(head, rest) = answer.reply() {
            if !write(&mut self.output, &mut written, head, rest).map_err(of_answer)? {
                self.unsent = Some((answer, written));
                return Ok(());
            }
        }
        engine.sent(answer);
        Ok(())
    }
}

/// Converts the error of writing an answer.
fn of_answer(e: io::Error) -> SessionError {
    match e.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => SessionError::Left,
        _ => SessionError::Write(e),
    }
}

fn set_nonblocking(fd: &impl AsFd) -> io::Result<()> {
    let flags = OFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GETFL)?);
    fcntl(fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    Ok(())
}

/// Writes two parts from byte `written` on, with one system call if the reader keeps up. Returns false when no more can
/// be written for now.
fn write(output: &mut impl Write, written: &mut usize, head: &[u8], rest: &[u8]) -> io::Result<bool> {
    while *written < head.len() + rest.len() {
        let of_head = (*written).min(head.len());
        let (head, rest) = (&head[of_head..], &rest[*written - of_head..]);
        let wrote = match (head.is_empty(), rest.is_empty()) {
            (false, false) => output.write_vectored(&[IoSlice::new(head), IoSlice::new(rest)]),
            (false, true) => output.write(head),
            (true, _) => output.write(rest),
        };
        match wrote {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => *written += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(e) => return Err(e),
        }
    }
    output.flush()?;
    Ok(true)
}

/// Longest time between two checks of an agent that is not ready.
const PATIENCE: Duration = Duration::from_secs(1);

/// Waits for pmcd and the sources of an agent. It reuses its memory.
#[derive(Debug, Default)]
struct Waits {
    fds: Vec<PollFd<'static>>,
    wakes: Vec<Option<Wake>>,
    due: Vec<Wake>,
    /// Whether the agent has ever had sources. It may have work to do while pmcd is idle.
    serves: bool,
}

/// The event of pmcd that is waited for.
#[derive(Debug)]
enum Pmcd<'a, R, W> {
    /// pmcd sends a request.
    Sends(&'a R),
    /// pmcd reads the rest of an answer.
    Reads(&'a W),
}

impl Waits {
    /// Waits for an event, and wakes the agent for its own sources. Returns whether pmcd's event has happened. For an
    /// agent that has never had sources this returns true at once, because reading then waits.
    fn wait<A: Agent>(&mut self, pmcd: &Pmcd<'_, impl AsFd, impl AsFd>, engine: &mut Engine<A>) -> io::Result<bool> {
        let mut set = PollSet { fds: recycle(std::mem::take(&mut self.fds)), ..PollSet::default() };
        set.wakes = std::mem::take(&mut self.wakes);
        set.wakes.clear();
        engine.agent().sources(&mut set);
        // pmcd sends nothing while the agent is not ready, so this is the only check.
        let look = engine.is_waited_for().then(|| Instant::now() + PATIENCE);
        let until = [set.until, look].into_iter().flatten().min();
        self.serves |= !set.fds.is_empty() || until.is_some();
        if !self.serves {
            return Ok(true);
        }
        match pmcd {
            Pmcd::Sends(input) => set.add(*input, PollFlags::POLLIN, None),
            Pmcd::Reads(output) => set.add(*output, PollFlags::POLLOUT, None),
        }
        let asked = wait(&mut set.fds, until)?;
        let ready = set.fds.iter().zip(&set.wakes).filter(|(fd, _)| fd.any().unwrap_or(true));
        self.due.extend(ready.filter_map(|(_, wake)| *wake));
        if set.until.is_some_and(|until| until <= Instant::now()) {
            self.due.push(Wake::Time);
        }
        self.wakes = set.wakes;
        self.fds = recycle(set.fds);
        self.due.drain(..).for_each(|wake| engine.wake(wake));
        Ok(asked)
    }
}

/// Polls, and returns whether the last descriptor is ready.
fn wait(fds: &mut [PollFd<'_>], until: Option<Instant>) -> io::Result<bool> {
    let left = until.map(|until| until.saturating_duration_since(Instant::now()));
    match poll(fds, left.map_or(PollTimeout::NONE, timeout)) {
        Ok(_) => Ok(fds.last().is_some_and(|fd| fd.any().unwrap_or(true))),
        Err(Errno::EINTR) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// Returns a time, rounded up to milliseconds: rounding down would poll without waiting at the end.
fn timeout(left: Duration) -> PollTimeout {
    let up = Duration::from_nanos(999_999);
    PollTimeout::try_from(left.saturating_add(up).as_millis()).unwrap_or(PollTimeout::MAX)
}

/// Returns an empty vector with the memory of another one.
fn recycle<'b>(mut fds: Vec<PollFd<'_>>) -> Vec<PollFd<'b>> {
    fds.clear();
    // A vector is collected in place when old and new elements have the same size. This one has no elements.
    fds.into_iter().map_while(|_| None).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::background::Background;
    use crate::error::BoxError;
    use crate::setup::Setup;
    use crate::values::Values;
    use pmapi::{Config, Domain, Item};

    /// A writer that accepts a few bytes at a time.
    struct Slow(Vec<u8>, usize);

    impl Write for Slow {
        fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
            let n = buf.len().min(self.1);
            self.0.extend_from_slice(&buf[..n]);
            Ok(n)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    struct None;

    impl Agent for None {
        const NAME: &'static str = "none";
        const DOMAIN: u16 = 400;
        fn new(_: &mut Setup) -> Result<Self, BoxError> {
            Ok(None)
        }
    }

    /// Returns the engine, and the CREDS PDU of pmcd.
    fn start() -> (Engine<None>, Vec<u8>) {
        let mut input = Vec::new();
        handshake::encode_creds(&mut input, 1, Features::default()).unwrap();
        let domain = Domain::new(400).unwrap();
        (Engine::<None>::builder().domain(domain).config(Config::new(b"", [])).build().unwrap(), input)
    }

    /// The writer accepts one PDU, and is closed then.
    #[test]
    fn a_pmcd_that_has_left_is_the_reason() {
        struct Closed(bool);
        impl Write for Closed {
            fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
                if std::mem::replace(&mut self.0, true) { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(buf.len()) }
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (mut engine, mut input) = start();
        pcp_pdu::metadata::encode_fetch(&mut input, 1, 0, [Option::None].into_iter()).unwrap();
        let mut session = Session::open(&input[..], Closed(false), Features::default()).unwrap();
        let ended = session.run(&mut engine);
        assert!(matches!(ended, Err(SessionError::Left)), "{ended:?}");
    }

    #[test]
    fn a_pdu_that_no_pmcd_sends_is_not_waited_for() {
        let (mut engine, mut input) = start();
        input.extend(Header { len: LONGEST + 4, pdu: PduType::FETCH, from: 1 }.to_bytes());
        let mut session = Session::open(&input[..], Vec::new(), Features::default()).unwrap();
        let before = FixedLimit::Pdus.exceeded();
        let ended = session.run(&mut engine);
        assert!(FixedLimit::Pdus.exceeded() > before);
        assert!(matches!(ended, Err(SessionError::Frame(FrameError::TooLong(_)))), "{ended:?}");
    }

    #[test]
    fn parts_arrive_whole_however_few_bytes_are_taken() {
        for chunk in 1..12 {
            let mut out = Slow(Vec::new(), chunk);
            assert!(write(&mut out, &mut 0, b"0123456", b"789abcde").unwrap());
            assert_eq!(out.0, b"0123456789abcde");
        }
    }

    /// An agent that waits for the other end of a socket, if it has one, and for times.
    #[derive(Default)]
    struct Listening {
        socket: Option<UnixStream>,
        times: Vec<Instant>,
        source: Option<Background<()>>,
        woken: Vec<Wake>,
    }

    impl Agent for Listening {
        const NAME: &'static str = "listening";
        const DOMAIN: u16 = 400;

        fn new(_: &mut Setup) -> Result<Self, BoxError> {
            Ok(Listening::default())
        }

        fn fetch(&mut self, _: Item, _: &mut Values<'_>) -> pmapi::Result {
            Ok(())
        }

        fn sources<'a>(&'a self, set: &mut PollSet<'a>) {
            if let Some(socket) = &self.socket {
                set.readable(7, socket);
                set.writable(8, socket);
            }
            for time in &self.times {
                set.at(*time);
            }
            if let Some(source) = &self.source {
                set.first_snapshot(source);
            }
        }

        fn wake(&mut self, wake: Wake) {
            self.woken.push(wake);
        }
    }

    fn sends(pmcd: &UnixStream) -> Pmcd<'_, UnixStream, UnixStream> {
        Pmcd::Sends(pmcd)
    }

    fn engine() -> Engine<Listening> {
        Engine::builder().domain(Domain::new(400).unwrap()).config(Config::new(b"", [])).build().unwrap()
    }

    #[test]
    fn an_agent_without_sources_waits_by_reading_alone() {
        let (pmcd, _silent) = UnixStream::pair().unwrap();
        let mut engine = engine();
        // pmcd has sent nothing, so a poll would never return.
        assert!(Waits::default().wait(&sends(&pmcd), &mut engine).unwrap());
        // After the first snapshot there is nothing to wait for either.
        let source = Background::spawn(Duration::from_secs(3600), || Ok(())).unwrap();
        let first = engine.agent_mut().source.insert(source);
        while !first.is_ready() {
            std::thread::yield_now();
        }
        assert!(Waits::default().wait(&sends(&pmcd), &mut engine).unwrap());
    }

    #[test]
    fn an_agent_is_woken_for_what_is_ready() {
        let (pmcd, silent) = UnixStream::pair().unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (mut waits, mut engine) = (Waits::default(), engine());
        engine.agent_mut().socket = Some(ours);
        engine.agent_mut().times = vec![Instant::now() + Duration::from_secs(3600)];
        let mut wait = |engine: &mut Engine<Listening>| {
            let asked = waits.wait(&sends(&pmcd), engine).unwrap();
            (asked, std::mem::take(&mut engine.agent_mut().woken))
        };
        assert_eq!(wait(&mut engine), (false, vec![Wake::Writable(8)]));
        // A closed peer is an event as well.
        drop((silent, theirs));
        assert_eq!(wait(&mut engine), (true, vec![Wake::Readable(7), Wake::Writable(8)]));
    }

    #[test]
    fn the_first_of_several_times_counts() {
        let (pmcd, _silent) = UnixStream::pair().unwrap();
        let (mut waits, mut engine) = (Waits::default(), engine());
        let later = Duration::from_secs(3600);
        for times in [[Duration::ZERO, later], [later, Duration::ZERO]] {
            engine.agent_mut().times = times.map(|time| Instant::now() + time).into();
            assert!(!waits.wait(&sends(&pmcd), &mut engine).unwrap());
            assert_eq!(std::mem::take(&mut engine.agent_mut().woken), [Wake::Time]);
        }
    }

    #[test]
    fn an_agent_that_is_not_ready_is_looked_at_now_and_then() {
        let mut engine = engine();
        engine.can_tell(Startup::NotReady);
        let (pmcd, _silent) = UnixStream::pair().unwrap();
        // This returns although pmcd sends nothing.
        assert!(!Waits::default().wait(&sends(&pmcd), &mut engine).unwrap());
        assert!(engine.becomes_ready() && !engine.is_waited_for());
    }

    #[test]
    fn a_time_is_rounded_up_to_milliseconds() {
        for (nanoseconds, milliseconds) in [(0, 0u8), (1, 1), (999_999, 1), (1_000_000, 1), (1_000_001, 2)] {
            assert_eq!(timeout(Duration::from_nanos(nanoseconds)), milliseconds.into(), "{nanoseconds} ns");
        }
        assert_eq!(timeout(Duration::MAX), PollTimeout::MAX);
    }

    #[test]
    fn descriptors_keep_their_memory() {
        let fd = UnixStream::pair().unwrap().0;
        let mut fds = Vec::with_capacity(17);
        fds.push(PollFd::new(fd.as_fd(), PollFlags::POLLIN));
        let before = (fds.as_ptr().addr(), fds.capacity());
        let after: Vec<PollFd<'static>> = recycle(fds);
        assert_eq!((after.as_ptr().addr(), after.capacity(), after.len()), (before.0, before.1, 0));
    }
}
