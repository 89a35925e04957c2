//! Requests, with the rules for every answer.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use pcp_collector::{Channel, Collector, Error};
use pcp_pdu::{Pdu, PduType};
use pmapi::Error as Code;

use super::{Finding, Rule};

/// Answer to a request: the requested data, or the error that the agent returned instead. `None` if there is no valid
/// answer, in which case a broken rule has been noted.
pub(super) type Answer<T> = Option<pmapi::Result<T>>;

/// Number of times that a request to an agent that is not ready is sent.
const REPEATS: usize = 8;

/// Hint for the author of a slow agent.
const SLOW: &str = "; all clients of pmcd wait meanwhile (with crate pmda, a Background reads a slow source)";

/// Client of an agent that notes broken rules.
pub(super) struct Asker<C> {
    collector: Collector<C>,
    limit: Duration,
    findings: Vec<Finding>,
    known: HashSet<(Rule, String)>,
    /// Whether requests are no longer possible: the connection has ended, or the start of the next PDU is unknown.
    is_over: bool,
}

impl<C: Channel> Asker<C> {
    pub(super) fn new(mut collector: Collector<C>, limit: Duration, timeout: Duration) -> Self {
        collector.set_timeout(Some(timeout));
        Asker { collector, limit, findings: Vec::new(), known: HashSet::new(), is_over: false }
    }

    pub(super) fn findings(self) -> Vec<Finding> {
        self.findings
    }

    /// Notes a broken rule, once for each subject.
    pub(super) fn note(&mut self, rule: Rule, subject: &str, detail: impl Into<String>) {
        if self.known.insert((rule, subject.to_owned())) {
            self.findings.push(Finding { rule, subject: subject.to_owned(), detail: detail.into() });
        }
    }

    /// Sends a PDU that has no answer.
    pub(super) fn tell(&mut self, subject: &str, encode: impl FnOnce(&mut Vec<u8>, i32) -> pmapi::Result) {
        if self.is_over {
            return;
        }
        if let Err(e) = self.collector.send_raw(encode) {
            self.failed(subject, &e);
        }
    }

    /// Sends a request and waits for its answer. `take` returns `None` for an answer to another request. If the agent is
    /// not ready, the request is repeated when it is.
    pub(super) fn ask<T>(
        &mut self,
        subject: &str,
        encode: impl Fn(&mut Vec<u8>, i32) -> pmapi::Result,
        take: impl Fn(Pdu<'_>) -> Option<T>,
    ) -> Answer<T> {
        for _ in 0..REPEATS {
            if self.is_over {
                return None;
            }
            let start = Instant::now();
            let exchange = self.exchange(&encode, &take);
            let elapsed = start.elapsed();
            let answer = exchange.map_err(|e| self.failed(subject, &e)).ok()?;
            if elapsed > self.limit {
                self.note(Rule::Slow, subject, format!("answered after {elapsed:.1?}{SLOW}"));
            }
            match answer {
                Ok(Err(Code::PMDANOTREADY)) => self.wait_ready(subject)?,
                Ok(answer) => return Some(answer),
                Err(got) => {
                    self.note(Rule::WrongAnswer, subject, format!("{got} PDU does not answer the request"));
                    return None;
                }
            }
        }
        self.note(Rule::Slow, subject, format!("the agent answered \"not ready\" {REPEATS} times in a row"));
        None
    }

    /// Sends a request, and returns the answer, or the type of a PDU that does not answer it.
    fn exchange<T>(
        &mut self,
        encode: impl Fn(&mut Vec<u8>, i32) -> pmapi::Result,
        take: impl Fn(Pdu<'_>) -> Option<T>,
    ) -> Result<Result<pmapi::Result<T>, PduType>, Error> {
        self.collector.send_raw(encode)?;
        let (header, pdu) = self.collector.receive_raw()?;
        let code = match &pdu {
            Pdu::Error(error) => Code::from_code(error.code),
            _ => None,
        };
        Ok(match code {
            Some(code) => Ok(Err(code)),
            None => take(pdu).map(Ok).ok_or(header.pdu),
        })
    }

    /// Waits until an agent that was not ready reports that it is. `None` if it does not.
    fn wait_ready(&mut self, subject: &str) -> Option<()> {
        let ready = match self.collector.receive_raw() {
            Ok((_, Pdu::Error(error))) if error.code == Code::PMDAREADY.code() => return Some(()),
            Ok((header, _)) => Ok(header.pdu),
            Err(e) => Err(e),
        };
        match ready {
            Ok(got) => self.note(Rule::WrongAnswer, subject, format!("{got} PDU from an agent that is not ready")),
            Err(e) => self.failed(subject, &e),
        }
        None
    }

    fn failed(&mut self, subject: &str, error: &Error) {
        let rule = match error {
            // The request does not fit into a PDU.
            Error::Request(_) => return,
            Error::TimedOut(_) => {
                self.note(Rule::Slow, subject, format!("{error}{SLOW}"));
                self.is_over = true;
                return;
            }
            Error::Decode(_) | Error::Frame(_) => Rule::Malformed,
            _ => Rule::Ended,
        };
        self.note(rule, subject, error.to_string());
        self.is_over = !matches!(error, Error::Decode(_));
    }
}
