//! Agents that this one starts for their metrics, without a pmcd.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::time::Instant;

use pcp_collector::LabelTarget;
use pcp_derive::OperandValues;
use pcp_derive::{Load, Metadata, Missing, Operand, Source};
use pcp_pdu::result::Changes;
use pmapi::{Desc, Domain, Error, InDom, Inst, PmId, Result};
use tracing::error;

use super::child;
use super::keeper::Keeper;
use super::sizes::Sizes;
use crate::config::AgentSpec;
use crate::metrics::{Labels, List};

/// Agents that this one has started, and asks while it handles a request.
///
/// While an agent is away or does not answer in time, its metrics keep their last descriptors, and their values are
/// `PM_ERR_AGAIN`.
#[derive(Debug)]
pub(crate) struct Agents {
    agents: Vec<Agent>,
    /// Agents that cannot be started: pairs of a name and a reason.
    refused: Vec<(String, String)>,
    /// Last descriptor of each metric, by name.
    known: HashMap<String, Desc>,
    /// Deadline of the current request.
    until: Instant,
    changes: ChangeCounts,
}

/// Number of changes of the agents.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct ChangeCounts {
    /// How often agents have become ready. Then everything may have changed, and counters have been reset.
    pub(crate) starts: u64,
    /// How often names or descriptors may have changed.
    pub(crate) names: u64,
    /// How often labels may have changed.
    pub(crate) labels: u64,
}

/// Running agents, by specification. Groups with the same specification share them.
#[derive(Debug, Default)]
pub(crate) struct Pool(Vec<(Vec<AgentSpec>, Weak<RefCell<Agents>>)>);

impl Pool {
    /// Returns the agents of a specification. Starts them unless they are running.
    pub(crate) fn agents(&mut self, specs: &[AgentSpec]) -> Rc<RefCell<Agents>> {
        self.0.retain(|(_, agents)| agents.strong_count() > 0);
        let known = self.0.iter().find(|(known, _)| known == specs).and_then(|(_, agents)| agents.upgrade());
        known.unwrap_or_else(|| {
            let agents = Rc::new(RefCell::new(Agents::start(specs)));
            self.0.push((specs.to_vec(), Rc::downgrade(&agents)));
            agents
        })
    }
}

#[derive(Debug)]
struct Agent {
    domain: Domain,
    keeper: Keeper,
    /// Names from the file `pmns`. `None` if the agent itself resolves names.
    names: Option<pmns::Tree>,
    operands: OperandValues,
    /// Error of the last sample.
    outcome: Result,
}

