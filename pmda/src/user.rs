//! The user that an agent runs as (pmSetProcessIdentity(3)).

use std::ffi::CString;

use nix::errno::Errno;
use nix::unistd::{Gid, Uid, User, geteuid, initgroups, setgid, setuid};
use thiserror::Error;

/// Why the process cannot become a user.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum UserError {
    /// There is no such user.
    #[error("user {0:?} does not exist")]
    Unknown(String),
    /// The process may not.
    #[error("{step} for user {user:?}: {errno}")]
    Refused {
        /// The system call.
        step: &'static str,
        /// The user.
        user: String,
        /// Why.
        errno: Errno,
    },
}

/// The numbers of a user.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ids {
    pub(crate) uid: Uid,
    pub(crate) gid: Gid,
}

/// Looks a user up: in `/etc/passwd`, where PCP's own user is, and else wherever the host keeps users.
/// The first is cheap at a time when pmcd waits for the agent.
pub(crate) fn find(name: &str) -> Option<Ids> {
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let entry = |line: &str| {
        let mut fields = line.split(':');
        let (user, _, uid, gid) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
        let ids = || Some(Ids { uid: Uid::from_raw(uid.parse().ok()?), gid: Gid::from_raw(gid.parse().ok()?) });
        if user == name { ids() } else { None }
    };
    let elsewhere = || User::from_name(name).ok().flatten().map(|user| Ids { uid: user.uid, gid: user.gid });
    passwd.lines().find_map(entry).or_else(elsewhere)
}

/// Becomes a user, with its groups. A process that is not root's can only stay what it is.
pub fn switch(name: &str) -> Result<(), UserError> {
    let user = find(name).ok_or_else(|| UserError::Unknown(name.to_owned()))?;
    let refused = |step| move |errno| UserError::Refused { step, user: name.to_owned(), errno };
    setgid(user.gid).map_err(refused("setgid"))?;
    let c_name = CString::new(name).map_err(|_| UserError::Unknown(name.to_owned()))?;
    match initgroups(&c_name, user.gid) {
        Ok(()) => {}
        // Only root can change them, and others stay who they are.
        Err(Errno::EPERM) if !is_root() => {}
        Err(errno) => return Err(refused("initgroups")(errno)),
    }
    setuid(user.uid).map_err(refused("setuid"))
}

/// Whether the process may become another user.
pub(crate) fn is_root() -> bool {
    geteuid() == Uid::from_raw(0)
}
