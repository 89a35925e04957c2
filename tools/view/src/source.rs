//! Sources of metrics: an agent that was started, or a running pmcd.

use nix::unistd::{getegid, geteuid};
use pcp_client::Context;
use pcp_collector::{AgentState, Collector, End, Error, LabelTarget, Process};
use pcp_pdu::handshake::{Attribute, Features};
use pcp_pdu::metadata::{Subject, TextKind};
use pcp_pdu::result::{Changes, ValueSet};
use pmapi::{Desc, InDom, Inst, LabelSet, PmId};

/// Reason why a source does not answer, now or permanently.
#[derive(Debug)]
pub(crate) enum Interruption {
    /// The agent is not ready.
    NotReady,
    /// There is no connection to pmcd. A later request makes a new one.
    NoPmcd(String),
    /// The agent has ended.
    Ended(Error),
}

/// An answer, or the error code in its place.
pub(crate) type Answer<T> = Result<pmapi::Result<T>, Interruption>;

/// Label sets of a subject, each with its instance.
pub(crate) type LabelSets = Vec<(Option<Inst>, pmapi::Result<LabelSet>)>;

/// Source of metrics.
#[derive(Debug)]
pub(crate) enum Source {
    Agent(Box<StartedAgent>),
    Host(Box<Host>),
}

/// Agent that was started, with the names of its metrics.
#[derive(Debug)]
pub(crate) struct StartedAgent {
    collector: Collector<Process>,
    names: pmns::Tree,
    /// Whether the agent has the attributes of this client: user, group and process.
    is_introduced: bool,
}

/// Running pmcd, with the names of the metrics that are shown, or of inner nodes above them.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) context: Context,
    pub(crate) roots: Vec<String>,
    /// Time zone in the form of POSIX.
    pub(crate) timezone: Option<String>,
}

/// Metrics of processes, which are left out unless they are requested: there are too many to be useful.
const LEFT_OUT: [&str; 2] = ["proc.", "hotproc."];

/// Largest number of metrics in one request: pmcd accepts no PDUs over 64 KiB from clients.
const MOST_PMIDS: usize = 10_000;

impl Source {
    /// Returns whether the answer to a request comes over a network.
    pub(crate) fn is_remote(&self) -> bool {
        matches!(self, Source::Host(_))
    }

    /// Returns the names of all metrics with their identifiers.
    pub(crate) fn names(&mut self) -> Answer<Vec<(String, PmId)>> {
        match self {
            Source::Agent(agent) => agent.names(),
            Source::Host(host) => host.ask(|context, roots| {
                let names = names_below(context, roots)?;
                let pmids = pmids(context, &names)?;
                Ok(names.into_iter().zip(pmids).filter_map(|(name, pmid)| Some((name, pmid?))).collect())
            }),
        }
    }

    /// Returns the descriptors of metrics, in their order.
    pub(crate) fn descs(&mut self, pmids: &[PmId]) -> Answer<Vec<pmapi::Result<Desc>>> {
        match self {
            Source::Agent(agent) => {
                let descs = pmids.iter().map(|pmid| agent.ask(|agent| agent.desc(*pmid)));
                Ok(Ok(descs.collect::<Result<_, _>>()?))
            }
            Source::Host(host) => host.ask(|context, _| {
                if pmids.is_empty() {
                    return Ok(Vec::new());
                }
                let descs = context.lookup_descs(pmids)?;
                Ok(descs.into_iter().map(|desc| desc.ok_or(pmapi::Error::PMID)).collect())
            }),
        }
    }

    /// Returns the help of a metric or an instance domain.
    pub(crate) fn text(&mut self, subject: Subject, kind: TextKind) -> Answer<String> {
        match self {
            Source::Agent(agent) => agent.ask(|agent| agent.text(subject, kind)),
            Source::Host(host) => host.ask(|context, _| {
                let text = context.lookup_text(subject, kind)?;
                Ok(String::from_utf8_lossy(&text).into_owned())
            }),
        }
    }

    /// Returns the names of the instances of a domain.
    pub(crate) fn instances(&mut self, indom: InDom) -> Answer<Vec<(Inst, String)>> {
        match self {
            Source::Agent(agent) => agent.ask(|agent| agent.instances(indom)),
            Source::Host(host) => host.ask(|context, _| {
                let instances = context.indom(indom)?.into_iter();
                Ok(instances.map(|(inst, name)| (inst, String::from_utf8_lossy(&name).into_owned())).collect())
            }),
        }
    }

    /// Returns the labels of a subject itself, without those of higher levels.
    pub(crate) fn labels(&mut self, of: LabelTarget) -> Answer<LabelSets> {
        match self {
            Source::Agent(agent) => agent.ask(|agent| agent.labels(of)),
            Source::Host(host) => host.ask(|context, _| labels(context, of)),
        }
    }

