//! Lookup of descriptors.

use super::{Context, MAX_REQUEST};
use pcp_pdu::client::{Answer, encode_desc_ids};
use pcp_pdu::handshake::Features;
use pcp_pdu::metadata::DescReq;
use pmapi::{Desc, Error, PmId, Result};

impl Context {
    /// Looks up the descriptor of a metric (pmLookupDesc(3)).
    ///
    /// # Errors
    /// `PM_ERR_PMID` for an unknown metric; `PM_ERR_NOAGENT` or `PM_ERR_PMID` when no agent has its domain.
    /// `PM_ERR_TYPE` or `PM_ERR_CONV` when the agent sends an invalid type or invalid semantics. [Connection
    /// errors](crate#connection-errors).
    pub fn lookup_desc(&mut self, pmid: PmId) -> Result<Desc> {
        match self.ask(|out| DescReq { pmid: Some(pmid) }.encode(out, 0))? {
            Answer::Desc(desc) => desc.desc(),
            _ => Err(Error::IPC),
        }
    }

    /// Looks up the descriptors of several metrics (pmLookupDescs(3)). Returns `None` for a metric without a
    /// descriptor.
    ///
    /// In C, the descriptor of such a metric has `PM_ID_NULL`.
    ///
    /// # Errors
    /// `PM_ERR_TOOSMALL` for an empty list; for a list of one metric the errors of [`Context::lookup_desc`]. In a
    /// longer list a metric without a descriptor is no error. [Connection errors](crate#connection-errors).
    pub fn lookup_descs(&mut self, pmids: &[PmId]) -> Result<Vec<Option<Desc>>> {
        match pmids {
            [] => Err(Error::TOOSMALL),
            [one] => self.lookup_desc(*one).map(|desc| vec![Some(desc)]),
            _ if self.features.contains(Features::DESCS) => self.all_descs(pmids),
            _ => pmids.iter().map(|pmid| self.one_desc(*pmid)).collect(),
        }
    }

    /// Looks up all descriptors by as few requests as possible (`PDU_DESC_IDS`).
    fn all_descs(&mut self, pmids: &[PmId]) -> Result<Vec<Option<Desc>>> {
        let mut descs = Vec::with_capacity(pmids.len());
        for part in pmids.chunks(MAX_REQUEST / 4) {
            if let [one] = part {
                descs.push(self.one_desc(*one)?);
                continue;
            }
            match self.ask(|out| encode_desc_ids(out, 0, part))? {
                Answer::Descs(list) if list.iter().len() == part.len() => {
                    descs.extend(list.iter().map(|desc| desc.desc().ok()));
                }
                _ => return Err(Error::IPC),
            }
        }
        Ok(descs)
    }

    /// Looks up one descriptor. Returns `None` if pmcd answers with an error.
    fn one_desc(&mut self, pmid: PmId) -> Result<Option<Desc>> {
        match self.lookup_desc(pmid) {
            Ok(desc) => Ok(Some(desc)),
            Err(_) if self.is_connected() => Ok(None),
            Err(e) => Err(e),
        }
    }
}
