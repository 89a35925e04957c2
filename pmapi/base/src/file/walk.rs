//! Opening the directories of a path one by one.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path};

use nix::errno::Errno;
use nix::fcntl::{self, AtFlags, OFlag};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat, mkdirat};
use nix::unistd::{Uid, geteuid};

#[cfg(target_os = "linux")]
use crate::secure::has_all_calls;

/// Number of symbolic links in a path at which the kernel gives up.
const LINKS: usize = 40;

/// Returns whether the process follows symbolic links and writes to FIFOs that belong to a user. Root trusts only root.
pub fn is_trusted(owner: u32) -> bool {
    owner == 0 || !geteuid().is_root()
}

/// Returns the file type.
pub(super) fn kind(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT
}

/// Opens a directory for reading and syncing, or with `O_PATH` if the process may only search it. `create` makes
/// missing directories.
pub(super) fn open(path: &Path, create: bool, trusts: impl Fn(u32) -> bool) -> io::Result<OwnedFd> {
    open_checked(path, create, trusts, |_, _| Ok(()))
}

/// Opens a directory for reading with one system call instead of three for each name, if that does no harm: the process
/// is not root's, or no symbolic link is on the way. Returns `None` otherwise and for any error, whose reason [`open`]
/// finds.
pub(super) fn open_directly(path: &Path) -> Option<OwnedFd> {
    if geteuid().is_root() { open_without_links(path, READ, 0) } else { fcntl::open(path, READ, Mode::empty()).ok() }
}

/// Creates a file for reading and writing with one system call. Returns `None` for an error and if a symbolic link is on
/// the way.
pub(super) fn create_directly(path: &Path, mode: u32) -> Option<File> {
    open_without_links(path, NEW, mode).map(File::from)
}

/// Opens a path without following any symbolic link. Returns `None` for any error.
#[cfg(target_os = "linux")]
fn open_without_links(path: &Path, flags: OFlag, mode: u32) -> Option<OwnedFd> {
    use nix::fcntl::{AT_FDCWD, OpenHow, ResolveFlag, openat2};
    let how = OpenHow::new().flags(flags).mode(Mode::from_bits_retain(mode)).resolve(ResolveFlag::RESOLVE_NO_SYMLINKS);
    has_all_calls().then(|| openat2(AT_FDCWD, path, how).ok())?
}

#[cfg(not(target_os = "linux"))]
fn open_without_links(_: &Path, _: OFlag, _: u32) -> Option<OwnedFd> {
    None
}

/// Opens a directory as [`open`] does. Calls `check` for the directory where the path begins, each one on the way, and
/// the last one, with its name and status. Its error ends the walk.
pub(super) fn open_checked(
    path: &Path,
    create: bool,
    trusts: impl Fn(u32) -> bool,
    check: impl Fn(&OsStr, &FileStat) -> io::Result<()>,
) -> io::Result<OwnedFd> {
    let begin = |start: &str| {
        let opened = fcntl::open(start, PLACE | OFlag::O_DIRECTORY, Mode::empty())?;
        check(OsStr::new(start), &fstat(&opened)?)?;
        io::Result::Ok(opened)
    };
    let mut at = begin(if path.is_absolute() { "/" } else { "." })?;
    let mut links = 0;
    let mut rest = names(path);
    while let Some(name) = rest.pop() {
        let next = match fcntl::openat(&at, &*name, PLACE | OFlag::O_NOFOLLOW, Mode::empty()) {
            Err(Errno::ENOENT) if create => {
                match mkdirat(&at, &*name, Mode::from_bits_truncate(0o777)) {
                    Ok(()) | Err(Errno::EEXIST) => {}
                    Err(e) => return Err(e.into()),
                }
                fcntl::openat(&at, &*name, PLACE | OFlag::O_NOFOLLOW, Mode::empty())?
            }
            opened => opened?,
        };
        let stat = fstat(&next)?;
        match kind(&stat) {
            SFlag::S_IFDIR => {
                check(&name, &stat)?;
                at = next;
            }
            SFlag::S_IFLNK => {
                links += 1;
                if links > LINKS {
                    return Err(Errno::ELOOP.into());
                }
                let target = follow(&next, &stat, &name, &trusts)?;
                if target.as_bytes().starts_with(b"/") {
                    at = begin("/")?;
                }
                rest.append(&mut names(Path::new(&target)));
            }
            _ => return Err(Errno::ENOTDIR.into()),
        }
    }
    match fcntl::openat(&at, ".", READ, Mode::empty()) {
        Err(Errno::EACCES) => Ok(at),
        opened => Ok(opened?),
    }
}

