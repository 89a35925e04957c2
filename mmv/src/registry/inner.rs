//! State of a registry, and its changes.

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::thread::Thread;
use std::time::Duration;

use once_cell::race::OnceBox;
use pmapi::backoff::Backoff;

use super::RegistryBuilder;
use super::others::Claim;
use super::process::Process;
use super::published::{Published, generation};
use crate::Error;
use crate::fork::{self, Forked};
use crate::format::Flags;
use crate::handle::{Distributions, Handle, Shared, SlotContext, Texts, no_value};
use crate::hash::{HashMap, HashSet};
use crate::map::{Gate, Segment};
use crate::model::{Kind, Model};
use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::{Held, Lock};

/// Longest time for which a flush, the end of the export, and the registration of a recorder's key wait for a thread
/// that writes the file.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// Smallest number of values that get value slots at a time: about as many as fit into a page.
const LEAST_VALUES: usize = 120;

pub(crate) struct Inner {
    pub(super) options: RegistryBuilder,
    pub(super) gate: Arc<Gate>,
    pub(super) texts: Arc<Texts>,
    pub(super) distributions: Arc<Distributions>,
    /// The process that created the registry, and the generation number of the time of creation.
    pub(super) process: Process,
    pub(super) made: u64,
    /// Whether the flush thread could not be started.
    pub(super) lacks_thread: AtomicBool,
    /// Whether the export was to end while a thread wrote the file. That thread, or the flush thread, ends it later.
    pub(super) ends: AtomicBool,
    /// Held while the file of a lazy registry is written, and acquired before the state. Without it, a registration waits
    /// for no disk.
    disk: Lock<()>,
    state: Lock<State>,
}

pub(crate) struct State {
    pub model: Model,
    pub segments: Vec<Segment>,
    pub phase: Phase,
    /// Reserves the file for this registry, from the start to the stop.
    pub(super) claim: Option<Claim>,
    /// Name of the registry's file in the directory of MMV files.
    pub file: String,
    /// Items of metrics in the file of an earlier process, by name.
    pub before: HashMap<Box<str>, u16>,
    pub cluster: u16,
    /// Number of open batches.
    pub batches: usize,
    /// Whether the file lacks a registration.
    pub stale: bool,
    /// Whether the log already says that the file cannot be written.
    pub warned: bool,
    /// Whether the log already says that values cannot be written.
    pub warned_of_copy: bool,
    /// Running process that has replaced the file of this one, as the log already says.
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
    /// Index of each text, by value.
    texts: HashMap<usize, usize>,
    /// Values whose single handle has been created.
    taken: HashSet<usize>,
}

pub(crate) enum Phase {
    Idle,
    Exporting(Published),
    Stopped,
}

impl Inner {
    pub(super) fn new(options: RegistryBuilder) -> Arc<Inner> {
        let state = State {
            model: Model::default(),
            segments: Vec::new(),
            phase: Phase::Idle,
            claim: None,
            file: String::new(),
            before: HashMap::default(),
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
            texts: HashMap::default(),
            taken: HashSet::default(),
        };
        let inner = Arc::new(Inner {
            options,
            gate: Arc::default(),
            texts: Arc::default(),
            distributions: Arc::default(),
            process: Process::own(),
            made: generation(),
            lacks_thread: AtomicBool::new(false),
            ends: AtomicBool::new(false),
            disk: Lock::default(),
            state: Lock::new(state),
        });
        let watcher: Weak<dyn Forked> = Arc::downgrade(&inner) as _;
        fork::watch(watcher);
        inner
    }

