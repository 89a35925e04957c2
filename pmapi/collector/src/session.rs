//! The connection to an agent: version exchange, requests and answers, readiness.

use std::collections::HashMap;
use std::time::Duration;

use pcp_pdu::handshake::{Features, encode_creds};
use pcp_pdu::profile::Profile;
use pcp_pdu::result_writer::ResultWriter;
use pcp_pdu::{Header, Pdu, PduType};

use crate::{Channel, Error, Result};

/// Whether an agent accepts requests.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum AgentState {
    /// The agent accepts requests.
    Ready,
    /// The agent accepts no requests until it reports that it is ready.
    NotReady,
    /// A failure has ended the connection.
    Dropped,
}

/// The collector's end of the connection to an agent.
///
/// Requests are made for a client, whose number is the sender of the PDUs; by default it is client 0.
///
/// All requests share these errors:
///
/// * [`Error::Agent`]: the agent answered with an ERROR PDU.
/// * [`Error::NotReady`]: the agent is not ready. The connection stays.
/// * [`Error::Request`]: the request is invalid or does not fit into a PDU. Nothing was sent.
/// * [`Error::TimedOut`], [`Error::Closed`], [`Error::Ended`], [`Error::CutShort`], [`Error::Frame`] or [`Error::Io`]: the connection
///   failed.
/// * [`Error::Unexpected`], [`Error::Unsolicited`], [`Error::Count`] or [`Error::Decode`]: the agent sent a wrong PDU.
/// * [`Error::Dropped`]: an earlier failure has ended the connection.
///
/// As in pmcd, a failure of the connection or a wrong PDU drops the agent: it sees the end of its input, and further
/// requests fail with [`Error::Dropped`]. Only some requests drop it for [`Error::Decode`]. Methods with `raw` or
/// `bytes` in their names do not follow these rules.
#[derive(Debug)]
pub struct Collector<C> {
    channel: C,
    state: AgentState,
    features: Features,
    timeout: Option<Duration>,
    pub(crate) client: i32,
    /// The profiles that clients have set.
    pub(crate) profiles: HashMap<i32, Profile>,
    /// The client whose profile the agent has.
    pub(crate) profiled: Option<i32>,
    out: Vec<u8>,
    reply: Vec<u8>,
    pub(crate) values: ResultWriter,
}

impl<C: Channel> Collector<C> {
    /// Time for which pmcd waits for an agent's CREDS PDU.
    pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(3);
    /// Time for which pmcd waits for an answer.
    pub const TIMEOUT: Duration = Duration::from_secs(5);

    /// Performs the version exchange over a channel. The agent speaks first, and gets its flag `AUTHORIZE` back.
    ///
    /// # Errors
    /// [`Error::NoVersion`] or [`Error::Unexpected`] for a wrong first PDU, [`Error::TimedOut`] without one within
    /// [`Collector::HANDSHAKE_TIMEOUT`], and errors of the connection.
    pub fn connect(mut channel: C) -> Result<Self> {
        let features = Self::handshake(&mut channel, Some(Self::HANDSHAKE_TIMEOUT))?;
        Ok(Self::with_features(channel, features))
    }

    /// Uses a channel without a version exchange, or whose caller performs the exchange with raw PDUs.
    pub fn new(channel: C) -> Self {
        Self::with_features(channel, Features::default())
    }

    /// Uses a channel without a version exchange to an agent that asks for these features, such as
    /// [`Features::AUTHORIZE`] for client attributes.
    pub fn with_features(channel: C, features: Features) -> Self {
        Collector {
            channel,
            state: AgentState::Ready,
            features,
            timeout: Some(Self::TIMEOUT),
            client: 0,
            profiles: HashMap::new(),
            profiled: None,
            out: Vec::new(),
            reply: Vec::new(),
            values: ResultWriter::new(),
        }
    }

