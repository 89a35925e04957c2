use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use pcp_pdu::codec::DecodeError;
use pcp_pdu::{FrameError, PduType};

use crate::Address;

/// The result of a request to an agent.
pub type Result<T = (), E = Error> = std::result::Result<T, E>;

/// The reason why a request to an agent failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The agent answered with an ERROR PDU.
    #[error("the agent answered: {0}")]
    Agent(pmapi::Error),
    /// The agent is not ready, and the request was not sent or was refused.
    #[error("the agent is not ready")]
    NotReady,
    /// The answer is a PDU of another type.
    #[error("the answer to {request} is a {got} PDU")]
    Unexpected {
        /// Type of the request.
        request: PduType,
        /// The type of the answer.
        got: PduType,
    },
    /// The answer has more or fewer items than requested.
    #[error("the answer to {request} has {got} {what}, not {wanted}")]
    Count {
        /// Type of the request.
        request: PduType,
        /// The kind of items.
        what: &'static str,
        /// The number of items received.
        got: usize,
        /// The number of items requested.
        wanted: usize,
    },
    /// The agent sent a PDU without a request.
    #[error("the agent sent a {0} PDU without a request")]
    Unsolicited(PduType),
    /// The agent's CREDS PDU has no version.
    #[error("the agent's CREDS PDU has no version")]
    NoVersion,
    /// The content of the agent's PDU is invalid.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The agent's output is not a stream of PDUs.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The agent did not answer, or did not read, within this time.
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    /// The agent has closed the connection, or has ended. The status of a process that the collector has started is
    /// [`Error::Ended`].
    #[error("the agent has closed the connection")]
    Closed,
    /// The agent's process has ended after the version exchange, with this exit status or signal.
    #[error("the agent has closed the connection ({0})")]
    Ended(ExitStatus),
    /// The agent has closed the connection within a PDU, after this many bytes.
    #[error("the agent has closed the connection {0} bytes into a PDU")]
    CutShort(usize),
    /// An earlier failure has ended the connection.
    #[error("the agent was dropped after an earlier failure")]
    Dropped,
    /// The request is invalid, or does not fit into a PDU.
    #[error("request: {0}")]
    Request(pmapi::Error),
    /// The program cannot be started.
    #[error("{program:?}: {source}")]
    Spawn {
        /// Path of the program.
        program: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The program ended before the version exchange.
    #[error("the agent has ended at once: {0}")]
    Exited(ExitStatus),
    /// The connection to the address failed.
    #[error("{address}: {source}")]
    Connect {
        /// Address of the agent's socket.
        address: Address,
        /// The error of the system.
        source: io::Error,
    },
    /// Reading or writing failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Error {
    /// Returns the error that pmcd would send to its client.
    pub fn code(&self) -> pmapi::Error {
        match self {
            Error::Agent(code) | Error::Request(code) => *code,
            Error::NotReady => pmapi::Error::AGAIN,
            Error::TimedOut(_) => pmapi::Error::TIMEOUT,
            Error::Dropped | Error::Exited(_) | Error::Spawn { .. } | Error::Connect { .. } => pmapi::Error::NOAGENT,
            Error::Frame(e) => (*e).into(),
            _ => pmapi::Error::IPC,
        }
    }

    /// Returns whether pmcd drops an agent after this error in answer to `request`.
    ///
    /// It also drops an agent that answers with the code of a failure of the connection, because it cannot tell the two
    /// apart.
    pub(crate) fn is_fatal(&self, request: PduType) -> bool {
        match self {
            Error::Agent(code) => match request {
                PduType::FETCH | PduType::RESULT => [pmapi::Error::IPC, pmapi::Error::TIMEOUT].contains(code),
                PduType::TEXT_REQ => {
                    const EPIPE: i32 = nix::errno::Errno::EPIPE as i32;
                    [pmapi::Error::IPC, pmapi::Error::TIMEOUT, pmapi::Error::from_errno(EPIPE)].contains(code)
                }
                _ => false,
            },
            // The stream continues with the next PDU. pmcd drops the agent after the other requests all the same.
            Error::Decode(_) => matches!(request, PduType::FETCH | PduType::RESULT | PduType::TEXT_REQ),
            Error::NotReady | Error::Dropped | Error::Request(_) => false,
            _ => true,
        }
    }
}
