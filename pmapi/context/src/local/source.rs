//! The requests of a local context.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use pcp_client::Sample;
use pcp_collector::LabelTarget;
use pcp_pdu::event::Stamp;
use pcp_pdu::metadata::{Subject, TextKind};
use pcp_pdu::profile::Profile;
use pcp_pdu::result::RawValue;
use pmapi::{Config, Desc, Domain, Error, InDom, Inst, LabelLevel, LabelSet, PmId, Result};

use super::worker::{Agents, Worker};
use super::{LocalAgents, LocalError};
use crate::assemble::Assembly;

/// Context of agents in this process.
#[derive(Debug)]
pub(crate) struct Local {
    worker: Arc<Worker>,
    next_client: Arc<AtomicI32>,
    client: i32,
    pub(crate) profile: Profile,
    /// Whether the agents have the profile.
    pub(crate) is_sent: bool,
    pub(crate) failures: Arc<[String]>,
}

fn code(e: pcp_collector::Error) -> Error {
    e.code()
}

impl Local {
    pub(crate) fn open(list: LocalAgents) -> Result<Local, LocalError> {
        let (worker, failures) = Worker::start(list)?;
        let local = Local {
            worker: Arc::new(worker),
            next_client: Arc::new(AtomicI32::new(1)),
            client: 0,
            profile: Profile::default(),
            is_sent: false,
            failures: failures.into(),
        };
        Ok(local.introduced())
    }

    /// Sends the agents the attributes of this client. libpcp does so for the first context only.
    fn introduced(self) -> Local {
        // The thread has ended if an agent has panicked. The first request reports that.
        _ = self.ask(|agents, client| {
            agents.introduce(client);
            Ok(())
        });
        self
    }

    /// Returns another context of the same agents.
    pub(crate) fn duplicate(&self) -> Local {
        let local = Local {
            worker: Arc::clone(&self.worker),
            next_client: Arc::clone(&self.next_client),
            client: self.next_client.fetch_add(1, Ordering::Relaxed),
            profile: self.profile.clone(),
            is_sent: false,
            failures: Arc::clone(&self.failures),
        };
        local.introduced()
    }

