//! Operands of a pmcd.

use std::collections::{HashMap, HashSet};

use pcp_client::{Context, HostSpec, Settings};
use pcp_derive::{Definition, Definitions, Metadata, Missing};
use pcp_derive::{Live, Names};
use pmapi::{Desc, Domain, Error, InDom, Result};
use tracing::info;

use crate::metrics::{Labels, List};

/// What the agent's own metrics begin with: they are no operands.
const OWN: &str = "derived.";

/// A connection to pmcd, made when it is needed, and again when it is broken.
#[derive(Debug)]
pub(crate) struct Pmcd {
    host: HostSpec,
    /// The agent's own domain, whose metrics are no operands, whatever their names.
    own: Domain,
    live: Option<Live>,
    /// Descriptors that there have been.
    known: HashMap<String, Desc>,
}

/// Whether a connection has been there before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Connected {
    Still,
    Anew,
}

impl Pmcd {
    pub(crate) fn new(host: HostSpec, own: Domain) -> Pmcd {
        Pmcd { host, own, live: None, known: HashMap::new() }
    }

    /// Connects, unless that is so already.
    pub(crate) fn connect(&mut self) -> Result<Connected> {
        if self.is_connected() {
            return Ok(Connected::Still);
        }
        self.live = None;
        self.live = Some(Live::new(Context::new(self.host.clone(), Settings::default())?));
        info!("connected to {}", self.host);
        Ok(Connected::Anew)
    }

    pub(crate) fn is_connected(&mut self) -> bool {
        self.live.as_mut().is_some_and(|live| live.context().is_connected())
    }

    /// What samples are taken from, while there is a connection.
    pub(crate) fn live(&mut self) -> Result<&mut Live> {
        self.live.as_mut().ok_or(Error::AGAIN)
    }

    /// Drops the connection.
    pub(crate) fn disconnect(&mut self) {
        self.live = None;
    }

    /// The descriptors of operands, some of which may be known.
    pub(crate) fn names(&mut self, known: Names, definitions: &Definitions) -> Result<Names> {
        // pmcd would ask this agent for its own.
        let names = definitions.iter().flat_map(Definition::names).filter(|name| !name.starts_with(OWN));
        // Definitions that refer to one another are no metrics of pmcd, as a rule.
        let own: HashSet<&str> = definitions.iter().map(Definition::name).collect();
        known.lookup_beyond(self.live()?.context(), names, |name| !own.contains(name))
    }

    /// What definitions are bound to.
    pub(crate) fn operands<'a>(&'a mut self, names: &'a mut Names) -> Operands<'a> {
        Operands { names, known: &mut self.known, own: self.own }
    }

    /// The instances of a domain, perhaps with labels.
    pub(crate) fn instances(&mut self, indom: InDom, labels: bool) -> Result<List> {
        let pmcd = self.live()?.context();
        let list = List::new(pmcd.in_dom(indom)?);
        if !labels {
            return Ok(list);
        }
        // An agent without labels, or with wrong ones, is no reason to have no instances.
        let of_instances = pmcd.instances_labels(indom).unwrap_or_default();
        let instances = of_instances.into_iter().filter_map(|(inst, labels)| Some((inst, labels.ok()?))).collect();
        Ok(list.labelled(Labels { indom: pmcd.indom_labels(indom).unwrap_or_default(), instances }))
    }
}

/// The metrics of others. While the agent of one is away, its descriptor is the last that there was.
pub(crate) struct Operands<'a> {
    names: &'a mut Names,
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
