//! State of a registry, and its changes.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::Thread;
use std::time::Duration;

use once_cell::race::OnceBox;
use pcp_base::backoff::Backoff;

use super::RegistryBuilder;
use super::file::{Contents, Places, Published};
use super::others::Claim;
use crate::Error;
use crate::format::{Flags, MAX_LABELS, MAX_METRICS, MAX_SERIAL};
use crate::handle::{Distributions, Handle, Shared, SlotContext, no_value};
use crate::home::Home;
use crate::layout::Table;
use crate::model::{Counts, Kind, Model};
use crate::sync::{Held, Lock};

/// Longest time for which a flush, the end of the export, and the registration of a recorder's key wait for a thread
/// that writes the file.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(1);

pub(crate) struct Inner {
    pub(super) options: RegistryBuilder,
    pub(super) distributions: Arc<Distributions>,
    /// Whether the flush thread could not be started.
    pub(super) lacks_thread: AtomicBool,
    /// Whether a call has asked for the end of the export while a thread wrote the file. That thread, or the flush thread,
    /// then ends it.
    pub(super) ends: AtomicBool,
    /// Held while the file of a lazy registry is written, and acquired before the state. Without it, a registration waits
    /// for no disk.
    disk: Lock<()>,
    state: Lock<State>,
}

pub(crate) struct State {
    pub model: Model,
    /// The home of the values, from the first registration on.
    pub(super) home: Option<Home>,
    pub(super) places: Places,
    /// Index of the value of each text.
    pub(super) texts: Vec<usize>,
    pub(super) phase: Phase,
    /// Reserves the file for this registry, from the start to the stop.
    pub(super) claim: Option<Claim>,
    /// Items of metrics in the file of an earlier process, by name.
    pub before: HashMap<Box<str>, u16>,
    pub cluster: u16,
    /// Number of open batches.
    pub batches: usize,
    /// Whether the file lacks a registration.
    pub stale: bool,
    /// Whether the log has reported that the file cannot be written.
    pub warned: bool,
    /// Whether the log already says that values cannot be written.
    pub warned_of_copy: bool,
    /// Running process whose file has replaced this one's, once the log has reported it.
    pub hidden_by: Option<i32>,
    /// Whether the log already says that there is no thread.
    pub warned_of_thread: bool,
    /// Pauses between automatic attempts to write the file.
    pub backoff: Backoff,
    pub shared: Shared,
    /// Pauses between attempts to start the flush thread.
    pub thread_pauses: Backoff,
    /// The flush thread of the process that exports, once it runs.
    pub thread: Option<Arc<OnceBox<Thread>>>,
    /// Values whose single handle has been created.
    taken: HashSet<usize>,
}

pub(super) enum Phase {
    Idle,
    Exporting(Published),
    Stopped,
}

impl Inner {
    pub(super) fn new(options: RegistryBuilder) -> Arc<Inner> {
        let state = State {
            model: Model::default(),
            home: None,
            places: Places::default(),
            texts: Vec::new(),
            phase: Phase::Idle,
            claim: None,
            before: HashMap::new(),
            cluster: 0,
            batches: 0,
            stale: false,
            warned: false,
            warned_of_copy: false,
            hidden_by: None,
            warned_of_thread: false,
            backoff: Backoff::default(),
            shared: Shared::default(),
            thread_pauses: Backoff::default(),
            thread: None,
            taken: HashSet::new(),
        };
        Arc::new(Inner {
            options,
            distributions: Arc::default(),
            lacks_thread: AtomicBool::new(false),
            ends: AtomicBool::new(false),
            disk: Lock::default(),
            state: Lock::new(state),
        })
    }

