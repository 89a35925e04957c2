//! Agents that this one starts for their metrics, without a pmcd.

use std::collections::HashMap;
use std::fmt;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use pcp_collector::{LabelTarget, Launch, Supervisor};
use pcp_derived::{Definition, Definitions, Descs, Evaluator, Load, Missing, Operand, OperandValues, Plan};
use pcp_pdu::result::Changes;
use pmapi::{Desc, Domain, Error, InDom, Inst, PmId, Result};
use tracing::error;

use super::{Connected, Sizes, Source, Taken};
use crate::config::AgentSpec;
use crate::limits;
use crate::metrics::{Labels, List};

/// Environment variable that is set in every agent started by this one. Such an agent starts none itself, because a
/// configuration could start agents in an endless cycle.
const NESTED: &str = "PMDADERIVED_OPERAND";

/// Agents of a specification. Groups with the same specification share them.
#[derive(Debug)]
pub(crate) struct Fleet {
    agents: Vec<Agent>,
    /// Agents that cannot be started: pairs of a name and a reason.
    refused: Vec<(String, String)>,
}

#[derive(Debug)]
struct Agent {
    domain: Domain,
    supervisor: Supervisor,
    /// Names from the file `pmns`. `None` if the agent itself resolves names.
    names: Option<pmns::Tree>,
    /// Number of times that names or descriptors may have changed.
    name_changes: u64,
    /// Number of times that labels may have changed.
    label_changes: u64,
}

/// Number of changes of the agents.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct ChangeCounts {
    /// How often agents have become ready. Then everything may have changed, and counters have been reset.
    starts: u64,
    names: u64,
    labels: u64,
}

/// Running agents, by specification.
#[derive(Debug, Default)]
pub(crate) struct Pool(Vec<(Vec<AgentSpec>, Weak<Mutex<Fleet>>)>);

impl Pool {
    /// Longest time for which [`Pool::end`] waits for a sample that waits for an agent.
    const BUSY: Duration = Duration::from_millis(500);

    /// Returns the agents of a specification, which the first sample starts.
    pub(crate) fn fleet(&mut self, specs: &[AgentSpec]) -> Arc<Mutex<Fleet>> {
        self.0.retain(|(_, fleet)| fleet.strong_count() > 0);
        let known = self.0.iter().find(|(known, _)| known == specs).and_then(|(_, fleet)| fleet.upgrade());
        known.unwrap_or_else(|| {
            let fleet = Arc::new(Mutex::new(Fleet::new(specs)));
            self.0.push((specs.to_vec(), Arc::downgrade(&fleet)));
            fleet
        })
    }

