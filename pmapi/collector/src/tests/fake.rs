//! A scripted agent on the other end of a socket pair.

use std::os::unix::net::UnixStream;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use pcp_pdu::handshake::{Features, encode_creds, encode_error};
use pcp_pdu::{FROM_AGENT, Header, Pdu, PduType};

use crate::{Channel, Collector, Error, Stream};

/// The agent's end of the connection.
pub(super) struct Fake {
    stream: Stream,
    pdu: Vec<u8>,
}

impl Fake {
    /// Receives the next PDU, which must be of this type.
    #[track_caller]
    pub(super) fn expect(&mut self, ty: PduType) -> (Header, Pdu<'_>) {
        let header = self.stream.receive(&mut self.pdu, Some(Duration::from_secs(10))).unwrap();
        assert_eq!(header.pdu, ty);
        (header, Pdu::decode(header, &self.pdu).unwrap())
    }

    /// Waits until the collector has closed the connection.
    #[track_caller]
    pub(super) fn expect_end(&mut self) {
        let end = self.stream.receive(&mut self.pdu, Some(Duration::from_secs(10)));
        assert!(matches!(end, Err(Error::Closed)), "{end:?}");
    }

    pub(super) fn send(&mut self, encode: impl FnOnce(&mut Vec<u8>, i32) -> pmapi::Result) {
        let mut out = Vec::new();
        encode(&mut out, FROM_AGENT).unwrap();
        self.send_bytes(&out);
    }

    pub(super) fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.send(bytes, Some(Duration::from_secs(10))).unwrap();
    }

    pub(super) fn error(&mut self, code: pmapi::Error) {
        self.send(|out, from| encode_error(out, from, Err(code)));
    }

    /// Performs the version exchange, and returns the features of the collector.
    pub(super) fn creds(&mut self, features: Features) -> Features {
        self.send(|out, _| encode_creds(out, 4711, features));
        match self.expect(PduType::CREDS).1 {
            Pdu::Creds(creds) => creds.version().unwrap().1,
            _ => unreachable!(),
        }
    }
}

/// Connects to a scripted agent without the version exchange. Joining the thread passes on its panic.
pub(super) fn agent(script: impl FnOnce(&mut Fake) + Send + 'static) -> (Collector<Stream>, JoinHandle<()>) {
    let (stream, thread) = stream(script);
    (Collector::new(stream), thread)
}

pub(super) fn stream(script: impl FnOnce(&mut Fake) + Send + 'static) -> (Stream, JoinHandle<()>) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut fake = Fake { stream: Stream::socket(theirs).unwrap(), pdu: Vec::new() };
    (Stream::socket(ours).unwrap(), thread::spawn(move || script(&mut fake)))
}
