//! Writing the file, and changing to a larger one.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use pmapi::Config;

use super::Inner;
use super::directory::{Before, Claim, choose_cluster};
use super::inner::{Phase, State};
use crate::Error;
use crate::format::{Flags, G2_AT, ValueType};
use crate::handle::{Number, no_value};
use crate::layout::{Layout, MARK, Owner};
use crate::map::{Word, probe};
use crate::model::{Kind, Metric};
use crate::names::truncated;
use crate::sync::atomic::Ordering::Relaxed;

/// The file that readers see.
#[derive(Debug)]
pub(crate) struct Published {
    file: Arc<File>,
    path: PathBuf,
    generation: u64,
    /// The process that wrote it, which a fork of it is not.
    process: i32,
}

impl Inner {
    pub(super) fn start(self: &Arc<Self>) -> Result<(), Error> {
        let mut state = self.lock();
        if matches!(&state.phase, Phase::Exporting(published) if published.process == process()) {
            return Ok(());
        }
        let directory = self.directory();
        let path = directory.join(&self.options.name);
        if state.claim.is_none() {
            let in_use = || Error::InUse { what: "file", name: path.display().to_string() };
            state.claim = Some(Claim::new(&path).ok_or_else(in_use)?);
        }
        let Before { owner, cluster, items } = Before::read(&path);
        state.before = items;
        state.cluster = self.options.cluster.unwrap_or_else(|| choose_cluster(&directory, &self.options.name, cluster));
        let values = state.model.values().len();
        if let Some(chunk) = state.chunks.last_mut() {
            chunk.trim(values);
        }
        if let Err(source) = self.publish(&mut state) {
            state.claim = None;
            return Err(Error::Io { path, source });
        }
        self.ensure_thread(&mut state);
        drop(state);
        if let Some(other) = owner.filter(|owner| *owner != process()) {
            let name = &self.options.name;
            tracing::warn!(target: "mmv", "{name}: the file was that of process {other}, which lives");
        }
        Ok(())
    }

    fn directory(&self) -> PathBuf {
        static DEFAULT: OnceLock<PathBuf> = OnceLock::new();
        let default = || DEFAULT.get_or_init(|| Config::load().tmp_dir().join("mmv")).clone();
        self.options.directory.clone().unwrap_or_else(default)
    }

    pub(super) fn path(&self) -> Option<PathBuf> {
        match &self.lock().phase {
            Phase::Exporting(published) => Some(published.path.clone()),
            Phase::Idle | Phase::Stopped => None,
        }
    }

    /// Writes a file with what was registered since the present one. Gives the first error in a row, which
    /// is to be [logged](Inner::log) when nothing is locked: whoever looks at the log may register something.
    #[must_use]
    pub(super) fn publish_if_stale(&self, state: &mut State) -> Option<io::Error> {
        // In a child of the process that started the export, the file stays the parent's.
        let ours = matches!(&state.phase, Phase::Exporting(published) if published.process == process());
        if !state.stale || !ours {
            return None;
        }
        self.publish(state).err().filter(|_| !std::mem::replace(&mut state.warned, true))
    }

    /// Logs an error: an application does not stop because it cannot be watched.
    pub(super) fn log(&self, error: Option<io::Error>) {
        if let Some(e) = error {
            tracing::warn!(target: "mmv", "{}: new metrics are not exported to PCP: {e}", self.options.name);
        }
    }

    /// Writes the file anew, moves all values there and puts it in the place of the present one.
    fn publish(&self, state: &mut State) -> io::Result<()> {
        state.model.assign_items(&state.before);
        let path = self.directory().join(&self.options.name);
        let last = match &state.phase {
            Phase::Exporting(published) => published.generation,
            Phase::Idle | Phase::Stopped => 0,
        };
        let generation = generation().max(last + 1);
        let process = process();
        let owner = Owner { generation, flags: self.options.flags, process, cluster: state.cluster };
        let temporary = path.with_file_name(temporary_name(&self.options.name));
        let file = Arc::new(create(&temporary)?);
        let moved = self.write(state, &owner, &file).and_then(|texts_at| {
            probe(&file)?;
            self.gate.while_moving(|| self.move_values(state, &file, texts_at))
        });
        if let Err(e) = moved.and_then(|()| fs::rename(&temporary, &path)) {
            _ = fs::remove_file(&temporary);
            return Err(e);
        }
        (state.stale, state.warned) = (false, false);
        if let Phase::Exporting(old) =
            std::mem::replace(&mut state.phase, Phase::Exporting(Published { file, path, generation, process }))
        {
            // Readers that still have the old one see that it is over, even if the directory's time
            // of change has not advanced since they looked.
            _ = old.file.write_all_at(&0u64.to_ne_bytes(), G2_AT);
        }
        Ok(())
    }

    /// Writes a file, and says where the strings of text values are.
    fn write(&self, state: &State, owner: &Owner, file: &File) -> io::Result<u64> {
        let layout = Layout::new(&state.model, state.capacity());
        layout.write(owner, &state.seated(), |metric| self.initial(metric), file)?;
        Ok(layout.texts_at())
    }

