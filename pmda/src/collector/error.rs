use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use pcp_pdu::{DecodeError, FrameError, PduType};

use super::Address;

/// The result of talking to an agent.
pub type Result<T = (), E = Error> = std::result::Result<T, E>;

/// Why an agent gave no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The agent answered with an ERROR PDU.
    #[error("the agent answered: {0}")]
    Agent(pmapi::Error),
    /// The agent is not ready, and nothing was asked.
    #[error("the agent is not ready")]
    NotReady,
    /// The answer is a PDU of another type.
    #[error("{got} PDU in answer to {request}")]
    Unexpected {
        /// What was asked.
        request: PduType,
        /// What came.
        got: PduType,
    },
    /// The answer holds more or less than what was asked for.
    #[error("{got} {what} in answer to {request}, {wanted} wanted")]
    Count {
        /// What was asked.
        request: PduType,
        /// Of what there is another number.
        what: &'static str,
        /// How many came.
        got: usize,
        /// How many should have come.
        wanted: usize,
    },
    /// The agent sent a PDU that nobody had asked for.
    #[error("{0} PDU without a request")]
    Unsolicited(PduType),
    /// The agent's CREDS PDU has no version.
    #[error("no version in the agent's CREDS PDU")]
    NoVersion,
    /// The agent's bytes are not the PDU that they say they are.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The agent's bytes are no PDUs.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The agent did not answer, or did not read, within this time.
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    /// The agent has closed the connection, or has ended.
    #[error("the agent has closed the connection")]
    Closed,
    /// The agent has closed the connection in the middle of a PDU.
    #[error("the agent has closed the connection {0} bytes into a PDU")]
    CutShort(usize),
    /// An earlier failure has ended the connection.
    #[error("the agent was dropped after an earlier failure")]
    Dropped,
    /// The request does not fit into a PDU, or is none.
    #[error("request: {0}")]
    Request(pmapi::Error),
    /// The program cannot be started.
    #[error("{program:?}: {source}")]
    Spawn {
        /// The program.
        program: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The program has ended before it was connected.
    #[error("the agent has ended at once: {0}")]
    Exited(ExitStatus),
    /// Nobody listens at the address.
    #[error("{address}: {source}")]
    Connect {
        /// The address.
        address: Address,
        /// Why not.
        source: io::Error,
    },
    /// Reading or writing failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Error {
    /// What pmcd would tell its client.
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

    /// Whether pmcd drops an agent after it, when it came in answer to `request`.
    ///
    /// An agent that answers with the code of a failure of the connection itself is dropped too: pmcd
    /// cannot tell it from a failure that it has seen itself.
    pub(super) fn is_fatal(&self, request: PduType) -> bool {
        match self {
            Error::Agent(code) => match request {
                PduType::FETCH | PduType::RESULT => [pmapi::Error::IPC, pmapi::Error::TIMEOUT].contains(code),
                PduType::TEXT_REQ => {
                    const EPIPE: i32 = nix::errno::Errno::EPIPE as i32;
                    [pmapi::Error::IPC, pmapi::Error::TIMEOUT, pmapi::Error::from_errno(EPIPE)].contains(code)
                }
                _ => false,
            },
            // The stream goes on after it with the next PDU; the other requests are strict all the same.
            Error::Decode(_) => matches!(request, PduType::FETCH | PduType::RESULT | PduType::TEXT_REQ),
            Error::NotReady | Error::Dropped | Error::Request(_) => false,
            _ => true,
        }
    }
}
