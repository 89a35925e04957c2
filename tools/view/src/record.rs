//! Recording of the agents that are shown, in an archive.

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use chrono::{Local, Offset as _};
use pcp_archive::{ArchiveError, Create, Writer};
use pcp_pdu::event::Stamp;
use pcp_pdu::metadata::{Subject, TextKind};
use pcp_pdu::result::ValueSets;
use pcp_pdu::result_writer::ResultWriter;
use pmapi::{Desc, InDom, Inst, LabelLevel, LabelSet, PmId};

/// Archive that all agents are recorded in.
#[derive(Debug)]
pub(crate) struct Recorder {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// `None` after a failure.
    writer: Option<Writer>,
    values: ResultWriter,
    failure: Option<ArchiveError>,
}

/// Metadata of an agent that is not in the archive yet.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) metrics: Vec<(Desc, String)>,
    pub(crate) texts: Vec<(Subject, TextKind, String)>,
    pub(crate) instances: Vec<(InDom, Vec<(Inst, String)>)>,
    pub(crate) labels: Vec<(LabelLevel, u32, LabelSets)>,
}

/// Label sets of a subject, each with its instance.
type LabelSets = Vec<(Option<Inst>, LabelSet)>;

impl Recorder {
    /// Creates the files of the archive.
    ///
    /// # Errors
    /// Errors of [`Create::create`], for instance for files that exist.
    pub(crate) fn create(base: &Path) -> Result<Recorder, ArchiveError> {
        let host = nix::unistd::gethostname().map(|host| host.into_encoded_bytes()).unwrap_or_default();
        let writer = Create::new(host).timezone(timezone()).create(base)?;
        let state = State { writer: Some(writer), values: ResultWriter::new(), failure: None };
        Ok(Recorder { state: Mutex::new(state) })
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Records a sample and the metadata before it. A failure ends the recording.
    pub(crate) fn record(&self, batch: Batch, values: ValueSets<'_>, descs: &[pmapi::Result<Desc>]) {
        self.with(|state| {
            if let Some(Err(e)) =
                state.writer.as_mut().map(|writer| put(writer, &mut state.values, batch, values, descs))
            {
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

/// Returns the time zone in the form of POSIX, without rules.
fn timezone() -> String {
    if let Some(zone) = std::env::var("TZ").ok().filter(|zone| !zone.is_empty() && zone.len() < 40) {
        return zone;
    }
    // POSIX counts to the west.
    let west = -Local::now().offset().fix().local_minus_utc();
    match west {
        0 => "UTC".to_owned(),
        _ => format!("LOCAL{}{}:{:02}", if west < 0 { "-" } else { "+" }, west.abs() / 3600, west.abs() / 60 % 60),
    }
}

fn put(
    writer: &mut Writer,
    values: &mut ResultWriter,
    batch: Batch,
    sets: ValueSets<'_>,
    descs: &[pmapi::Result<Desc>],
) -> Result<(), ArchiveError> {
    // Agents are recorded one after the other, and the clock may be set back.
    let time = Stamp::now().max(writer.label().start).max(writer.last().unwrap_or_default());
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
    let mut done: HashSet<PmId> = HashSet::new();
    values.begin();
    for (set, desc) in sets.iter().zip(descs) {
        // A metric may have several names.
        let Some(desc) = desc.as_ref().ok().filter(|desc| done.insert(desc.pmid)) else { continue };
        values.begin_set(Some(desc.pmid));
        let pushed = set.values().try_for_each(|(inst, value)| {
            let atom = value.atom(desc.ty)?;
            values.push(inst, desc.ty, atom)
        });
        match set.error.map_or(pushed, Err) {
            Ok(()) => values.end_set(Ok(())),
            Err(e) => values.fail_set(e),
        }
    }
    if !done.is_empty() {
        writer.values(time, values)?;
    }
    // What is shown is in the archive, also if this program is killed.
    writer.flush()
}
