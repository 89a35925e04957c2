use std::time::Duration;

use pcp_pdu::Header;

use super::Result;

/// A way to an agent: whole PDUs there, whole PDUs back.
pub trait Channel {
    /// Sends bytes: a PDU, or what a test wants the agent to get. `None` waits for ever for an agent
    /// that does not read.
    fn send(&mut self, bytes: &[u8], timeout: Option<Duration>) -> Result;

    /// Waits for the next PDU and replaces the content of `pdu` by it. `None` waits for ever; with a
    /// time of zero only what has arrived counts. [`Error::TimedOut`](super::Error::TimedOut) when none
    /// has come: that is no failure of the channel.
    fn receive(&mut self, pdu: &mut Vec<u8>, timeout: Option<Duration>) -> Result<Header>;

    /// Ends the connection: the agent sees the end of its input. May be called again.
    fn close(&mut self);
}
