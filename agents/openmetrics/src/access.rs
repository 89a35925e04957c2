//! Files that the configuration names: whether their owners are trusted, and access to the server of a source by the secrets
//! and certificates in them.

use std::fs::Metadata;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pcp_base::file;
use pcp_base::file::{check_place, check_writers};

/// Whether the owners of files matter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owners {
    /// Only files that no user other than root and the agent's user, and no group other than theirs, may write to.
    Trusted,
    /// Files of any user.
    Any,
}

impl Owners {
    /// Checks that only trusted users can have written a file or directory.
    ///
    /// # Errors
    /// Those of [`check_writers`].
    pub(crate) fn check(self, file: &Metadata) -> Result<(), String> {
        if self == Owners::Any { Ok(()) } else { check_writers(file).map_err(refused) }
    }

    /// Checks the directory of a file and all directories above.
    ///
    /// # Errors
    /// Those of [`check_place`].
    pub(crate) fn check_place(self, path: &Path) -> Result<(), String> {
        if self == Owners::Any { Ok(()) } else { check_place(path).map_err(refused) }
    }
}

fn refused(reason: String) -> String {
    format!("refused: {reason}")
}

/// Longest file with a secret or a certificate, in bytes.
pub(crate) const LONGEST: u64 = 1 << 20;

/// Files with the secrets and certificates of a source.
#[derive(Clone, Debug, Default)]
pub(crate) struct Access {
    /// File with the token for the header `Authorization: Bearer`.
    pub(crate) bearer: Option<PathBuf>,
    /// File with `USER:PASSWORD` for the header `Authorization: Basic`.
    pub(crate) basic: Option<PathBuf>,
    /// PEM file with the certificates of trusted authorities, in place of the default ones.
    pub(crate) authorities: Option<PathBuf>,
    /// PEM files with the client's certificates and its key.
    pub(crate) certificate: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
    /// Unix socket of the server.
    pub(crate) socket: Option<PathBuf>,
}

impl Access {
    /// Returns the files with certificates and their key.
    pub(crate) fn certificates(&self) -> impl Iterator<Item = &Path> {
        [&self.authorities, &self.certificate, &self.key].into_iter().flatten().map(PathBuf::as_path)
    }

    /// Checks that only trusted users can have written the files, and with `places` that only they can replace them.
    /// Another user could choose the servers that the agent trusts, or put a link to a file in place of a secret.
    ///
    /// # Errors
    /// The reason, with the file's path.
    pub(crate) fn check(&self, owners: Owners, places: bool) -> Result<(), String> {
        let secrets = [&self.bearer, &self.basic].into_iter().flatten().map(PathBuf::as_path);
        for path in secrets.chain(self.certificates()) {
            let checked = path.metadata().map_err(|e| e.to_string()).and_then(|file| {
                owners.check(&file)?;
                if places { owners.check_place(path) } else { Ok(()) }
            });
            checked.map_err(|reason| format!("{}: {reason}", path.display()))?;
        }
        Ok(())
    }

    /// Returns the value of the header `Authorization`.
    ///
    /// # Errors
    /// The reason why the file with the secret cannot be read, with its path.
    pub(crate) fn authorization(&self) -> Result<Option<String>, String> {
        if let Some(path) = &self.bearer {
            return Ok(Some(format!("Bearer {}", secret(path)?)));
        }
        let Some(path) = &self.basic else { return Ok(None) };
        Ok(Some(basic(secret(path)?.as_bytes())))
    }
}

/// Returns the value of the header `Authorization` for `USER:PASSWORD`.
pub(crate) fn basic(user: &[u8]) -> String {
    format!("Basic {}", STANDARD.encode(user))
}

/// Reads the first line of a file.
fn secret(path: &Path) -> Result<String, String> {
    let text = file::read(path, LONGEST).map_err(|e| format!("{}: {e}", path.display()))?;
    let text = String::from_utf8(text).map_err(|_| format!("{}: not UTF-8 text", path.display()))?;
    Ok(text.lines().next().unwrap_or_default().trim().to_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn modes_of_real_files() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (mode, trusted) in [(0o644, true), (0o664, false), (0o646, false), (0o777, false)] {
            fs::set_permissions(file.path(), Permissions::from_mode(mode)).unwrap();
            let metadata = file.path().metadata().unwrap();
            assert_eq!(Owners::Trusted.check(&metadata).is_ok(), trusted, "{mode:o}");
            assert!(Owners::Any.check(&metadata).is_ok());
        }
    }

    #[test]
    fn places_that_others_may_write() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("config.d");
        fs::create_dir(&inner).unwrap();
        let file = inner.join("x.url");
        std::os::unix::fs::symlink("/bin/sh", &file).unwrap();
        let owners = Owners::Trusted;
        let is_root = nix::unistd::geteuid().is_root();
        for (mode, trusted) in [(0o755, true), (0o775, !is_root), (0o1777, true), (0o757, false)] {
            for changed in [dir.path(), &inner] {
                fs::set_permissions(changed, Permissions::from_mode(mode)).unwrap();
                assert_eq!(owners.check_place(&file).is_ok(), trusted, "{mode:o} of {}", changed.display());
                assert!(Owners::Any.check_place(&file).is_ok());
                fs::set_permissions(changed, Permissions::from_mode(0o755)).unwrap();
            }
        }
    }

    /// A link is trusted only if no other user can change where it leads to.
    #[test]
    fn places_that_links_lead_to() {
        let dir = tempfile::tempdir().unwrap();
        let (config, far, tools) = (dir.path().join("config.d"), dir.path().join("far"), dir.path().join("tools"));
        for path in [&config, &far, &tools] {
            fs::create_dir(path).unwrap();
        }
        let (source, link, tool) = (config.join("x"), far.join("link"), tools.join("tool"));
        fs::write(&tool, "").unwrap();
        std::os::unix::fs::symlink("../far/link", &source).unwrap();
        std::os::unix::fs::symlink(&tool, &link).unwrap();
        let owners = Owners::Trusted;
        assert_eq!(owners.check_place(&source), Ok(()));
        for (open, shown) in [(&far, "far"), (&tools, "tools")] {
            fs::set_permissions(open, Permissions::from_mode(0o777)).unwrap();
            let reason = owners.check_place(&source).unwrap_err();
            assert!(reason.starts_with("refused: ") && reason.contains(shown), "{reason}");
            assert!(Owners::Any.check_place(&source).is_ok());
            fs::set_permissions(open, Permissions::from_mode(0o755)).unwrap();
        }
        fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink("link", &link).unwrap();
        assert!(owners.check_place(&source).unwrap_err().contains("more than 8 further links"));
    }
}
