//! The strangers' users: neither root nor the agents' user.

use nix::unistd::{Gid, Uid, setfsgid, setfsuid};

/// First of their consecutive user and group identifiers.
pub(crate) const FIRST: u32 = 60_001;
/// Number of the strangers' users.
pub(crate) const USERS: usize = 4;

/// Makes one of the users the owner of the files and sockets that this thread creates, until it is dropped.
pub(crate) struct As;

impl As {
    /// Changes the thread's file system user to one of the users, by number from 0.
    pub(crate) fn user(user: usize) -> As {
        let id = FIRST + user as u32;
        setfsgid(Gid::from_raw(id));
        setfsuid(Uid::from_raw(id));
        As
    }
}

impl Drop for As {
    fn drop(&mut self) {
        setfsuid(Uid::from_raw(0));
        setfsgid(Gid::from_raw(0));
    }
}