    /// Ends all agents. Those that are asked for longer than a moment end with this process.
    pub(crate) fn end(&mut self) {
        let until = Instant::now() + Self::BUSY;
        let mut ended = Vec::new();
        for fleet in self.0.drain(..).filter_map(|(_, fleet)| fleet.upgrade()) {
            loop {
                if let Ok(mut fleet) = fleet.try_lock() {
                    ended.append(&mut fleet.agents);
                    break;
                }
                if Instant::now() >= until {
                    break;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        // All see the end of their input before one is waited for.
        ended.iter_mut().for_each(|agent| agent.supervisor.close());
    }
}

impl Fleet {
    /// Prepares agents. In an agent that was itself started for its metrics, refuses all.
    fn new(specs: &[AgentSpec]) -> Fleet {
        let includes = pmapi::Config::load().var_dir().join("pmns");
        let (mut agents, mut refused) = (Vec::new(), Vec::new());
        for spec in specs {
            let names = match &spec.pmns {
                _ if std::env::var_os(NESTED).is_some() => {
                    Err("an agent that was itself started for its metrics cannot start agents".to_owned())
                }
                Some(path) => {
                    pmns::Loader::new().include_dir(&includes).load(path).map(Some).map_err(|e| e.to_string())
                }
                None => Ok(None),
            };
            match names {
                Ok(names) => agents.push(Agent {
                    domain: spec.domain,
                    supervisor: supervisor(spec),
                    names,
                    name_changes: 0,
                    label_changes: 0,
                }),
                Err(why) => {
                    error!("agent {} is not started: {why}", spec.name);
                    refused.push((spec.name.clone(), why));
                }
            }
        }
        Fleet { agents, refused }
    }

    fn agent(&mut self, domain: Domain) -> Option<&mut Agent> {
        self.agents.iter_mut().find(|agent| agent.domain == domain)
    }

    fn changes(&self) -> ChangeCounts {
        let mut sum = ChangeCounts::default();
        for agent in &self.agents {
            sum.starts += agent.supervisor.readied();
            sum.names += agent.name_changes;
            sum.labels += agent.label_changes;
        }
        sum
    }
}

/// Returns the supervisor of an agent, which has this process's user and directory.
fn supervisor(spec: &AgentSpec) -> Supervisor {
    let (name, words) = (spec.name.clone(), spec.command.clone());
    Supervisor::new(spec.name.clone(), move || {
        let mut words = words.iter().map(String::as_str);
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).env(NESTED, "1");
        Launch::pipe(command).limit(limits::ANSWER).isolated().logged(&name)
    })
}

/// Operands of a group from its agents.
///
/// While an agent is away or does not answer in time, its metrics keep their last descriptors, and their values are
/// `PM_ERR_AGAIN`.
#[derive(Debug)]
pub(crate) struct Agents {
    fleet: Arc<Mutex<Fleet>>,
    /// Last sample of each agent.
    samples: Vec<Sample>,
    /// Whether the agents have been started.
    is_started: bool,
    seen: ChangeCounts,
    /// Whether values have shown that a descriptor has changed.
    is_stale: bool,
    /// Longest time that a sample may wait for the agents.
    patience: Duration,
    /// Deadline of the current sample.
    until: Instant,
}

#[derive(Debug)]
struct Sample {
    operands: OperandValues,
    /// Error in place of all values.
    outcome: Result,
}

impl Agents {
    /// Creates a source over agents, for which a sample waits at most for the time `patience`.
    pub(crate) fn new(fleet: Arc<Mutex<Fleet>>, patience: Duration) -> Agents {
        let sample = |_: &Agent| Sample { operands: OperandValues::default(), outcome: Err(Error::AGAIN) };
        let samples = lock(&fleet).agents.iter().map(sample).collect();
        let until = Instant::now();
        Agents { fleet, samples, is_started: false, seen: ChangeCounts::default(), is_stale: false, patience, until }
    }

    /// Begins requests, which wait for the agents for the time `patience` at most.
    fn begin(&mut self) {
        let mut fleet = lock(&self.fleet);
        // Another group's sample may have taken some time.
        self.until = Instant::now() + self.patience;
        fleet.agents.iter_mut().for_each(|agent| agent.supervisor.tend());
    }

    /// Returns whether an agent is starting and has not failed.
    fn is_starting(&self) -> bool {
        lock(&self.fleet).agents.iter().any(|agent| agent.supervisor.is_starting())
    }

    /// Returns what has changed since the last call.
    fn changes(&mut self) -> Changes {
        let now = lock(&self.fleet).changes();
        let before = std::mem::replace(&mut self.seen, now);
        let mut changes = Changes::default();
        if before.starts != now.starts {
            changes |= Changes::AGENT_RESTARTED;
        }
        if before.names != now.names || std::mem::take(&mut self.is_stale) {
            changes |= Changes::NAMES;
        }
        if before.labels != now.labels {
            changes |= Changes::LABELS;
        }
        changes
    }

    fn indom(&self, indom: InDom) -> Result<Vec<(Inst, String)>> {
        let mut fleet = lock(&self.fleet);
        let agent = fleet.agent(indom.domain()).ok_or(Error::INDOM)?;
        agent.supervisor.ask(self.until, |agent| agent.instances(indom))
    }

    /// Returns the place of the agent with a domain.
    fn place(&self, domain: Domain) -> Option<usize> {
        lock(&self.fleet).agents.iter().position(|agent| agent.domain == domain)
    }
}

fn lock(fleet: &Mutex<Fleet>) -> MutexGuard<'_, Fleet> {
    fleet.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Display for Agents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("its agents")
    }
}

impl Source for Agents {
    fn connect(&mut self) -> Result<Connected> {
        if std::mem::replace(&mut self.is_started, true) {
            return Ok(Connected::Still);
        }
        self.begin();
        let until = self.until;
        while self.is_starting() && Instant::now() < until {
            std::thread::sleep(Supervisor::LOOK);
            self.begin();
        }
        // The definitions are bound after this.
        let _ = self.changes();
        Ok(Connected::Anew)
    }

    fn is_connected(&mut self) -> bool {
        true
    }

