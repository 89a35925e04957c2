//! Requests to an agent for everything that is shown about it.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use pcp_collector::{Collector, End, Error, LabelTarget, Process, State};
use pcp_pdu::metadata::{Subject, TextKind};
use pcp_pdu::result::{Changes, ValueSet, ValueSets};
use pmapi::{Desc, InDom, Inst, LabelLevel, LabelSet, PmId};

use crate::model::{Metric, Reading, Readings, Value, clean};
use crate::record::{Batch, Recorder};

/// Started agent, with the names of its metrics.
#[derive(Debug)]
pub(crate) struct Asked {
    collector: Collector<Process>,
    names: pmns::Tree,
    metrics: Vec<(PmId, pmapi::Result<Desc>)>,
    instances: HashMap<InDom, HashMap<Inst, String>>,
    recording: Option<Recording>,
}

/// What is recorded of an agent.
#[derive(Debug)]
pub(crate) struct Recording {
    recorder: Arc<Recorder>,
    /// Name of the agent.
    name: String,
    batch: Batch,
}

impl Recording {
    pub(crate) fn new(recorder: Arc<Recorder>, name: &str) -> Recording {
        Recording { recorder, name: name.to_owned(), batch: Batch::default() }
    }
}

/// Length of a RESULT PDU before its value sets, in bytes.
const SETS: usize = 24;

impl Asked {
    pub(crate) fn new(collector: Collector<Process>, names: pmns::Tree, recording: Option<Recording>) -> Asked {
        Asked { collector, names, metrics: Vec::new(), instances: HashMap::new(), recording }
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
            if let (Some(recording), Ok(desc)) = (&mut self.recording, desc) {
                recording.batch.metrics.push((desc, name.clone()));
            }
            metrics.push(Metric { name: clean(&name), oneline: clean(&text.unwrap_or_default()), desc });
        }
        if self.recording.is_some() {
            self.record_texts()?;
            self.record_labels()?;
        }
        Ok(metrics)
    }

    /// Returns the metrics that have a descriptor, each once, and their instance domains.
    fn subjects(&self) -> (BTreeSet<PmId>, BTreeSet<InDom>) {
        let descs = || self.metrics.iter().filter_map(|(_, desc)| desc.ok());
        (descs().map(|desc| desc.pmid).collect(), descs().filter_map(|desc| desc.indom).collect())
    }

    fn record_texts(&mut self) -> Result<(), Error> {
        let (pmids, indoms) = self.subjects();
        let subjects = pmids.into_iter().map(Subject::Metric).chain(indoms.into_iter().map(Subject::InDom));
        for subject in subjects {
            for kind in [TextKind::OneLine, TextKind::Help] {
                let text = self.ask(|agent| agent.text(subject, kind))?;
                if let (Some(recording), Ok(text)) = (&mut self.recording, text) {
                    recording.batch.texts.push((subject, kind, text));
                }
            }
        }
        Ok(())
    }

    /// Asks for the labels of all levels but that of the instances, which are asked for when they have names.
    fn record_labels(&mut self) -> Result<(), Error> {
        let (pmids, indoms) = self.subjects();
        let domains: BTreeSet<_> = pmids.iter().map(|pmid| pmid.domain()).collect();
        // A cluster is named by one of its metrics, in which the item is 0.
        let clusters: BTreeSet<_> = pmids.iter().filter_map(|pmid| PmId::from_word(pmid.word() & !0x3ff)).collect();
        let agent = self.recording.as_ref().and_then(|recording| LabelSet::domain(&recording.name).ok());
        for domain in domains {
            let mut sets = self.ask(|agent| agent.labels(LabelTarget::Domain(domain)))?.unwrap_or_default();
            let own = sets.drain(..).find_map(|(_, set)| set.ok()).unwrap_or_default();
            let mut set = agent.clone().unwrap_or_default();
            // A set that would be too long keeps the name of the agent.
            _ = set.merge(&own);
            self.add_labels(LabelLevel::Domain, domain.get().into(), vec![(None, Ok(set))]);
        }
        let clusters = clusters.into_iter().map(|pmid| (LabelTarget::Cluster(pmid), LabelLevel::Cluster, pmid.word()));
        let items = pmids.into_iter().map(|pmid| (LabelTarget::Item(pmid), LabelLevel::Item, pmid.word()));
        let indoms = indoms.into_iter().map(|indom| (LabelTarget::InDom(indom), LabelLevel::InDom, indom.word()));
        for (target, level, ident) in clusters.chain(items).chain(indoms) {
            let sets = self.ask(|agent| agent.labels(target))?.unwrap_or_default();
            self.add_labels(level, ident, sets);
        }
        Ok(())
    }

    fn add_labels(&mut self, level: LabelLevel, ident: u32, sets: Vec<(Option<Inst>, pmapi::Result<LabelSet>)>) {
        let sets: Vec<_> = sets.into_iter().filter_map(|(inst, set)| Some((inst, set.ok()?))).collect();
        if let Some(recording) = self.recording.as_mut().filter(|_| sets.iter().any(|(_, set)| !set.is_empty())) {
            recording.batch.labels.push((level, ident, sets));
        }
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
        let is_recording = self.recording.is_some();
        let fetched = self.ask(|agent| {
            let fetched = agent.fetch(&pmids)?;
            let sample: Vec<Readings> = fetched.sets().zip(&descs).map(|(set, desc)| readings(&set, *desc)).collect();
            let pdu = if is_recording { fetched.pdu().values().pdu().to_vec() } else { Vec::new() };
            Ok((sample, fetched.changes(), pdu))
        })?;
        let (mut sample, changes, pdu) = match fetched {
            Ok(fetched) => fetched,
            Err(code) => (descs.iter().map(|_| Err(code)).collect(), Changes::empty(), Vec::new()),
        };
        for (readings, desc) in sample.iter_mut().zip(&descs) {
            if let (Ok(readings), Ok(Desc { indom: Some(indom), .. })) = (readings, desc) {
                self.name_instances(*indom, readings)?;
            }
        }
        if is_recording && changes.contains(Changes::LABELS) {
            self.record_labels()?;
        }
        if let (Some(recording), Ok(sets)) = (&mut self.recording, ValueSets::within(&pdu, SETS, sample.len())) {
            recording.recorder.record(std::mem::take(&mut recording.batch), sets, &descs);
        }
        Ok((sample, changes.contains(Changes::NAMES)))
    }

    /// Adds the names of instances to values. Asks the agent only if there is a new instance.
    fn name_instances(&mut self, indom: InDom, readings: &mut [Reading]) -> Result<(), Error> {
        let known = self.instances.entry(indom).or_default();
        if !readings.iter().all(|reading| reading.inst.is_none_or(|inst| known.contains_key(&inst))) {
            let instances = self.ask(|agent| agent.instances(indom))?.unwrap_or_default();
            if let Some(recording) = &mut self.recording {
                recording.batch.instances.push((indom, instances.clone()));
                let labels = self.ask(|agent| agent.labels(LabelTarget::Instances(Some(indom))))?.unwrap_or_default();
                self.add_labels(LabelLevel::Instances, indom.word(), labels);
            }
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
            Err(e) if self.collector.state() == State::Ready => Ok(Err(e.code())),
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
