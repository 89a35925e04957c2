//! Operands that are metrics of a pmcd.

use std::collections::{HashMap, HashSet};

use pcp_client::{Context, HostSpec, Settings};
use pcp_derive::{Definition, Definitions, Metadata, Missing};
use pcp_derive::{Descs, Live};
use pmapi::{Desc, Domain, Error, InDom, Result};
use tracing::info;

use crate::limits;
use crate::metrics::{Labels, List};

/// Beginning of the names of the agent's own metrics, which cannot be operands.
const OWN: &str = "derived.";

/// Connection to a pmcd. Made on demand, and again when it has failed.
#[derive(Debug)]
pub(crate) struct Pmcd {
    host: HostSpec,
    /// The agent's own domain. Its metrics cannot be operands, whatever their names are.
    own: Domain,
    live: Option<Live>,
    /// Last descriptor of each operand, by name.
    known: HashMap<String, Desc>,
}

/// Whether a connection is the same one as before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Connected {
    Still,
    Anew,
}

impl Pmcd {
    pub(crate) fn new(host: HostSpec, own: Domain) -> Pmcd {
        Pmcd { host, own, live: None, known: HashMap::new() }
    }

    /// Connects, unless there is a connection.
    pub(crate) fn connect(&mut self) -> Result<Connected> {
        if self.is_connected() {
            return Ok(Connected::Still);
        }
        self.live = None;
        let mut settings = Settings::default();
        settings.longest_answer = limits::ANSWER;
        let mut context = Context::new(self.host.clone(), settings)?;
        context.settle()?;
        self.live = Some(Live::new(context));
        info!(source = %self.host, "connected to {}", self.host);
        Ok(Connected::Anew)
    }

    pub(crate) fn is_connected(&mut self) -> bool {
        self.live.as_mut().is_some_and(|live| live.context().is_connected())
    }

    pub(crate) fn host(&self) -> &HostSpec {
        &self.host
    }

    /// Returns the source of samples, or `PM_ERR_AGAIN` without a connection.
    pub(crate) fn live(&mut self) -> Result<&mut Live> {
        self.live.as_mut().ok_or(Error::AGAIN)
    }

    /// Drops the connection.
    pub(crate) fn disconnect(&mut self) {
        self.live = None;
    }

    /// Looks up the descriptors of operands, apart from those in `known`.
    pub(crate) fn names(&mut self, known: Descs, definitions: &Definitions) -> Result<Descs> {
        // pmcd would send the agent a request for its own names.
        let names = definitions.iter().flat_map(Definition::names).filter(|name| !name.starts_with(OWN));
        // A name that another definition has is seldom also a metric of pmcd, so it is not looked up again.
        let own: HashSet<&str> = definitions.iter().map(Definition::name).collect();
        known.lookup_beyond(self.live()?.context(), names, |name| !own.contains(name))
    }

    /// Returns the metadata to bind definitions to.
    pub(crate) fn operands<'a>(&'a mut self, names: &'a mut Descs) -> Operands<'a> {
        Operands { names, known: &mut self.known, own: self.own }
    }

    /// Returns the instances of a domain, with labels if `labels` is true.
    pub(crate) fn instances(&mut self, indom: InDom, labels: bool) -> Result<List> {
        let pmcd = self.live()?.context();
        let list = List::new(pmcd.in_dom(indom)?);
        if !labels {
            return Ok(list);
        }
        // Instances are shown even if the agent has no labels, or invalid ones.
        let of_instances = pmcd.instances_labels(indom).unwrap_or_default();
        let instances = of_instances.into_iter().filter_map(|(inst, labels)| Some((inst, labels.ok()?))).collect();
        Ok(list.labelled(Labels { indom: pmcd.indom_labels(indom).unwrap_or_default(), instances }))
    }
}

/// Metrics of other agents. While an agent is away, its metrics keep their last descriptors.
pub(crate) struct Operands<'a> {
    names: &'a mut Descs,
    known: &'a mut HashMap<String, Desc>,
    own: Domain,
}

impl Metadata for Operands<'_> {
    fn lookup(&mut self, name: &str) -> std::result::Result<Desc, Missing> {
        let desc = match self.names.lookup(name) {
            Err(Missing::Desc) => self.known.get(name).copied().ok_or(Missing::Desc),
            found => found,
        }?;
        if desc.pmid.domain() == self.own {
            return Err(Missing::Name);
        }
        self.known.insert(name.to_owned(), desc);
        Ok(desc)
    }
}
