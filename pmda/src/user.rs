//! The user that an agent runs as (pmSetProcessIdentity(3)).

use std::ffi::CString;

use nix::errno::Errno;
use nix::unistd::{Uid, User, geteuid, getgroups, initgroups, setgid, setuid};
use thiserror::Error;

/// Why the process cannot become a user.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub(crate) enum UserError {
    #[error("user {0:?} does not exist")]
    Unknown(String),
    #[error("{step} for user {user:?}: {errno}")]
    Refused { step: &'static str, user: String, errno: Errno },
}

/// Becomes a user. A process that is not root's can only stay what it is.
pub(crate) fn switch(name: &str) -> Result<(), UserError> {
    let user = User::from_name(name).ok().flatten().ok_or_else(|| UserError::Unknown(name.to_owned()))?;
    if user.uid == geteuid() {
        return Ok(());
    }
    let refused = |step| move |errno| UserError::Refused { step, user: name.to_owned(), errno };
    setgid(user.gid).map_err(refused("setgid"))?;
    // Without supplementary groups there are none to be replaced.
    if getgroups().map_or(true, |groups| !groups.is_empty()) {
        let name = CString::new(name).map_err(|_| UserError::Unknown(name.to_owned()))?;
        match initgroups(&name, user.gid) {
            Ok(()) | Err(Errno::EPERM) => {}
            Err(errno) => return Err(refused("initgroups")(errno)),
        }
    }
    setuid(user.uid).map_err(refused("setuid"))
}

/// Whether the process may become another user.
pub(crate) fn is_root() -> bool {
    geteuid() == Uid::from_raw(0)
}
