//! What the supervisor reads from pmcd. A pmcd that stops within a PDU must not stop the supervision of the agent.

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::os::fd::{AsFd, BorrowedFd};

use nix::poll::{PollFd, PollFlags};
use pcp_pdu::{HEADER, Header};
use pmda::SessionError;

use crate::wire::{STEP, header, wait};

/// What a read has brought.
#[derive(Debug)]
pub(crate) enum Arrived {
    /// A whole PDU.
    Pdu(Header, Vec<u8>),
    /// The first bytes of a PDU, or nothing.
    Part,
    /// The end of file.
    End,
}

/// The connection from pmcd, while the supervisor has it.
#[derive(Debug)]
pub(crate) struct Input {
    file: File,
    /// The first bytes of a PDU. No bytes are read beyond it: they are for the process that has the connection next.
    part: Vec<u8>,
}

impl Input {
    pub(crate) fn new(file: File) -> Input {
        Input { file, part: Vec::new() }
    }

    /// Returns whether pmcd has sent a part of a PDU. The connection then stays here until the rest has come.
    pub(crate) fn is_within_pdu(&self) -> bool {
        !self.part.is_empty()
    }

    /// Reads once, which does not wait if the connection is readable.
    pub(crate) fn read(&mut self) -> Result<Arrived, SessionError> {
        let len = header(&self.part)?.map_or(HEADER, |header| header.len as usize);
        let start = self.part.len();
        self.part.resize(len.min(start + STEP), 0);
        let done = self.file.read(self.part.get_mut(start..).unwrap_or_default());
        self.part.truncate(start + done.as_ref().map_or(0, |have| *have));
        match done {
            Ok(0) if start == 0 => return Ok(Arrived::End),
            Ok(0) => return Err(SessionError::Cut(start)),
            Ok(_) => {}
            Err(e) if matches!(e.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
            Err(e) => return Err(SessionError::Read(e)),
        }
        Ok(match header(&self.part)? {
            Some(header) if header.len as usize == self.part.len() => {
                Arrived::Pdu(header, std::mem::take(&mut self.part))
            }
            _ => Arrived::Part,
        })
    }

    /// Waits for a PDU; `None` at the end of file.
    pub(crate) fn next(&mut self) -> Result<Option<(Header, Vec<u8>)>, SessionError> {
        loop {
            wait(&mut [PollFd::new(self.file.as_fd(), PollFlags::POLLIN)], None).map_err(SessionError::Read)?;
            match self.read()? {
                Arrived::Pdu(header, pdu) => return Ok(Some((header, pdu))),
                Arrived::Part => {}
                Arrived::End => return Ok(None),
            }
        }
    }
}

impl AsFd for Input {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
