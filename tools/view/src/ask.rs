//! Requests for all data that is shown about the metrics of a source.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pcp_collector::{End, LabelTarget};
use pcp_pdu::metadata::{Subject, TextKind};
use pcp_pdu::result::{Changes, ValueSet};
use pmapi::{Desc, InDom, Inst, LabelLevel, PmId};

use crate::model::{Metric, Reading, Readings, Value, clean, clean_lines};
use crate::record::Recording;
use crate::source::{Answer, Interruption, Source};

/// A source, and its answers about its metrics.
#[derive(Debug)]
pub(crate) struct Asked {
    source: Source,
    metrics: Vec<(PmId, pmapi::Result<Desc>)>,
    /// Number of metrics whose one-line help has been requested.
    helped: usize,
    instances: HashMap<InDom, HashMap<Inst, Arc<str>>>,
    recording: Option<Recording>,
}

/// Time for requesting one-line help in each sample of a pmcd, which may be far away.
const HELP_TIME: Duration = Duration::from_millis(300);

impl Asked {
    pub(crate) fn new(source: Source, recording: Option<Recording>) -> Asked {
        Asked { source, metrics: Vec::new(), helped: 0, instances: HashMap::new(), recording }
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
        if let Some(recording) = &mut self.recording {
            let described = names.iter().zip(&self.metrics);
            let described = described.filter_map(|((name, _), (_, desc))| Some((desc.ok()?, name.as_str())));
            recording.describe(&described.collect::<Vec<_>>());
        }
        let metrics = names.into_iter().zip(&self.metrics);
        let mut metrics: Vec<Metric> =
            metrics.map(|((name, pmid), (_, desc))| Metric::new(clean(name), pmid, *desc)).collect();
        self.helped = 0;
        for (at, text) in self.more_help()? {
            metrics[at].oneline = text;
        }
        if self.recording.is_some() {
            self.record_texts()?;
            self.record_labels()?;
        }
        Ok(metrics)
    }

    /// Records that samples are missing before the next one.
    pub(crate) fn interrupt_recording(&mut self) {
        if let Some(recording) = &mut self.recording {
            recording.batch().is_after_gap = true;
        }
    }

    /// Returns the metrics that are recorded, each once, and their instance domains.
    fn subjects(&self) -> (BTreeSet<PmId>, BTreeSet<InDom>) {
        let is_recorded = |desc: &Desc| self.recording.as_ref().is_some_and(|recording| recording.is_described(desc));
        let descs = || self.metrics.iter().filter_map(|(_, desc)| desc.ok()).filter(is_recorded);
        (descs().map(|desc| desc.pmid).collect(), descs().filter_map(|desc| desc.indom).collect())
    }

    /// Requests all help for the recording, without a time limit.
    fn record_texts(&mut self) -> Result<(), Interruption> {
        let (pmids, indoms) = self.subjects();
        for subject in pmids.into_iter().map(Subject::Metric).chain(indoms.into_iter().map(Subject::InDom)) {
            for kind in [TextKind::OneLine, TextKind::Help] {
                let text = self.source.text(subject, kind)?;
                if let (Some(recording), Ok(text)) = (&mut self.recording, text) {
                    recording.batch().texts.push((subject, kind, text));
                }
            }
        }
        Ok(())
    }

    /// Requests the labels of all levels for the recording. Labels of instances are requested with the names of the
    /// instances.
    fn record_labels(&mut self) -> Result<(), Interruption> {
        let (pmids, indoms) = self.subjects();
        let domains: BTreeSet<_> = pmids.iter().map(|pmid| pmid.domain()).collect();
        // A cluster is identified by a PMID with item 0.
        let clusters: BTreeSet<_> = pmids.iter().filter_map(|pmid| PmId::from_word(pmid.word() & !0x3ff)).collect();
        let domains = domains.into_iter().map(LabelTarget::Domain);
        let clusters = clusters.into_iter().map(LabelTarget::Cluster);
        let items = pmids.into_iter().map(LabelTarget::Item);
        let indoms = indoms.into_iter().map(LabelTarget::InDom);
        domains.chain(clusters).chain(items).chain(indoms).try_for_each(|target| self.record_labels_of(target))
    }

    fn record_labels_of(&mut self, target: LabelTarget) -> Result<(), Interruption> {
        let sets = self.source.labels(target)?.unwrap_or_default();
        let (level, ident) = match target {
            LabelTarget::Domain(domain) => (LabelLevel::Domain, domain.get().into()),
            LabelTarget::Cluster(pmid) => (LabelLevel::Cluster, pmid.word()),
            LabelTarget::Item(pmid) => (LabelLevel::Item, pmid.word()),
            LabelTarget::InDom(indom) => (LabelLevel::InDom, indom.word()),
            LabelTarget::Instances(Some(indom)) => (LabelLevel::Instances, indom.word()),
            _ => return Ok(()),
        };
        if let Some(recording) = &mut self.recording {
            recording.add_labels(level, ident, sets);
        }
        Ok(())
    }

