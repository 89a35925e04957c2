//! Why trace events did not reach the agent.

use std::io;
use std::sync::Arc;

use nix::errno::Errno;
use thiserror::Error;

/// Why trace events did not reach the agent.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum Failure {
    /// Connecting failed, the connection broke, or a mapped file could not be made.
    #[error("{0}")]
    Io(Arc<io::Error>),
    /// The agent's access list disallows this host (`PMTRACE_ERR_PERMISSION`).
    #[error("the agent does not allow this host")]
    Permission,
    /// This host, or this user, has as many connections as the agent allows (`PMTRACE_ERR_CONNLIMIT`).
    #[error("the agent allows no more connections from this host")]
    ConnLimit,
    /// The agent's answer violates the protocol (`PMTRACE_ERR_IPC`).
    #[error("the agent's answer violates the protocol")]
    Protocol,
}

impl Failure {
    /// Converts the error code of an acknowledgement.
    pub(crate) fn from_code(code: i32) -> Failure {
        match code {
            -12010 => Failure::Permission,
            -12011 => Failure::ConnLimit,
            _ => Failure::Protocol,
        }
    }

    /// Returns whether the other side has closed the connection, as an agent does when it exits, or this program has closed
    /// the socket.
    pub(crate) fn is_end(&self) -> bool {
        use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
        matches!(self, Failure::Io(e) if matches!(e.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
            || e.raw_os_error() == Some(Errno::EBADF as i32))
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Io(Arc::new(error))
    }
}
