//! The catalogs of an agent, in the order in which they are asked.

use std::borrow::Cow;

use pcp_pdu::metadata::{Subject, TextKind};
use pmapi::{LabelSet, PmId, Result, Serial};

use crate::agent::Agent;
use crate::catalog::{Catalog, LabelSubject, MetricInfo, Version};
use crate::getter::Getters;
use crate::indom::Instances;
use crate::named::Named;
use crate::schema::Schema;

/// Sources of answers, in their order: the agent's own methods, its tables, its declarations, and [`Agent::catalogs`].
pub(super) struct Catalogs<'a, A> {
    pub(super) agent: &'a A,
    pub(super) schema: &'a Schema,
    pub(super) getters: &'a Getters<A>,
}

impl<'a, A: Agent> Catalogs<'a, A> {
    pub(super) fn iter(&self) -> impl Iterator<Item = &'a dyn Catalog> {
        std::iter::once(self.schema as &dyn Catalog).chain(self.agent.catalogs())
    }

    pub(super) fn metric(&self, pmid: PmId) -> Option<MetricInfo> {
        self.iter().find_map(|catalog| catalog.metric(pmid))
    }

    /// Returns a metric's PMID together with its name, if it has one.
    pub(super) fn named(&self, pmid: PmId) -> Named {
        let mut name = self.schema.name_of(pmid).map(str::to_owned);
        if name.is_none() {
            self.agent.catalogs().into_iter().find_map(|catalog| {
                catalog.names(pmid, &mut |first| {
                    name.get_or_insert_with(|| first.to_owned());
                })
            });
        }
        Named::new(pmid, name)
    }

    pub(super) fn instances(&self, indom: Serial) -> Option<&'a dyn Instances> {
        let own = self.agent.instances(indom).or_else(|| self.getters.instances(self.agent, indom));
        own.or_else(|| self.iter().find_map(|catalog| catalog.instances(indom)))
    }

    pub(super) fn text(&self, of: Subject, kind: TextKind) -> Result<Option<&'a [u8]>> {
        let own = self.agent.text(of, kind)?;
        Ok(own.or_else(|| self.iter().find_map(|catalog| catalog.text(of, kind))))
    }

    pub(super) fn labels(&self, of: LabelSubject) -> Result<Option<Cow<'a, LabelSet>>> {
        let own = self.agent.labels(of)?.map(Cow::Owned);
        Ok(own.or_else(|| self.iter().find_map(|catalog| catalog.labels(of)).map(Cow::Borrowed)))
    }
}

/// Returns the version of all catalogs.
pub(super) fn version(agent: &impl Agent) -> Version {
    // The counters only grow, so their sum changes whenever one of them does.
    agent.catalogs().into_iter().map(Catalog::version).fold(Version::default(), |sum, version| Version {
        names: sum.names.wrapping_add(version.names),
        labels: sum.labels.wrapping_add(version.labels),
    })
}