    fn patience(&self) -> Duration {
        self.patience
    }

    fn own(&self) -> Option<Domain> {
        None
    }

    fn names(&mut self, known: Descs, definitions: &Definitions) -> Result<Descs> {
        let until = Instant::now() + self.patience;
        let mut fleet = lock(&self.fleet);
        let names = definitions.iter().flat_map(Definition::names);
        let found: HashMap<&str, _> = names.map(|name| (name, known.get(name).filter(|known| known.is_ok()))).collect();
        let found = found
            .into_iter()
            .map(|(name, known)| (name.to_owned(), known.unwrap_or_else(|| fleet.lookup(name, until))));
        Ok(found.collect())
    }

    fn take(&mut self, evaluator: &Evaluator, plan: &Plan) -> Result<Taken> {
        self.begin();
        let (mut fleet, until) = (lock(&self.fleet), self.until);
        for (agent, Sample { operands, outcome }) in fleet.agents.iter_mut().zip(&mut self.samples) {
            let pmids = evaluator.operands_of(plan).map(|operand| operand.desc.pmid);
            let taken = operands.take(pmids.filter(|pmid| pmid.domain() == agent.domain), |pmids, sample| {
                agent.supervisor.ask(until, |agent| {
                    let fetched = agent.fetch(pmids)?;
                    sample.assign(fetched.pdu().values());
                    Ok(fetched.changes())
                })
            });
            let changes = taken.unwrap_or_default();
            agent.name_changes += u64::from(changes.contains(Changes::NAMES));
            agent.label_changes += u64::from(changes.contains(Changes::LABELS));
            *outcome = taken.map(|_| ());
        }
        drop(fleet);
        let is_complete = self.samples.iter().all(|sample| sample.outcome.is_ok());
        Ok(Taken { at: Instant::now(), changes: self.changes(), is_complete })
    }

    fn check(&mut self) -> Result<Taken> {
        self.begin();
        Ok(Taken { at: Instant::now(), changes: self.changes(), is_complete: true })
    }

    fn sizes(&self, evaluator: &Evaluator, plan: &Plan, sizes: &mut Sizes) {
        for (agent, sample) in lock(&self.fleet).agents.iter().zip(&self.samples) {
            if sample.outcome.is_ok() {
                let own = evaluator.operands_of(plan).filter(|operand| operand.desc.pmid.domain() == agent.domain);
                own.zip(sample.operands.last().sets()).for_each(|(operand, set)| sizes.add(operand, &set));
            }
        }
    }

    fn values(&mut self) -> Result<&mut dyn pcp_derived::Source> {
        Ok(self)
    }

    fn list(&mut self, indom: InDom, labels: bool) -> Result<List> {
        let instances = self.indom(indom)?.into_iter();
        let list = List::new(instances.map(|(inst, name)| (inst, name.into_bytes())));
        let (mut fleet, until) = (lock(&self.fleet), self.until);
        let Some(agent) = fleet.agent(indom.domain()).filter(|_| labels) else { return Ok(list) };
        // Instances are shown even if the agent has no labels, or invalid ones.
        let mut ask = |of| agent.supervisor.ask(until, |agent| agent.labels(of)).unwrap_or_default().into_iter();
        let of_instances = ask(LabelTarget::Instances(Some(indom)));
        let instances = of_instances.filter_map(|(inst, labels)| Some((inst?, labels.ok()?))).collect();
        let indom = ask(LabelTarget::InDom(indom)).find_map(|(_, labels)| labels.ok()).unwrap_or_default();
        Ok(list.labelled(Labels { indom, instances }))
    }

    fn forget_instances(&mut self) {
        self.samples.iter_mut().for_each(|sample| sample.operands.forget_instances());
    }

    fn tend(&mut self) -> bool {
        let before = self.problems_version();
        self.begin();
        self.problems_version() != before
    }

    fn due(&self, tended: Instant) -> Option<Instant> {
        lock(&self.fleet).agents.iter().filter_map(|agent| agent.supervisor.due(tended)).min()
    }

    fn problems(&self) -> Vec<(String, String)> {
        let fleet = lock(&self.fleet);
        let refused = fleet.refused.iter().map(|(name, why)| (name.as_str(), why.as_str()));
        let all = refused.chain(fleet.agents.iter().filter_map(|agent| agent.supervisor.problem()));
        all.map(|(name, why)| (format!("agent {name}"), why.to_owned())).collect()
    }

