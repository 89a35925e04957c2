//! The object behind a program's handle: a mapped file with its values.

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process;
use std::sync::atomic::{
    AtomicU8, AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use libc::{EIO, ENOMEM, EPERM};
use mmv::format::{Flags, NAME_LEN, STRING_LEN, Version, process_exists};

use crate::contents::Contents;
use crate::file::{NewFile, remove_same};
use crate::layout::Layout;
use crate::notice::warn_from_handler;
use crate::sys::{Files, Pages, Value, this_thread};

/// Offset of the second generation number in the header.
const G2_AT: u64 = 16;

/// Warning when a page of a file is lost.
const TRUNCATED: &str =
    "Warning: libpcp_mmv: an MMV file was truncated, or its disk fails; new values are lost until the next start";

/// Attempts to get the lock of a handle's strings.
const STRING_TRIES: u32 = 1000;

/// All files that were mapped.
pub(crate) static FILES: Files<Handle> = Files::new();

/// Number of handles that a start may use again.
static STOPPED: AtomicUsize = AtomicUsize::new(0);

/// States of a handle. `CHANGING` belongs to the thread that has changed the state.
const CHANGING: u8 = 0;
const RUNNING: u8 = 1;
const ENDED: u8 = 2;

/// A mapped file, or after a stop the memory in its place. The next start with the same name and layout maps its file
/// there: programs that stop and start again keep their pointers to values, because these pointers happen to stay valid
/// with C's library.
#[derive(Debug)]
pub(crate) struct Handle {
    pages: Pages,
    layout: Layout,
    path: PathBuf,
    state: AtomicU8,
    /// Device and inode number of the file.
    device: AtomicU64,
    inode: AtomicU64,
    /// The process that removes the file at the end, or 0. A forked child has the handle, too.
    remover: AtomicUsize,
    /// Number of the start.
    number: AtomicU64,
    /// The thread that is writing a string, or 0.
    writing: AtomicUsize,
}

/// A running export, for the registry that has started it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Started {
    handle: &'static Handle,
    number: u64,
}

impl AsRef<Pages> for Handle {
    #[inline(always)]
    fn as_ref(&self) -> &Pages {
        &self.pages
    }
}

impl Started {
    /// Returns the program's handle.
    pub(crate) fn address(self) -> *mut c_void {
        self.handle.pages.handle()
    }

    /// Ends the export, unless it was stopped before.
    pub(crate) fn stop(self) {
        self.handle.end(Some(self.number));
    }
}

impl Handle {
    /// Writes and maps a file. Returns the code of an error.
    pub(crate) fn start(contents: &Contents, path: PathBuf) -> Result<Started, i32> {
        let layout = Layout::new(contents)?;
        let (writer, generation) = (process::id(), generation());
        let bytes = layout.bytes(contents, generation, writer)?;
        let code = |e: io::Error| match e.kind() {
            io::ErrorKind::PermissionDenied => e.raw_os_error().unwrap_or(EPERM),
            io::ErrorKind::OutOfMemory => ENOMEM,
            _ => e.raw_os_error().unwrap_or(EIO),
        };
        let new = write(&bytes, generation, path, layout.len).map_err(code)?;
        let handle = match stopped(&new, &layout) {
            Some(handle) => {
                handle.pages.map_again(&new.file).map_err(|e| {
                    handle.free();
                    code(e)
                })?;
                handle
            }
            None => FILES.insert(Handle::new(&new, layout).map_err(code)?).map_err(|_| ENOMEM)?,
        };
        static STARTS: AtomicU64 = AtomicU64::new(0);
        let number = STARTS.fetch_add(1, Relaxed);
        let is_own = Flags::from_bits_retain(contents.flags).contains(Flags::PROCESS);
        handle.remover.store(if is_own { writer as usize } else { 0 }, Relaxed);
        handle.number.store(number, Relaxed);
        let (device, inode) = new.keep();
        handle.device.store(device, Relaxed);
        handle.inode.store(inode, Relaxed);
        FILES.publish(handle);
        handle.state.store(RUNNING, Release);
        Ok(Started { handle, number })
    }

    /// Maps a file.
    fn new(new: &NewFile, layout: Layout) -> io::Result<Handle> {
        let Layout { version, len, metrics, values, .. } = &layout;
        let of_type = if *version == Version::V1 { NAME_LEN } else { 8 };
        let metrics = metrics.at..metrics.at + metrics.count * version.metric_len();
        let file: &File = &new.file;
        Ok(Handle {
            pages: Pages::map(file, *len, (values.at, values.count), (metrics, of_type))?,
            layout,
            path: new.path().to_owned(),
            state: AtomicU8::new(CHANGING),
            device: AtomicU64::new(0),
            inode: AtomicU64::new(0),
            remover: AtomicUsize::new(0),
            number: AtomicU64::new(0),
            writing: AtomicUsize::new(0),
        })
    }

    /// Ends the export, and removes the file if it depends on this process. Returns whether it was running. A signal
    /// handler may call this.
    pub(crate) fn stop(&'static self) -> bool {
        self.end(None)
    }

    fn end(&'static self, number: Option<u64>) -> bool {
        if !self.change(RUNNING) {
            return false;
        }
        if number.is_some_and(|number| number != self.number.load(Relaxed)) {
            self.state.store(RUNNING, Release);
            return false;
        }
        let remover = self.remover.load(Relaxed);
        // A file whose writer is a living parent process stays.
        if remover != 0 && (remover == process::id() as usize || !process_exists(remover as i32)) {
            remove_same(&self.path, self.device.load(Relaxed), self.inode.load(Relaxed));
        }
        self.pages.retire();
        self.free();
        true
    }

    /// Allows another start to use the handle.
    fn free(&self) {
        self.state.store(ENDED, Release);
        STOPPED.fetch_add(1, Release);
    }

    /// Takes the handle in order to change its state, if this is its state now.
    fn change(&self, from: u8) -> bool {
        self.state.compare_exchange(from, CHANGING, AcqRel, Relaxed).is_ok()
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
    let replaced = FILES.replace_page(address);
    if replaced {
        warn_from_handler(TRUNCATED);
    }
    replaced
}

/// Takes the handle of a stopped export with the same name and layout.
fn stopped(new: &NewFile, layout: &Layout) -> Option<&'static Handle> {
    if STOPPED.load(Acquire) == 0 {
        return None;
    }
    let matches = |handle: &Handle| handle.layout == *layout && handle.path == new.path() && handle.change(ENDED);
    let found = FILES.all().find(|handle| matches(handle))?;
    STOPPED.fetch_sub(1, Relaxed);
    Some(found)
}

/// Writes a file of `len` bytes.
fn write(bytes: &[u8], generation: u64, path: PathBuf, len: usize) -> io::Result<NewFile> {
    let new = NewFile::create(path, len)?;
    new.file.write_all_at(bytes, 0)?;
    // A store after the mapping would begin with a page fault, which takes longer. After a failure of the mapping, the file
    // is removed.
    new.file.write_all_at(&generation.to_ne_bytes(), G2_AT)?;
    Ok(new)
}

/// Returns the generation number of a file that is written now: seconds, and microseconds in the lower half.
fn generation() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (now.as_secs() << 32) | u64::from(now.subsec_micros())
}
