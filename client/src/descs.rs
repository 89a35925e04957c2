//! Descriptors.

use super::{Context, MAX_REQUEST};
use pcp_pdu::client::{Answer, encode_desc_ids};
use pcp_pdu::handshake::Flags;
use pcp_pdu::metadata::DescReq;
use pmapi::{Desc, Error, PmId, Result};

impl Context {
    /// The descriptor of a metric (pmLookupDesc(3)).
    ///
    /// # Errors
    /// `PM_ERR_PMID` for an unknown metric, `PM_ERR_NOAGENT` or `PM_ERR_PMID` when nobody has its domain;
    /// `PM_ERR_TYPE` or `PM_ERR_CONV` when no metric can have the type or the semantics that its agent says.
    pub fn lookup_desc(&mut self, pmid: PmId) -> Result<Desc> {
        match self.ask(|out| DescReq { pmid: Some(pmid) }.encode(out, 0))? {
            Answer::Desc(desc) => desc.desc(),
            _ => Err(Error::IPC),
        }
    }

    /// The descriptors of metrics (pmLookupDescs(3)): one for each, `None` where there is none (in C, `PM_ID_NULL` in
    /// place of the metric). That none of them has one is no error, except for one metric alone.
    ///
    /// # Errors
    /// `PM_ERR_TOOSMALL` for an empty list; for one metric those of [`Context::lookup_desc`].
    pub fn lookup_descs(&mut self, pmids: &[PmId]) -> Result<Vec<Option<Desc>>> {
        match pmids {
            [] => Err(Error::TOOSMALL),
            [one] => self.lookup_desc(*one).map(|desc| vec![Some(desc)]),
            _ if self.features.contains(Flags::DESCS) => self.all_descs(pmids),
            _ => pmids.iter().map(|pmid| self.one_desc(*pmid)).collect(),
        }
    }

    /// Asks for many at once.
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

    /// Alone, pmcd answers it with an error.
    fn one_desc(&mut self, pmid: PmId) -> Result<Option<Desc>> {
        match self.lookup_desc(pmid) {
            Ok(desc) => Ok(Some(desc)),
            Err(_) if self.is_connected() => Ok(None),
            Err(e) => Err(e),
        }
    }
}