    fn problems_version(&self) -> u64 {
        lock(&self.fleet).agents.iter().map(|agent| agent.supervisor.problem_version()).sum()
    }
}

impl Fleet {
    /// Returns the descriptor of a metric.
    fn lookup(&mut self, name: &str, until: Instant) -> Result<Desc, Missing> {
        // An agent that cannot be started may have the metric.
        let mut missing = if self.refused.is_empty() { Missing::Name } else { Missing::Desc };
        for agent in &mut self.agents {
            match agent.lookup(name, until) {
                Ok(desc) => return Ok(desc),
                Err(Error::NAME) => {}
                Err(e) => {
                    missing = Missing::Desc;
                    // The definitions have to be bound again, which repeats the lookup.
                    agent.name_changes += u64::from(e == Error::AGAIN && agent.supervisor.is_ready());
                }
            }
        }
        Err(missing)
    }
}

impl Agent {
    /// Returns the descriptor of a metric, or `PM_ERR_NAME` if the agent has no metric of this name.
    fn lookup(&mut self, name: &str, until: Instant) -> Result<Desc> {
        let pmid = match self.resolve(name) {
            Resolved::None => return Err(Error::NAME),
            Resolved::Metric(pmid) => pmid,
            Resolved::Dynamic => match self.supervisor.ask(until, |agent| agent.pmid(name)) {
                Err(Error::AGAIN) => return Err(Error::AGAIN),
                found => found.map_err(|_| Error::NAME)?,
            },
        };
        // The `pmns` file may have been written for another domain.
        let pmid = PmId::new(self.domain, pmid.item());
        let desc = self.supervisor.ask(until, |agent| agent.desc(pmid))?;
        Ok(Desc { pmid, ..desc })
    }

    /// Looks a name up in the `pmns` file.
    fn resolve(&self, name: &str) -> Resolved {
        let Some(names) = &self.names else { return Resolved::Dynamic };
        let mut ends = name.match_indices('.').map(|(at, _)| at).chain([name.len()]);
        let found = ends.find_map(|end| Some((end, names.node(name.get(..end)?)?.pmid()?)));
        match found {
            Some((_, pmid)) if pmid.dynamic_root().is_some() => Resolved::Dynamic,
            Some((end, pmid)) if end == name.len() => Resolved::Metric(pmid),
            _ => Resolved::None,
        }
    }
}

enum Resolved {
    Metric(PmId),
    /// Only the agent can resolve the name.
    Dynamic,
    None,
}

impl pcp_derived::Source for Agents {
    fn values(&mut self, operand: &Operand, load: &mut Load<'_>) -> Result<()> {
        let place = self.place(operand.desc.pmid.domain()).ok_or(Error::NOAGENT)?;
        let sample = self.samples.get(place).ok_or(Error::NOAGENT)?;
        sample.outcome?;
        match sample.operands.values(operand, load) {
            // The descriptor has changed since the definitions were bound.
            Err(Error::CONV | Error::PMID) => {
                self.is_stale = true;
                Err(Error::AGAIN)
            }
            Err(Error::IPC | Error::TIMEOUT) => Err(Error::AGAIN),
            outcome => outcome,
        }
    }

    fn instances(&mut self, indom: InDom, list: &mut Vec<Inst>) -> Result<()> {
        list.extend(self.indom(indom)?.into_iter().map(|(inst, _)| inst));
        Ok(())
    }

    fn instance_name(&mut self, indom: InDom, inst: Inst, name: &mut Vec<u8>) -> Result<()> {
        let place = self.place(indom.domain()).ok_or(Error::INDOM)?;
        let mut fleet = lock(&self.fleet);
        let (agent, sample) = (fleet.agents.get_mut(place), self.samples.get_mut(place));
        let (Some(agent), Some(sample)) = (agent, sample) else { return Err(Error::INDOM) };
        let until = self.until;
        let ask = || agent.supervisor.ask(until, |agent| agent.instances(indom));
        sample.operands.instance_name(indom, inst, name, ask)
    }

    fn instance_id(&mut self, indom: InDom, name: &str) -> Result<Inst> {
        let mut fleet = lock(&self.fleet);
        let agent = fleet.agent(indom.domain()).ok_or(Error::INDOM)?;
        agent.supervisor.ask(self.until, |agent| agent.instance_of(indom, name))
    }
}
