//! Files whose owners can make a process run programs, read files, or send secrets: who may write to them.
//!
//! The rule is that of ssh(1) for its configuration, and read permission does not matter. With an access control list
//! (acl(5)), the group bits of a mode are those of its mask: a file that its group may not write to has no list that
//! permits another user to write.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::{fmt, io};

use nix::sys::stat::{FileStat, SFlag};
use nix::unistd::{getegid, geteuid};

use super::{Dir, walk};

/// Mode bits of a file that its group, or all users, may write to, and of a directory where each user may only rename
/// and remove the own files.
const BY_GROUP: u32 = 0o020;
const BY_OTHERS: u32 = 0o002;
const STICKY: u32 = 0o1000;
/// Largest number of symbolic links from a file's path to the file.
const LINKS: usize = 8;

impl Dir {
    /// Opens a directory whose contents only some users can have chosen: those for which `trusts` returns true.
    ///
    /// The directory, each one above it, and each symbolic link on the way must belong to such a user. A directory that
    /// every user may write to is accepted only if its sticky bit protects the files of others. The caller must then
    /// check the files of the directory too. A directory's group may write to it, and so may users of an access control
    /// list (acl(5)), because the owner has chosen them.
    ///
    /// # Errors
    /// Errors of open(2); `PermissionDenied`, with a reason, for a directory or a link that is not trusted.
    pub fn open_trusted(path: &Path, trusts: impl Fn(u32) -> bool) -> io::Result<Dir> {
        Dir::open_checked(path, &trusts, |stat| match stat.st_mode {
            _ if !trusts(stat.st_uid) => Some(format!("belongs to user {}", stat.st_uid)),
            mode if mode & STICKY != 0 => None,
            mode => (mode & BY_OTHERS != 0).then(|| "can be changed by every user".to_owned()),
        })
    }

    /// Opens a directory. `refuses` returns why it does not trust the directory, or one above it.
    fn open_checked(
        path: &Path,
        trusts: impl Fn(u32) -> bool,
        refuses: impl Fn(&FileStat) -> Option<String>,
    ) -> io::Result<Dir> {
        let fd = walk::open_checked(&std::path::absolute(path)?, false, trusts, |name, stat| {
            refuses(stat).map_or(Ok(()), |why| Err(refused(path, name, &why)))
        })?;
        Ok(Dir::opened(fd, path))
    }
}

fn refused(path: &Path, name: &OsStr, why: &dyn fmt::Display) -> io::Error {
    let text = format!("{}: the directory {} {why}", path.display(), Path::new(name).display());
    io::Error::new(io::ErrorKind::PermissionDenied, text)
}

/// Checks that no user other than root and that of this process may write to a file or directory, and no group, except
/// that a user's own files may be writable by the user's own group, as with umask 002. `file` is the status of the file.
///
/// # Errors
/// The reason why the file is not trusted.
pub fn check_writers(file: &Metadata) -> Result<(), String> {
    of_user((file.uid(), file.gid(), file.mode()), own())
}

/// Checks an open file or directory as [`check_writers`] does.
///
/// # Errors
/// The reason why the file is not trusted.
pub fn check_writers_of(file: &File) -> Result<(), String> {
    check_writers(&file.metadata().map_err(|e| e.to_string())?)
}

/// Checks the directory of a file and all directories above as [`check_writers`] does, unless their sticky bit protects
/// the files of others. A user who may write to one of them could replace the file by a link to any other one. If the
/// file is a link, the place that it leads to is checked as well.
///
/// # Errors
/// The reason why the place is not trusted.
pub fn check_place(path: &Path) -> Result<(), String> {
    let mut path = std::path::absolute(path).map_err(|e| e.to_string())?;
    let (user, group) = own();
    for _ in 0..LINKS {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
        let dir = Dir::open_checked(
            parent,
            |uid| check_owner(uid, user).is_ok(),
            |stat| {
                let writers = if stat.st_mode & STICKY == 0 { stat.st_mode } else { 0 };
                of_user((stat.st_uid, stat.st_gid, writers), (user, group))
                    .err()
                    .map(|why| format!("is not safe: {why}"))
            },
        );
        let dir = dir.map_err(|e| e.to_string())?;
        let stat = dir.stat(name).map_err(|e| e.to_string())?;
        // In a sticky directory, the link and the file that it leads to may belong to different users.
        check_owner(stat.st_uid, user)?;
        if SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()) != SFlag::S_IFLNK {
            return Ok(());
        }
        path = parent.join(fs::read_link(&path).map_err(|e| e.to_string())?);
    }
    Err(format!("it is a link, with more than {LINKS} further links"))
}

/// Returns the user and the group of this process.
fn own() -> (u32, u32) {
    (geteuid().as_raw(), getegid().as_raw())
}

fn check_owner(uid: u32, user: u32) -> Result<(), String> {
    match uid {
        0 => Ok(()),
        _ if uid == user => Ok(()),
        _ => Err(format!("it belongs to user {uid}, not to root or the agent's user {user}")),
    }
}

/// Checks owner, group and mode of a file, on behalf of a user with a group.
fn of_user((uid, gid, mode): (u32, u32, u32), (user, group): (u32, u32)) -> Result<(), String> {
    let shown = mode & 0o7777;
    check_owner(uid, user)?;
    if mode & BY_OTHERS != 0 {
        return Err(format!("other users may write to it (mode {shown:o})"));
    }
    let is_private = user != 0 && (uid, gid) == (user, group);
    if mode & BY_GROUP != 0 && !is_private {
        return Err(format!("group {gid} may write to it (mode {shown:o})"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_are_root_and_the_agent() {
        const ME: (u32, u32) = (999, 995);
        for (uid, gid, mode, trusted) in [
            (0, 0, 0o644, true),
            (0, 0, 0o664, false),
            (999, 995, 0o775, true),
            (0, 995, 0o664, false),
            (0, 4, 0o644, true),
            (0, 4, 0o664, false),
            (999, 4, 0o6775, false),
            (1000, 995, 0o644, false),
            (1000, 1000, 0o444, false),
            (0, 0, 0o646, false),
            (999, 995, 0o777, false),
        ] {
            let outcome = of_user((uid, gid, mode), ME);
            assert_eq!(outcome.is_ok(), trusted, "{uid} {gid} {mode:o}: {outcome:?}");
        }
        // A file that PCP's user has written is not run as root.
        assert!(of_user((999, 995, 0o644), (0, 0)).is_err());
        // The group of root may have members.
        assert!(of_user((0, 0, 0o664), (0, 0)).is_err());
    }
}
