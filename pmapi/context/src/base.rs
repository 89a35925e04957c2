//! Sources of metrics, without derived ones.

use pcp_client::{Context as Host, Sample};
use pcp_pdu::profile::Profile;
use pmapi::{Desc, Error, InDom, Inst, PmId};

use crate::error::ContextError;
use crate::local::Local;
use crate::recorded::Recorded;

/// Source of metrics.
#[derive(Debug)]
pub(crate) enum Base {
    Host(Box<Host>),
    Archive(Box<Recorded>),
    Local(Box<Local>),
}

impl Base {
    pub(crate) fn profile(&self) -> &Profile {
        match self {
            Base::Host(host) => host.profile(),
            Base::Archive(recorded) => &recorded.profile,
            Base::Local(local) => &local.profile,
        }
    }

    pub(crate) fn fetch(&mut self, pmids: &[PmId]) -> Result<Sample, ContextError> {
        match self {
            Base::Host(host) => Ok(host.fetch(pmids)?),
            Base::Archive(_) if pmids.is_empty() => Err(Error::TOOSMALL.into()),
            Base::Archive(recorded) => recorded.fetch(pmids),
            Base::Local(local) => Ok(local.fetch(pmids)?),
        }
    }

    pub(crate) fn lookup_name(&mut self, name: &str) -> Result<PmId, Error> {
        match self {
            Base::Host(host) => host.lookup_name(name),
            Base::Archive(recorded) => recorded.archive.metadata().names().pmid(name.as_bytes()),
            Base::Local(local) => local.lookup_name(name),
        }
    }

    pub(crate) fn lookup_desc(&mut self, pmid: PmId) -> Result<Desc, Error> {
        match self {
            Base::Host(host) => host.lookup_desc(pmid),
            Base::Archive(recorded) => recorded.archive.metadata().desc(pmid),
            Base::Local(local) => local.lookup_desc(pmid),
        }
    }

    pub(crate) fn indom(&mut self, indom: InDom) -> Result<Vec<(Inst, Vec<u8>)>, Error> {
        match self {
            Base::Host(host) => host.indom(indom),
            Base::Archive(recorded) => Ok(recorded.instances(indom)?.to_vec()),
            Base::Local(local) => local.indom(indom),
        }
    }

    pub(crate) fn lookup_indom(&mut self, indom: InDom, name: &[u8]) -> Result<Inst, Error> {
        match self {
            Base::Host(host) => host.lookup_indom(indom, name),
            Base::Local(local) => local.lookup_indom(indom, name),
            Base::Archive(recorded) => {
                let time = recorded.time;
                let found = recorded.archive.metadata().instance_names().lookup(indom, name, time)?;
                Ok(Inst::new(found))
            }
        }
    }

    pub(crate) fn name_indom(&mut self, indom: InDom, inst: Inst) -> Result<Vec<u8>, Error> {
        match self {
            Base::Host(host) => host.name_indom(indom, inst),
            Base::Local(local) => local.name_indom(indom, inst),
            Base::Archive(recorded) => {
                let list = recorded.instances(indom)?;
                let at = list.binary_search_by_key(&inst, |(inst, _)| *inst).map_err(|_| Error::INST_LOG)?;
                list.get(at).map(|(_, name)| name.clone()).ok_or(Error::INST_LOG)
            }
        }
    }
}