    /// Locks the state. Returns `None` in a forked child.
    pub(crate) fn lock(&self) -> Option<Held<'_, State>> {
        self.state.lock()
    }

    /// Waits for at most [`LONGEST_WAIT`] until no thread writes the file. Returns false if a thread still does, for
    /// example because the disk hangs, and in a forked child.
    pub(super) fn is_free_in_time(&self) -> bool {
        self.disk.lock_within(LONGEST_WAIT).is_some_and(|_disk| self.state.lock_within(LONGEST_WAIT).is_some())
    }

    /// Waits until no thread writes the file of a lazy registry. None does while the caller keeps the guard.
    pub(super) fn lock_disk(&self) -> Option<Held<'_, ()>> {
        self.disk.lock()
    }

    /// Waits for at most `longest` until no thread writes the file of a lazy registry. Returns `None` if a thread still
    /// does, for example because the disk hangs.
    #[cfg(feature = "metrics")]
    pub(crate) fn lock_disk_within(&self, longest: Duration) -> Option<Held<'_, ()>> {
        self.disk.lock_within(longest)
    }

    /// Changes the model, allocates new values, calls `then`, and updates the file. `needs` returns the
    /// most that the change can add. If the file has no room for it, nothing changes.
    pub(crate) fn change<T, U>(
        self: &Arc<Self>,
        needs: impl FnOnce(&Model) -> Counts,
        change: impl FnOnce(&mut State) -> Result<T, Error>,
        then: impl FnOnce(&mut State, T) -> U,
    ) -> Result<U, Error> {
        let mut state = self.lock().ok_or(Error::FORKED)?;
        let before = state.model.counts();
        let needed = needs(&state.model);
        self.make_room(&mut state, needed)?;
        let changed = change(&mut state)?;
        state.begin_values(before.values, self.options.has(Flags::SENTINEL));
        state.stale = true;
        let result = then(&mut state, changed);
        let now = state.batches == 0 && !self.options.lazy;
        let error = if now { self.publish_if_stale(&mut state) } else { None };
        let no_thread = self.ensure_thread(&mut state);
        drop(state);
        self.log(error);
        self.log_no_thread(no_thread);
        self.end_if_due();
        Ok(result)
    }

    /// Allocates memory or blocks for values and texts, if there is room for them and their records.
    fn make_room(&self, state: &mut State, needed: Counts) -> Result<(), Error> {
        let known = state.model.counts();
        let home = self.home(state)?;
        check_room(home, known, needed)?;
        let (values, texts) = (known.values + needed.values, known.texts + needed.texts);
        home.allocate_values(values).map_err(no_memory)?;
        if needed.texts > 0 {
            // Readers follow a text from its value to its buffers, so that both must be in the file.
            let is_apart = home.is_partly_in_memory() && values > home.detached();
            let full = || no_memory(io::ErrorKind::StorageFull.into());
            (!is_apart).then_some(()).ok_or_else(full)?;
            home.allocate_texts(texts).map_err(no_memory)?;
        }
        Ok(())
    }

    /// Returns the home of the values; the first call creates it.
    pub(super) fn home<'s>(&self, state: &'s mut State) -> Result<&'s mut Home, Error> {
        if state.home.is_none() {
            let home = Home::new(&self.directory(), &self.options.name, self.options.mode, self.options.room)
                .map_err(no_memory)?;
            state.home = Some(home);
        }
        state.home.as_mut().ok_or_else(|| no_memory(io::ErrorKind::OutOfMemory.into()))
    }

    /// Returns the name of the registry.
    #[cfg(feature = "metrics")]
    pub(crate) fn name(&self) -> &str {
        &self.options.name
    }

    /// Allocates memory for this number of values besides those that there are.
    #[cfg(feature = "metrics")]
    pub(crate) fn reserve(&self, values: usize) -> Result<(), Error> {
        let mut state = self.lock().ok_or(Error::FORKED)?;
        let values = state.model.counts().values + values;
        let home = self.home(&mut state)?;
        if values <= home.layout.values.most as usize {
            home.allocate_values(values).map_err(no_memory)
        } else {
            Ok(())
        }
    }

    /// Creates the handle of a value.
    pub(crate) fn handle<H: Handle>(&self, state: &mut State, value: usize) -> Result<H, Error> {
        if H::UNIQUE && !state.taken.insert(value) {
            return Err(Error::InUse { what: "the single-writer handle of value", name: value.to_string() });
        }
        let Some(home) = &state.home else { return Err(no_memory(io::ErrorKind::OutOfMemory.into())) };
        let text = state.texts.binary_search(&value).unwrap_or_default();
        let context = SlotContext {
            slot: home.slot(value),
            value,
            buffers: home.layout.texts.record(text),
            sentinel: self.options.has(Flags::SENTINEL),
            shared: &mut state.shared,
        };
        Ok(H::from_slot(context))
    }

    /// Returns another handle of a metric without instances.
    pub(super) fn find<H: Handle>(&self, name: &str) -> Option<H> {
        let mut state = self.lock()?;
        let (index, metric) = state.model.find_metric(name)?;
        let value = state.model.values().find(index, 0)?;
        let same = metric.ty == H::TYPE && metric.kind == H::KIND && metric.indom().is_none();
        if same && !H::UNIQUE { self.handle(&mut state, value).ok() } else { None }
    }

    pub(super) fn end_batch(self: &Arc<Self>) {
        let Some(mut state) = self.lock() else { return };
        state.batches = state.batches.saturating_sub(1);
        let now = state.batches == 0 && !self.options.lazy;
        let error = if now { self.publish_if_stale(&mut state) } else { None };
        drop(state);
        self.log(error);
    }
}

