//! Users of the machine who are neither root nor the agents' user.

use nix::unistd::{Gid, Uid, setfsgid, setfsuid};

/// The first of them, and how many there are.
pub(crate) const FIRST: u32 = 60_001;
pub(crate) const USERS: usize = 4;

/// Files and sockets that this thread makes are a user's until it is dropped.
pub(crate) struct As;

impl As {
    /// One of the users, by number from 0.
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
