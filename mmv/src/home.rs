//! The home of a registry's values: a file that is mapped, or memory.
//!
//! Addresses for all values are reserved when the home is created. A value never moves, so a handle keeps its address, and
//! an update is one instruction. The file has a temporary name until the export starts. Where it cannot be mapped, the
//! values are in memory, and flushes copy them to the file that readers see.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use nix::sys::resource::{Resource, getrlimit};
use pcp_base::file::stores_may_fail;

use crate::directory::{Directory, Kept};
use crate::format::VALUE_LEN;
use crate::layout::{LEAST_ROOM, Layout, Table};
use crate::os::pages::{Map, Slot, is_limit, may_reserve};
use crate::os::{forks::Process, page_size};

/// Values, and buffers of texts, at addresses that never change.
#[derive(Debug)]
pub(crate) struct Home {
    map: Arc<Map>,
    pub layout: Layout,
    /// `None` if the values are in memory.
    file: Option<HomeFile>,
    page: u64,
    /// The allocated ends of the values, and of the buffers of texts.
    ends: [u64; 2],
    /// Index of the first value that is in memory and not in the file, for which the disk had no room.
    detached: usize,
}

/// The file that is mapped.
#[derive(Debug)]
struct HomeFile {
    kept: Arc<Kept>,
    directory: PathBuf,
    /// Name in the directory. It may have been removed.
    name: String,
    is_temporary: bool,
    process: Process,
}

/// Ranges of the map. Other records are written to the file.
const VALUES: usize = 0;
const TEXTS: usize = 1;

impl Home {
    /// Creates the home of the values of a registry with this name, with room for `room` instances or, under a limit of the
    /// process or on a file system without holes, for fewer.
    ///
    /// # Errors
    /// Those of mmap(2) for memory.
    pub(crate) fn new(directory: &Path, name: &str, mode: u32, room: u32) -> io::Result<Home> {
        if let Ok(home) = Self::in_file(directory, name, mode, room) {
            return Ok(home);
        }
        Self::with_room(room, |layout, page| {
            let map = Map::of_memory(len(layout, page), starts(layout))?;
            Ok(Home::of(map, layout.clone(), None, page))
        })
    }

