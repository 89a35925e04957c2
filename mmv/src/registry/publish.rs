//! Writes the file, and replaces it by a larger one.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use nix::unistd::geteuid;
use once_cell::race::OnceBox;
use pmapi::Config;
use pmapi::backoff::doubling;

use super::directory::{Directory, Existing, header};
#[cfg(doc)]
use super::inner::LONGEST_WAIT;
use super::inner::{Phase, State};
use super::others::{Before, Claim, choose_cluster, name_of_child, remove_leftovers};
use super::process::Process;
use super::published::{Published, generation};
use super::{Inner, absolute};
use crate::Error;
use crate::file::check_size;
use crate::format::{Flags, G2_AT, process_exists};
use crate::handle::no_value;
use crate::layout::{Layout, Owner};
use crate::map::{Access, access, forget_access, is_refusal};
use crate::model::{Kind, Metric};
use crate::notice;

/// The name under which the file is written.
struct Target {
    name: String,
    /// Kept if another process may have taken the name in the meantime.
    existing: Existing,
}

/// Another file that has the name of a registry's file.
enum Other {
    /// A running process of this user exports it.
    Of(i32),
    /// The file of another user, of a process that has ended or is not visible, or of no process.
    Unknown,
}

/// Pauses between attempts to write a file.
const PAUSES: [Duration; 7] = doubling(Duration::from_secs(1));
/// Number of attempts to find a name, while other processes start at the same time.
const TRIES: usize = 8;

impl Inner {
    pub(super) fn start(self: &Arc<Self>) -> Result<(), Error> {
        let disk = self.lock_disk().ok_or(Error::TORN)?;
        let mut state = self.lock().ok_or(Error::TORN)?;
        let process = Process::own();
        self.ends.store(false, Relaxed);
        if state.exported_by(process) {
            return Ok(());
        }
        // Only the parent has this thread.
        state.thread = None;
        let path = self.directory();
        let directory =
            Directory::open(&path).map_err(|source| Error::Io { path: path.join(&self.options.name), source })?;
        if process.is_beside(self.process) {
            remove_leftovers(&directory, &path, &self.options.name);
        }
        let values = state.model.values().len();
        if let Some(segment) = state.segments.last_mut() {
            segment.trim(values);
        }
        let mut tries = 1;
        let owner = loop {
            let target = self.target(&state, &directory, process)?;
            match self.start_as(&mut state, &directory, &target) {
                Err(Error::Io { source, .. })
                    if target.existing == Existing::Kept
                        && source.kind() == io::ErrorKind::AlreadyExists
                        && tries < TRIES =>
                {
                    tries += 1;
                }
                started => break started?,
            }
        };
        let no_thread = self.ensure_thread(&mut state);
        drop((state, disk));
        self.log_no_thread(no_thread);
        if let Some(other) = owner.filter(|owner| *owner != process.number()) {
            notice::warn(format_args!(
                "{}: replaced the file of process {other}, which is still running: each process needs a name of its own",
                self.options.name
            ));
        }
        Ok(())
    }

    /// Starts the export under a name. If a running process has a file with this name, returns that process instead.
    fn start_as(&self, state: &mut State, directory: &Directory, target: &Target) -> Result<Option<i32>, Error> {
        let path = self.directory().join(&target.name);
        state.claim = None;
        state.claim =
            Some(Claim::new(&path).ok_or_else(|| Error::InUse { what: "file", name: path.display().to_string() })?);
        let Before { owner, cluster, items } =
            directory.read(&target.name).map_or_else(|_| Before::default(), |file| Before::read(&file));
        state.before = items;
        let own_cluster = self.options.cluster.filter(|_| target.name == self.options.name);
        state.cluster = own_cluster.unwrap_or_else(|| choose_cluster(directory, &target.name, cluster));
        state.file.clone_from(&target.name);
        if let Err(source) = self.publish(state, directory, target.existing) {
            state.claim = None;
            return Err(Error::Io { path, source });
        }
        Ok(owner)
    }

    /// Returns the name under which this process exports: the registry's own, unless the parent or a sibling of this
    /// process exports under it.
    fn target(&self, state: &State, directory: &Directory, process: Process) -> Result<Target, Error> {
        let name = &self.options.name;
        if self.process == process {
            return Ok(Target { name: name.clone(), existing: Existing::Replaced });
        }
        let parents = matches!(&state.phase, Phase::Exporting(Published { process: parent, .. })
            if !self.options.has(Flags::PROCESS) || process.sees(*parent));
        if !parents && self.is_free(directory, process) {
            return Ok(Target { name: name.clone(), existing: Existing::Kept });
        }
        if self.options.has(Flags::NO_PREFIX) {
            return Err(Error::Forked("its metrics would have the names of its parent's, as they have no prefix"));
        }
        Ok(Target { name: name_of_child(name, &process.ending(self.process)), existing: Existing::Replaced })
    }

