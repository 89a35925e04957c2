//! The object behind a program's handle: a mapped file with its values.

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process;
use std::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use libc::{EDEADLK, EIO, ENOMEM, EPERM};
use mmv::format::{Flags, NAME_LEN, STRING_LEN, Version, process_exists};

use crate::contents::Contents;
use crate::file::{Name, NewFile};
use crate::layout::Layout;
use crate::notice::warn_from_handler;
use crate::sys::{self, Keyed, Pages, Table, Value, this_thread};

/// Offset of the second generation number in the header.
const G2_AT: u64 = 16;

/// Warning when a page of a file is lost.
const TRUNCATED: &str =
    "Warning: libpcp_mmv: an MMV file was truncated, or its disk fails; new values are lost until the next start";

/// Attempts to get the lock of a handle's strings.
const STRING_TRIES: u32 = 1000;

/// All files that are mapped.
static HANDLES: Table<Handle> = Table::new();

/// A mapped file.
#[derive(Debug)]
pub(crate) struct Handle {
    pages: Pages,
    layout: Layout,
    name: Name,
    /// The process that wrote the file. A forked child has the handle too.
    writer: u32,
    /// Whether the export ends with the process, which removes the file.
    own: bool,
    /// The thread that is writing a string, or 0.
    writing: AtomicUsize,
    /// Whether the export was stopped.
    ended: AtomicBool,
    /// Number of the start. Handles of different starts may have the same address.
    number: u64,
}

/// A running export, for the registry that has started it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Started {
    address: usize,
    number: u64,
}

impl Keyed for Handle {
    #[inline(always)]
    fn key(&self) -> usize {
        self.pages.address()
    }

    fn bytes(&self) -> usize {
        self.pages.len()
    }

    fn end(&self) -> bool {
        let first = !self.ended.swap(true, AcqRel);
        if first {
            self.pages.retire();
        }
        first
    }
}

impl Handle {
    /// Returns the handle with this address.
    #[inline(always)]
    pub(crate) fn find(address: usize) -> Option<&'static Handle> {
        HANDLES.find(address)
    }

    /// Writes and maps a file. Returns the program's handle, or the code of an error.
    pub(crate) fn start(contents: &Contents, path: PathBuf) -> Result<(*mut c_void, Started), i32> {
        let layout = Layout::new(contents)?;
        let (writer, generation) = (process::id(), generation());
        let bytes = layout.bytes(contents, generation, writer)?;
        let (pages, name) = write_and_map(&bytes, generation, path, &layout).map_err(|e| match e.kind() {
            io::ErrorKind::PermissionDenied => e.raw_os_error().unwrap_or(EPERM),
            io::ErrorKind::OutOfMemory => ENOMEM,
            _ => e.raw_os_error().unwrap_or(EIO),
        })?;
        static STARTS: AtomicU64 = AtomicU64::new(0);
        let handle = Handle {
            pages,
            layout,
            name,
            writer,
            own: Flags::from_bits_retain(contents.flags).contains(Flags::PROCESS),
            writing: AtomicUsize::new(0),
            ended: AtomicBool::new(false),
            number: STARTS.fetch_add(1, Relaxed),
        };
        match HANDLES.insert(handle) {
            Ok(handle) => Ok((handle.pages.handle(), Started { address: handle.key(), number: handle.number })),
            Err(handle) => {
                handle.name.remove();
                Err(EDEADLK)
            }
        }
    }

    /// Ends the export through the handle with this address, and removes the file if it depends on this process.
    /// Returns whether there is such a handle. A signal handler may call this.
    pub(crate) fn stop(address: usize) -> bool {
        HANDLES.remove(address, |_| true, Handle::before_end)
    }

    /// Ends an export as [`Handle::stop`] does, unless it was stopped before. The handle of a later start may have its
    /// address.
    pub(crate) fn stop_started(started: Started) {
        HANDLES.remove(started.address, |handle| handle.number == started.number, Handle::before_end);
    }

    /// Removes the file if it depends on this process. A file whose writer is a living parent process stays.
    fn before_end(&self) {
        let ends = self.writer == process::id() || !process_exists(self.writer as i32);
        if self.own && ends && !self.ended.load(Acquire) {
            self.name.remove();
        }
    }

    /// Returns the value at an address, and the code of its type.
    #[inline(always)]
    pub(crate) fn value_at(&self, address: usize) -> Option<(Value<'_>, u8)> {
        self.pages.value_at(address)
    }

    /// Returns the first value of a metric with a name and, unless the metric is singular, of an instance with a name.
    pub(crate) fn value_of(&self, metric: &[u8], instance: Option<&[u8]>) -> Option<Value<'_>> {
        let (metric, instance) = (Words::new(metric)?, instance.map(|name| Words::new(name).unwrap_or(Words::OF_NONE)));
        // Values of a metric are adjacent.
        let mut last = (u64::MAX, false);
        for value in (0..self.layout.values.count).map_while(|index| self.pages.value(index)) {
            let at = value.metric().load(Relaxed);
            if at != last.0 {
                last = (at, self.is_named(at, 0, &metric));
            }
            let instance_at = value.instance().load(Relaxed);
            // As C's library, which looks no further without a name of an instance.
            if last.1 && (instance_at == 0 || self.is_named(instance_at, 16, instance.as_ref()?)) {
                return Some(value);
            }
        }
        None
    }

    /// Returns whether the record at an offset has a name: in a field of the record (version 1), or in a string.
    #[inline]
    fn is_named(&self, record: u64, field: usize, name: &Words) -> bool {
        let Ok(at) = usize::try_from(record).map(|at| at.saturating_add(field)) else { return false };
        match self.layout.version {
            Version::V1 => name.len <= NAME_LEN && self.is_text(at, name),
            _ => self.pages.word(at).is_some_and(|at| self.is_text(at.load(Relaxed) as usize, name)),
        }
    }

    /// Returns whether a text begins at an offset. All texts begin and end at multiples of 8 bytes.
    #[inline]
    fn is_text(&self, at: usize, text: &Words) -> bool {
        let words = text.words.iter().take(text.len / 8).enumerate();
        words.rev().all(|(n, expected)| {
            let word = self.pages.word(at.saturating_add(8 * n));
            word.is_some_and(|word| word.load(Relaxed) == *expected)
        })
    }

    /// Waits until no other thread writes a string. Returns false after a timeout: in a forked child, the thread may
    /// not exist. In a signal handler, it may be the thread that was interrupted.
    pub(crate) fn lock_strings(&self) -> bool {
        let own = this_thread();
        for _ in 0..STRING_TRIES {
            match self.writing.compare_exchange(0, own, Acquire, Relaxed) {
                Ok(_) => return true,
                Err(other) if other == own => return false,
                Err(_) => thread::yield_now(),
            }
        }
        false
    }

    /// Ends [`Handle::lock_strings`].
    pub(crate) fn unlock_strings(&self) {
        self.writing.store(0, Release);
    }

    /// Returns the offset of a value's string, if the offset is that of a string of the file.
    pub(crate) fn string_at(&self, value: Value<'_>) -> Option<usize> {
        let strings = self.layout.strings;
        let at = usize::try_from(value.extra().load(Relaxed)).ok()?;
        let within = at.checked_sub(strings.at)?;
        (within % STRING_LEN == 0 && within / STRING_LEN < strings.count).then_some(at)
    }
}

