//! Access to the server of a source: the files with its secrets and certificates.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pcp_base::file;

use crate::trust::Owners;

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
