//! Requests to an agent for everything that is shown about it.

use std::collections::HashMap;

use pcp_collector::{AgentState, Collector, End, Error, Process};
use pcp_pdu::metadata::{Subject, TextKind};
use pcp_pdu::result::{Changes, ValueSet};
use pmapi::{Desc, InDom, Inst, PmId};

use crate::model::{Metric, Reading, Readings, Value, clean};

/// Started agent, with the names of its metrics.
#[derive(Debug)]
pub(crate) struct Asked {
    collector: Collector<Process>,
    names: pmns::Tree,
    metrics: Vec<(PmId, pmapi::Result<Desc>)>,
    instances: HashMap<InDom, HashMap<Inst, String>>,
}

impl Asked {
    pub(crate) fn new(collector: Collector<Process>, names: pmns::Tree) -> Asked {
        Asked { collector, names, metrics: Vec::new(), instances: HashMap::new() }
    }

    /// Looks up all metrics, including metrics whose names only the agent knows.
    pub(crate) fn discover(&mut self) -> Result<Vec<Metric>, Error> {
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
        self.metrics.clear();
        let mut metrics = Vec::new();
        for (name, pmid) in names {
            let desc = self.ask(|agent| agent.desc(pmid))?;
            let text = self.ask(|agent| agent.text(Subject::Metric(pmid), TextKind::OneLine))?;
            self.metrics.push((pmid, desc));
            metrics.push(Metric { name: clean(&name), oneline: clean(&text.unwrap_or_default()), desc });
        }
        Ok(metrics)
    }

    /// Samples all metrics, in the order of [`Asked::discover`]. Returns the values, and whether the metrics have
    /// changed.
    pub(crate) fn sample(&mut self) -> Result<(Vec<Readings>, bool), Error> {
        if self.metrics.is_empty() {
            // A fetch must not be empty. `true` repeats the discovery, because metrics may appear later.
            return Ok((Vec::new(), true));
        }
        let pmids: Vec<PmId> = self.metrics.iter().map(|(pmid, _)| *pmid).collect();
        let descs: Vec<_> = self.metrics.iter().map(|(_, desc)| *desc).collect();
        let fetched = self.ask(|agent| {
            let fetched = agent.fetch(&pmids)?;
            let sample: Vec<Readings> = fetched.sets().zip(&descs).map(|(set, desc)| readings(&set, *desc)).collect();
            Ok((sample, fetched.changes().contains(Changes::NAMES)))
        })?;
        let (mut sample, renamed) = match fetched {
            Ok(fetched) => fetched,
            Err(code) => (descs.iter().map(|_| Err(code)).collect(), false),
        };
        for (readings, desc) in sample.iter_mut().zip(&descs) {
            if let (Ok(readings), Ok(Desc { indom: Some(indom), .. })) = (readings, desc) {
                self.name_instances(*indom, readings)?;
            }
        }
        Ok((sample, renamed))
    }

    /// Adds the names of instances to values. Asks the agent only if there is a new instance.
    fn name_instances(&mut self, indom: InDom, readings: &mut [Reading]) -> Result<(), Error> {
        let known = self.instances.entry(indom).or_default();
        if !readings.iter().all(|reading| reading.inst.is_none_or(|inst| known.contains_key(&inst))) {
            let instances = self.ask(|agent| agent.instances(indom))?.unwrap_or_default();
            let names = instances.into_iter().map(|(inst, name)| (inst, clean(&name)));
            self.instances.insert(indom, names.collect());
        }
        let known = self.instances.get(&indom);
        for reading in readings {
            let name = reading.inst.zip(known).and_then(|(inst, known)| known.get(&inst));
            reading.instance = name.cloned().unwrap_or_default();
        }
        Ok(())
    }

    /// Sends a request. An error that concerns only the request becomes the inner result.
    fn ask<T>(
        &mut self,
        request: impl FnOnce(&mut Collector<Process>) -> Result<T, Error>,
    ) -> Result<pmapi::Result<T>, Error> {
        match request(&mut self.collector) {
            Ok(answer) => Ok(Ok(answer)),
            Err(e) if self.collector.state() == AgentState::Ready => Ok(Err(e.code())),
            Err(e) => Err(e),
        }
    }

    /// Ends the agent. Returns how its process ended.
    pub(crate) fn end(self) -> End {
        self.collector.close()
    }
}

fn readings(set: &ValueSet<'_>, desc: pmapi::Result<Desc>) -> Readings {
    let desc = desc?;
    match set.error {
        Some(code) => Err(code),
        None => Ok(set
            .values()
            .map(|(inst, raw)| Reading {
                inst: desc.indom.and(inst),
                instance: String::new(),
                value: Value::new(raw, desc.ty),
            })
            .collect()),
    }
}
