//! Starts and ends the export, and adds registrations to the file.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use nix::unistd::geteuid;
use once_cell::race::OnceBox;
use pcp_base::backoff::doubling;
use pmapi::Config;

use super::file::{Owner, Published, generation};
#[cfg(doc)]
use super::inner::LONGEST_WAIT;
use super::inner::{Phase, State};
use super::others::{Before, Claim, choose_cluster, remove_leftovers};
use super::{Inner, absolute};
use crate::Error;
use crate::directory::{Directory, Kept, header};
use crate::format::{Flags, process_exists};
use crate::notice;
use crate::os::forks::Process;

/// Another file that has the name of a registry's file.
enum Other {
    /// A running process of this user exports it.
    Of(i32),
    /// The file of another user, of a process that has ended or is not visible, or of no process.
    Unknown,
}

/// Pauses between attempts to write a file.
const PAUSES: [Duration; 7] = doubling(Duration::from_secs(1));

impl Inner {
    pub(super) fn start(self: &Arc<Self>) -> Result<(), Error> {
        let disk = self.lock_disk().ok_or(Error::FORKED)?;
        let mut state = self.lock().ok_or(Error::FORKED)?;
        self.ends.store(false, Relaxed);
        if matches!(state.phase, Phase::Exporting(_)) {
            return Ok(());
        }
        let (path, name) = (self.directory(), &self.options.name);
        let directory = Directory::open(&path).map_err(|source| Error::Io { path: path.join(name), source })?;
        remove_leftovers(&directory, &path, name);
        let owner = self.start_in(&mut state, &directory)?;
        let no_thread = self.ensure_thread(&mut state);
        drop((state, disk));
        self.log_no_thread(no_thread);
        if let Some(other) = owner.filter(|owner| *owner != own_number()) {
            notice::warn(format_args!(
                "{name}: replaced the file of process {other}, which is still running: each process needs a name of its own"
            ));
        }
        Ok(())
    }

    /// Starts the export in a directory. If a running process has a file with this name, returns that process.
    fn start_in(&self, state: &mut State, directory: &Directory) -> Result<Option<i32>, Error> {
        let (name, path) = (&self.options.name, self.directory().join(&self.options.name));
        state.claim = None;
        state.claim =
            Some(Claim::new(&path).ok_or_else(|| Error::InUse { what: "file", name: path.display().to_string() })?);
        let Before { owner, cluster, items } =
            directory.read(name).map_or_else(|_| Before::default(), |file| Before::read(&file));
        state.before = items;
        state.cluster = self.options.cluster.unwrap_or_else(|| choose_cluster(directory, name, cluster));
        state.model.assign_items(&state.before);
        self.home(state)?;
        let started = self.publish_home(state, directory).or_else(|_| self.publish_copy(state, directory));
        if let Err(source) = started {
            state.claim = None;
            return Err(Error::Io { path, source });
        }
        Ok(owner)
    }

    pub(super) fn directory(&self) -> PathBuf {
        // A lock could stay locked in a forked child.
        static DEFAULT: OnceBox<PathBuf> = OnceBox::new();
        self.options
            .directory
            .clone()
            .unwrap_or_else(|| DEFAULT.get_or_init(|| Box::new(absolute(Config::load().tmp_dir().join("mmv")))).clone())
    }

    pub(super) fn path(&self) -> Option<PathBuf> {
        let state = self.lock()?;
        match &state.phase {
            Phase::Exporting(_) => Some(self.directory().join(&self.options.name)),
            Phase::Idle | Phase::Stopped => None,
        }
    }