/// A text with a NUL at its end, in words as a file has it.
struct Words {
    words: [u64; STRING_LEN / 8],
    /// Length of the words, in bytes.
    len: usize,
}

impl Words {
    /// Words that no text has.
    const OF_NONE: Words = Words { words: [u64::MAX; STRING_LEN / 8], len: STRING_LEN };

    /// Returns `None` for a text for which no string has room.
    fn new(text: &[u8]) -> Option<Words> {
        let mut bytes = [0; STRING_LEN];
        bytes.get_mut(..text.len()).filter(|place| place.len() < STRING_LEN)?.copy_from_slice(text);
        let mut words = [0; STRING_LEN / 8];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = bytes.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
        }
        Some(Words { words, len: (text.len() + 1).next_multiple_of(8) })
    }
}

/// Replaces a page that its file has lost. Returns whether the page belongs to a handle.
pub(crate) fn replace_page(address: usize) -> bool {
    let replaced = sys::replace_page(address, &HANDLES);
    if replaced {
        warn_from_handler(TRUNCATED);
    }
    replaced
}

fn write_and_map(bytes: &[u8], generation: u64, path: PathBuf, layout: &Layout) -> io::Result<(Pages, Name)> {
    let new = NewFile::create(path, layout.len)?;
    new.file.write_all_at(bytes, 0)?;
    // A store after the mapping would begin with a page fault, which takes longer. After a failure of the mapping, the file
    // is removed.
    new.file.write_all_at(&generation.to_ne_bytes(), G2_AT)?;
    let pages = map(&new, layout)?;
    Ok((pages, new.keep()))
}

/// Maps a new file, if possible at the address of the stopped file of the same name and length. Programs that stop and
/// start again keep their pointers to values, because these pointers happen to stay valid with C's library.
fn map(new: &NewFile, layout: &Layout) -> io::Result<Pages> {
    let Layout { version, len, metrics, values, .. } = layout;
    let of_type = if *version == Version::V1 { NAME_LEN } else { 8 };
    let metrics = metrics.at..metrics.at + metrics.count * version.metric_len();
    let file: &File = &new.file;
    HANDLES.with_removed(
        |old| old.pages.len() == *len && old.name.path() == new.path(),
        |old| Pages::map(file, *len, (values.at, values.count), (metrics, of_type), old.map(|old| &old.pages)),
    )
}

/// Returns the generation number of a file that is written now: seconds, and microseconds in the lower half.
fn generation() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (now.as_secs() << 32) | u64::from(now.subsec_micros())
}

/// Takes the lock that changes of the handles need, for a fork. Returns whether it was free in time.
pub(crate) fn hold(tries: u32) -> bool {
    HANDLES.hold(tries)
}

/// Ends [`hold`].
pub(crate) fn release() {
    HANDLES.release();
}
