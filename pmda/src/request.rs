//! The requests that an agent prepares for.

use pcp_pdu::metadata::Fetch;
use pmapi::{Domain, Item, PmId, Serial};

/// The subject of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Request<'a> {
    /// Values of metrics.
    Fetch(Items<'a>),
    /// Instances of a domain.
    Instance(Serial),
    /// A metric's descriptor.
    Desc(Item),
    /// Help text.
    Text,
    /// Labels of a domain.
    InDomLabels(Serial),
    /// Labels of the instances of a domain.
    InstanceLabels(Serial),
    /// Labels of the context, the agent, a cluster or a metric.
    Labels,
    /// Values to be stored.
    Store,
    /// Names of metrics. With a name, the client looks up the metrics at or below it, and is likely to fetch them next.
    Names(Option<&'a str>),
}

/// The metrics of a fetch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Items<'a> {
    pub(crate) fetch: Fetch<'a>,
    pub(crate) domain: Domain,
}

impl<'a> Items<'a> {
    /// Iterates over the metrics of the agent's domain, known or not, in the client's order and with repetitions.
    pub fn iter(self) -> impl Iterator<Item = Item> + Clone + 'a {
        self.fetch.pmids().flatten().filter(move |pmid| pmid.domain() == self.domain).map(PmId::item)
    }
}
