//! An agent within this process, for tests and for programs that embed one.

use std::collections::VecDeque;
use std::time::Duration;

use pmapi::Domain;
use pmapi::config::Config;
use pmapi::pdu::{Frames, Header};

use crate::agent::{Agent, Start};
use crate::collector::{self, Channel};
use crate::engine::{Engine, Reply};

/// The way to an agent within this process: every request is encoded, answered and decoded as it
/// would be over a pipe. [`collector::Collector`] asks over it.
#[derive(Debug)]
pub struct Local<A> {
    engine: Engine<A>,
    frames: Frames,
    replies: VecDeque<Vec<u8>>,
    open: bool,
}

impl<A: Agent> Local<A> {
    /// Starts an agent under its own domain, with PCP's configuration of this host.
    pub fn new() -> Start<Self> {
        Self::with(crate::schema::domain::<A>()?, Config::load())
    }

    /// Starts an agent under a domain, with a configuration.
    pub fn with(domain: Domain, config: Config) -> Start<Self> {
        let engine = Engine::new(domain, config)?;
        Ok(Local { engine, frames: Frames::new(), replies: VecDeque::new(), open: true })
    }

    /// The agent, with what it declares.
    pub fn engine(&mut self) -> &mut Engine<A> {
        &mut self.engine
    }
}

impl<A: Agent> Channel for Local<A> {
    fn send(&mut self, mut bytes: &[u8], _: Option<Duration>) -> collector::Result {
        if !self.open {
            return Err(collector::Error::Closed);
        }
        while !bytes.is_empty() {
            let space = self.frames.space();
            let n = space.len().min(bytes.len());
            space[..n].copy_from_slice(&bytes[..n]);
            self.frames.filled(n);
            bytes = &bytes[n..];
            while let Some((header, pdu)) = self.frames.next_pdu()? {
                if let Reply::Pdu(head, rest) = self.engine.handle(header, pdu) {
                    self.replies.push_back([head, rest].concat());
                }
            }
        }
        Ok(())
    }

    fn receive(&mut self, pdu: &mut Vec<u8>, timeout: Option<Duration>) -> collector::Result<Header> {
        // The engine has answered by now, or never will.
        let none = collector::Error::TimedOut(timeout.unwrap_or(Duration::MAX));
        *pdu = self.replies.pop_front().ok_or(none)?;
        Header::parse(pdu)?.ok_or(collector::Error::Closed)
    }

    fn close(&mut self) {
        self.open = false;
    }
}
