//! POSIX access control lists (acl(5)) of files and directories.
//!
//! With a list, the group bits of a file's mode are the list's mask: only a file that its group seems to be able to
//! write to has a list that permits other users or groups to write.

use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::path::Path;
use std::{fmt, io};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use rustix::fs::{fgetxattr, getxattr};

/// Extended attribute that contains the list.
const NAME: &str = "system.posix_acl_access";
/// The only version of its format, which the first four bytes contain.
const VERSION: u32 = 2;
/// Length of an entry: a tag and the permissions with 16 bits each, and an identifier with 32 bits, in little-endian
/// byte order.
const ENTRY: usize = 8;
/// Longest value of an extended attribute, in bytes.
const LONGEST: usize = 1 << 16;
/// Tags of entries: a user, a group, and the mask of all entries but those of the owner and of others.
const USER: u16 = 0x02;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
/// Write permission.
const WRITE: u16 = 2;

/// User or group that a list permits to write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Writer {
    User(u32),
    Group(u32),
}

impl fmt::Display for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Writer::User(id) => write!(f, "user {id}"),
            Writer::Group(id) => write!(f, "group {id}"),
        }
    }
}

/// Returns the users and groups that the list of a file permits to write, other than the file's owner and group. A file
/// without a list has none. A link is followed.
pub(super) fn of_path(path: &Path) -> io::Result<Vec<Writer>> {
    read(|list| getxattr(path, NAME, list))
}

/// Returns the users and groups as [`of_path`] does, for an open file.
pub(super) fn of_file(file: impl AsFd) -> io::Result<Vec<Writer>> {
    read(|list| fgetxattr(file, NAME, list))
}

/// Returns the users and groups as [`of_path`] does, for a directory that was opened with `O_PATH`.
pub(super) fn of_directory(dir: &OwnedFd) -> io::Result<Vec<Writer>> {
    match openat(dir, ".", OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty()) {
        // The process may only search the directory.
        Err(Errno::EACCES) => of_path(format!("/proc/self/fd/{}", dir.as_raw_fd()).as_ref()),
        opened => of_file(opened?),
    }
}

fn read(get: impl FnOnce(&mut [u8]) -> rustix::io::Result<usize>) -> io::Result<Vec<Writer>> {
    let mut list = vec![0; LONGEST];
    match get(&mut list) {
        Ok(len) => parse(list.get(..len).unwrap_or_default()),
        Err(rustix::io::Errno::NODATA | rustix::io::Errno::OPNOTSUPP) => Ok(Vec::new()),
        Err(e) => Err(e.into()),
    }
}

fn parse(list: &[u8]) -> io::Result<Vec<Writer>> {
    let unknown = || io::Error::new(io::ErrorKind::InvalidData, "the format of its access control list is unknown");
    let (version, entries) = list.split_first_chunk().ok_or_else(unknown)?;
    if u32::from_le_bytes(*version) != VERSION || entries.len() % ENTRY != 0 {
        return Err(unknown());
    }
    let entries = entries.chunks_exact(ENTRY).filter_map(|entry| {
        let [tag, rights, id] = [entry.get(..2)?, entry.get(2..4)?, entry.get(4..)?].map(number);
        Some((tag as u16, rights as u16, id))
    });
    let mask = entries.clone().find(|(tag, ..)| *tag == MASK).map_or(WRITE, |(_, rights, _)| rights);
    let writers = entries.filter(|(_, rights, _)| rights & mask & WRITE != 0);
    Ok(writers
        .filter_map(|(tag, _, id)| match tag {
            USER => Some(Writer::User(id)),
            GROUP => Some(Writer::Group(id)),
            _ => None,
        })
        .collect())
}

/// Returns the number with these bytes, the lowest one first.
fn number(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists() {
        let list = |entries: &[(u16, u16, u32)]| {
            let mut list = VERSION.to_le_bytes().to_vec();
            for (tag, rights, id) in entries {
                list.extend([&tag.to_le_bytes()[..], &rights.to_le_bytes(), &id.to_le_bytes()].concat());
            }
            list
        };
        let (none, owner, group, others) = (u32::MAX, 0x01, 0x04, 0x20);
        let entries = [(owner, 6, none), (USER, 6, 1000), (USER, 4, 1001), (group, 6, none), (GROUP, 2, 70_000)];
        let with_mask = |mask| [&entries[..], &[(MASK, mask, none), (others, 4, none)]].concat();
        assert_eq!(parse(&list(&with_mask(7))).unwrap(), [Writer::User(1000), Writer::Group(70_000)]);
        assert_eq!(parse(&list(&with_mask(5))).unwrap(), []);
        assert_eq!(parse(&list(&[(owner, 6, none), (group, 6, none), (others, 4, none)])).unwrap(), []);
        for bad in [&[][..], &[2, 0, 0], &[3, 0, 0, 0], &list(&entries)[..9]] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }
}