    fn in_file(path: &Path, name: &str, mode: u32, room: u32) -> io::Result<Home> {
        let directory = Directory::open(path)?;
        let (name, kept) = directory.create(name, mode)?;
        let process = Process::own();
        let file = HomeFile { kept: Arc::new(kept), directory: path.to_owned(), name, is_temporary: true, process };
        let (device, _) = file.kept.id();
        let is_known = GOOD.load(Relaxed) == device;
        // Whether it is mapped is decided while the file is empty.
        if !is_known && stores_may_fail(file.kept.get()?) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let (map, layout, page) = Self::with_room(room, |layout, page| {
            let file = file.kept.get()?;
            let first = layout.values.at..layout.values.at + page;
            check_size(len(layout, page))?;
            // The file is still empty. A process that locks its memory would allocate the pages of holes when it maps them.
            let map = Map::of_file(file, len(layout, page), starts(layout))?;
            write_zeros(file, first)?;
            let is_large = !is_known && layout.values.at > 2 * MOST_FILLED;
            if is_large && file.metadata()?.blocks() * 512 > layout.values.at / 2 {
                file.set_len(0)?;
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            Ok((map, layout.clone(), page))
        })?;
        if layout.texts.most == room {
            GOOD.store(device, Relaxed);
        }
        let mut home = Home::of(map, layout, Some(file), page);
        home.open(VALUES, home.layout.values.at + page);
        Ok(home)
    }

    /// Calls `create` with ever smaller room, until no limit refuses it.
    fn with_room<T>(room: u32, create: impl Fn(&Layout, u64) -> io::Result<T>) -> io::Result<T> {
        let (mut room, page) = (room, page_size());
        loop {
            let layout = Layout::new(room, page);
            if room > LEAST_ROOM && !may_reserve(len(&layout, page)) {
                room = (room / 2).max(LEAST_ROOM);
                continue;
            }
            match create(&layout, page) {
                Err(e) if room > LEAST_ROOM && (is_limit(&e) || e.kind() == io::ErrorKind::FileTooLarge) => {
                    room = (room / 2).max(LEAST_ROOM);
                }
                created => return created,
            }
        }
    }

    fn of(map: Map, layout: Layout, file: Option<HomeFile>, page: u64) -> Home {
        let ends = starts(&layout);
        Home { map: Arc::new(map), layout, file, page, ends, detached: usize::MAX }
    }

    fn open(&mut self, range: usize, end: u64) {
        self.map.open(range, end);
        if let Some(known) = self.ends.get_mut(range) {
            *known = end;
        }
    }

    /// Ensures that the first `count` values have memory or blocks. If the disk has no room for more, they are in memory
    /// from a page on.
    ///
    /// # Errors
    /// Those of mmap(2) and mprotect(2).
    pub(crate) fn allocate_values(&mut self, count: usize) -> io::Result<()> {
        let Some((new, last)) = self.missing(VALUES, self.layout.values, count) else { return Ok(()) };
        if self.detached == usize::MAX && self.file.is_some() {
            if self.write_zeros(new.clone()).is_ok() {
                self.open(VALUES, new.end);
                return Ok(());
            }
            self.map.detach(VALUES, last)?;
            self.detached = ((new.start - self.layout.values.at) / VALUE_LEN as u64) as usize;
        }
        self.map.permit(new.clone())?;
        self.open(VALUES, new.end);
        Ok(())
    }

    /// Ensures that the buffers of the first `count` texts have memory or blocks.
    ///
    /// # Errors
    /// Those of writing to the file, or of mprotect(2).
    pub(crate) fn allocate_texts(&mut self, count: usize) -> io::Result<()> {
        let Some((new, _)) = self.missing(TEXTS, self.layout.texts, count) else { return Ok(()) };
        match self.file {
            Some(_) => self.write_zeros(new.clone())?,
            None => self.map.permit(new.clone())?,
        }
        self.open(TEXTS, new.end);
        Ok(())
    }

    /// Returns the range to be allocated for `count` records, and the end of all reserved pages.
    fn missing(&self, range: usize, table: Table, count: usize) -> Option<(Range<u64>, u64)> {
        let end = self.ends.get(range).copied().unwrap_or_default();
        let needed = table.record(count);
        let last = table.end().next_multiple_of(self.page);
        // Twice as many as before, so that few calls are needed.
        let wanted = needed.max(end + (end - table.at)).next_multiple_of(self.page).min(last);
        (needed > end).then_some((end..wanted, last))
    }

    fn write_zeros(&mut self, range: Range<u64>) -> io::Result<()> {
        self.file().map_or(Ok(()), |file| write_zeros(file?.get()?, range))
    }

    /// Returns the slot of a value.
    pub(crate) fn slot(&self, value: usize) -> Slot {
        Slot::new(&self.map, self.layout.values.record(value))
    }

    /// Returns the four words of a value.
    pub(crate) fn value(&self, value: usize) -> &[AtomicU64] {
        self.map.words(self.layout.values.record(value), VALUE_LEN / 8)
    }

    /// Returns the index of the first value that is not in the file.
    pub(crate) fn detached(&self) -> usize {
        if self.file.is_some() { self.detached } else { 0 }
    }

    /// Returns whether the disk had no room for some values, which are in memory while others are in the file.
    pub(crate) fn is_partly_in_memory(&self) -> bool {
        self.file.is_some() && self.detached < usize::MAX
    }

    /// Returns the file, if the values are in one. Opens it again if the program has closed its descriptor.
    pub(crate) fn file(&mut self) -> Option<io::Result<Arc<Kept>>> {
        let file = self.file.as_mut()?;
        if file.kept.get().is_ok() {
            return Some(Ok(Arc::clone(&file.kept)));
        }
        let reopened = Directory::open(&file.directory).and_then(|d| d.reopen(&file.name, file.kept.id()));
        Some(reopened.map(|kept| {
            file.kept = Arc::new(kept);
            Arc::clone(&file.kept)
        }))
    }

    /// Returns the temporary name of the file, until it is renamed.
    pub(crate) fn temporary(&self) -> Option<&str> {
        self.file.as_ref().filter(|file| file.is_temporary).map(|file| file.name.as_str())
    }

    /// Notes that the file has another name.
    pub(crate) fn renamed(&mut self, name: &str) {
        if let Some(file) = &mut self.file {
            (file.name, file.is_temporary) = (name.to_owned(), false);
        }
    }
}

/// Removes a file that still has its temporary name, except in a forked child.
impl Drop for HomeFile {
    fn drop(&mut self) {
        if self.is_temporary && self.process.is_own() {
            if let Ok(directory) = Directory::open(&self.directory) {
                if directory.leads_to(&self.name, self.kept.id()) == Some(true) {
                    directory.remove(&self.name);
                }
            }
        }
    }
}

/// Device of a file that was mapped, with room for all that was wanted.
static GOOD: AtomicU64 = AtomicU64::new(u64::MAX);

/// Number of bytes that a file system without holes may allocate for the room of a file.
const MOST_FILLED: u64 = 1 << 20;

fn len(layout: &Layout, page: u64) -> u64 {
    layout.len().next_multiple_of(page)
}

fn starts(layout: &Layout) -> [u64; 2] {
    [layout.values.at, layout.texts.at]
}

/// Checks that a file may have this length (`RLIMIT_FSIZE`). Writing beyond it would end the process (SIGXFSZ).
///
/// # Errors
/// `FileTooLarge` beyond the limit.
pub(crate) fn check_size(len: u64) -> io::Result<()> {
    let (most, _) = getrlimit(Resource::RLIMIT_FSIZE)?;
    if len <= most { Ok(()) } else { Err(io::ErrorKind::FileTooLarge.into()) }
}

fn write_zeros(file: &File, Range { start, end }: Range<u64>) -> io::Result<()> {
    static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
    check_size(end)?;
    let mut at = start;
    while at < end {
        let len = (end - at).min(ZEROS.len() as u64) as usize;
        file.write_all_at(ZEROS.get(..len).unwrap_or_default(), at)?;
        at += len as u64;
    }
    Ok(())
}
