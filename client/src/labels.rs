//! Labels.

use super::Context;
use pcp_pdu::Pdu;
use pcp_pdu::client::Answer;
use pcp_pdu::handshake::Flags;
use pcp_pdu::label::{LabelReq, RawLabelSet};
use pmapi::label::LabelLevel;
use pmapi::{Domain, Error, InDom, Inst, Item, LabelSet, PmId, Result};

impl Context {
    /// The labels of the host (pmGetContextLabels(3)).
    ///
    /// # Errors
    /// `PM_ERR_NOLABELS` when pmcd knows no labels, as for all levels.
    pub fn context_labels(&mut self) -> Result<LabelSet> {
        self.one_set(LabelLevel::Context, u32::MAX)
    }

    /// The labels of an agent (pmGetDomainLabels(3)).
    ///
    /// # Errors
    /// As [`Context::item_labels`].
    pub fn domain_labels(&mut self, domain: Domain) -> Result<LabelSet> {
        self.one_set(LabelLevel::Domain, domain.get().into())
    }

    /// The labels of an instance domain (pmGetInDomLabels(3)).
    ///
    /// # Errors
    /// As [`Context::item_labels`].
    pub fn indom_labels(&mut self, indom: InDom) -> Result<LabelSet> {
        self.one_set(LabelLevel::InDom, indom.word())
    }

    /// The labels of the cluster that a metric belongs to (pmGetClusterLabels(3)).
    ///
    /// # Errors
    /// As [`Context::item_labels`].
    pub fn cluster_labels(&mut self, pmid: PmId) -> Result<LabelSet> {
        self.one_set(LabelLevel::Cluster, cluster(pmid))
    }

    /// The labels of a metric alone (pmGetItemLabels(3)).
    ///
    /// # Errors
    /// `PM_ERR_NOAGENT` when nobody has its domain; what the agent answers.
    pub fn item_labels(&mut self, pmid: PmId) -> Result<LabelSet> {
        self.one_set(LabelLevel::Item, pmid.word())
    }

    /// The labels of the instances of a domain that the profile includes (pmGetInstancesLabels(3)), those without
    /// labels left out.
    ///
    /// # Errors
    /// As [`Context::item_labels`].
    pub fn instances_labels(&mut self, indom: InDom) -> Result<Vec<(Inst, Result<LabelSet>)>> {
        if self.features.contains(Flags::LABELS) {
            self.send_profile()?;
        }
        self.labels(LabelLevel::Instances, indom.word(), |sets| {
            sets.map(|set| Ok((set.inst.ok_or(Error::IPC)?, labels(set)))).collect()
        })
    }

    /// The labels of a metric, from the most general level to the metric itself (pmLookupLabels(3)): those of the
    /// host, the agent, the instance domain, the cluster, the metric. Levels without labels are left out.
    ///
    /// # Errors
    /// Those of [`Context::lookup_desc`] and [`Context::item_labels`].
    pub fn lookup_labels(&mut self, pmid: PmId) -> Result<Vec<LabelSet>> {
        let desc = self.lookup_desc(pmid)?;
        let indom = desc.indom.map(|indom| (LabelLevel::InDom, indom.word()));
        let levels = [
            Some((LabelLevel::Context, u32::MAX)),
            Some((LabelLevel::Domain, pmid.domain().get().into())),
            indom,
            Some((LabelLevel::Cluster, cluster(pmid))),
            Some((LabelLevel::Item, pmid.word())),
        ];
        let sets = levels.into_iter().flatten().map(|(level, ident)| self.one_set(level, ident));
        sets.filter(|set| !set.as_ref().is_ok_and(LabelSet::is_empty)).collect()
    }

    /// The labels of a metric in one set, in which each level wins over those before it (pmMergeLabelSets(3)).
    ///
    /// # Errors
    /// Those of [`Context::lookup_labels`]; `-E2BIG` when they are too many for one set.
    pub fn merged_labels(&mut self, pmid: PmId) -> Result<LabelSet> {
        let mut merged = LabelSet::new();
        for set in self.lookup_labels(pmid)? {
            merged.merge(&set)?;
        }
        Ok(merged)
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
        if !self.features.contains(Flags::LABELS) {
            return Err(Error::NOLABELS);
        }
        let request = LabelReq { ident, bits: level.code().cast_signed() };
        match self.ask(|out| request.encode(out, 0))? {
            Answer::Pdu(Pdu::Label(answer)) => take(&mut answer.sets()),
            _ => Err(Error::IPC),
        }
    }
}

/// The word of the cluster that a metric belongs to: that of its item 0.
fn cluster(pmid: PmId) -> u32 {
    PmId::new(pmid.domain(), Item::new(pmid.item().cluster(), 0)).word()
}

fn labels(set: RawLabelSet<'_>) -> Result<LabelSet> {
    set.error.map_or(Ok(()), Err)?;
    let json = String::from_utf8(set.json.to_vec()).map_err(|_| Error::IPC)?;
    Ok(LabelSet::from_raw(json, set.spans())?)
}
