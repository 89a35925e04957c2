//! Options of a new archive.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use pcp_pdu::event::Stamp;

use super::Writer;
use super::encode::label_texts;
use super::fits;
use super::state::EINVAL;
use crate::decode::Version;
use crate::decode::label::Label;
use crate::error::{ArchiveError, Result};

/// Options of an archive that is to be written: its version and label.
///
/// ```
/// use pcp_archive::{Create, Version};
///
/// let dir = tempfile::tempdir()?;
/// let options = Create::new("www.example.com").version(Version::V2).timezone("CET-1");
/// let writer = options.create(dir.path().join("20260101"))?;
/// # drop(writer);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "it creates nothing until Create::create"]
pub struct Create {
    pub(super) label: Label,
    pub(super) has_start: bool,
    pub(super) volume_size: u64,
}

impl Create {
    /// Creates options for values of a host: version 3, the time zone UTC, this process as the writer.
    pub fn new(host: impl Into<Vec<u8>>) -> Create {
        let label = Label {
            version: Version::V3,
            pid: std::process::id() as i32,
            start: Stamp::default(),
            volume: 0,
            features: 0,
            host: host.into(),
            timezone: b"UTC".to_vec(),
            zoneinfo: Vec::new(),
        };
        Create { label, has_start: false, volume_size: u64::MAX }
    }

    /// Creates options from a label: version, process, start, host and time zone.
    pub fn with_label(label: &Label) -> Create {
        Create { label: label.clone(), has_start: true, volume_size: u64::MAX }
    }

    /// Sets the version of the format. Version 2 has time zones without a name, and shorter host names.
    pub fn version(mut self, version: Version) -> Create {
        self.label.version = version;
        self
    }

    /// Sets the process identifier in the label.
    pub fn pid(mut self, pid: i32) -> Create {
        self.label.pid = pid;
        self
    }

    /// Sets the start of the archive. By default it is the time of the first record, or of the first instance domain
    /// or labels.
    pub fn start(mut self, time: Stamp) -> Create {
        (self.label.start, self.has_start) = (time, true);
        self
    }

    /// Sets the time zone of the host, in the form of POSIX, for instance `CET-1CEST`.
    pub fn timezone(mut self, zone: impl Into<Vec<u8>>) -> Create {
        self.label.timezone = zone.into();
        self
    }

    /// Sets the name of the host's time zone, for instance `:Europe/Berlin`. Archives of version 2 do not contain it.
    pub fn zoneinfo(mut self, name: impl Into<Vec<u8>>) -> Create {
        self.label.zoneinfo = name.into();
        self
    }

    /// Sets the size, in bytes, at which a new volume is started. A volume has at least one record. A volume of version
    /// 2 always ends before 2 GiB.
    pub fn volume_size(mut self, bytes: u64) -> Create {
        self.volume_size = bytes;
        self
    }

    /// Creates the files `.meta`, `.index` and `.0` of an archive with a base name. None of them may exist.
    ///
    /// # Errors
    /// `-EEXIST` for a file that exists; `-EINVAL` for a base name that ends with a directory, and for texts and a start
    /// that the label of the version does not hold; `-errno` for a file that cannot be created. No file is left then.
    pub fn create(&self, base: impl AsRef<Path>) -> Result<Writer> {
        self.check(base.as_ref())?;
        Writer::create(base.as_ref(), self)
    }

    fn check(&self, base: &Path) -> Result {
        if let Some(b"" | b"." | b"..") = base.as_os_str().as_bytes().rsplit(|b| *b == b'/').next() {
            return Err(ArchiveError::file(base, EINVAL, "this is a directory, not the base name of an archive"));
        }
        let label = &self.label;
        if self.has_start {
            fits(label.version, label.start).map_err(|(code, reason)| ArchiveError::file(base, code, reason))?;
        }
        let texts = [("host name", &label.host), ("time zone", &label.timezone), ("zone name", &label.zoneinfo)];
        for ((what, text), len) in texts.into_iter().zip(label_texts(label.version)) {
            let reason = match () {
                () if text.contains(&0) => format!("the {what} has a NUL"),
                // Version 2 has no name of a zone.
                () if len > 0 && text.len() > len => {
                    let version = label.version.number();
                    format!("the {what} has {} bytes; archives of version {version} hold {len}", text.len())
                }
                () => continue,
            };
            return Err(ArchiveError::file(base, EINVAL, reason));
        }
        Ok(())
    }
}