    fn ask<T: Send + 'static>(&self, f: impl FnOnce(&mut Agents, i32) -> Result<T> + Send + 'static) -> Result<T> {
        let client = self.client;
        self.worker.ask(move |agents| f(agents, client))?
    }

    pub(crate) fn fetch(&mut self, pmids: &[PmId]) -> Result<Sample> {
        let pmids = pmids.to_vec();
        let profile = (!self.is_sent).then(|| self.profile.clone());
        let sample = self.ask(move |agents, client| {
            if let Some(profile) = profile {
                for agent in agents.by_domain.values_mut() {
                    agent.as_client(client).set_profile(profile.clone());
                }
            }
            Ok(fetched(agents, client, &pmids))
        })?;
        self.is_sent = true;
        Ok(sample)
    }

    pub(crate) fn lookup_name(&mut self, name: &str) -> Result<PmId> {
        let name = name.to_owned();
        self.ask(move |agents, client| {
            let pmid = agents.names.lookup(&name)?;
            match pmid.dynamic_root() {
                Some(domain) => agents.get(domain, client)?.pmid(&name).map_err(code),
                None => Ok(pmid),
            }
        })
    }

    pub(crate) fn lookup_desc(&mut self, pmid: PmId) -> Result<Desc> {
        self.ask(move |agents, client| agents.get(pmid.domain(), client)?.desc(pmid).map_err(code))
    }

    pub(crate) fn name_all(&mut self, pmid: PmId) -> Result<Vec<String>> {
        self.ask(move |agents, client| {
            let names: Vec<String> = agents.names.names(pmid).collect();
            if names.is_empty() {
                agents.get(pmid.domain(), client).and_then(|agent| agent.names(pmid).map_err(code))
            } else {
                Ok(names)
            }
        })
    }

    pub(crate) fn traverse(&mut self, name: &str) -> Result<Vec<String>> {
        let name = name.to_owned();
        self.ask(move |agents, client| {
            let leaves: Vec<(String, Option<PmId>)> = match agents.names.node(&name) {
                Some(node) => node.leaves().map(|leaf| (leaf.path(), leaf.pmid())).collect(),
                // The name may be below a root of dynamic names.
                None => vec![(name.clone(), Some(agents.names.lookup(&name)?))],
            };
            let mut all = Vec::new();
            for (path, pmid) in leaves {
                match pmid.and_then(PmId::dynamic_root) {
                    // An agent that does not answer has no names.
                    Some(domain) => {
                        let found = agents.get(domain, client).and_then(|agent| agent.traverse(&path).map_err(code));
                        all.extend(found.unwrap_or_default());
                    }
                    None => all.push(path),
                }
            }
            Ok(all)
        })
    }

    pub(crate) fn indom(&mut self, indom: InDom) -> Result<Vec<(Inst, Vec<u8>)>> {
        let list =
            self.ask(move |agents, client| agents.get(indom.domain(), client)?.instances(indom).map_err(code))?;
        Ok(list.into_iter().map(|(inst, name)| (inst, name.into_bytes())).collect())
    }

    pub(crate) fn lookup_indom(&mut self, indom: InDom, name: &[u8]) -> Result<Inst> {
        let name = std::str::from_utf8(name).map_err(|_| Error::INST)?.to_owned();
        if name.is_empty() {
            return Err(Error::INST);
        }
        self.ask(move |agents, client| agents.get(indom.domain(), client)?.instance_of(indom, &name).map_err(code))
    }

    pub(crate) fn name_indom(&mut self, indom: InDom, inst: Inst) -> Result<Vec<u8>> {
        let name = self
            .ask(move |agents, client| agents.get(indom.domain(), client)?.instance_name(indom, inst).map_err(code));
        Ok(name?.into_bytes())
    }

    pub(crate) fn lookup_text(&mut self, about: Subject, kind: TextKind) -> Result<Vec<u8>> {
        let domain = match about {
            Subject::Metric(pmid) => pmid.domain(),
            Subject::InDom(indom) => indom.domain(),
        };
        let text = |kind| self.ask(move |agents, client| agents.get(domain, client)?.text(about, kind).map_err(code));
        let found = match text(kind) {
            Err(Error::TEXT) if kind == TextKind::Help => text(TextKind::OneLine),
            Ok(found) if found.is_empty() && kind == TextKind::Help => text(TextKind::OneLine),
            found => found,
        };
        found.map(String::into_bytes)
    }

    /// Returns the label sets of a level for the object `ident`, a domain, metric or instance domain, by instance.
    pub(crate) fn labels(&mut self, level: LabelLevel, ident: u32) -> Result<Vec<(Option<Inst>, Result<LabelSet>)>> {
        let wrong = Error::NOLABELS;
        let (domain, target) = match level {
            LabelLevel::Context => return Ok(vec![(None, Ok(pcp_client::host_labels(&Config::load())?))]),
            LabelLevel::Domain => {
                let domain = u16::try_from(ident).ok().and_then(Domain::new).ok_or(wrong)?;
                (domain, LabelTarget::Domain(domain))
            }
            LabelLevel::InDom | LabelLevel::Instances => {
                let indom = InDom::from_word(ident).ok_or(wrong)?;
                let is_indom = level == LabelLevel::InDom;
                (indom.domain(), if is_indom { LabelTarget::InDom(indom) } else { LabelTarget::Instances(Some(indom)) })
            }
            LabelLevel::Cluster | LabelLevel::Item => {
                let pmid = PmId::from_word(ident).ok_or(wrong)?;
                let is_item = level == LabelLevel::Item;
                (pmid.domain(), if is_item { LabelTarget::Item(pmid) } else { LabelTarget::Cluster(pmid) })
            }
        };
        self.ask(move |agents, client| agents.get(domain, client)?.labels(target).map_err(code))
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        // The thread has ended if an agent has panicked.
        _ = self.ask(|agents, client| {
            for agent in agents.by_domain.values_mut() {
                _ = agent.as_client(client).end_client();
            }
            Ok(())
        });
    }
}

/// Fetches from each agent once.
fn fetched(agents: &mut Agents, client: i32, pmids: &[PmId]) -> Sample {
    let mut of_domains: BTreeMap<Domain, Vec<PmId>> = BTreeMap::new();
    for pmid in pmids {
        of_domains.entry(pmid.domain()).or_default().push(*pmid);
    }
    let answers: BTreeMap<Domain, Result<Sample>> = of_domains
        .into_iter()
        .map(|(domain, pmids)| {
            let answer = agents.get(domain, client).and_then(|agent| {
                let answer = agent.fetch(&pmids).map_err(code)?;
                Ok(Sample::at(Stamp::default(), answer.pdu().values()))
            });
            (domain, answer)
        })
        .collect();
    let mut next: BTreeMap<Domain, usize> = BTreeMap::new();
    let mut assembly = Assembly::default();
    for pmid in pmids {
        let at = next.entry(pmid.domain()).or_default();
        let set = match answers.get(&pmid.domain()) {
            Some(Ok(sample)) => sample.set(*at).ok_or(Error::PMID),
            Some(Err(e)) => Err(*e),
            None => Err(Error::NOAGENT),
        };
        *at += 1;
        let values = set.and_then(|set| set.error.map_or(Ok(set.values()), Err));
        match values {
            Ok(values) => assembly.add(*pmid, Ok(values)),
            Err(e) => assembly.add(*pmid, Err::<std::iter::Empty<(Option<Inst>, RawValue<'_>)>, _>(e)),
        }
    }
    assembly.sample(Stamp::now())
}