    /// Fetches metrics. Calls `convert` with the index of each metric in the request. Returns the results, and pmcd's
    /// change notifications. A change of pmcd's agents may change names.
    pub(crate) fn fetch<T>(
        &mut self,
        pmids: &[PmId],
        mut convert: impl FnMut(usize, &ValueSet<'_>) -> T,
    ) -> Answer<(Vec<T>, Changes)> {
        let mut convert = |(at, set): (usize, ValueSet<'_>)| convert(at, &set);
        match self {
            Source::Agent(agent) => agent.ask(|agent| {
                let fetched = agent.fetch(pmids)?;
                Ok((fetched.sets().enumerate().map(convert).collect(), fetched.changes()))
            }),
            Source::Host(host) => host.ask(|context, _| {
                let (mut all, mut changes) = (Vec::with_capacity(pmids.len()), Changes::default());
                for part in pmids.chunks(MOST_PMIDS) {
                    let sample = context.fetch(part)?;
                    let first = all.len();
                    all.extend(sample.sets().enumerate().map(|(at, set)| convert((first + at, set))));
                    changes |= sample.changes();
                }
                let agents = Changes::AGENT_ADDED | Changes::AGENT_RESTARTED | Changes::AGENT_DROPPED;
                if changes.intersects(agents) {
                    changes |= Changes::NAMES;
                }
                Ok((all, changes))
            }),
        }
    }

    /// Ends an agent, and returns how its process has ended.
    pub(crate) fn end(self) -> Option<End> {
        match self {
            Source::Agent(agent) => Some(agent.collector.close()),
            Source::Host(_) => None,
        }
    }
}

impl StartedAgent {
    /// Combines an agent and the names of its metrics.
    pub(crate) fn new(collector: Collector<Process>, names: pmns::Tree) -> StartedAgent {
        StartedAgent { collector, names, is_introduced: false }
    }

    /// Sends an agent that asks for them the client attributes that pmcd has of a client on a Unix socket. An agent that
    /// is not ready gets them later.
    fn introduce(&mut self) -> Result<(), Error> {
        if self.is_introduced || !self.collector.features().contains(Features::AUTHORIZE) {
            return Ok(());
        }
        let client = [
            (Attribute::USERID, geteuid().to_string()),
            (Attribute::GROUPID, getegid().to_string()),
            (Attribute::PROCESSID, std::process::id().to_string()),
        ];
        for (attribute, value) in client {
            if !self.collector.attribute(attribute, &value)? {
                return Ok(());
            }
        }
        self.is_introduced = true;
        Ok(())
    }

    /// Sends a request. An error that concerns only the request becomes the inner result.
    fn ask<T>(&mut self, request: impl FnOnce(&mut Collector<Process>) -> Result<T, Error>) -> Answer<T> {
        match self.introduce().and_then(|()| request(&mut self.collector)) {
            Ok(answer) => Ok(Ok(answer)),
            Err(e) if self.collector.state() == AgentState::Ready => Ok(Err(e.code())),
            Err(Error::NotReady) => Err(Interruption::NotReady),
            Err(e) => Err(Interruption::Ended(e)),
        }
    }

    /// Returns all names, including those that only the agent knows.
    fn names(&mut self) -> Answer<Vec<(String, PmId)>> {
        let leaves: Vec<_> = self.names.root().leaves().map(|leaf| (leaf.path(), leaf.pmid())).collect();
        let mut names = Vec::new();
        for (path, pmid) in leaves {
            match pmid {
                Some(pmid) if pmid.dynamic_root().is_none() => names.push((path, pmid)),
                _ => {
                    let mut below = self.ask(|agent| agent.traverse(&path))?.unwrap_or_default();
                    below.sort();
                    for name in below {
                        let pmid = self.ask(|agent| agent.pmid(&name))?;
                        names.extend(pmid.map(|pmid| (name, pmid)));
                    }
                }
            }
        }
        Ok(Ok(names))
    }
}

impl Host {
    fn ask<T>(&mut self, request: impl FnOnce(&mut Context, &[String]) -> pmapi::Result<T>) -> Answer<T> {
        let Host { context, roots, .. } = self;
        if !context.is_connected() {
            context.reconnect().map_err(|_| Interruption::NoPmcd("pmcd cannot be reached".to_owned()))?;
        }
        match request(context, roots) {
            Err(e) if !context.is_connected() => Err(Interruption::NoPmcd(e.to_string())),
            answer => Ok(answer),
        }
    }
}

/// Returns the names of all metrics at or below some names, or of all metrics if `roots` is empty.
pub(crate) fn names_below(context: &mut Context, roots: &[String]) -> pmapi::Result<Vec<String>> {
    let mut names = Vec::new();
    for root in roots {
        names.extend(context.traverse(root)?);
    }
    if roots.is_empty() {
        names = context.traverse("")?;
        names.retain(|name| !LEFT_OUT.iter().any(|start| name.starts_with(start)));
    }
    names.sort();
    names.dedup();
    Ok(names)
}

fn labels(context: &mut Context, of: LabelTarget) -> pmapi::Result<LabelSets> {
    let set = match of {
        LabelTarget::Domain(domain) => context.domain_labels(domain)?,
        LabelTarget::InDom(indom) => context.indom_labels(indom)?,
        LabelTarget::Cluster(pmid) => context.cluster_labels(pmid)?,
        LabelTarget::Item(pmid) => context.item_labels(pmid)?,
        LabelTarget::Instances(Some(indom)) => {
            let sets = context.instances_labels(indom)?.into_iter();
            return Ok(sets.map(|(inst, set)| (Some(inst), set)).collect());
        }
        _ => context.context_labels()?,
    };
    Ok(vec![(None, Ok(set))])
}

/// Looks up names one by one if pmcd refuses to look up all together, because an agent is not ready.
fn pmids(context: &mut Context, names: &[String]) -> pmapi::Result<Vec<Option<PmId>>> {
    let list: Vec<&str> = names.iter().map(String::as_str).collect();
    if list.is_empty() {
        return Ok(Vec::new());
    }
    match context.lookup_names(&list) {
        Err(_) if context.is_connected() => {}
        pmids => return pmids,
    }
    list.iter()
        .map(|name| match context.lookup_name(name) {
            Err(e) if !context.is_connected() => Err(e),
            pmid => Ok(pmid.ok()),
        })
        .collect()
}