/// Flags of a new file.
pub(super) const NEW: OFlag = OFlag::O_RDWR
    .union(OFlag::O_CREAT)
    .union(OFlag::O_EXCL)
    .union(OFlag::O_NOFOLLOW)
    .union(OFlag::O_NOCTTY)
    .union(OFlag::O_CLOEXEC);
const PLACE: OFlag = OFlag::O_PATH.union(OFlag::O_CLOEXEC);
const READ: OFlag = OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_CLOEXEC);

/// Returns the names of a path, the last one first.
fn names(path: &Path) -> Vec<OsString> {
    let name = |component: Component<'_>| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::Prefix(_) | Component::RootDir | Component::CurDir => None,
    };
    path.components().rev().filter_map(name).collect()
}

fn follow(link: &OwnedFd, stat: &FileStat, name: &OsStr, trusts: impl Fn(u32) -> bool) -> io::Result<OsString> {
    if !trusts(stat.st_uid) {
        let (name, owner) = (Path::new(name).display(), Uid::from_raw(stat.st_uid));
        let refusal = format!("{name} is a symbolic link of user {owner}, which is not followed");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, refusal));
    }
    Ok(fcntl::readlinkat(link, "")?)
}

/// Returns the status of a name in a directory, without following a symbolic link.
pub(super) fn stat(dir: &OwnedFd, name: &OsStr) -> io::Result<FileStat> {
    Ok(fstatat(dir, name, AtFlags::AT_SYMLINK_NOFOLLOW)?)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, symlink};

    use super::*;

    fn inode(fd: &OwnedFd) -> u64 {
        fstat(fd).unwrap().st_ino
    }

    #[test]
    fn the_way_to_a_directory() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/../b/c");
        assert_eq!(open(&path, false, |_| true).unwrap_err().kind(), io::ErrorKind::NotFound);
        let made = open(&path, true, |_| true).unwrap();
        assert_eq!(inode(&made), fs::metadata(dir.path().join("b/c")).unwrap().ino());
        symlink("../b", dir.path().join("a/relative")).unwrap();
        symlink(dir.path().join("a"), dir.path().join("absolute")).unwrap();
        let by_links = open(&dir.path().join("absolute/relative/c"), false, |_| true).unwrap();
        assert_eq!(inode(&by_links), inode(&made));
        symlink("loop", dir.path().join("loop")).unwrap();
        let looped = open(&dir.path().join("loop"), false, |_| true).unwrap_err();
        assert_eq!(looped.raw_os_error(), Some(Errno::ELOOP as i32));
        fs::write(dir.path().join("file"), "").unwrap();
        assert_eq!(open(&dir.path().join("file"), true, |_| true).unwrap_err().kind(), io::ErrorKind::NotADirectory);
    }

    #[test]
    fn the_direct_way_has_no_link_for_root() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().canonicalize().unwrap().join("place");
        fs::create_dir(&place).unwrap();
        assert_eq!(inode(&open_directly(&place).unwrap()), fs::metadata(&place).unwrap().ino());
        let link = place.with_file_name("link");
        symlink(&place, &link).unwrap();
        fs::create_dir(place.join("below")).unwrap();
        for path in [link.join("below"), link] {
            assert_eq!(open_directly(&path).is_some(), !geteuid().is_root(), "{}", path.display());
            assert!(open(&path, false, |_| true).is_ok());
        }
        assert!(open_directly(&place.join("none")).is_none());
    }

    #[test]
    fn a_file_is_created_directly_without_links() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().canonicalize().unwrap();
        symlink(&place, place.join("link")).unwrap();
        symlink("nowhere", place.join("dangling")).unwrap();
        assert!(create_directly(&place.join("file"), 0o600).is_some());
        for name in ["file", "link/other", "dangling", "none/file"] {
            assert!(create_directly(&place.join(name), 0o600).is_none(), "{name}");
        }
        assert!(!place.join("other").exists() && !place.join("nowhere").exists());
    }

    #[test]
    fn a_link_of_a_stranger_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("target")).unwrap();
        symlink("target", dir.path().join("link")).unwrap();
        let refused = open(&dir.path().join("link"), false, |_| false).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        assert!(refused.to_string().starts_with("link is a symbolic link of user "), "{refused}");
    }
}
