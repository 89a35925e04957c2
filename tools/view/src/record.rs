//! Recording of the shown samples in an archive.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pcp_archive::{ArchiveError, Create, Writer};
use pcp_base::escape::{self, Escaped};
use pcp_pdu::event::Stamp;
use pcp_pdu::metadata::{Subject, TextKind};
use pcp_pdu::result::ValueSet;
use pcp_pdu::result_writer::ResultWriter;
use pmapi::zone::LocalTime;
use pmapi::{Desc, InDom, Inst, LabelLevel, LabelSet, PmId};

use crate::refused::{Refusals, Refused};
use crate::source;
use crate::time::plus;

/// Archive that all agents are recorded in.
#[derive(Debug)]
pub(crate) struct Recorder {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Writer of the archive. `None` after a failure.
    writer: Option<Writer>,
    failure: Option<ArchiveError>,
    /// Latest time of a record or of metadata.
    latest: Stamp,
    /// Warnings about refused metadata that have not been printed.
    warnings: Vec<String>,
}

/// Metadata of an agent that is not in the archive yet.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// Whether samples are missing before this one, so that values must not be related across the gap.
    pub(crate) is_after_gap: bool,
    pub(crate) texts: Vec<(Subject, TextKind, String)>,
    pub(crate) instances: Vec<(InDom, Vec<(Inst, String)>)>,
    pub(crate) labels: Vec<(LabelLevel, u32, ValidLabelSets)>,
}

/// Label sets of a subject, each with its instance.
type ValidLabelSets = Vec<(Option<Inst>, LabelSet)>;

impl Recorder {
    /// Creates the files of the archive. `host` has the name and time zone of the host whose pmcd is recorded. Without
    /// it, the agents are those of this host.
    ///
    /// # Errors
    /// Errors of [`Create::create`], for instance for files that exist.
    pub(crate) fn create(base: &Path, host: Option<(&str, Option<&str>)>) -> Result<Recorder, ArchiveError> {
        let zone = host.and_then(|(_, zone)| zone).filter(|zone| zone.len() < LONGEST_ZONE);
        let host = host.map_or_else(
            || nix::unistd::gethostname().map(|host| host.into_encoded_bytes()).unwrap_or_default(),
            |(name, _)| name.as_bytes().to_vec(),
        );
        let zone = zone.map_or_else(timezone, str::to_owned);
        let writer = Create::new(host).timezone(zone).create(base)?;
        let state = State { writer: Some(writer), failure: None, latest: Stamp::default(), warnings: Vec::new() };
        Ok(Recorder { state: Mutex::new(state) })
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Calls `write` with the writer and the latest time, unless the recording has ended. A failure ends the recording.
    /// Refused metadata of one agent does not: the other agents are recorded too.
    fn write<T: Default>(
        &self,
        refusals: &mut Refusals,
        write: impl FnOnce(&mut Writer, &mut Stamp, &mut Refusals) -> Result<T, ArchiveError>,
    ) -> T {
        self.with(|state| {
            let Some(writer) = &mut state.writer else { return T::default() };
            let written = write(writer, &mut state.latest, refusals);
            state.warnings.append(&mut refusals.take());
            written.unwrap_or_else(|e| {
                (state.writer, state.failure) = (None, Some(e));
                T::default()
            })
        })
    }

    /// Prints the warnings about refused metadata since the last call to standard error.
    pub(crate) fn print_warnings(&self) {
        for warning in self.with(|state| std::mem::take(&mut state.warnings)) {
            escape::eprint(format_args!("Warning: {}\n", Escaped(warning)));
        }
    }

    /// Returns the failure that has ended the recording.
    pub(crate) fn failure(&self) -> Option<String> {
        self.with(|state| state.failure.as_ref().map(ToString::to_string))
    }

    /// Completes the archive.
    ///
    /// # Errors
    /// The failure that has ended the recording, or that of the last write.
    pub(crate) fn finish(&self) -> Result<(), ArchiveError> {
        self.with(|state| match (state.failure.take(), state.writer.take()) {
            (Some(failure), _) => Err(failure),
            (None, Some(writer)) => writer.finish(),
            (None, None) => Ok(()),
        })
    }
}

/// Longest time zone that fits into the label of all versions of archives, in bytes.
const LONGEST_ZONE: usize = 40;

/// Returns the time zone in the form of POSIX, without rules.
fn timezone() -> String {
    if let Some(zone) = std::env::var("TZ").ok().filter(|zone| !zone.is_empty() && zone.len() < LONGEST_ZONE) {
        return zone;
    }
    // POSIX counts to the west.
    let west = -LocalTime::now().offset;
    match west {
        0 => "UTC".to_owned(),
        _ => format!("LOCAL{}{}:{:02}", if west < 0 { "-" } else { "+" }, west.abs() / 3600, west.abs() / 60 % 60),
    }
}

/// Describes metrics. Returns those that the archive has with the same descriptor, and with at least one of the names.
fn describe(
    writer: &mut Writer,
    refusals: &mut Refusals,
    metrics: &[(Desc, &str)],
) -> Result<HashMap<PmId, Desc>, ArchiveError> {
    let mut described = HashMap::with_capacity(metrics.len());
    for (desc, name) in metrics {
        let written = writer.metric(&(*desc).into(), &[name.as_bytes()]);
        if refusals.check(Refused::Metric(desc.pmid), written)? {
            described.insert(desc.pmid, *desc);
        }
    }
    Ok(described)
}

/// Records a sample and the metadata before it.
fn put(
    writer: &mut Writer,
    latest: &mut Stamp,
    refusals: &mut Refusals,
    batch: &Batch,
    values: Option<&mut ResultWriter>,
) -> Result<(), ArchiveError> {
    // Agents are recorded one after the other, and the clock may be set back.
    let mut time = Stamp::now().max(writer.label().start).max(*latest);
    if let Some(last) = writer.last().filter(|_| batch.is_after_gap) {
        let mark = plus(last, Duration::from_millis(1));
        refusals.check(Refused::Mark, writer.mark(mark))?;
        time = time.max(mark);
    }
    *latest = time;
    let hostname = LabelSet::single("hostname", String::from_utf8_lossy(&writer.label().host)).unwrap_or_default();
    let context = (LabelLevel::Context, 0);
    let written = writer.labels(time, context, &[(None, &hostname)]);
    refusals.check(Refused::Labels(context.0, context.1), written)?;
    for (subject, kind, text) in &batch.texts {
        let written = writer.text(*subject, *kind, text.as_bytes());
        refusals.check(Refused::Text(*subject, *kind), written)?;
    }
    for (indom, list) in &batch.instances {
        let list: Vec<_> = list.iter().map(|(inst, name)| (*inst, name.as_bytes())).collect();
        refusals.check(Refused::Instances(*indom), writer.instances(time, *indom, &list))?;
    }
    for (level, ident, sets) in &batch.labels {
        let sets: Vec<_> = sets.iter().map(|(inst, set)| (*inst, set)).collect();
        refusals.check(Refused::Labels(*level, *ident), writer.labels(time, (*level, *ident), &sets))?;
    }
    if let Some(values) = values {
        refusals.check(Refused::Sample, writer.values(time, values))?;
    }
    // All shown samples are in the archive, even if this program is killed.
    writer.flush()
}

/// Part of a recording: one agent or host.
#[derive(Debug)]
pub(crate) struct Recording {
    recorder: Arc<Recorder>,
    /// Label of the agent's domains.
    agent: Option<LabelSet>,
    refusals: Refusals,
    /// Metrics that the archive has.
    described: HashMap<PmId, Desc>,
    batch: Batch,
    /// Value sets of the next sample.
    values: ResultWriter,
    /// Metrics in `values`. A metric may have several names.
    done: HashSet<PmId>,
}

impl Recording {
    /// Begins a part. `name` is that of the agent or host, and `label` the label of the agent's domains.
    pub(crate) fn new(recorder: Arc<Recorder>, name: &str, label: Option<&str>) -> Recording {
        Recording {
            recorder,
            agent: label.and_then(|label| LabelSet::domain(label).ok()),
            refusals: Refusals::new(name),
            described: HashMap::new(),
            batch: Batch::default(),
            values: ResultWriter::new(),
            done: HashSet::new(),
        }
    }

