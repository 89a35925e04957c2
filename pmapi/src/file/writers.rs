//! Files whose owners can make a process run programs, read files, or send secrets: who may write to them.
//!
//! The rule for writers is that of PCP's agent bpftrace for its scripts, and read permission does not matter. The own
//! group of the process is trusted as well as root's, because PCP's directories are writable by it.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::{fmt, io};

use nix::sys::stat::SFlag;
use nix::unistd::{getegid, geteuid};

use super::acl::{self, Writer};
use super::{Dir, walk};

/// Mode bits of a file that its group, or all users, may write to.
const BY_GROUP: u32 = 0o020;
const BY_OTHERS: u32 = 0o002;
/// Largest number of symbolic links from a file's path to the file.
const LINKS: usize = 8;

impl Dir {
    /// Opens a directory whose contents only some users can have chosen: those for which `trusts` returns true.
    ///
    /// The directory, each one above it, and each symbolic link on the way must belong to such a user. A directory that
    /// every user may write to is accepted only if its sticky bit protects the files of others. The caller must then
    /// check the files of the directory too. A directory's group may write to it, because the owner has chosen the
    /// group, and so may the groups of its access control list (acl(5)). Users whom the list permits to write must be
    /// trusted.
    ///
    /// # Errors
    /// Errors of open(2); `PermissionDenied`, with a reason, for a directory or a link that is not trusted.
    pub fn open_trusted(path: &Path, trusts: impl Fn(u32) -> bool) -> io::Result<Dir> {
        let fd = walk::open_checked(&std::path::absolute(path)?, false, &trusts, |name, stat, dir| {
            let [by_group, by_others, is_sticky] = [0o020, 0o002, 0o1000].map(|bit| stat.st_mode & bit != 0);
            if !trusts(stat.st_uid) {
                return Err(refused(path, name, format_args!("belongs to user {}", stat.st_uid)));
            }
            if is_sticky {
                return Ok(());
            }
            if by_others {
                return Err(refused(path, name, format_args!("can be changed by every user")));
            }
            let listed = if by_group { acl::of_directory(dir) } else { Ok(Vec::new()) };
            let listed =
                listed.map_err(|e| refused(path, name, format_args!("has an unknown access control list: {e}")))?;
            let stranger = listed.iter().find(|writer| matches!(writer, Writer::User(uid) if !trusts(*uid)));
            stranger.map_or(Ok(()), |writer| {
                Err(refused(path, name, format_args!("can be changed by {writer} (access control list)")))
            })
        })?;
        Ok(Dir::opened(fd, path))
    }
}

fn refused(path: &Path, name: &OsStr, why: fmt::Arguments<'_>) -> io::Error {
    let text = format!("{}: the directory {} {why}", path.display(), Path::new(name).display());
    io::Error::new(io::ErrorKind::PermissionDenied, text)
}

/// Checks that no user other than root and that of this process, and no group other than theirs, may write to a file or
/// directory, by its mode or by its access control list (acl(5)). `file` is the status of `path`; links are followed.
///
/// # Errors
/// The reason why the file is not trusted.
pub fn check_writers(path: &Path, file: &Metadata) -> Result<(), String> {
    check(file, || acl::of_path(path))
}

/// Checks an open file or directory as [`check_writers`] does.
///
/// # Errors
/// The reason why the file is not trusted.
pub fn check_writers_of(file: &File) -> Result<(), String> {
    check(&file.metadata().map_err(|e| e.to_string())?, || acl::of_file(file))
}

fn check(file: &Metadata, listed: impl FnOnce() -> io::Result<Vec<Writer>>) -> Result<(), String> {
    let own = (geteuid().as_raw(), getegid().as_raw());
    of_user((file.uid(), file.gid(), file.mode()), own)?;
    if file.mode() & BY_GROUP == 0 {
        return Ok(());
    }
    let listed = listed().map_err(|e| format!("its access control list cannot be read: {e}"))?;
    of_list(&listed, own)
}

/// Checks the directory of a file and all directories above. A user who may write to one of them could replace the file
/// by a link to any other one. If the file is a link, the place that it leads to is checked as well.
///
/// # Errors
/// The reason why the place is not trusted.
pub fn check_place(path: &Path) -> Result<(), String> {
    let mut path = std::path::absolute(path).map_err(|e| e.to_string())?;
    let user = geteuid().as_raw();
    for _ in 0..LINKS {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
        let dir = Dir::open_trusted(parent, |uid| check_owner(uid, user).is_ok()).map_err(|e| e.to_string())?;
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
    if mode & BY_GROUP != 0 && gid != 0 && gid != group {
        return Err(format!("group {gid} may write to it (mode {shown:o})"));
    }
    if mode & BY_OTHERS != 0 {
        return Err(format!("other users may write to it (mode {shown:o})"));
    }
    Ok(())
}

/// Checks the users and groups that an access control list permits to write, on behalf of a user with a group.
fn of_list(listed: &[Writer], (user, group): (u32, u32)) -> Result<(), String> {
    let stranger = listed.iter().find(|writer| match writer {
        Writer::User(id) => ![0, user].contains(id),
        Writer::Group(id) => ![0, group].contains(id),
    });
    stranger.map_or(Ok(()), |writer| Err(format!("its access control list lets {writer} write to it")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_are_root_and_the_agent() {
        const ME: (u32, u32) = (999, 995);
        for (uid, gid, mode, trusted) in [
            (0, 0, 0o644, true),
            (0, 0, 0o664, true),
            (999, 995, 0o775, true),
            (0, 995, 0o664, true),
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
        for (writer, trusted) in [
            (Writer::User(0), true),
            (Writer::User(999), true),
            (Writer::User(995), false),
            (Writer::Group(0), true),
            (Writer::Group(995), true),
            (Writer::Group(999), false),
        ] {
            let outcome = of_list(&[Writer::User(0), writer], ME);
            assert_eq!(outcome.is_ok(), trusted, "{writer}: {outcome:?}");
        }
        // A file that PCP's user has written is not run as root.
        assert!(of_user((999, 995, 0o644), (0, 0)).is_err() && of_user((0, 995, 0o664), (0, 0)).is_err());
    }
}
