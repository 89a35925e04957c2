//! Operands that are metrics of a pmcd.

use std::collections::HashSet;
use std::fmt;
use std::time::{Duration, Instant, SystemTime};

use pcp_client::{Context, HostSpec, Settings};
use pcp_derived::{Definition, Definitions, Descs, Evaluator, Live, Plan};
use pmapi::{Domain, Error, InDom, Item, PmId, Result};
use tracing::info;

use super::{Connected, Sizes, Source, Taken};
use crate::limits;
use crate::metrics::{Labels, List};

/// Beginning of the names of the agent's own metrics, which cannot be operands.
const OWN: &str = "derived.";

/// Metric to fetch if no operands are needed. Change notifications come with a fetch, and a metric of pmcd itself costs
/// no other agent anything.
const PMCD: PmId = match Domain::new(2) {
    Some(pmcd) => PmId::new(pmcd, Item::new(0, 0)),
    // Evaluated by the compiler: 2 is a domain.
    None => unreachable!(),
};

/// Connection to a pmcd. Made on demand, and again when it has failed.
#[derive(Debug)]
pub(crate) struct Pmcd {
    host: HostSpec,
    /// The agent's own domain. Its metrics cannot be operands, whatever their names are.
    own: Domain,
    live: Option<Live>,
}

impl Pmcd {
    pub(crate) fn new(host: HostSpec, own: Domain) -> Pmcd {
        Pmcd { host, own, live: None }
    }

    /// Returns the source of samples, or `PM_ERR_AGAIN` without a connection.
    fn live(&mut self) -> Result<&mut Live> {
        self.live.as_mut().ok_or(Error::AGAIN)
    }
}

impl fmt::Display for Pmcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.host.fmt(f)
    }
}

impl Source for Pmcd {
    fn connect(&mut self) -> Result<Connected> {
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

    fn is_connected(&mut self) -> bool {
        self.live.as_mut().is_some_and(|live| live.context().is_connected())
    }

    fn disconnect(&mut self) {
        self.live = None;
    }

    fn own(&self) -> Option<Domain> {
        Some(self.own)
    }

    fn names(&mut self, known: Descs, definitions: &Definitions) -> Result<Descs> {
        // pmcd would send the agent a request for its own names.
        let names = definitions.iter().flat_map(Definition::names).filter(|name| !name.starts_with(OWN));
        // A name that another definition has is seldom also a metric of pmcd, so it is not looked up again.
        let own: HashSet<&str> = definitions.iter().map(Definition::name).collect();
        known.lookup_beyond(self.live()?.context(), names, |name| !own.contains(name))
    }

    fn take(&mut self, evaluator: &Evaluator, plan: &Plan) -> Result<Taken> {
        if evaluator.operands_of(plan).next().is_none() {
            return self.check();
        }
        let live = self.live()?;
        let before = Instant::now();
        let changes = live.take(evaluator.operands_of(plan))?;
        let after = Instant::now();
        // pmcd may have been busy before it fetched the values. Its clock may differ from this host's.
        let stamp = live.last().time();
        let stamp = Duration::new(u64::try_from(stamp.seconds).unwrap_or_default(), stamp.nanoseconds);
        let age =
            (SystemTime::UNIX_EPOCH.checked_add(stamp)).and_then(|stamp| stamp.elapsed().ok()).unwrap_or_default();
        let at = after.checked_sub(age).unwrap_or(before).clamp(before, after);
        Ok(Taken { at, changes, is_complete: true })
    }

    fn check(&mut self) -> Result<Taken> {
        let at = Instant::now();
        Ok(Taken { at, changes: self.live()?.context().fetch(&[PMCD])?.changes(), is_complete: true })
    }

    fn sizes(&self, evaluator: &Evaluator, plan: &Plan, sizes: &mut Sizes) {
        let sets = self.live.iter().flat_map(|live| live.last().sets());
        evaluator.operands_of(plan).zip(sets).for_each(|(operand, set)| sizes.add(operand, &set));
    }

    fn values(&mut self) -> Result<&mut dyn pcp_derived::Source> {
        Ok(self.live()?)
    }

    fn list(&mut self, indom: InDom, labels: bool) -> Result<List> {
        let pmcd = self.live()?.context();
        let list = List::new(pmcd.indom(indom)?);
        if !labels {
            return Ok(list);
        }
        // Instances are shown even if the agent has no labels, or invalid ones.
        let of_instances = pmcd.instances_labels(indom).unwrap_or_default();
        let instances = of_instances.into_iter().filter_map(|(inst, labels)| Some((inst, labels.ok()?))).collect();
        Ok(list.labelled(Labels { indom: pmcd.indom_labels(indom).unwrap_or_default(), instances }))
    }

    fn forget_instances(&mut self) {
        if let Some(live) = &mut self.live {
            live.forget_instances();
        }
    }
}
