//! What the supervisor reads from pmcd. A pmcd that stops within a PDU must not stop the supervision of the agent.

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::os::fd::{AsFd, BorrowedFd};

use nix::poll::{PollFd, PollFlags};
use pcp_pdu::{HEADER, Header};
use pmda::host::SessionError;

use crate::memory::UNREAD;
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

    /// Continues with a PDU whose header the agent's process has read.
    ///
    /// # Errors
    /// The reason why the header is not complete, or not one that a body follows.
    pub(crate) fn resume(&mut self, read: [u8; HEADER]) -> Result<(), SessionError> {
        let have = read.iter().take_while(|byte| **byte != UNREAD).count();
        match header(read.get(..have).unwrap_or_default())? {
            Some(header) if header.len as usize > HEADER => self.part = read.to_vec(),
            _ => return Err(SessionError::Cut(have)),
        }
        Ok(())
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// The process with the agent has ended after it has read the header. The body is still in the pipe.
    #[test]
    fn a_pdu_whose_header_another_process_has_read() {
        let (from, to) = nix::unistd::pipe().unwrap();
        let mut input = Input::new(from.into());
        let head = [0, 0, 0, 16, 0, 0, 0x70, 3, 0, 0, 0, 9];
        input.resume(head).unwrap();
        assert!(input.is_within_pdu());
        nix::unistd::write(&to, &[1, 2, 3, 4, 5]).unwrap();
        let Arrived::Pdu(header, pdu) = input.read().unwrap() else { panic!("no PDU") };
        assert_eq!((header.len, &pdu[..HEADER], &pdu[HEADER..]), (16, &head[..], &[1, 2, 3, 4][..]));
        assert!(!input.is_within_pdu());
        for have in 0..HEADER {
            let mut part = head;
            part[have..].fill(UNREAD);
            let error = input.resume(part).unwrap_err();
            assert!(matches!(error, SessionError::Cut(n) if n == have), "{error}");
        }
    }
}