    /// Describes all metrics of the agent in the archive. Values of metrics that it refuses are not recorded.
    pub(crate) fn describe(&mut self, metrics: &[(Desc, &str)]) {
        self.described =
            self.recorder.write(&mut self.refusals, |writer, _, refusals| describe(writer, refusals, metrics));
    }

    /// Returns whether the archive has a metric with this descriptor.
    pub(crate) fn is_described(&self, desc: &Desc) -> bool {
        self.described.get(&desc.pmid) == Some(desc)
    }

    /// Returns the metadata to write to the archive with the next sample.
    pub(crate) fn batch(&mut self) -> &mut Batch {
        &mut self.batch
    }

    /// Adds labels of a subject, unless there are none. Those of a domain contain the name of the agent.
    pub(crate) fn add_labels(&mut self, level: LabelLevel, ident: u32, sets: source::LabelSets) {
        let mut sets: ValidLabelSets = sets.into_iter().filter_map(|(inst, set)| Some((inst, set.ok()?))).collect();
        if let Some(agent) = self.agent.as_ref().filter(|_| level == LabelLevel::Domain) {
            let own = sets.drain(..).next().map(|(_, set)| set).unwrap_or_default();
            let mut set = agent.clone();
            // If the set would be too long, the domain keeps only the name of the agent.
            _ = set.merge(&own);
            sets.push((None, set));
        }
        if sets.iter().any(|(_, set)| !set.is_empty()) {
            self.batch.labels.push((level, ident, sets));
        }
    }

    /// Begins a sample.
    pub(crate) fn begin(&mut self) {
        self.done.clear();
        self.values.begin();
    }

    /// Adds the values of a metric to the sample.
    pub(crate) fn add(&mut self, set: &ValueSet<'_>, desc: pmapi::Result<Desc>) {
        let Some(desc) = desc.ok().filter(|desc| self.is_described(desc)) else { return };
        if !self.done.insert(desc.pmid) {
            return;
        }
        self.values.begin_set(Some(desc.pmid));
        let pushed = set.values().try_for_each(|(inst, value)| {
            let atom = value.atom(desc.ty)?;
            self.values.push(inst, desc.ty, atom)
        });
        match set.error.map_or(pushed, Err) {
            Ok(()) => self.values.end_set(Ok(())),
            Err(e) => self.values.fail_set(e),
        }
    }

    /// Records the sample, and the metadata before it.
    pub(crate) fn end(&mut self) {
        let values = Some(&mut self.values).filter(|_| !self.done.is_empty());
        let batch = std::mem::take(&mut self.batch);
        self.recorder
            .write(&mut self.refusals, |writer, latest, refusals| put(writer, latest, refusals, &batch, values));
    }
}

#[cfg(test)]
mod tests;
