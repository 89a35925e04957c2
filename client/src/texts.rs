//! Help texts.

use super::Context;
use pcp_pdu::Pdu;
use pcp_pdu::client::Answer;
use pcp_pdu::metadata::{Subject, TextKind, TextReq};
use pmapi::{Error, Result};

impl Context {
    /// The text about a metric (pmLookupText(3)) or an instance domain (pmLookupInDomText(3)). Where there is no full
    /// help, it is the line. PCP promises no encoding.
    ///
    /// # Errors
    /// `PM_ERR_TEXT` when there is none, `PM_ERR_PMID` and `PM_ERR_INDOM` for what is unknown, `PM_ERR_NOAGENT`.
    pub fn lookup_text(&mut self, about: Subject, kind: TextKind) -> Result<Vec<u8>> {
        match self.lookup_text_direct(about, kind) {
            Ok(text) if !text.is_empty() => Ok(text),
            other if kind == TextKind::OneLine || !self.is_connected() => other,
            _ => self.lookup_text_direct(about, TextKind::OneLine),
        }
    }

    /// The same, but never the line in place of full help (`PM_TEXT_DIRECT`).
    ///
    /// # Errors
    /// As [`Context::lookup_text`].
    pub fn lookup_text_direct(&mut self, about: Subject, kind: TextKind) -> Result<Vec<u8>> {
        match self.ask(|out| TextReq::new(about, kind).encode(out, 0))? {
            Answer::Pdu(Pdu::Text(text)) => Ok(text.text.to_vec()),
            _ => Err(Error::IPC),
        }
    }
}
