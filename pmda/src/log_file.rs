//! The file of the log.
//!
//! pmcd starts agents as root, and their logs are in a directory of user pcp, who may put anything there at any moment.
//! So an agent that is going to run as another user opens its log as that user; and whoever opens it creates a new file
//! in a directory that was opened once.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, readlinkat};
use nix::sys::stat::SFlag;
use nix::sys::statfs::{PROC_SUPER_MAGIC, fstatfs};
use nix::unistd::{getegid, geteuid, getgroups, setegid, seteuid, setgroups};
use pmapi::file::{Dir, is_trusted};

use crate::user::Ids;

/// How often a name that somebody else takes again and again is made free.
const TRIES: usize = 100;

/// Opens the log for writing: a new file, after the previous one has become `FILE.prev`. A terminal, a FIFO and whatever
/// else is no file is used as it is. `user`: the user that the process is going to be.
pub(crate) fn open(path: &Path, user: Option<Ids>) -> io::Result<File> {
    as_user(user, || create(path))
}

/// Does something as the user that the process is going to be; where that user may not do it, as the process.
pub(crate) fn as_user<T>(user: Option<Ids>, mut f: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let Some(user) = user.filter(|user| geteuid().is_root() && !user.uid.is_root()) else { return f() };
    let done = borrow(user, &mut f)?;
    done.or_else(|e| if e.kind() == io::ErrorKind::PermissionDenied { f() } else { Err(e) })
}

fn borrow<T>(user: Ids, f: impl FnOnce() -> T) -> io::Result<T> {
    let (own, group, groups) = (geteuid(), getegid(), getgroups()?);
    setgroups(&[user.gid])?;
    let done = setegid(user.gid).and_then(|()| seteuid(user.uid)).map(|()| f());
    // Nothing keeps root from becoming itself again.
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
        // There may be no file, and the new one is created only if the name is free. Who may not make it free may not
        // create one either, but would be told that there is one.
        if dir.rename(name, &previous).is_err()
            && let Err(e) = dir.remove(name)
            && e.kind() == io::ErrorKind::PermissionDenied
        {
            return Err(e);
        }
        match dir.file(name, OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL, 0o666) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            created => return created,
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Opens a log that is no file: root could move `/dev/null` away. Root neither follows a link nor opens a FIFO of another
/// user, who could choose the device that is opened, or never read.
fn special(dir: &Dir, name: &OsStr) -> io::Result<Option<File>> {
    let Some((dir, name)) = resolve(dir.clone(), name.to_owned())? else { return Ok(None) };
    // What is in /proc is a link to an open file that has no name.
    if fstatfs(&dir).is_ok_and(|fs| fs.filesystem_type() == PROC_SUPER_MAGIC) {
        let path = dir.path().join(&name);
        return File::options().append(true).open(path).map(Some);
    }
    let Ok(stat) = dir.stat(&name) else { return Ok(None) };
    let open = |flags| dir.file(&name, OFlag::O_WRONLY | OFlag::O_APPEND | flags, 0);
    let file = match SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT {
        SFlag::S_IFREG | SFlag::S_IFLNK => return Ok(None),
        SFlag::S_IFCHR => open(OFlag::empty())?,
        // Lines for which there is no room are lost: the agent does not wait for its reader.
        SFlag::S_IFIFO if is_trusted(stat.st_uid) => open(OFlag::O_NONBLOCK)?,
        SFlag::S_IFIFO => return Ok(None),
        SFlag::S_IFDIR => return Err(Errno::EISDIR.into()),
        _ => return Err(Errno::ENXIO.into()),
    };
    // What was looked at may be another one by now.
    let kind = SFlag::from_bits_truncate(nix::sys::stat::fstat(&file)?.st_mode) & SFlag::S_IFMT;
    Ok((kind != SFlag::S_IFREG).then_some(file))
}

/// Follows symbolic links at the end of a path; `None` when they lead nowhere.
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
        // A target that is relative is below the directory of the link.
        let target = dir.path().join(target);
        match Dir::of(&target) {
            Ok((next, last)) => (dir, name) = (next, last.to_owned()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e),
        }
    }
    Err(Errno::ELOOP.into())
}
