//! PDUs over file descriptors, with time-outs.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use pcp_pdu::{FrameError, Frames, Header};

use crate::{Channel, Error, Result};

/// A channel over a pair of file descriptors: one that the agent writes, and one that it reads.
#[derive(Debug)]
pub struct Stream {
    ends: Option<Ends>,
    frames: Frames,
    /// Longest PDU that is accepted, in bytes.
    limit: u32,
}

/// Largest number of bytes read after the time is over, because they may have arrived before.
const ARREARS: usize = 64 << 10;

/// Largest number of bytes of an incomplete PDU that are kept, whatever the limit. The longest answer of an agent of
/// this framework has a quarter of it.
const MOST: usize = 256 << 20;

#[derive(Debug)]
struct Ends {
    from_agent: File,
    to_agent: File,
}

impl Stream {
    /// Creates a channel over two descriptors, which become non-blocking.
    ///
    /// # Errors
    /// The error of fcntl(2).
    pub fn new(from_agent: OwnedFd, to_agent: OwnedFd) -> io::Result<Stream> {
        for fd in [&from_agent, &to_agent] {
            let flags = OFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GETFL)?);
            fcntl(fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
        }
        let ends = Ends { from_agent: from_agent.into(), to_agent: to_agent.into() };
        Ok(Stream { ends: Some(ends), frames: Frames::new(), limit: u32::MAX })
    }

    /// Creates a channel over a connected socket, as [`Address::connect`](pmda::host::Address::connect) returns it.
    ///
    /// # Errors
    /// The errors of dup(2) and fcntl(2).
    pub fn socket(socket: impl Into<OwnedFd>) -> io::Result<Stream> {
        let socket = socket.into();
        Stream::new(socket.try_clone()?, socket)
    }

    /// Returns the descriptor that the agent writes to, or `None` after the connection was closed.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.ends.as_ref()?.from_agent.as_fd())
    }

    /// Sets the longest PDU that is accepted, in bytes. It may have 256 MiB by default, and at most.
    pub fn set_limit(&mut self, bytes: u32) {
        self.limit = bytes;
    }

    /// Returns the bytes of an incomplete PDU that have arrived.
    pub fn unread(&self) -> &[u8] {
        self.frames.unread()
    }

    /// Drops this many bytes that have arrived, to continue after bytes that are not a PDU.
    pub fn discard(&mut self, bytes: usize) {
        self.frames.discard(bytes);
    }
}

impl Channel for Stream {
    fn send(&mut self, bytes: &[u8], timeout: Option<Duration>) -> Result {
        let ends = self.ends.as_mut().ok_or(Error::Closed)?;
        let deadline = Deadline::after(timeout);
        let mut rest = bytes;
        while !rest.is_empty() {
            match ends.to_agent.write(rest) {
                Ok(n) => rest = rest.get(n..).unwrap_or_default(),
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    deadline.wait(ends.to_agent.as_fd(), PollFlags::POLLOUT)?;
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if is_closed(&e) => return Err(Error::Closed),
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    fn receive(&mut self, pdu: &mut Vec<u8>, timeout: Option<Duration>) -> Result<Header> {
        let ends = self.ends.as_mut().ok_or(Error::Closed)?;
        let deadline = Deadline::after(timeout);
        let mut late = 0;
        loop {
            if let Some((header, bytes)) = self.frames.next_pdu()? {
                pdu.clear();
                pdu.extend_from_slice(bytes);
                return Ok(header);
            }
            let is_too_long = |header: &Header| header.len > self.limit || self.frames.pending() > MOST;
            if let Some(header) = Header::parse(self.frames.unread())?.filter(is_too_long) {
                return Err(FrameError::TooLong(header.len as i32).into());
            }
            // Otherwise an agent that never stops sending would be read forever.
            if late >= ARREARS {
                return Err(Error::TimedOut(deadline.timeout));
            }
            deadline.wait(ends.from_agent.as_fd(), PollFlags::POLLIN)?;
            match ends.from_agent.read(self.frames.space()) {
                Ok(0) => return Err(self.end()),
                Ok(n) => {
                    self.frames.filled(n);
                    late += if deadline.is_over() { n } else { 0 };
                }
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(e) if is_closed(&e) => return Err(self.end()),
                Err(e) => return Err(e.into()),
            }
        }
    }

    fn close(&mut self) {
        self.ends = None;
    }
}

impl Stream {
    fn end(&self) -> Error {
        match self.frames.pending() {
            0 => Error::Closed,
            bytes => Error::CutShort(bytes),
        }
    }
}

fn is_closed(e: &io::Error) -> bool {
    matches!(e.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
}

/// The end of a whole exchange, which may need several reads.
struct Deadline {
    end: Option<Instant>,
    timeout: Duration,
}

impl Deadline {
    fn after(timeout: Option<Duration>) -> Deadline {
        // A time beyond the range of the clock is forever.
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        Deadline { end, timeout: timeout.unwrap_or(Duration::MAX) }
    }

    /// Waits until the descriptor is ready or its peer has closed it.
    fn wait(&self, fd: BorrowedFd<'_>, events: PollFlags) -> Result {
        loop {
            match poll(&mut [PollFd::new(fd, events)], self.left()) {
                Ok(0) if self.is_over() => return Err(Error::TimedOut(self.timeout)),
                Ok(0) | Err(Errno::EINTR) => {}
                Ok(_) => return Ok(()),
                Err(e) => return Err(io::Error::from(e).into()),
            }
        }
    }

    fn is_over(&self) -> bool {
        self.end.is_some_and(|end| Instant::now() >= end)
    }

    /// Returns the time left, rounded up to milliseconds: rounding down would poll without waiting at the end.
    fn left(&self) -> PollTimeout {
        let Some(end) = self.end else { return PollTimeout::NONE };
        let left = end.saturating_duration_since(Instant::now()).as_micros().div_ceil(1000);
        PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
    }
}
