//! Lookup of labels.

use super::Context;
use pcp_pdu::Pdu;
use pcp_pdu::client::Answer;
use pcp_pdu::handshake::Features;
use pcp_pdu::label::{LabelReq, RawLabelSet};
use pmapi::{Domain, Error, InDom, Inst, LabelLevel, LabelSet, PmId, Result};

impl Context {
    /// Returns the labels of the host (pmGetContextLabels(3)).
    ///
    /// # Errors
    /// `PM_ERR_NOLABELS` when pmcd does not support labels; [connection errors](crate#connection-errors).
    pub fn context_labels(&mut self) -> Result<LabelSet> {
        self.one_set(LabelLevel::Context, LabelLevel::CONTEXT_IDENT)
    }

    /// Returns the labels of an agent (pmGetDomainLabels(3)).
    ///
    /// # Errors
    /// Errors of [`Context::item_labels`].
    pub fn domain_labels(&mut self, domain: Domain) -> Result<LabelSet> {
        self.one_set(LabelLevel::Domain, domain.get().into())
    }

    /// Returns the labels of an instance domain (pmGetInDomLabels(3)).
    ///
    /// # Errors
    /// Errors of [`Context::item_labels`].
    pub fn indom_labels(&mut self, indom: InDom) -> Result<LabelSet> {
        self.one_set(LabelLevel::InDom, indom.word())
    }

    /// Returns the labels of the cluster that a metric belongs to (pmGetClusterLabels(3)).
    ///
    /// # Errors
    /// Errors of [`Context::item_labels`].
    pub fn cluster_labels(&mut self, pmid: PmId) -> Result<LabelSet> {
        self.one_set(LabelLevel::Cluster, LabelLevel::cluster_ident(pmid))
    }

    /// Returns the labels of a metric itself, without those of its cluster and its agent (pmGetItemLabels(3)).
    ///
    /// # Errors
    /// `PM_ERR_NOLABELS` when pmcd does not support labels, `PM_ERR_NOAGENT` when no agent has the domain. The agent's
    /// own error; [connection errors](crate#connection-errors).
    pub fn item_labels(&mut self, pmid: PmId) -> Result<LabelSet> {
        self.one_set(LabelLevel::Item, pmid.word())
    }

    /// Returns the labels of the instances that the profile includes (pmGetInstancesLabels(3)). Instances without
    /// labels are left out.
    ///
    /// # Errors
    /// Errors of [`Context::item_labels`].
    pub fn instances_labels(&mut self, indom: InDom) -> Result<Vec<(Inst, Result<LabelSet>)>> {
        if self.features.contains(Features::LABELS) {
            self.send_profile()?;
        }
        self.labels(LabelLevel::Instances, indom.word(), |sets| {
            sets.map(|set| Ok((set.inst.ok_or(Error::IPC)?, labels(set)))).collect()
        })
    }

    /// Returns the labels of a metric by level, from the most general one (pmLookupLabels(3)).
    ///
    /// The levels are the host, the agent, the instance domain, the cluster and the metric. Levels without labels are
    /// left out.
    ///
    /// # Errors
    /// Errors of [`Context::lookup_desc`] and [`Context::item_labels`].
    pub fn lookup_labels(&mut self, pmid: PmId) -> Result<Vec<LabelSet>> {
        let desc = self.lookup_desc(pmid)?;
        let sets = LabelLevel::of_metric(&desc).map(|(level, ident)| self.one_set(level, ident));
        sets.filter(|set| !set.as_ref().is_ok_and(LabelSet::is_empty)).collect()
    }

    /// Returns the labels of a metric in one set, in which a specific level overrides a more general one
    /// (pmMergeLabelSets(3)).
    ///
    /// # Errors
    /// Errors of [`Context::lookup_labels`]; `-E2BIG` when the labels are too many for one set.
    pub fn merged_labels(&mut self, pmid: PmId) -> Result<LabelSet> {
        Ok(LabelSet::merge_all(&self.lookup_labels(pmid)?)?)
    }

    fn one_set(&mut self, level: LabelLevel, ident: u32) -> Result<LabelSet> {
        self.labels(level, ident, |sets| sets.next().map_or_else(|| Ok(LabelSet::new()), labels))
    }

    fn labels<T>(
        &mut self,
        level: LabelLevel,
        ident: u32,
        take: impl FnOnce(&mut dyn Iterator<Item = RawLabelSet<'_>>) -> Result<T>,
    ) -> Result<T> {
        if !self.features.contains(Features::LABELS) {
            return Err(Error::NOLABELS);
        }
        let request = LabelReq { ident, bits: level.code() as i32 };
        match self.ask(|out| request.encode(out, 0))? {
            Answer::Pdu(Pdu::Label(answer)) => take(&mut answer.sets()),
            _ => Err(Error::IPC),
        }
    }
}

fn labels(set: RawLabelSet<'_>) -> Result<LabelSet> {
    set.error.map_or(Ok(()), Err)?;
    let json = String::from_utf8(set.json.to_vec()).map_err(|_| Error::IPC)?;
    Ok(LabelSet::from_raw(json, set.spans())?)
}