    /// Locks the state. Returns `None` in a [torn](fork::is_torn) child, if the state was locked at the fork.
    pub(crate) fn lock(&self) -> Option<Held<'_, State>> {
        self.state.lock()
    }

    /// Waits for at most [`LONGEST_WAIT`] until no thread writes the file. Returns false if a thread still does, for
    /// example because the disk hangs.
    pub(super) fn is_free_in_time(&self) -> bool {
        // Locks that are held forever are those of threads that do not exist here, and do not write.
        fork::is_torn()
            || self.disk.lock_within(LONGEST_WAIT).is_some_and(|_disk| self.state.lock_within(LONGEST_WAIT).is_some())
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

    /// Changes the model, allocates value slots for new values, calls `then`, and updates the file. `needs` returns the
    /// number of values that the change adds: without memory for them, nothing changes. A `change` that fails must add
    /// no values.
    pub(crate) fn change<T, U>(
        self: &Arc<Self>,
        needs: impl FnOnce(&Model) -> usize,
        change: impl FnOnce(&mut State) -> Result<T, Error>,
        then: impl FnOnce(&mut State, T) -> U,
    ) -> Result<U, Error> {
        let mut state = self.lock().ok_or(Error::TORN)?;
        let (values, texts) = (state.model.values().len(), state.model.texts());
        let needed = needs(&state.model);
        if needed > 0 {
            self.extend(&mut state, values + needed).map_err(no_memory)?;
        }
        let changed = change(&mut state)?;
        self.allocate_slots(&mut state, values, texts)?;
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

    /// Allocates value slots for the values that begin at index `first`.
    fn allocate_slots(&self, state: &mut State, first: usize, texts: usize) -> Result<(), Error> {
        let values = state.model.values().len();
        if values == first {
            return Ok(());
        }
        self.extend(state, values).map_err(no_memory)?;
        if state.model.texts() > texts {
            self.number_texts(state, first);
        }
        if self.options.has(Flags::SENTINEL) {
            state.set_no_value(first);
        }
        Ok(())
    }

    /// Ensures that there are slots for `values` values.
    fn extend(&self, state: &mut State, values: usize) -> io::Result<()> {
        let capacity = state.capacity();
        if values > capacity {
            // Slots left over at the start are given up. Later ones take room in the file.
            let least = if matches!(state.phase, Phase::Idle) { 32 * LEAST_VALUES } else { LEAST_VALUES };
            let more = (values - capacity).max(capacity / 2).max(least);
            let segment = Segment::new(capacity, more, Arc::clone(&self.gate))?;
            state.segments.push(segment);
        }
        Ok(())
    }

    /// Returns the name of the registry.
    #[cfg(feature = "metrics")]
    pub(crate) fn name(&self) -> &str {
        &self.options.name
    }

    /// Allocates slots for this number of values besides those that there are.
    #[cfg(feature = "metrics")]
    pub(crate) fn reserve(&self, values: usize) -> Result<(), Error> {
        let mut state = self.lock().ok_or(Error::TORN)?;
        let values = state.model.values().len() + values;
        self.extend(&mut state, values).map_err(no_memory)
    }

    fn number_texts(&self, state: &mut State, first: usize) {
        for run in state.model.values().within(first..state.model.values().len()) {
            if state.model.metric(run.metric).kind == Kind::Text {
                for value in run.first..run.first + run.count {
                    let number = state.texts.len();
                    state.texts.insert(value, number);
                }
            }
        }
        if let Some(mut texts) = self.texts.lock() {
            texts.grow(state.texts.len());
        }
    }

    /// Creates the handle of a value.
    pub(crate) fn handle<H: Handle>(&self, state: &mut State, value: usize) -> Result<H, Error> {
        if H::UNIQUE && !state.taken.insert(value) {
            return Err(Error::InUse { what: "the only writer of value", name: value.to_string() });
        }
        let segment = state.segments.partition_point(|segment| segment.range().end <= value);
        let Some(segment) = state.segments.get_mut(segment) else {
            return Err(no_memory(io::ErrorKind::OutOfMemory.into()));
        };
        let context = SlotContext {
            slot: segment.slot(value),
            value,
            text: state.texts.get(&value).copied().unwrap_or(usize::MAX),
            sentinel: self.options.has(Flags::SENTINEL),
            texts: &self.texts,
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

impl Forked for Inner {
    fn is_quiet(&self) -> bool {
        self.disk.is_quiet()
            && self.state.is_quiet()
            && self.gate.is_quiet()
            && self.texts.is_quiet()
            && self.distributions.is_quiet()
    }

    fn forked(&self) {
        if let Some(state) = self.lock() {
            state.shared.forget();
        }
        self.distributions.forget();
    }
}

fn no_memory(source: io::Error) -> Error {
    Error::Io { path: PathBuf::from("memory"), source }
}

impl State {
    /// Returns the number of values that have slots.
    pub(crate) fn capacity(&self) -> usize {
        self.segments.last().map_or(0, |segment| segment.range().end)
    }

    /// Returns the ranges of values that may have handles.
    pub(crate) fn slotted(&self) -> Vec<Range<usize>> {
        self.segments.iter().map(Segment::slotted).collect()
    }

    fn set_no_value(&self, first: usize) {
        let values = self.model.values();
        for segment in &self.segments {
            let range = segment.range().start.max(first)..segment.range().end.min(values.len());
            for run in values.within(range).filter(|run| self.model.metric(run.metric).kind == Kind::Set) {
                let none = no_value(self.model.metric(run.metric).ty);
                (run.first..run.first + run.count).for_each(|value| segment.words(value).0.store(none, Relaxed));
            }
        }
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").field("options", &self.options).finish_non_exhaustive()
    }
}