impl Agents {
    /// Starts agents. In an agent that was itself started for its metrics, refuses to start any.
    pub(crate) fn start(specs: &[AgentSpec]) -> Agents {
        let includes = pmapi::Config::load().var_dir().join("pmns");
        let (mut agents, mut refused) = (Vec::new(), Vec::new());
        for spec in specs {
            let names = match &spec.pmns {
                _ if child::is_nested() => {
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
                    keeper: Keeper::new(spec.name.clone(), spec.command.clone()),
                    names,
                    operands: OperandValues::default(),
                    outcome: Err(Error::AGAIN),
                }),
                Err(why) => {
                    error!("agent {} is not started: {why}", spec.name);
                    refused.push((spec.name.clone(), why));
                }
            }
        }
        let mut agents =
            Agents { agents, refused, known: HashMap::new(), until: Instant::now(), changes: ChangeCounts::default() };
        agents.tend();
        agents
    }

    /// Tells all agents to end, without waiting for them.
    pub(crate) fn close(&mut self) {
        for agent in &mut self.agents {
            agent.keeper.close();
        }
    }

    /// Begins a request whose deadline is `until`.
    pub(crate) fn begin(&mut self, until: Instant) {
        self.until = until;
        self.tend();
    }

    /// Waits until each agent has started or failed, at most until `until`.
    pub(crate) fn wait_for_start(&mut self, until: Instant) {
        while self.agents.iter().any(|agent| agent.keeper.is_starting()) && Instant::now() < until {
            std::thread::sleep(Keeper::LOOK);
            self.tend();
        }
    }

    /// Restarts agents that are due, and reads their unsolicited messages. Does not wait.
    pub(crate) fn tend(&mut self) {
        for agent in &mut self.agents {
            let before = agent.keeper.readied();
            agent.keeper.tend();
            self.changes.starts += agent.keeper.readied() - before;
        }
    }

    /// Returns the agents that are not available: pairs of a name and a reason.
    pub(crate) fn problems(&self) -> impl Iterator<Item = (&str, &str)> {
        let refused = self.refused.iter().map(|(name, why)| (name.as_str(), why.as_str()));
        refused.chain(self.agents.iter().filter_map(|agent| agent.keeper.problem()))
    }

    /// Returns the version of [`Agents::problems`], which grows with each change.
    pub(crate) fn problems_version(&self) -> u64 {
        self.agents.iter().map(|agent| agent.keeper.problem_version()).sum()
    }

    /// Returns when [`Agents::tend`] has to be called next, apart from the call before each request.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.agents.iter().filter_map(|agent| agent.keeper.due()).min()
    }

    pub(crate) fn changes(&self) -> ChangeCounts {
        self.changes
    }

    /// Samples operands with one fetch for each agent. Returns whether all agents have answered.
    pub(crate) fn take<'o>(&mut self, operands: impl Iterator<Item = &'o Operand> + Clone) -> bool {
        let until = self.until;
        for Agent { domain, keeper, operands: values, outcome, .. } in &mut self.agents {
            let pmids = operands.clone().map(|operand| operand.desc.pmid).filter(|pmid| pmid.domain() == *domain);
            let taken = values.take(pmids, |pmids, sample| {
                keeper.ask(until, |agent| {
                    let fetched = agent.fetch(pmids)?;
                    sample.assign(fetched.pdu().values());
                    Ok(fetched.changes())
                })
            });
            let changes = taken.unwrap_or_default();
            self.changes.names += u64::from(changes.contains(Changes::NAMES));
            self.changes.labels += u64::from(changes.contains(Changes::LABELS));
            *outcome = taken.map(|_| ());
        }
        self.agents.iter().all(|agent| agent.outcome.is_ok())
    }

    /// Adds the operands of the last sample.
    pub(crate) fn sizes<'o>(&self, operands: impl Iterator<Item = &'o Operand> + Clone, sizes: &mut Sizes) {
        for agent in self.agents.iter().filter(|agent| agent.outcome.is_ok()) {
            let own = operands.clone().filter(|operand| operand.desc.pmid.domain() == agent.domain);
            for (operand, set) in own.zip(agent.operands.last().sets()) {
                sizes.add(operand, &set);
            }
        }
    }

    /// Returns the instances of a domain, with labels if `labels` is true.
    ///
    /// # Errors
    /// The errors of [`Agents::in_dom`]. Errors of labels only leave out the labels.
    pub(crate) fn list(&mut self, indom: InDom, labels: bool) -> Result<List> {
        let instances = self.in_dom(indom)?.into_iter();
        let list = List::new(instances.map(|(inst, name)| (inst, name.into_bytes())));
        let until = self.until;
        let Some(agent) = self.agent(indom.domain()).filter(|_| labels) else { return Ok(list) };
        // Instances are shown even if the agent has no labels, or invalid ones.
        let mut ask = |of| agent.keeper.ask(until, |agent| agent.labels(of)).unwrap_or_default().into_iter();
        let of_instances = ask(LabelTarget::Instances(Some(indom)));
        let instances = of_instances.filter_map(|(inst, labels)| Some((inst?, labels.ok()?))).collect();
        let indom = ask(LabelTarget::InDom(indom)).find_map(|(_, labels)| labels.ok()).unwrap_or_default();
        Ok(list.labelled(Labels { indom, instances }))
    }

    /// Returns the instances of a domain with their names.
    ///
    /// # Errors
    /// `PM_ERR_INDOM` if no agent has the domain, `PM_ERR_AGAIN` while the agent is away, or the error that it returns.
    pub(crate) fn in_dom(&mut self, indom: InDom) -> Result<Vec<(Inst, String)>> {
        let until = self.until;
        self.agent(indom.domain()).ok_or(Error::INDOM)?.keeper.ask(until, |agent| agent.instances(indom))
    }

    fn agent(&mut self, domain: Domain) -> Option<&mut Agent> {
        self.agents.iter_mut().find(|agent| agent.domain == domain)
    }
}

