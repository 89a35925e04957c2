//! The log file.
//!
//! pmcd starts agents as root. Their logs are in a directory of user pcp, who can replace files in it at any time.
//! Therefore an agent that will run as another user opens its log as that user. It always creates a new file, in a
//! directory that it opens once.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, readlinkat};
use nix::sys::stat::SFlag;
use nix::sys::statfs::{PROC_SUPER_MAGIC, fstatfs};
use nix::unistd::{getegid, geteuid, getgroups, setegid, seteuid, setgroups};
use pcp_base::file::{Dir, is_trusted};

use crate::user::UserIds;

/// Number of attempts to free the name of the log, if another process takes it repeatedly.
const TRIES: usize = 100;

/// Opens the log for writing: a new file, after the previous one has become `FILE.prev`. A terminal, a FIFO or another
/// special file is used as it is. `user` is the user that the process will change to.
pub(crate) fn open(path: &Path, user: Option<UserIds>) -> io::Result<File> {
    as_user(user, || create(path))
}

/// Runs `f` as the user that the process will change to, and again as the process itself if that user lacks permission.
pub(crate) fn as_user<T>(user: Option<UserIds>, mut f: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let Some(user) = user.filter(|user| geteuid().is_root() && !user.uid.is_root()) else { return f() };
    let done = borrow(user, &mut f)?;
    done.or_else(|e| if e.kind() == io::ErrorKind::PermissionDenied { f() } else { Err(e) })
}

fn borrow<T>(user: UserIds, f: impl FnOnce() -> T) -> io::Result<T> {
    let (own, group, groups) = (geteuid(), getegid(), getgroups()?);
    setgroups(&[user.gid])?;
    let done = setegid(user.gid).and_then(|()| seteuid(user.uid)).map(|()| f());
    // The real user is still root, so that it can change back.
    seteuid(own)?;
    setegid(group)?;
    setgroups(&groups)?;
    Ok(done?)
}

fn create(path: &Path) -> io::Result<File> {
    let (dir, name) = Dir::of(path)?;
    if let Some(file) = special(&dir, name)? {
        return Ok(file);
    }
    let mut previous = name.to_owned();
    previous.push(".prev");
    for _ in 0..TRIES {
        // Renaming over a file would make ext4 write the newer one to the disk at once.
        _ = dir.remove(&previous);
        // There may be no file yet. The new file is created only if the name is free. Without the permission to free
        // the name, creating the file would fail as well, but with a misleading error.
        if dir.rename(name, &previous).is_err() {
            match dir.remove(name) {
                Err(e) if e.kind() == io::ErrorKind::PermissionDenied => return Err(e),
                _ => {}
            }
        }
        match dir.file(name, OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL, 0o666) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            created => return created,
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Opens a log that is not a regular file. Returns `None` for a regular or missing file. Such a log is not renamed,
/// because that could move `/dev/null` away. As root it follows no link and opens no FIFO of another user: that user
/// could choose the device, or never read from the FIFO.
fn special(dir: &Dir, name: &OsStr) -> io::Result<Option<File>> {
    let Some((dir, name)) = resolve(dir.clone(), name.to_owned())? else { return Ok(None) };
    // A name in /proc is a link to an open file that may have no other name.
    if fstatfs(&dir).is_ok_and(|fs| fs.filesystem_type() == PROC_SUPER_MAGIC) {
        let path = dir.path().join(&name);
        return File::options().append(true).open(path).map(Some);
    }
    let Ok(stat) = dir.stat(&name) else { return Ok(None) };
    let open = |flags| dir.file(&name, OFlag::O_WRONLY | OFlag::O_APPEND | flags, 0);
    let file = match SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT {
        SFlag::S_IFREG | SFlag::S_IFLNK => return Ok(None),
        SFlag::S_IFCHR => open(OFlag::empty())?,
        // The agent does not wait for a reader: lines that do not fit into the FIFO are lost.
        SFlag::S_IFIFO if is_trusted(stat.st_uid) => open(OFlag::O_NONBLOCK)?,
        SFlag::S_IFIFO => return Ok(None),
        SFlag::S_IFDIR => return Err(Errno::EISDIR.into()),
        _ => return Err(Errno::ENXIO.into()),
    };
    // The file may have been replaced after the check.
    let kind = SFlag::from_bits_truncate(nix::sys::stat::fstat(&file)?.st_mode) & SFlag::S_IFMT;
    Ok((kind != SFlag::S_IFREG).then_some(file))
}

/// Follows symbolic links at the end of a path; `None` when the target does not exist.
fn resolve(mut dir: Dir, mut name: OsString) -> io::Result<Option<(Dir, OsString)>> {
    for _ in 0..40 {
        let stat = match dir.stat(&name) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            stat => stat?,
        };
        let is_link = SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT == SFlag::S_IFLNK;
        if !is_link
            || !is_trusted(stat.st_uid)
            || fstatfs(&dir).is_ok_and(|fs| fs.filesystem_type() == PROC_SUPER_MAGIC)
        {
            return Ok(Some((dir, name)));
        }
        let target = PathBuf::from(readlinkat(&dir, &*name)?);
        // A relative target starts at the directory of the link.
        let target = dir.path().join(target);
        match Dir::of(&target) {
            Ok((next, last)) => (dir, name) = (next, last.to_owned()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e),
        }
    }
    Err(Errno::ELOOP.into())
}
