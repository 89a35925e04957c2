//! Instance domains.

use super::Context;
use pcp_pdu::Pdu;
use pcp_pdu::client::Answer;
use pcp_pdu::instance::{InstancePdu, InstanceReq};
use pmapi::{Error, InDom, Inst, Result};

impl Context {
    /// All instances of a domain and their names (pmGetInDom(3)), in pmcd's order. PCP promises no encoding of names.
    ///
    /// # Errors
    /// `PM_ERR_INDOM` for an unknown one, `PM_ERR_NOAGENT` or `PM_ERR_INDOM` when nobody has its domain.
    pub fn in_dom(&mut self, indom: InDom) -> Result<Vec<(Inst, Vec<u8>)>> {
        let list = self.instances(InstanceReq { indom: Some(indom), inst: None, name: None })?;
        list.iter().map(|(inst, name)| Ok((inst.ok_or(Error::IPC)?, name.to_vec()))).collect()
    }

    /// The instance with a name (pmLookupInDom(3)). As agents do it, the name may be what is before the first blank
    /// of an instance's name.
    ///
    /// # Errors
    /// `PM_ERR_INST` when there is none; those of [`Context::in_dom`].
    pub fn lookup_in_dom(&mut self, indom: InDom, name: &[u8]) -> Result<Inst> {
        if name.is_empty() {
            // It would ask for all instances, of which libpcp takes the first.
            return Err(Error::INST);
        }
        let list = self.instances(InstanceReq { indom: Some(indom), inst: None, name: Some(name) })?;
        list.iter().next().and_then(|(inst, _)| inst).ok_or(Error::IPC)
    }

    /// The name of an instance (pmNameInDom(3)).
    ///
    /// # Errors
    /// `PM_ERR_INST` when there is no such instance; those of [`Context::in_dom`].
    pub fn name_in_dom(&mut self, indom: InDom, inst: Inst) -> Result<Vec<u8>> {
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
