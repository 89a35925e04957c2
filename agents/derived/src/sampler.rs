//! The thread that asks pmcd and evaluates: the agent's own thread never does, because pmcd waits for it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use pmapi::context::{Context, HostSpec, Live, Names, Settings};
use pmapi::derive::{Evaluator, Metadata, Missing, Plan, Text, Values};
use pmapi::pdu::result::Changes;
use pmapi::{Desc, Domain, Error, InDom, Inst, Result};
use pmda::prelude::Instances;
use tracing::{info, warn};

use crate::config::Config;

/// What both threads know.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// The configuration shall be loaded again.
    pub(crate) reload: AtomicBool,
    pub(crate) samples: AtomicU64,
    pub(crate) errors: AtomicU64,
    /// Nanoseconds that the evaluation of the last sample took.
    pub(crate) evaluation: AtomicU64,
}

/// One sample.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// What the metrics are; another one when they are others.
    pub(crate) metrics: Arc<Metrics>,
    /// The values of each.
    pub(crate) values: Vec<Result<Values>>,
    pub(crate) indoms: HashMap<InDom, Arc<List>>,
}

#[derive(PartialEq, Debug)]
pub(crate) struct Metrics {
    pub(crate) good: Vec<Metric>,
    /// Why others are none.
    pub(crate) messages: Vec<String>,
}

#[derive(PartialEq, Debug)]
pub(crate) struct Metric {
    pub(crate) name: String,
    pub(crate) desc: Desc,
    pub(crate) oneline: String,
    pub(crate) help: String,
    /// Its place among the definitions.
    number: usize,
}

/// The instances of an operand's domain.
#[derive(Debug, Default)]
pub(crate) struct List(Vec<(Inst, String)>);

impl Instances for List {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn each(&self, f: &mut dyn FnMut(Inst, &str)) {
        self.0.iter().for_each(|(inst, name)| f(*inst, name));
    }

    fn name(&self, inst: Inst) -> Option<&str> {
        self.0.iter().find(|(other, _)| *other == inst).map(|(_, name)| name.as_str())
    }

    fn lookup(&self, name: &str) -> Option<Inst> {
        let exact = self.0.iter().find(|(_, other)| other == name);
        let key = || self.0.iter().find(|(_, other)| other.split(' ').next() == Some(name));
        exact.or_else(key).map(|(inst, _)| *inst)
    }
}

pub(crate) struct Sampler {
    pub(crate) path: String,
    pub(crate) host: HostSpec,
    /// The agent's own domain, whose metrics are no operands, whatever their names.
    pub(crate) own: Domain,
    pub(crate) shared: Arc<Shared>,
    pub(crate) started: Instant,
    pub(crate) config: Config,
    pub(crate) live: Option<Live>,
    pub(crate) bound: Option<Bound>,
    /// What there was last.
    pub(crate) metrics: Option<Arc<Metrics>>,
    pub(crate) known: HashMap<String, Desc>,
}

pub(crate) struct Bound {
    names: Names,
    evaluator: Evaluator,
    plan: Plan,
    metrics: Arc<Metrics>,
    indoms: HashMap<InDom, Arc<List>>,
    /// The instances that each metric had in the last sample.
    seen: Vec<Vec<Inst>>,
    /// Something in pmcd has changed since.
    stale: bool,
}

/// What the agent's own metrics begin with: they are no operands.
const OWN: &str = "derived.";

/// News that agents have come or gone.
const AGENTS: Changes = Changes(Changes::AGENT_ADDED.0 | Changes::AGENT_RESTARTED.0 | Changes::AGENT_DROPPED.0);

/// The metrics of others. While the agent of one is away, its descriptor is the last that there was.
struct Operands<'a> {
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

impl Sampler {
    /// Takes a sample. Errors of the connection are not for pmcd, which would take them for its own with this agent.
    pub(crate) fn sample(&mut self) -> Result<Snapshot> {
        self.shared.samples.fetch_add(1, Relaxed);
        self.try_sample().map_err(|e| {
            self.shared.errors.fetch_add(1, Relaxed);
            if e == Error::IPC || e == Error::TIMEOUT { Error::AGAIN } else { e }
        })
    }

    fn try_sample(&mut self) -> Result<Snapshot> {
        if self.shared.reload.swap(false, Relaxed) {
            self.config = Config::load(&self.path, &self.host);
            self.bound = None;
        }
        let mut live = self.connected()?;
        let result = self.sample_from(&mut live);
        self.live = Some(live);
        result
    }

    /// The connection, made again when it is broken.
    fn connected(&mut self) -> Result<Live> {
        let Some(mut live) = self.live.take() else {
            let context = Context::new(self.host.clone(), Settings::default()).map_err(|_| Error::AGAIN)?;
            info!("connected to {}", self.host);
            return Ok(Live::new(context));
        };
        if !live.context().is_connected() {
            let connected = live.context().reconnect();
            if connected.is_err() {
                self.live = Some(live);
                return Err(Error::AGAIN);
            }
            info!("connected to {} again", self.host);
            // Nor is there a difference between samples of two pmcds.
            self.bound = None;
        }
        Ok(live)
    }

