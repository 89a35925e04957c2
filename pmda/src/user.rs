//! The user that an agent runs as (pmSetProcessIdentity(3)).

use std::ffi::CString;
use std::sync::OnceLock;

use nix::errno::Errno;
use nix::unistd::{Gid, Uid, User, geteuid, initgroups, setgid, setgroups, setuid};
use pcp_base::file;
use thiserror::Error;

/// The reason why the process cannot change to a user.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum UserError {
    /// The user does not exist.
    #[error("user {0:?} does not exist")]
    Unknown(String),
    /// The kernel refused a step.
    #[error("{step} for user {user:?}: {}", Errno::from_raw(*errno))]
    Refused {
        /// The function that failed.
        step: &'static str,
        /// Name of the user.
        user: String,
        /// The error number of the function.
        errno: i32,
    },
}

/// User and group ID of a user.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct UserIds {
    pub(crate) uid: Uid,
    pub(crate) gid: Gid,
}

/// Looks up a user: first in `/etc/passwd`, which contains PCP's own user, and then in all databases of the host. Only
/// reading the file is fast enough while pmcd waits for the agent.
pub(crate) fn find(name: &str) -> Option<UserIds> {
    in_text(PASSWD.get_or_init(passwd), name)
        .or_else(|| User::from_name(name).ok().flatten().map(|user| UserIds { uid: user.uid, gid: user.gid }))
}

/// Text of `/etc/passwd` for the start of the agent, which looks up its user twice.
static PASSWD: OnceLock<String> = OnceLock::new();

fn passwd() -> String {
    file::read_text("/etc/passwd").unwrap_or_default()
}

/// Looks up a user in a text of the format of passwd(5).
fn in_text(passwd: &str, name: &str) -> Option<UserIds> {
    passwd.lines().find_map(|line| {
        let mut fields = line.strip_prefix(name)?.strip_prefix(':')?.split(':');
        let (_, uid, gid) = (fields.next()?, fields.next()?, fields.next()?);
        Some(UserIds { uid: Uid::from_raw(uid.parse().ok()?), gid: Gid::from_raw(gid.parse().ok()?) })
    })
}

/// Changes the process to a user, including the user's groups. Only root can change to another user.
///
/// # Errors
/// [`UserError::Unknown`] for a user that does not exist, [`UserError::Refused`] with the function that failed.
pub fn change_user(name: &str) -> Result<(), UserError> {
    let user = find(name).ok_or_else(|| UserError::Unknown(name.to_owned()))?;
    let refused = |step| move |errno: Errno| UserError::Refused { step, user: name.to_owned(), errno: errno as i32 };
    setgid(user.gid).map_err(refused("setgid"))?;
    match set_groups(name, user.gid) {
        Ok(()) => {}
        // Only root can change its groups; other users keep theirs.
        Err(Errno::EPERM) if !is_root() => {}
        Err(errno) => return Err(refused("initgroups")(errno)),
    }
    setuid(user.uid).map_err(refused("setuid"))
}

fn set_groups(name: &str, gid: Gid) -> Result<(), Errno> {
    if are_in_file(nsswitch(), "group:") {
        let file = file::read_text("/etc/group").unwrap_or_default();
        return setgroups(&groups(&file, name, gid));
    }
    initgroups(&CString::new(name).map_err(|_| Errno::EINVAL)?, gid)
}

/// Returns whether looking up users only reads files.
pub(crate) fn is_quick() -> bool {
    ["passwd:", "group:"].iter().all(|database| are_in_file(nsswitch(), database))
}

/// Returns the text of nsswitch.conf(5). Like libc, the process reads it once.
fn nsswitch() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| file::read_text("/etc/nsswitch.conf").unwrap_or_default())
}

/// Returns whether the host keeps users or groups in their file, according to nsswitch.conf(5). Reading the file is
/// then enough, and faster while pmcd waits for the agent. The source `systemd` only adds other users.
fn are_in_file(nsswitch: &str, database: &str) -> bool {
    let sources = nsswitch.lines().find_map(|line| line.strip_prefix(database));
    sources.is_some_and(|sources| {
        sources.contains("files") && sources.split_whitespace().all(|source| ["files", "systemd"].contains(&source))
    })
}

/// Returns the groups of a user in a file of the format of group(5), with the user's own group first.
fn groups(file: &str, name: &str, gid: Gid) -> Vec<Gid> {
    let others = file
        .lines()
        .filter_map(|line| {
            let (rest, members) = line.rsplit_once(':')?;
            members.split(',').find(|member| member.trim() == name)?;
            rest.splitn(3, ':').nth(2)?.parse().ok().map(Gid::from_raw)
        })
        .filter(|other| *other != gid);
    std::iter::once(gid).chain(others).collect()
}

/// Returns whether a user may administrate agents: root, PCP's user, and the user of this process.
pub(crate) fn is_admin(uid: u32, pcp: &str) -> bool {
    uid == 0 || uid == geteuid().as_raw() || in_text(&passwd(), pcp).is_some_and(|pcp| pcp.uid.as_raw() == uid)
}

/// Returns whether the process may change to another user.
pub(crate) fn is_root() -> bool {
    geteuid() == Uid::from_raw(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_a_file() {
        let file = "root:x:0:\nadm:x:4:syslog,pcp\nbad\nx:x:y:pcp\npcp:x:110:\nstaff:x:50: pcp \nother:x:9:pcpx\nown:x:110:pcp\n";
        let raw = |name, gid| groups(file, name, Gid::from_raw(gid)).into_iter().map(Gid::as_raw).collect::<Vec<_>>();
        assert_eq!(raw("pcp", 110), [110, 4, 50]);
        assert_eq!(raw("nobody", 65534), [65534]);
    }

    #[test]
    fn where_groups_are() {
        for (text, file) in [
            ("passwd: files\ngroup:          files systemd\n", true),
            ("group: files\n", true),
            ("group: files sss\n", false),
            ("group: systemd\n", false),
            ("group: files [NOTFOUND=return] ldap\n", false),
            ("# group: files\n", false),
            ("", false),
        ] {
            assert_eq!(are_in_file(text, "group:"), file, "{text}");
        }
    }
}