    fn move_values(&self, state: &mut State, file: &Arc<File>, texts_at: u64) -> io::Result<()> {
        for index in 0..state.chunks.len() {
            state.move_chunk(index, file)?;
        }
        self.texts.lock().move_to(file, texts_at)
    }

    /// The word of a value that was never set.
    fn initial(&self, metric: &Metric) -> u64 {
        let none = self.options.has(Flags::SENTINEL) && metric.kind == Kind::Set;
        if none { no_value(metric.ty) } else { 0 }
    }

    pub(super) fn stop(&self) {
        self.flush();
        let mut state = self.lock();
        if let Some(thread) = state.thread.take() {
            thread.unpark();
        }
        let phase = std::mem::replace(&mut state.phase, Phase::Stopped);
        if let Phase::Exporting(published) = phase
            && self.options.has(Flags::PROCESS)
            && published.process == process()
            && published.is_ours()
        {
            _ = fs::remove_file(&published.path);
        }
        state.claim = None;
    }
}

impl Published {
    /// Whether the name still leads to this file.
    fn is_ours(&self) -> bool {
        let inode = |m: fs::Metadata| (m.dev(), m.ino());
        let (named, own) = (fs::metadata(&self.path).map(inode), self.file.metadata().map(inode));
        named.is_ok_and(|named| own.is_ok_and(|own| named == own))
    }
}

impl State {
    /// Maps the file behind a chunk's addresses; then brings over what the old memory has.
    fn move_chunk(&mut self, index: usize, file: &Arc<File>) -> io::Result<()> {
        let State { chunks, model, .. } = self;
        let Some(chunk) = chunks.get_mut(index) else { return Ok(()) };
        let mut old = chunk.move_to(file)?;
        for run in model.values().within(chunk.slotted()) {
            let metric = model.metric(run.metric);
            for value in run.first..run.first + run.count {
                let (old_word, old_extra) = old.words(value)?;
                // Most were never updated, and pages that are not touched need no memory.
                if metric.kind == Kind::Added && old_word == 0 {
                    continue;
                }
                let (word, extra) = chunk.words(value);
                match metric.kind {
                    Kind::Added => add(word, metric.ty, old_word),
                    Kind::Set | Kind::Counted => replace_mark(word, old_word),
                    Kind::Interval => {
                        replace_mark(word, old_word);
                        replace_mark(extra, old_extra);
                    }
                    Kind::Text => {}
                }
            }
        }
        Ok(())
    }
}

fn add(word: &Word, ty: ValueType, old: u64) {
    match ty {
        ValueType::Double => f64::from_word(old).add_to(word),
        ValueType::Float => f32::from_word(old).add_to(word),
        _ => old.add_to(word),
    }
}

/// Sets a word unless somebody has set it since the file was made.
fn replace_mark(word: &Word, old: u64) {
    _ = word.compare_exchange(MARK, old, Relaxed, Relaxed);
}

fn process() -> i32 {
    std::process::id().cast_signed()
}

/// A name that agents skip and no other registry uses, in this process or another, and that is not too
/// long where the file's own is not.
fn temporary_name(name: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!(".{}.{}.{}", truncated(name, 200), process(), COUNT.fetch_add(1, Relaxed))
}

/// Everybody may read a file, and its owner write it.
const MODE: u32 = 0o644;

/// A new file that only we write.
fn create(path: &Path) -> io::Result<File> {
    let open = || OpenOptions::new().read(true).write(true).create_new(true).mode(MODE).open(path);
    let file = match open() {
        // Left behind by a process that had our number.
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_file(path)?;
            open()?
        }
        opened => opened?,
    };
    // Readers are other users, whatever the process hides from them otherwise.
    if file.metadata()?.mode() & 0o777 != MODE {
        file.set_permissions(Permissions::from_mode(MODE))?;
    }
    Ok(file)
}

/// Seconds and microseconds, as C's library has it.
fn generation() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_secs() << 32 | u64::from(now.subsec_micros())
}

#[cfg(all(test, not(mmv_loom)))]
mod tests {
    use super::*;
    use crate::Registry;

    #[test]
    fn a_child_leaves_the_file_to_its_parent_unless_it_starts_itself() {
        let dir = tempfile::tempdir().unwrap();
        let registry = Registry::builder("test").directory(dir.path()).build().unwrap();
        registry.try_start().unwrap();
        let path = registry.path().unwrap();
        let fork = |registry: &Registry| {
            let Phase::Exporting(published) = &mut registry.inner().lock().phase else { panic!("not started") };
            published.process += 1;
        };
        let metrics = || crate::reader::File::open(&path).unwrap().metrics().len();
        fork(&registry);
        registry.counter("added").register().unwrap();
        assert_eq!(metrics(), 0);
        registry.try_start().unwrap();
        assert_eq!(metrics(), 1);
        fork(&registry);
        drop(registry);
        assert_eq!(metrics(), 1);
    }
}
