//! The directory that registries share with registries of other users. Other users may put any file there at any time.
//!
//! It is opened once for each change of a file, so the whole change happens in one directory, even if its path is
//! replaced meanwhile. No entry is followed, waited for, or read beyond the length that a registry would have written.

use std::ffi::CStr;
use std::fs::{File, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::str::FromStr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::time::{SystemTime, UNIX_EPOCH};

use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, openat, readlinkat, renameat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat};
use nix::unistd::{UnlinkatFlags, geteuid, unlinkat};

use crate::format::{Bytes, HEADER_LEN, Header, MAGIC, process_exists};
use crate::names::truncated;
use crate::os::forks::{Process, forks};

/// A file that the registry keeps open.
pub(crate) type Kept = pcp_base::file::Kept<File>;

/// An open directory.
pub(crate) struct Directory(OwnedFd);

/// Mode of a file: all users may read it, and its owner may write it.
pub(crate) const MODE: u32 = 0o644;
/// Mode of a file that only its owner and group may read.
pub(crate) const GROUP_MODE: u32 = 0o640;
/// Largest number of names that are read: more than honest applications have, and few enough to take some milliseconds.
const MOST_NAMES: usize = 4096;
/// Number of attempts to find a free temporary name. A user may have taken all of them.
const TRIES: u32 = 16;

/// Opens the directory itself, which need not be readable.
#[cfg(target_os = "linux")]
const HANDLE: OFlag = OFlag::O_PATH;
#[cfg(not(target_os = "linux"))]
const HANDLE: OFlag = OFlag::O_RDONLY;

impl Directory {
    /// Opens a directory. A symbolic link at the end of the path is followed; for root, only if root owns the link.
    pub(crate) fn open(path: &Path) -> io::Result<Directory> {
        let flags = HANDLE | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        match openat(AT_FDCWD, path, flags, Mode::empty()) {
            Err(Errno::ENOTDIR | Errno::ELOOP) => Self::open_link(path, flags),
            opened => Ok(Directory(opened?)),
        }
    }

    #[cfg(target_os = "linux")]
    fn open_link(path: &Path, flags: OFlag) -> io::Result<Directory> {
        let link = openat(AT_FDCWD, path, HANDLE | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC, Mode::empty())?;
        let stat = fstat(&link)?;
        if file_type(&stat) != SFlag::S_IFLNK {
            return Err(Errno::ENOTDIR.into());
        }
        if geteuid().is_root() && stat.st_uid != 0 {
            return Err(Errno::EPERM.into());
        }
        // The target of the opened link, even if another link has replaced it.
        let target = readlinkat(&link, "")?;
        let target = path.parent().unwrap_or(Path::new("")).join(target);
        Ok(Directory(openat(AT_FDCWD, &target, flags, Mode::empty())?))
    }

    #[cfg(not(target_os = "linux"))]
    fn open_link(path: &Path, flags: OFlag) -> io::Result<Directory> {
        if geteuid().is_root() {
            return Err(Errno::EPERM.into());
        }
        Ok(Directory(openat(AT_FDCWD, path, flags & !OFlag::O_NOFOLLOW, Mode::empty())?))
    }

