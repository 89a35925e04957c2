//! Requests for everything that is shown about the metrics of a source.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use pcp_collector::End;
use pcp_pdu::metadata::TextKind;
use pcp_pdu::result::ValueSet;
use pmapi::{Desc, InDom, Inst, PmId};

use crate::model::{Metric, Reading, Readings, Value, clean, clean_lines};
use crate::source::{Answer, Interruption, Source};

/// A source, with what it has said about its metrics.
#[derive(Debug)]
pub(crate) struct Asked {
    source: Source,
    metrics: Vec<(PmId, pmapi::Result<Desc>)>,
    /// Number of metrics whose one-line help has been requested.
    helped: usize,
    instances: HashMap<InDom, HashMap<Inst, String>>,
}

/// Time for the one-line help of metrics in each sample of a pmcd, which may be far away.
const HELP_TIME: Duration = Duration::from_millis(300);

impl Asked {
    pub(crate) fn new(source: Source) -> Asked {
        Asked { source, metrics: Vec::new(), helped: 0, instances: HashMap::new() }
    }

    /// Looks up all metrics, including metrics whose names only the agent knows.
    pub(crate) fn discover(&mut self) -> Result<Vec<Metric>, Interruption> {
        let names = self.source.names()?.unwrap_or_default();
        let pmids: Vec<PmId> = names.iter().map(|(_, pmid)| *pmid).collect();
        let descs = match self.source.descs(&pmids)? {
            Ok(descs) => descs,
            Err(code) => vec![Err(code); pmids.len()],
        };
        self.instances.clear();
        self.metrics = pmids.into_iter().zip(descs).collect();
        let metrics = names.into_iter().zip(&self.metrics);
        let mut metrics: Vec<Metric> =
            metrics.map(|((name, pmid), (_, desc))| Metric::new(clean(&name), pmid, *desc)).collect();
        self.helped = 0;
        for (at, text) in self.more_help()? {
            metrics[at].oneline = text;
        }
        Ok(metrics)
    }

    /// Requests more of the one-line help. Returns it with the numbers of the metrics.
    pub(crate) fn more_help(&mut self) -> Result<Vec<(usize, String)>, Interruption> {
        let end = self.source.is_remote().then(|| Instant::now() + HELP_TIME);
        let mut texts = Vec::new();
        while let Some((pmid, _)) = self.metrics.get(self.helped) {
            if end.is_some_and(|end| Instant::now() >= end) {
                break;
            }
            let text = self.source.text(*pmid, TextKind::OneLine)?.unwrap_or_default();
            texts.push((self.helped, clean(&text)));
            self.helped += 1;
        }
        Ok(texts)
    }

    /// Returns the full help of a metric, or its one-line help if it has no other.
    pub(crate) fn help(&mut self, metric: usize) -> Result<String, Interruption> {
        let Some((pmid, _)) = self.metrics.get(metric) else { return Ok(String::new()) };
        let text = match self.source.text(*pmid, TextKind::Help)? {
            Ok(text) if !text.trim().is_empty() => text,
            _ => self.source.text(*pmid, TextKind::OneLine)?.unwrap_or_default(),
        };
        Ok(clean_lines(&text))
    }

    /// Samples all metrics, in the order of [`Asked::discover`]. Returns the values, and whether the metrics have
    /// changed.
    pub(crate) fn sample(&mut self) -> Result<(Vec<Readings>, bool), Interruption> {
        if self.metrics.is_empty() {
            // A fetch must not be empty. `true` repeats the discovery, because metrics may appear later.
            return Ok((Vec::new(), true));
        }
        let pmids: Vec<PmId> = self.metrics.iter().map(|(pmid, _)| *pmid).collect();
        let (mut sample, renamed) = match self.fetch(&pmids)? {
            Ok(fetched) => fetched,
            Err(code) => (pmids.iter().map(|_| Err(code)).collect(), false),
        };
        let indoms: Vec<_> = self.metrics.iter().map(|(_, desc)| desc.ok().and_then(|desc| desc.indom)).collect();
        for (readings, indom) in sample.iter_mut().zip(indoms) {
            if let (Ok(readings), Some(indom)) = (readings, indom) {
                self.name_instances(indom, readings)?;
            }
        }
        Ok((sample, renamed))
    }

    fn fetch(&mut self, pmids: &[PmId]) -> Answer<(Vec<Readings>, bool)> {
        let metrics = &self.metrics;
        let desc = |at: usize| metrics.get(at).map_or(Err(pmapi::Error::PMID), |(_, desc)| *desc);
        self.source.fetch(pmids, |at, set| readings(set, desc(at)))
    }

    /// Adds the names of instances to values. Sends a request only if there is a new instance.
    fn name_instances(&mut self, indom: InDom, readings: &mut [Reading]) -> Result<(), Interruption> {
        let known = self.instances.entry(indom).or_default();
        if !readings.iter().all(|reading| reading.inst.is_none_or(|inst| known.contains_key(&inst))) {
            let instances = self.source.instances(indom)?.unwrap_or_default();
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

    /// Ends an agent. Returns how its process ended.
    pub(crate) fn end(self) -> Option<End> {
        self.source.end()
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
