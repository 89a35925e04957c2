//! Labels of contexts.

use pmapi::{Domain, Error, InDom, Inst, LabelLevel, LabelSet, PmId, Result};

use crate::base::Base;
use crate::context::Context;
use crate::local::Local;
use crate::recorded::Recorded;

impl Recorded {
    /// Returns the label sets of a subject as of the last fetch, with their instances.
    fn labels(&self, level: LabelLevel, ident: u32) -> Result<Vec<(u32, Result<LabelSet>)>> {
        let record = self.archive.metadata().labels(level, ident, self.time)?;
        Ok(record.into_iter().flat_map(|record| record.sets()).map(|set| (set.inst, set.label_set())).collect())
    }

    fn one_set(&self, level: LabelLevel, ident: u32) -> Result<LabelSet> {
        let first = self.labels(level, ident)?.into_iter().next();
        first.map_or_else(|| Ok(LabelSet::new()), |(_, set)| set)
    }
}

fn one_set(local: &mut Local, level: LabelLevel, ident: u32) -> Result<LabelSet> {
    let first = local.labels(level, ident)?.into_iter().next();
    first.map_or_else(|| Ok(LabelSet::new()), |(_, set)| set)
}

impl Context {
    /// Returns the labels of the host (pmGetContextLabels(3)).
    ///
    /// # Errors
    /// `PM_ERR_NOLABELS` when there are none; [connection errors](pcp_client#connection-errors) of a pmcd.
    pub fn context_labels(&mut self) -> Result<LabelSet> {
        self.one_set(LabelLevel::Context, LabelLevel::CONTEXT_IDENT, |host| host.context_labels())
    }

    /// Returns the labels of an agent (pmGetDomainLabels(3)).
    ///
    /// # Errors
    /// Errors of [`Context::context_labels`]; with a pmcd, also the error of the agent.
    pub fn domain_labels(&mut self, domain: Domain) -> Result<LabelSet> {
        self.one_set(LabelLevel::Domain, domain.get().into(), |host| host.domain_labels(domain))
    }

    /// Returns the labels of an instance domain (pmGetInDomLabels(3)).
    ///
    /// # Errors
    /// Errors of [`Context::domain_labels`].
    pub fn indom_labels(&mut self, indom: InDom) -> Result<LabelSet> {
        self.one_set(LabelLevel::InDom, indom.word(), |host| host.indom_labels(indom))
    }

    /// Returns the labels of the cluster that a metric belongs to (pmGetClusterLabels(3)).
    ///
    /// # Errors
    /// Errors of [`Context::domain_labels`].
    pub fn cluster_labels(&mut self, pmid: PmId) -> Result<LabelSet> {
        self.one_set(LabelLevel::Cluster, LabelLevel::cluster_ident(pmid), |host| host.cluster_labels(pmid))
    }

    /// Returns the labels of a metric itself (pmGetItemLabels(3)).
    ///
    /// # Errors
    /// Errors of [`Context::domain_labels`].
    pub fn item_labels(&mut self, pmid: PmId) -> Result<LabelSet> {
        self.one_set(LabelLevel::Item, pmid.word(), |host| host.item_labels(pmid))
    }

    /// Returns the labels of the instances that the profile includes (pmGetInstancesLabels(3)). Instances without
    /// labels are left out.
    ///
    /// # Errors
    /// Errors of [`Context::domain_labels`].
    pub fn instances_labels(&mut self, indom: InDom) -> Result<Vec<(Inst, Result<LabelSet>)>> {
        match &mut self.base {
            Base::Host(host) => host.instances_labels(indom),
            Base::Archive(recorded) => {
                let selection = recorded.profile.selection(indom);
                let sets = recorded.labels(LabelLevel::Instances, indom.word())?.into_iter();
                let sets = sets.filter_map(|(inst, set)| Some((Inst::from_word(inst)?, set)));
                Ok(sets.filter(|(inst, _)| selection.includes(*inst)).collect())
            }
            Base::Local(local) => {
                let sets = local.labels(LabelLevel::Instances, indom.word())?;
                let selection = local.profile.selection(indom);
                let sets = sets.into_iter().filter_map(|(inst, set)| Some((inst?, set)));
                Ok(sets.filter(|(inst, _)| selection.includes(*inst)).collect())
            }
        }
    }

    /// Returns the labels of a metric by level, from the most general one (pmLookupLabels(3)): those of the host, the
    /// agent, the instance domain, the cluster and the metric. Levels without labels are left out.
    ///
    /// # Errors
    /// Errors of [`Context::lookup_desc`] and [`Context::domain_labels`].
    pub fn lookup_labels(&mut self, pmid: PmId) -> Result<Vec<LabelSet>> {
        let desc = self.lookup_desc(pmid)?;
        if let Base::Host(host) = &mut self.base {
            return host.lookup_labels(pmid);
        }
        let sets = LabelLevel::of_metric(&desc).map(|(level, ident)| {
            match self.one_set(level, ident, |_| Err(Error::NOLABELS)) {
                Err(Error::NOLABELS) => Ok(LabelSet::new()),
                set => set,
            }
        });
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

    /// Returns the labels of a subject, which a pmcd is asked for with `of_host`.
    fn one_set(
        &mut self,
        level: LabelLevel,
        ident: u32,
        of_host: impl FnOnce(&mut pcp_client::Context) -> Result<LabelSet>,
    ) -> Result<LabelSet> {
        match &mut self.base {
            Base::Host(host) => of_host(host),
            Base::Archive(recorded) => recorded.one_set(level, ident),
            Base::Local(local) => one_set(local, level, ident),
        }
    }
}