    /// Creates a file for writing, with a temporary name. Agents skip temporary names. Other registries, in this
    /// process or others, do not use the same one. It is never too long if the file's final name is not.
    pub(crate) fn create(&self, name: &str, mode: u32) -> io::Result<(String, Kept)> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mut result = Err(Errno::EEXIST);
        for attempt in 0..TRIES {
            // A predictable name may be taken, possibly on purpose.
            let number = if attempt == 0 { COUNT.fetch_add(1, Relaxed) } else { now_nanos() };
            let temporary = format!("{}{}.{}.{number}", temporary_start(name), Process::own().number(), space());
            result = openat(&self.0, &*temporary, flags, Mode::from_bits_truncate(mode)).map(|file| (temporary, file));
            if !matches!(result, Err(Errno::EEXIST)) {
                break;
            }
        }
        let (temporary, file) = result?;
        let file = File::from(file);
        let kept = set_mode(&file, mode).and_then(|()| Kept::new(file)).inspect_err(|_| self.remove(&temporary))?;
        Ok((temporary, kept))
    }

    /// Opens a regular file without blocking. Refuses any other kind of file.
    pub(crate) fn read(&self, name: &str) -> io::Result<File> {
        self.open_regular(name)
    }

    fn open_regular<P: nix::NixPath + ?Sized>(&self, name: &P) -> io::Result<File> {
        let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        let file = File::from(openat(&self.0, name, flags, Mode::empty())?);
        if file.metadata()?.is_file() { Ok(file) } else { Err(io::ErrorKind::InvalidInput.into()) }
    }

    /// Opens a file for writing whose descriptor the program has closed.
    pub(crate) fn reopen(&self, name: &str, id: (u64, u64)) -> io::Result<Kept> {
        let flags = OFlag::O_RDWR | OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        let kept = Kept::new(File::from(openat(&self.0, name, flags, Mode::empty())?))?;
        if kept.id() == id { Ok(kept) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    /// Renames a file, over any other with the new name.
    pub(crate) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(renameat(&self.0, from, &self.0, to)?)
    }

    pub(crate) fn remove(&self, name: &str) {
        _ = unlinkat(&self.0, name, UnlinkatFlags::NoRemoveDir);
    }

    /// Returns whether a name leads to the file with this device and inode number, or `None` if the name does not exist.
    #[allow(clippy::unnecessary_cast, reason = "the types of the fields differ between systems")]
    pub(crate) fn leads_to(&self, name: &str, id: (u64, u64)) -> Option<bool> {
        let named = fstatat(&self.0, name, AtFlags::AT_SYMLINK_NOFOLLOW).ok()?;
        Some((named.st_dev as u64, named.st_ino as u64) == id)
    }

    /// Returns whether a name leads to a regular file of this user.
    pub(crate) fn is_own(&self, name: &str) -> bool {
        self.read(name).and_then(|file| file.metadata()).is_ok_and(|file| file.uid() == geteuid().as_raw())
    }

    /// Returns the headers of all regular files, except for hidden ones and the file named `but`.
    pub(crate) fn headers(&self, but: &str) -> Vec<Header> {
        let mut headers = Vec::new();
        self.each_name(|name, ty| {
            let regular = ty.is_none_or(|ty| ty == Type::File);
            if regular && name.to_bytes() != but.as_bytes() && !name.to_bytes().starts_with(b".") {
                headers.extend(self.open_regular(name).ok().and_then(|file| header(&file)));
            }
        });
        headers
    }

    /// Returns the names that `wanted` selects.
    pub(crate) fn names(&self, wanted: impl Fn(&str) -> bool) -> Vec<String> {
        let mut names = Vec::new();
        self.each_name(|name, _| names.extend(name.to_str().ok().filter(|name| wanted(name)).map(str::to_owned)));
        names
    }

    fn each_name(&self, mut each: impl FnMut(&CStr, Option<Type>)) {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let Ok(mut dir) = Dir::openat(&self.0, ".", flags, Mode::empty()) else { return };
        dir.iter().take(MOST_NAMES).flatten().for_each(|entry| each(entry.file_name(), entry.file_type()));
    }
}

/// Returns the common beginning of all temporary names of a registry's file. A process and a number follow.
pub(crate) fn temporary_start(name: &str) -> String {
    format!(".{}.", truncated(name, 200))
}

/// Returns whether the process that has created a file has certainly ended. `number` and `space` follow
/// [`temporary_start`] in its name.
pub(crate) fn has_ended(process: &str) -> bool {
    let Some((number, own)) = process.split_once('.') else { return false };
    digits(own) == Some(space()) && digits::<u32>(number).is_some_and(|number| !process_exists(number as i32))
}

/// Returns the inode of the PID namespace in which this process has its number, or 0 if it is unknown.
fn space() -> u64 {
    // Threads may race: all store the same values, and store the number of forks last.
    static SPACE: AtomicU64 = AtomicU64::new(0);
    static KNOWN: AtomicU32 = AtomicU32::new(u32::MAX);
    let forks = forks();
    if KNOWN.load(Acquire) != forks {
        // A child that cannot see its namespace, for example after chroot(2), counts as being in its parent's.
        if let Ok(space) = std::fs::metadata("/proc/self/ns/pid") {
            SPACE.store(space.ino(), Relaxed);
        }
        KNOWN.store(forks, Release);
    }
    SPACE.load(Relaxed)
}

/// Parses a number of ASCII digits only.
pub(crate) fn digits<T: FromStr>(text: &str) -> Option<T> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?
}

/// Returns the header of an mmv(5) file.
pub(crate) fn header(file: &File) -> Option<Header> {
    let mut bytes = [0; HEADER_LEN];
    file.read_exact_at(&mut bytes, 0).ok()?;
    Header::read(Bytes::new(&bytes)).filter(|header| header.magic == MAGIC)
}

#[cfg(target_os = "linux")]
fn file_type(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT
}

fn now_nanos() -> u32 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().subsec_nanos()
}

/// Gives a file its mode, because readers are other users and the umask must not matter.
fn set_mode(file: &File, mode: u32) -> io::Result<()> {
    let is_right = file.metadata()?.mode() & 0o777 == mode;
    if is_right { Ok(()) } else { file.set_permissions(Permissions::from_mode(mode)) }
}
