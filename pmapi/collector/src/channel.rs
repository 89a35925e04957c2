use std::time::Duration;

use pcp_pdu::Header;

use crate::Result;

/// A connection to an agent that carries whole PDUs in both directions.
pub trait Channel {
    /// Sends bytes: a PDU, or any bytes in a test. With `None` it waits forever for an agent that does not read.
    ///
    /// # Errors
    /// [`Error::TimedOut`](crate::Error::TimedOut) when the agent does not read in time,
    /// [`Error::Closed`](crate::Error::Closed) when it has closed the connection, and errors of the transport.
    fn send(&mut self, bytes: &[u8], timeout: Option<Duration>) -> Result;

    /// Waits for the next PDU and stores it in `pdu`. `None` waits forever. A time of zero returns only a PDU that has
    /// already arrived.
    ///
    /// # Errors
    /// [`Error::TimedOut`](crate::Error::TimedOut) without a PDU in time, after which the channel still works.
    /// [`Error::Closed`](crate::Error::Closed) at the end of the stream, [`Error::Frame`](crate::Error::Frame) for
    /// bytes that are not a PDU, and errors of the transport.
    fn receive(&mut self, pdu: &mut Vec<u8>, timeout: Option<Duration>) -> Result<Header>;

    /// Closes the connection, so that the agent sees the end of its input. Further calls do nothing.
    fn close(&mut self);
}