    /// Adds registrations to the file, if it lacks any. Returns the first of consecutive errors, which
    /// the caller must [log](Inner::log) once nothing is locked: a consumer of the log may register metrics.
    #[must_use]
    pub(super) fn publish_if_stale(&self, state: &mut State) -> Option<io::Error> {
        if !state.stale || !matches!(state.phase, Phase::Exporting(_)) {
            return None;
        }
        let published =
            Directory::open(&self.directory()).and_then(|directory| match self.replaced(state, &directory) {
                Some(Other::Of(process)) => {
                    Err(io::Error::other(format!("process {process} exports under the same name")))
                }
                _ => self.publish(state, &directory),
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
        if state.stale {
            return None;
        }
        let directory = Directory::open(&self.directory()).ok()?;
        if published.file.get().is_err() || directory.leads_to(&self.options.name, published.file.id()).is_none() {
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
        if directory.leads_to(&self.options.name, published.file.id()) != Some(false) {
            return None;
        }
        let file = directory.read(&self.options.name).ok()?;
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

    /// Appends registrations to the file or, if it has lost its name, writes another one.
    fn publish(&self, state: &mut State, directory: &Directory) -> io::Result<()> {
        let Phase::Exporting(published) = &mut state.phase else { return Ok(()) };
        let id = published.file.id();
        if directory.leads_to(&self.options.name, id) != Some(true) {
            state.model.assign_items(&state.before);
            return self.publish_copy(state, directory);
        }
        if published.file.get().is_err() {
            // The program has closed the descriptor.
            published.file = Arc::new(directory.reopen(&self.options.name, id)?);
        }
        state.model.assign_items(&state.before);
        if let Some((mut contents, Phase::Exporting(published))) = state.contents() {
            published.append(&mut contents, generation().max(published.generation() + 1))?;
            published.copy(&contents)?;
        }
        state.is_published();
        Ok(())
    }

    /// Publishes the file in which the values are, which has a temporary name.
    fn publish_home(&self, state: &mut State, directory: &Directory) -> io::Result<()> {
        let home = state.home.as_mut().ok_or(io::ErrorKind::NotFound)?;
        let temporary = home.temporary().ok_or(io::ErrorKind::NotFound)?.to_owned();
        let file = home.file().ok_or(io::ErrorKind::NotFound)??;
        let published = self.write(state, file, true)?;
        directory.rename(&temporary, &self.options.name)?;
        if let Some(home) = &mut state.home {
            home.renamed(&self.options.name);
        }
        state.phase = Phase::Exporting(published);
        state.is_published();
        Ok(())
    }

    /// Writes another file, to which flushes copy the values, and gives it the registry's name.
    fn publish_copy(&self, state: &mut State, directory: &Directory) -> io::Result<()> {
        let (temporary, file) = directory.create(&self.options.name, self.options.mode)?;
        let published = self
            .write(state, Arc::new(file), false)
            .and_then(|published| directory.rename(&temporary, &self.options.name).map(|()| published))
            .inspect_err(|_| directory.remove(&temporary))?;
        state.phase = Phase::Exporting(published);
        state.is_published();
        Ok(())
    }

    /// Writes a file with everything that is registered.
    fn write(&self, state: &mut State, file: Arc<Kept>, is_home: bool) -> io::Result<Published> {
        let owner = Owner { flags: self.options.flags, process: own_number(), cluster: state.cluster };
        let last = match &state.phase {
            Phase::Exporting(published) => published.generation(),
            Phase::Idle | Phase::Stopped => 0,
        };
        let (mut contents, _) = state.contents().ok_or(io::ErrorKind::NotFound)?;
        Published::new(file, is_home, owner, generation().max(last + 1), &mut contents)
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
        // A thread that has not begun to run sees that the export has ended.
        if let Some(thread) = state.thread.take().as_ref().and_then(|thread| thread.get()) {
            thread.unpark();
        }
        if let Phase::Exporting(published) = std::mem::replace(&mut state.phase, Phase::Stopped) {
            if self.options.has(Flags::PROCESS) {
                self.remove_own(published.file.id());
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

    /// Removes the registry's file if its device and inode number are `id`.
    fn remove_own(&self, id: (u64, u64)) {
        let Ok(directory) = Directory::open(&self.directory()) else { return };
        if directory.leads_to(&self.options.name, id) == Some(true) {
            directory.remove(&self.options.name);
        }
    }
}

fn own_number() -> i32 {
    Process::own().number() as i32
}

impl State {
    /// Notes that the file has everything that is registered.
    fn is_published(&mut self) {
        (self.stale, self.warned, self.hidden_by) = (false, false, None);
        self.backoff.succeeded();
    }
}
