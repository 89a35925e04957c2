//! Lookup of help texts.

use super::Context;
use pcp_pdu::Pdu;
use pcp_pdu::client::Answer;
use pcp_pdu::metadata::{Subject, TextKind, TextReq};
use pmapi::{Error, Result};

impl Context {
    /// Returns the help text of a metric (pmLookupText(3)) or an instance domain (pmLookupInDomText(3)).
    ///
    /// Without a full text, returns the one-line text in its place. PCP promises no character encoding.
    ///
    /// # Errors
    /// `PM_ERR_TEXT` when there is no text, `PM_ERR_PMID` or `PM_ERR_INDOM` for an unknown subject, `PM_ERR_NOAGENT`
    /// when no agent has its domain. [Connection errors](crate#connection-errors).
    pub fn lookup_text(&mut self, about: Subject, kind: TextKind) -> Result<Vec<u8>> {
        match self.lookup_text_direct(about, kind) {
            Ok(text) if !text.is_empty() => Ok(text),
            other if kind == TextKind::OneLine || !self.is_connected() => other,
            _ => self.lookup_text_direct(about, TextKind::OneLine),
        }
    }

    /// Returns the help text of exactly this kind, never the one-line text in place of a full one (`PM_TEXT_DIRECT`).
    ///
    /// # Errors
    /// Errors of [`Context::lookup_text`].
    pub fn lookup_text_direct(&mut self, about: Subject, kind: TextKind) -> Result<Vec<u8>> {
        match self.ask(|out| TextReq::new(about, kind).encode(out, 0))? {
            Answer::Pdu(Pdu::Text(text)) => Ok(text.text.to_vec()),
            _ => Err(Error::IPC),
        }
    }
}
