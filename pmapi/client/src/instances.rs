//! Lookup of instances.

use super::Context;
use pcp_pdu::Pdu;
use pcp_pdu::client::Answer;
use pcp_pdu::instance::{InstancePdu, InstanceReq};
use pmapi::{Error, InDom, Inst, Result};

impl Context {
    /// Returns all instances of a domain with their names, in pmcd's order (pmGetInDom(3)). PCP promises no character
    /// encoding of names.
    ///
    /// # Errors
    /// `PM_ERR_INDOM` for an unknown domain; `PM_ERR_NOAGENT` or `PM_ERR_INDOM` when no agent has it. [Connection
    /// errors](crate#connection-errors).
    pub fn indom(&mut self, indom: InDom) -> Result<Vec<(Inst, Vec<u8>)>> {
        let list = self.instances(InstanceReq { indom: Some(indom), inst: None, name: None })?;
        list.iter().map(|(inst, name)| Ok((inst.ok_or(Error::IPC)?, name.to_vec()))).collect()
    }

    /// Looks up an instance by name (pmLookupInDom(3)). Agents also accept the part of an instance's name before its
    /// first blank.
    ///
    /// # Errors
    /// `PM_ERR_INST` when no instance has the name; errors of [`Context::indom`].
    pub fn lookup_indom(&mut self, indom: InDom, name: &[u8]) -> Result<Inst> {
        if name.is_empty() {
            // An empty name would request all instances, of which libpcp returns the first.
            return Err(Error::INST);
        }
        let list = self.instances(InstanceReq { indom: Some(indom), inst: None, name: Some(name) })?;
        list.iter().next().and_then(|(inst, _)| inst).ok_or(Error::IPC)
    }

    /// Returns the name of an instance (pmNameInDom(3)).
    ///
    /// # Errors
    /// `PM_ERR_INST` for an unknown instance; errors of [`Context::indom`].
    pub fn name_indom(&mut self, indom: InDom, inst: Inst) -> Result<Vec<u8>> {
        let list = self.instances(InstanceReq { indom: Some(indom), inst: Some(inst), name: None })?;
        list.iter().next().map(|(_, name)| name.to_vec()).ok_or(Error::IPC)
    }

    fn instances(&mut self, request: InstanceReq<'_>) -> Result<InstancePdu<'_>> {
        match self.ask(|out| request.encode(out, 0))? {
            Answer::Pdu(Pdu::Instance(list)) => Ok(list),
            _ => Err(Error::IPC),
        }
    }
}
