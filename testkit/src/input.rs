//! Inputs of agents that tests start without pmcd.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;

/// Returns an input that has ended, as an agent finds it when pmcd has ended after its start. With `/dev/null`, an agent
/// of this project prints what it is and does not start.
///
/// # Panics
/// If there are no sockets.
pub fn ended_input() -> Stdio {
    let (input, _) = UnixStream::pair().unwrap();
    OwnedFd::from(input).into()
}