impl Agent {
    /// Returns the descriptor of a metric, or `PM_ERR_NAME` if the agent has no metric of this name.
    fn lookup(&mut self, name: &str, until: Instant) -> Result<Desc> {
        let pmid = match self.resolve(name) {
            Resolved::None => return Err(Error::NAME),
            Resolved::Metric(pmid) => pmid,
            Resolved::Dynamic => match self.keeper.ask(until, |agent| agent.pmid(name)) {
                Err(Error::AGAIN) => return Err(Error::AGAIN),
                found => found.map_err(|_| Error::NAME)?,
            },
        };
        // The `pmns` file may have been written for another domain.
        let pmid = PmId::new(self.domain, pmid.item());
        let desc = self.keeper.ask(until, |agent| agent.desc(pmid))?;
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

impl Metadata for Agents {
    fn lookup(&mut self, name: &str) -> Result<Desc, Missing> {
        // An agent that cannot be started may have the metric.
        let mut missing = if self.refused.is_empty() { Missing::Name } else { Missing::Desc };
        for agent in &mut self.agents {
            match agent.lookup(name, self.until) {
                Ok(desc) => {
                    self.known.insert(name.to_owned(), desc);
                    return Ok(desc);
                }
                Err(Error::NAME) => {}
                Err(e) => {
                    missing = Missing::Desc;
                    // The definitions have to be bound again, which repeats the lookup.
                    self.changes.names += u64::from(e == Error::AGAIN && agent.keeper.is_ready());
                }
            }
        }
        match missing {
            Missing::Desc => self.known.get(name).copied().ok_or(missing),
            Missing::Name => Err(missing),
        }
    }
}

impl Source for Agents {
    fn values(&mut self, operand: &Operand, load: &mut Load<'_>) -> Result<()> {
        let agent = self.agent(operand.desc.pmid.domain()).ok_or(Error::NOAGENT)?;
        agent.outcome?;
        match agent.operands.values(operand, load) {
            // The descriptor has changed since the definitions were bound.
            Err(Error::CONV | Error::PMID) => {
                self.changes.names += 1;
                Err(Error::AGAIN)
            }
            Err(Error::IPC | Error::TIMEOUT) => Err(Error::AGAIN),
            outcome => outcome,
        }
    }

    fn instances(&mut self, indom: InDom, list: &mut Vec<Inst>) -> Result<()> {
        list.extend(self.in_dom(indom)?.into_iter().map(|(inst, _)| inst));
        Ok(())
    }

    fn instance_name(&mut self, indom: InDom, inst: Inst, name: &mut Vec<u8>) -> Result<()> {
        let until = self.until;
        let Agent { keeper, operands, .. } = self.agent(indom.domain()).ok_or(Error::INDOM)?;
        operands.instance_name(indom, inst, name, || keeper.ask(until, |agent| agent.instances(indom)))
    }

    fn instance_id(&mut self, indom: InDom, name: &str) -> Result<Inst> {
        let until = self.until;
        self.agent(indom.domain()).ok_or(Error::INDOM)?.keeper.ask(until, |agent| agent.instance_of(indom, name))
    }
}
