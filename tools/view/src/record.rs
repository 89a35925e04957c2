//! Recording of the shown samples in an archive.

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chrono::{Local, Offset as _};
use pcp_archive::{ArchiveError, Create, Writer};
use pcp_pdu::event::Stamp;
use pcp_pdu::metadata::{Subject, TextKind};
use pcp_pdu::result::ValueSet;
use pcp_pdu::result_writer::ResultWriter;
use pmapi::{Desc, InDom, Inst, LabelLevel, LabelSet, PmId};

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
}

/// Metadata of an agent that is not in the archive yet.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// Whether samples are missing before this one, so that values must not be related across the gap.
    pub(crate) is_after_gap: bool,
    pub(crate) metrics: Vec<(Desc, String)>,
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
        let state = State { writer: Some(writer), failure: None };
        Ok(Recorder { state: Mutex::new(state) })
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Records a sample and the metadata before it. A failure ends the recording.
    fn record(&self, batch: Batch, values: Option<&mut ResultWriter>) {
        self.with(|state| {
            if let Some(Err(e)) = state.writer.as_mut().map(|writer| put(writer, batch, values)) {
                (state.writer, state.failure) = (None, Some(e));
            }
        });
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
    let west = -Local::now().offset().fix().local_minus_utc();
    match west {
        0 => "UTC".to_owned(),
        _ => format!("LOCAL{}{}:{:02}", if west < 0 { "-" } else { "+" }, west.abs() / 3600, west.abs() / 60 % 60),
    }
}

fn put(writer: &mut Writer, batch: Batch, values: Option<&mut ResultWriter>) -> Result<(), ArchiveError> {
    // Agents are recorded one after the other, and the clock may be set back.
    let mut time = Stamp::now().max(writer.label().start).max(writer.last().unwrap_or_default());
    if let Some(last) = writer.last().filter(|_| batch.is_after_gap) {
        let mark = plus(last, Duration::from_millis(1));
        writer.mark(mark)?;
        time = time.max(mark);
    }
    let hostname = LabelSet::one("hostname", String::from_utf8_lossy(&writer.label().host)).unwrap_or_default();
    writer.labels(time, (LabelLevel::Context, 0), &[(None, &hostname)])?;
    for (desc, name) in &batch.metrics {
        writer.metric(&(*desc).into(), &[name.as_bytes()])?;
    }
    for (subject, kind, text) in &batch.texts {
        writer.text(*subject, *kind, text.as_bytes())?;
    }
    for (indom, list) in &batch.instances {
        let list: Vec<_> = list.iter().map(|(inst, name)| (*inst, name.as_bytes())).collect();
        writer.instances(time, *indom, &list)?;
    }
    for (level, ident, sets) in &batch.labels {
        let sets: Vec<_> = sets.iter().map(|(inst, set)| (*inst, set)).collect();
        writer.labels(time, (*level, *ident), &sets)?;
    }
    if let Some(values) = values {
        writer.values(time, values)?;
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
    batch: Batch,
    /// Value sets of the next sample.
    values: ResultWriter,
    /// Metrics in `values`. A metric may have several names.
    done: HashSet<PmId>,
}

impl Recording {
    /// Begins a part. `agent` is the name of the agent.
    pub(crate) fn new(recorder: Arc<Recorder>, agent: Option<&str>) -> Recording {
        let agent = agent.and_then(|name| LabelSet::domain(name).ok());
        Recording { recorder, agent, batch: Batch::default(), values: ResultWriter::new(), done: HashSet::new() }
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
        let Some(desc) = desc.ok().filter(|desc| self.done.insert(desc.pmid)) else { return };
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
        self.recorder.record(std::mem::take(&mut self.batch), values);
    }
}