    /// Returns whether no other child of the process that created the registry has its name. Removes a file left by an
    /// earlier process, except in another PID namespace, where running processes may seem to have ended. Only the
    /// process that holds the file's lock removes it, and only while the name leads to it. So the new file of a faster
    /// sibling is never removed.
    fn is_free(&self, directory: &Directory, process: Process) -> bool {
        let name = &self.options.name;
        let file = match directory.read(name) {
            Ok(file) => file,
            Err(e) => return e.kind() == io::ErrorKind::NotFound,
        };
        let is_left = header(&file)
            .is_some_and(|header| header.owner().map_or(header.g1 < self.made, |owner| !process_exists(owner)));
        let removes = process.is_beside(self.process)
            && is_left
            && try_lock(&file).is_ok()
            && file.metadata().is_ok_and(|own| directory.leads_to(name, (own.dev(), own.ino())) == Some(true));
        if removes {
            directory.remove(name);
        }
        removes
    }

    pub(super) fn directory(&self) -> PathBuf {
        // This avoids a lock, which could stay locked in a forked child.
        static DEFAULT: OnceBox<PathBuf> = OnceBox::new();
        self.options
            .directory
            .clone()
            .unwrap_or_else(|| DEFAULT.get_or_init(|| Box::new(absolute(Config::load().tmp_dir().join("mmv")))).clone())
    }

    pub(super) fn path(&self) -> Option<PathBuf> {
        let state = self.lock()?;
        match &state.phase {
            Phase::Exporting(_) => Some(self.directory().join(&state.file)),
            Phase::Idle | Phase::Stopped => None,
        }
    }

    /// If there are registrations since the last file, writes a new one. Returns the first of consecutive errors, which
    /// the caller must [log](Inner::log) once nothing is locked: a consumer of the log may register metrics.
    #[must_use]
    pub(super) fn publish_if_stale(&self, state: &mut State) -> Option<io::Error> {
        // A child uses its parent's file until it starts the export itself.
        if !state.stale || !state.exports() {
            return None;
        }
        let published =
            Directory::open(&self.directory()).and_then(|directory| match self.replaced(state, &directory) {
                Some(Other::Of(process)) => {
                    Err(io::Error::other(format!("process {process} exports under the same name")))
                }
                _ => self.publish(state, &directory, Existing::Replaced),
            });
        let error = published.err()?;
        state.backoff.failed(&PAUSES);
        let is_first = !std::mem::replace(&mut state.warned, true);
        is_first.then_some(error)
    }

    /// Marks the file as stale if it or its directory was removed, or if the process that replaced it has ended. Returns
    /// a running process that has replaced the file since the last call, which the caller must [log](Inner::log_hidden).
    #[must_use]
    pub(super) fn look_for_file(&self, state: &mut State) -> Option<i32> {
        let Phase::Exporting(published) = &state.phase else { return None };
        if !state.exports() || state.stale {
            return None;
        }
        let directory = Directory::open(&self.directory()).ok()?;
        if published.file.get().is_err() || directory.leads_to(&state.file, published.file.id()).is_none() {
            state.stale = true;
            return None;
        }
        match self.replaced(state, &directory) {
            Some(Other::Of(process)) => {
                return (state.hidden_by.replace(process) != Some(process)).then_some(process);
            }
            // A process that was never seen running may run in another PID namespace.
            Some(Other::Unknown) => state.stale = state.hidden_by.is_some(),
            None => {}
        }
        None
    }

    /// Returns the file that has replaced the file of this process, if any.
    fn replaced(&self, state: &State, directory: &Directory) -> Option<Other> {
        let Phase::Exporting(published) = &state.phase else { return None };
        if directory.leads_to(&state.file, published.file.id()) != Some(false) {
            return None;
        }
        let file = directory.read(&state.file).ok()?;
        // The file of another user could keep this process from exporting.
        let is_own = file.metadata().is_ok_and(|file| file.uid() == geteuid().as_raw());
        let owner = header(&file).filter(|_| is_own).and_then(|header| header.owner());
        Some(owner.filter(|process| process_exists(*process)).map_or(Other::Unknown, Other::Of))
    }

    /// Logs an error. An export that fails must not stop the application.
    pub(super) fn log(&self, error: Option<io::Error>) {
        if let Some(e) = error {
            notice::warn(format_args!("{}: new metrics are not exported to PCP: {e}", self.options.name));
        }
    }

    /// Logs that another process hides the metrics of this one.
    pub(super) fn log_hidden(&self, by: Option<i32>) {
        if let Some(process) = by {
            notice::warn(format_args!(
                "{}: process {process} has the same name, and its file hides the metrics of this process until it ends",
                self.options.name
            ));
        }
    }

    /// Writes a new file, moves all values to it, and renames it over the present one. After an error, nothing has
    /// changed.
    fn publish(&self, state: &mut State, directory: &Directory, existing: Existing) -> io::Result<()> {
        self.publish_by(state, directory, existing, access)
    }