    pub(crate) fn handshake(channel: &mut C, timeout: Option<Duration>) -> Result<Features> {
        let mut bytes = Vec::new();
        let header = channel.receive(&mut bytes, timeout)?;
        let features = match Pdu::decode(header, &bytes)? {
            Pdu::Creds(creds) => creds.version().ok_or(Error::NoVersion)?.1,
            _ => return Err(Error::Unexpected { request: PduType::CREDS, got: header.pdu }),
        };
        bytes.clear();
        let pid = std::process::id() as i32;
        encode_creds(&mut bytes, pid, features & Features::AUTHORIZE).map_err(Error::Request)?;
        channel.send(&bytes, timeout)?;
        Ok(features)
    }

    /// Returns the features in the CREDS PDU of the agent.
    pub fn features(&self) -> Features {
        self.features
    }

    /// Returns whether the agent accepts requests, according to the output that has been read.
    pub fn state(&self) -> AgentState {
        self.state
    }

    /// Sets the longest time for an answer, by default 5 s; `None` forever.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.timeout = timeout;
    }

    /// Makes further requests for this client.
    pub fn as_client(&mut self, client: i32) -> &mut Self {
        self.client = client;
        self
    }

    /// Sends no requests before the agent reports that it is ready (`notready` in `pmcd.conf`).
    pub fn set_not_ready(&mut self) {
        if self.state == AgentState::Ready {
            self.state = AgentState::NotReady;
        }
    }

    /// Waits until the agent reports that it is ready. Returns false when the time has passed before.
    ///
    /// # Errors
    /// The errors of [`Collector::settle`].
    pub fn wait_ready(&mut self, timeout: Option<Duration>) -> Result<bool> {
        self.settle()?;
        if self.state == AgentState::NotReady {
            match self.unsolicited(timeout) {
                Err(Error::TimedOut(_)) => return Ok(false),
                other => other?,
            }
        }
        Ok(true)
    }

    /// Reads the PDUs that the agent has sent without a request, which may only be the report that it is ready. It also
    /// detects the end of the stream, and thereby whether the agent still runs.
    ///
    /// # Errors
    /// [`Error::Unsolicited`] for any other PDU, [`Error::Dropped`] after an earlier failure, and errors of the
    /// connection. They drop the agent.
    pub fn settle(&mut self) -> Result {
        loop {
            match self.unsolicited(Some(Duration::ZERO)) {
                Ok(()) => {}
                Err(Error::TimedOut(_)) => return Ok(()),
                Err(e) => return Err(e),
            }
        }
    }

    /// Waits for a PDU that the agent sends without a request. Any error except a time-out drops the agent.
    fn unsolicited(&mut self, timeout: Option<Duration>) -> Result {
        if self.state == AgentState::Dropped {
            return Err(Error::Dropped);
        }
        let outcome =
            self.channel.receive(&mut self.reply, timeout).and_then(|header| match Pdu::decode(header, &self.reply)? {
                Pdu::Error(e) if e.status() == Err(pmapi::Error::PMDAREADY) && self.state == AgentState::NotReady => {
                    Ok(())
                }
                _ => Err(Error::Unsolicited(header.pdu)),
            });
        match &outcome {
            Ok(()) => self.state = AgentState::Ready,
            Err(Error::TimedOut(_)) => {}
            Err(_) => self.drop_agent(),
        }
        outcome
    }

    fn drop_agent(&mut self) {
        self.state = AgentState::Dropped;
        self.channel.close();
    }

    /// Sends a request and decodes the answer. `accept` returns `None` for a PDU of the wrong type. It gets ERROR PDUs
    /// only with code 0.
    pub(crate) fn request<'a, T>(
        &'a mut self,
        request: PduType,
        encode: impl FnOnce(&mut Vec<u8>, i32) -> pmapi::Result,
        accept: impl FnOnce(Pdu<'a>) -> Option<Result<T>>,
    ) -> Result<T> {
        self.settle()?;
        if self.state == AgentState::NotReady {
            return Err(Error::NotReady);
        }
        self.encode(encode)?;
        let Collector { channel, state, timeout, out, reply, .. } = self;
        let outcome = exchange(channel, out, reply, *timeout, request, accept);
        match &outcome {
            Err(Error::NotReady) => *state = AgentState::NotReady,
            Err(e) if e.is_fatal(request) => {
                *state = AgentState::Dropped;
                channel.close();
            }
            _ => {}
        }
        outcome
    }

    /// Sends a PDU that has no answer. Returns false, and sends nothing, if the agent is not ready.
    pub(crate) fn notify(&mut self, encode: impl FnOnce(&mut Vec<u8>, i32) -> pmapi::Result) -> Result<bool> {
        self.settle()?;
        if self.state == AgentState::NotReady {
            return Ok(false);
        }
        self.encode(encode)?;
        self.channel.send(&self.out, self.timeout).inspect_err(|_| self.drop_agent())?;
        Ok(true)
    }

    fn encode(&mut self, encode: impl FnOnce(&mut Vec<u8>, i32) -> pmapi::Result) -> Result {
        self.out.clear();
        encode(&mut self.out, self.client).map_err(Error::Request)
    }

    /// Sends any PDU. `encode` gets the buffer to append to, and the number of the client.
    ///
    /// # Errors
    /// [`Error::Request`] with the error of `encode`, and errors of the connection, which do not drop the agent.
    pub fn send_raw(&mut self, encode: impl FnOnce(&mut Vec<u8>, i32) -> pmapi::Result) -> Result {
        self.encode(encode)?;
        self.channel.send(&self.out, self.timeout)
    }

    /// Sends any bytes.
    ///
    /// # Errors
    /// Errors of the connection, which do not drop the agent.
    pub fn send_bytes(&mut self, bytes: &[u8]) -> Result {
        self.channel.send(bytes, self.timeout)
    }

    /// Waits for the next PDU of any type.
    ///
    /// # Errors
    /// [`Error::TimedOut`] without a PDU in time, [`Error::Decode`] for an invalid one, and errors of the connection.
    /// They do not drop the agent.
    pub fn receive_raw(&mut self) -> Result<(Header, Pdu<'_>)> {
        let (header, bytes) = self.receive_bytes()?;
        Ok((header, Pdu::decode(header, bytes)?))
    }

    /// Waits for the next PDU, and returns its bytes.
    ///
    /// # Errors
    /// [`Error::TimedOut`] without a PDU in time, and errors of the connection. They do not drop the agent.
    pub fn receive_bytes(&mut self) -> Result<(Header, &[u8])> {
        let header = self.channel.receive(&mut self.reply, self.timeout)?;
        Ok((header, &self.reply))
    }

    /// Returns the channel to the agent.
    pub fn channel(&self) -> &C {
        &self.channel
    }

    /// Returns the channel, mutably. Bytes that are sent past the collector may break its rules.
    pub fn channel_mut(&mut self) -> &mut C {
        &mut self.channel
    }
}

/// Sends a request, receives the answer, and decodes it.
fn exchange<'a, C: Channel, T>(
    channel: &mut C,
    out: &[u8],
    reply: &'a mut Vec<u8>,
    timeout: Option<Duration>,
    request: PduType,
    accept: impl FnOnce(Pdu<'a>) -> Option<Result<T>>,
) -> Result<T> {
    channel.send(out, timeout)?;
    let header = channel.receive(reply, timeout)?;
    let answer = match Pdu::decode(header, reply)? {
        Pdu::Error(e) => match pmapi::Error::from_code(e.code) {
            Some(pmapi::Error::PMDANOTREADY) => return Err(Error::NotReady),
            Some(pmapi::Error::PMDAREADY) => None,
            Some(code) => return Err(Error::Agent(code)),
            None => accept(Pdu::Error(e)),
        },
        pdu => accept(pdu),
    };
    answer.unwrap_or(Err(Error::Unexpected { request, got: header.pdu }))
}
