//! Which files of the configuration directory are trusted: their owner can make the agent run programs and read files.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;

use nix::unistd::geteuid;

/// Whether the owners of files matter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owners {
    /// Files of root, of PCP's user and of the agent's user only.
    Trusted {
        /// PCP's user.
        pcp: Option<u32>,
    },
    /// Files of any user.
    Any,
}

impl Owners {
    /// Checks a file.
    ///
    /// # Errors
    /// The reason why the file is not trusted.
    pub(crate) fn check(self, file: &Metadata) -> Result<(), String> {
        let Owners::Trusted { pcp } = self else { return Ok(()) };
        let (uid, mode) = (file.uid(), file.mode());
        if uid != 0 && uid != geteuid().as_raw() && Some(uid) != pcp {
            return Err(format!("refused: it belongs to user {uid}, not to root or the agent's user"));
        }
        if mode & 0o002 != 0 {
            return Err(format!("refused: other users may write to it (mode {:o})", mode & 0o7777));
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn files_that_others_may_write() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let owners = Owners::Trusted { pcp: None };
        for (mode, trusted) in [(0o644, true), (0o775, true), (0o646, false), (0o777, false)] {
            fs::set_permissions(file.path(), Permissions::from_mode(mode)).unwrap();
            let metadata = file.path().metadata().unwrap();
            assert_eq!(owners.check(&metadata).is_ok(), trusted, "{mode:o}");
            assert!(Owners::Any.check(&metadata).is_ok());
        }
    }
}