    fn sample_from(&mut self, live: &mut Live) -> Result<Snapshot> {
        let mut bound = self.bound_to(live)?;
        let mut changes = live.take(bound.evaluator.operands_of(&bound.plan))?;
        if changes.0 & AGENTS.0 != 0 {
            // Counters may have begun anew: there is no difference between this sample and the one before.
            let names = self.names(live)?;
            bound = self.bind(names);
            changes = live.take(bound.evaluator.operands_of(&bound.plan))?;
        }
        let start = Instant::now();
        bound.evaluator.evaluate(&bound.plan, self.started.elapsed(), live);
        self.shared.evaluation.store(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX), Relaxed);
        bound.stale = changes != Changes::default();
        let snapshot = bound.snapshot(live);
        self.bound = Some(bound);
        snapshot
    }

    fn names(&self, live: &mut Live) -> Result<Names> {
        let definitions = self.config.groups.iter().flat_map(|group| &group.definitions);
        let names = definitions.flat_map(|definition| definition.names());
        // pmcd would ask this agent for its own.
        Names::lookup(live.context(), names.filter(|name| !name.starts_with(OWN)))
    }

    /// The definitions, bound again when names or descriptors are others.
    fn bound_to(&mut self, live: &mut Live) -> Result<Bound> {
        match self.bound.take() {
            Some(bound) if !bound.stale => Ok(bound),
            old => {
                let names = self.names(live)?;
                Ok(match old {
                    Some(old) if old.names == names => Bound { stale: false, ..old },
                    _ => self.bind(names),
                })
            }
        }
    }

    fn bind(&mut self, mut names: Names) -> Bound {
        let mut operands = Operands { names: &mut names, known: &mut self.known, own: self.own };
        let definitions: Vec<_> = self.config.groups.iter().flat_map(|group| &group.definitions).collect();
        let novalue = self.config.groups.iter().any(|group| group.novalue);
        let evaluator = Evaluator::bind(definitions.iter().copied(), &mut operands, novalue);
        let (mut good, mut messages) =
            (Vec::new(), self.config.problems.iter().map(ToString::to_string).collect::<Vec<_>>());
        for (number, definition) in definitions.iter().enumerate() {
            let text = |text| definition.text(text, true).unwrap_or_default().to_owned();
            match evaluator.desc(number) {
                Ok(desc) => good.push(Metric {
                    name: definition.name().to_owned(),
                    desc,
                    oneline: text(Text::OneLine),
                    help: text(Text::Help),
                    number,
                }),
                Err(why) => {
                    let why = why.map(ToString::to_string).unwrap_or_default();
                    warn!("{}: {why}", definition.name());
                    messages.push(format!("{}: {why}", definition.name()));
                }
            }
        }
        info!("{} definitions are good, {} messages about others", good.len(), messages.len());
        let plan = evaluator.plan(good.iter().map(|metric| metric.number));
        let seen = vec![Vec::new(); good.len()];
        let metrics = Metrics { good, messages };
        let metrics = match &self.metrics {
            Some(same) if **same == metrics => Arc::clone(same),
            _ => Arc::new(metrics),
        };
        self.metrics = Some(Arc::clone(&metrics));
        Bound { names, evaluator, plan, metrics, indoms: HashMap::new(), seen, stale: false }
    }
}

impl Bound {
    fn snapshot(&mut self, live: &mut Live) -> Result<Snapshot> {
        let number = |metric: &Metric| self.evaluator.values(metric.number).cloned();
        let values: Vec<_> = self.metrics.good.iter().map(number).collect();
        let mut changed = HashSet::new();
        for ((metric, values), seen) in self.metrics.good.iter().zip(&values).zip(&mut self.seen) {
            let (Some(indom), Ok(values)) = (metric.desc.indom, values) else { continue };
            let instances = || values.iter().filter_map(|(inst, _)| inst);
            if !seen.iter().copied().eq(instances()) || !self.indoms.contains_key(&indom) {
                seen.clear();
                seen.extend(instances());
                changed.insert(indom);
            }
        }
        for indom in changed {
            match List::ask(live.context(), indom) {
                Ok(list) => _ = self.indoms.insert(indom, Arc::new(list)),
                // Its agent may have gone since: what there was stays until it is back.
                Err(e) if live.context().is_connected() => warn!("instance domain {indom}: {e}"),
                Err(e) => return Err(e),
            }
        }
        Ok(Snapshot { metrics: Arc::clone(&self.metrics), values, indoms: self.indoms.clone() })
    }
}

impl List {
    fn ask(context: &mut Context, indom: InDom) -> Result<List> {
        let text = |name: Vec<u8>| String::from_utf8_lossy(&name).into_owned();
        Ok(List(context.in_dom(indom)?.into_iter().map(|(inst, name)| (inst, text(name))).collect()))
    }
}

/// How long the evaluation of the last sample took.
pub(crate) fn evaluation(shared: &Shared) -> Duration {
    Duration::from_nanos(shared.evaluation.load(Relaxed))
}