    /// Requests more of the one-line help. Returns it with the numbers of the metrics.
    pub(crate) fn more_help(&mut self) -> Result<Vec<(usize, String)>, Interruption> {
        let end = self.source.is_remote().then(|| Instant::now() + HELP_TIME);
        let mut texts = Vec::new();
        while let Some((pmid, _)) = self.metrics.get(self.helped) {
            if end.is_some_and(|end| Instant::now() >= end) {
                break;
            }
            let text = self.source.text(Subject::Metric(*pmid), TextKind::OneLine)?.unwrap_or_default();
            texts.push((self.helped, clean(text)));
            self.helped += 1;
        }
        Ok(texts)
    }

    /// Returns the full help of a metric, or its one-line help if it has no other.
    pub(crate) fn help(&mut self, metric: usize) -> Result<String, Interruption> {
        let Some((pmid, _)) = self.metrics.get(metric) else { return Ok(String::new()) };
        let subject = Subject::Metric(*pmid);
        let text = match self.source.text(subject, TextKind::Help)? {
            Ok(text) if !text.trim().is_empty() => text,
            _ => self.source.text(subject, TextKind::OneLine)?.unwrap_or_default(),
        };
        Ok(clean_lines(&text))
    }

    /// Samples all metrics, in the order of [`Asked::discover`]. Returns the values, and whether the metrics have
    /// changed.
    pub(crate) fn sample(&mut self) -> Result<(Vec<Readings>, bool), Interruption> {
        if self.metrics.is_empty() {
            // A fetch must not be empty. Returning true repeats the discovery, because metrics may appear later.
            return Ok((Vec::new(), true));
        }
        let pmids: Vec<PmId> = self.metrics.iter().map(|(pmid, _)| *pmid).collect();
        let fetched = self.fetch(&pmids)?;
        let is_recorded = fetched.is_ok();
        let (mut sample, changes) = match fetched {
            Ok(fetched) => fetched,
            Err(code) => (pmids.iter().map(|_| Err(code)).collect(), Changes::empty()),
        };
        let indoms: Vec<_> = self.metrics.iter().map(|(_, desc)| desc.ok().and_then(|desc| desc.indom)).collect();
        for (readings, indom) in sample.iter_mut().zip(indoms) {
            if let (Ok(readings), Some(indom)) = (readings, indom) {
                self.name_instances(indom, readings)?;
            }
        }
        if self.recording.is_some() && changes.contains(Changes::LABELS) {
            self.record_labels()?;
        }
        if let Some(recording) = self.recording.as_mut().filter(|_| is_recorded) {
            recording.end();
        }
        Ok((sample, changes.contains(Changes::NAMES)))
    }

    fn fetch(&mut self, pmids: &[PmId]) -> Answer<(Vec<Readings>, Changes)> {
        let Asked { source, metrics, recording, .. } = self;
        if let Some(recording) = recording {
            recording.begin();
        }
        let desc = |at: usize| metrics.get(at).map_or(Err(pmapi::Error::PMID), |(_, desc)| *desc);
        source.fetch(pmids, |at, set| {
            if let Some(recording) = recording {
                recording.add(set, desc(at));
            }
            readings(set, desc(at))
        })
    }

    /// Adds the names of instances to values. Sends a request only if there is a new instance.
    fn name_instances(&mut self, indom: InDom, readings: &mut [Reading]) -> Result<(), Interruption> {
        if name_known(self.instances.entry(indom).or_default(), readings) {
            return Ok(());
        }
        let instances = self.source.instances(indom)?.unwrap_or_default();
        if self.recording.is_some() {
            self.record_labels_of(LabelTarget::Instances(Some(indom)))?;
        }
        if let Some(recording) = &mut self.recording {
            recording.batch().instances.push((indom, instances.clone()));
        }
        let names = instances.into_iter().map(|(inst, name)| (inst, clean(name).into())).collect();
        name_known(&names, readings);
        self.instances.insert(indom, names);
        Ok(())
    }

    /// Ends an agent. Returns how its process ended.
    pub(crate) fn end(self) -> Option<End> {
        self.source.end()
    }
}

/// Adds the names of known instances to values, and no name to others. Returns whether all are known.
fn name_known(known: &HashMap<Inst, Arc<str>>, readings: &mut [Reading]) -> bool {
    let mut are_known = true;
    for reading in readings {
        let name = reading.inst.and_then(|inst| known.get(&inst));
        are_known &= name.is_some() || reading.inst.is_none();
        reading.instance = name.cloned().unwrap_or_default();
    }
    are_known
}

fn readings(set: &ValueSet<'_>, desc: pmapi::Result<Desc>) -> Readings {
    let desc = desc?;
    match set.error {
        Some(code) => Err(code),
        None => Ok(set
            .values()
            .map(|(inst, raw)| Reading {
                inst: desc.indom.and(inst),
                instance: Arc::default(),
                value: Value::new(raw, desc.ty),
            })
            .collect()),
    }
}