    fn publish_by(
        &self,
        state: &mut State,
        directory: &Directory,
        existing: Existing,
        access: fn(&File) -> io::Result<Access>,
    ) -> io::Result<()> {
        state.model.assign_items(&state.before);
        let last = match &state.phase {
            Phase::Exporting(published) => published.generation,
            Phase::Idle | Phase::Stopped => 0,
        };
        let generation = generation().max(last + 1);
        let process = Process::own();
        let owner = Owner { generation, flags: self.options.flags, process: process.number(), cluster: state.cluster };
        let (temporary, file) = directory.create(&self.options.name)?;
        let file = Arc::new(file);
        let access = file.get().and_then(access);
        let maps = matches!(access, Ok(Access::Mapped));
        let moved = access.and_then(|access| {
            let (len, texts_at) = self.write(state, &owner, file.get()?, access)?;
            match access {
                Access::Mapped => Ok((self.move_values(state, &file, len, texts_at)?, None)),
                Access::Copied => {
                    let (old_files, copies) = self.copy_all(state, &file, texts_at)?;
                    Ok((old_files, Some(copies)))
                }
            }
        });
        let (old_files, copies) = match moved {
            Ok(moved) => moved,
            Err(e) => {
                directory.remove(&temporary);
                if !maps || !is_refusal(&e) {
                    return Err(e);
                }
                // The system refuses to map the file behind the addresses of all values. It can still be written.
                forget_access();
                return self.publish_by(state, directory, existing, |_| Ok(Access::Copied));
            }
        };
        if let Err(e) = directory.rename(&temporary, &state.file, existing) {
            self.move_back(state, old_files);
            directory.remove(&temporary);
            return Err(e);
        }
        (state.stale, state.warned, state.hidden_by) = (false, false, None);
        state.backoff.succeeded();
        let phase = Phase::Exporting(Published { file, generation, process, copies });
        match std::mem::replace(&mut state.phase, phase) {
            // This tells readers that the old file is no longer valid, even if the directory's change time has not
            // advanced since they checked it.
            Phase::Exporting(old) if old.process == process => {
                _ = old.file.get().and_then(|file| file.write_all_at(&0u64.to_ne_bytes(), G2_AT));
            }
            _ => {}
        }
        Ok(())
    }

    /// Writes a file. Returns its length, and the offset of the text buffers.
    fn write(&self, state: &State, owner: &Owner, file: &File, access: Access) -> io::Result<(u64, u64)> {
        let layout = Layout::new(&state.model, state.capacity());
        check_size(layout.len())?;
        let slotted = if access == Access::Mapped { state.slotted() } else { Vec::new() };
        layout.write(owner, &slotted, |metric| self.initial(metric), file)?;
        Ok((layout.len(), layout.texts_at()))
    }

    /// Returns the word of a value that was never set.
    fn initial(&self, metric: &Metric) -> u64 {
        let none = self.options.has(Flags::SENTINEL) && metric.kind == Kind::Set;
        if none { no_value(metric.ty) } else { 0 }
    }

    /// Ends the export. If a thread has been writing the file for longer than [`LONGEST_WAIT`], it ends the export
    /// later. Returns whether the export has ended.
    pub(super) fn stop(&self) -> bool {
        if !self.is_free_in_time() {
            self.ends.store(true, Relaxed);
            return false;
        }
        self.ends.store(false, Relaxed);
        self.flush_last();
        let _disk = self.lock_disk();
        let Some(mut state) = self.lock() else { return true };
        let exports = state.exports();
        // A thread that has not begun to run sees that the export has ended.
        if let Some(thread) = state.thread.take().filter(|_| exports).as_ref().and_then(|thread| thread.get()) {
            thread.unpark();
        }
        if let Phase::Exporting(published) = std::mem::replace(&mut state.phase, Phase::Stopped) {
            if exports && self.options.has(Flags::PROCESS) {
                self.remove_own(&state.file, published.file.id());
            }
        }
        state.claim = None;
        true
    }

    /// Ends the export if an earlier [`Inner::stop`] has left that to the thread that was writing the file.
    pub(super) fn end_if_due(&self) {
        if self.ends.load(Relaxed) {
            self.stop();
        }
    }

    /// Removes the file with this name if its device and inode number are `id`.
    fn remove_own(&self, name: &str, id: (u64, u64)) {
        let Ok(directory) = Directory::open(&self.directory()) else { return };
        if directory.leads_to(name, id) == Some(true) {
            directory.remove(name);
        }
    }
}

/// Locks a file with flock(2) until it is closed, unless another process holds the lock.
#[expect(deprecated, reason = "Flock panics if it cannot unlock the file, and File::try_lock needs Rust 1.89")]
fn try_lock(file: &File) -> nix::Result<()> {
    nix::fcntl::flock(file.as_raw_fd(), nix::fcntl::FlockArg::LockExclusiveNonblock)
}

impl State {
    /// Returns whether this process exports, rather than the process from which it was forked.
    pub(super) fn exports(&self) -> bool {
        self.exported_by(Process::own())
    }

    fn exported_by(&self, process: Process) -> bool {
        matches!(&self.phase, Phase::Exporting(published) if published.process == process)
    }
}