/// Checks that a file has room for further records.
fn check_room(home: &Home, known: Counts, needed: Counts) -> Result<(), Error> {
    let layout = &home.layout;
    let check = |what, max: u32, known: usize, needed: usize| {
        let fits = needed == 0 || known + needed <= max as usize;
        if fits { Ok(()) } else { Err(Error::Full { what, max }) }
    };
    // The model has its own errors for the limits of the format.
    let is_small = |table: &Table, most: usize| (table.most as usize) < most;
    if is_small(&layout.metrics, MAX_METRICS) {
        check("metrics", layout.metrics.most, known.metrics, needed.metrics)?;
    }
    if is_small(&layout.indoms, MAX_SERIAL as usize) {
        check("instance domains", layout.indoms.most, known.indoms, needed.indoms)?;
    }
    if is_small(&layout.labels, MAX_LABELS) {
        check("labels", layout.labels.most, known.labels, needed.labels)?;
    }
    check("texts", layout.texts.most, known.texts, needed.texts)?;
    // Domains that grow leave records behind, so that there is room for more records than instances.
    check("instances", layout.texts.most, known.instances, needed.instances)?;
    check("names and help texts", layout.strings.most, known.strings, needed.strings)?;
    check("values", layout.values.most, known.values, needed.values)
}

fn no_memory(source: io::Error) -> Error {
    Error::Io { path: PathBuf::from("memory"), source }
}

impl State {
    /// Returns what a file is written from, and the file.
    pub(super) fn contents(&mut self) -> Option<(Contents<'_>, &mut Phase)> {
        let State { model, home, places, texts, phase, .. } = self;
        Some((Contents { model, home: home.as_ref()?, places, texts }, phase))
    }

    /// Gives the values from an index on the words that they begin with.
    fn begin_values(&mut self, first: usize, sentinels: bool) {
        let State { model, home, texts, .. } = self;
        let Some(home) = home else { return };
        let values = model.values();
        for run in values.within(first..values.len()) {
            let metric = model.metric(run.metric);
            for value in run.first..run.first + run.count {
                let [word, extra, ..] = home.value(value) else { continue };
                if metric.kind == Kind::Text {
                    extra.store(home.layout.texts.record(texts.len()), Relaxed);
                    texts.push(value);
                } else if metric.kind == Kind::Set && sentinels {
                    word.store(no_value(metric.ty), Relaxed);
                } else {
                    break;
                }
            }
        }
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").field("options", &self.options).finish_non_exhaustive()
    }
}
