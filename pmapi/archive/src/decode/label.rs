//! The label record at the start of each file.

use pcp_pdu::event::Stamp;
use pmapi::Error;

use super::{Decoded, Fields, Version};
use crate::error::Bad;

/// Label of an archive (`pmLogLabel`, pmGetArchiveLabel(3)). Texts do not include the terminating NUL.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Label {
    /// Version of the format.
    pub version: Version,
    /// Process identifier of the pmlogger that wrote the archive.
    pub pid: i32,
    /// Time of the first record.
    pub start: Stamp,
    /// Number of the volume; -2 in the temporal index, -1 in the metadata.
    pub volume: i32,
    /// Flags of optional features, 0 in version 2. No feature is defined.
    pub features: u32,
    /// Name of the host that the values are from.
    pub host: Vec<u8>,
    /// Time zone of the host, in the form of POSIX.
    pub timezone: Vec<u8>,
    /// Time zone of the host, as a name of a file; empty in version 2.
    pub zoneinfo: Vec<u8>,
}

pub(crate) const MAGIC: u32 = 0x5005_2600;

fn bad(at: usize, reason: impl Into<std::borrow::Cow<'static, str>>) -> Bad {
    Bad { at, code: Error::LABEL, reason: reason.into() }
}

fn text(field: &[u8]) -> Vec<u8> {
    // libpcp treats the last byte as a NUL, whatever it is.
    let field = &field[..field.len().saturating_sub(1)];
    field.split(|b| *b == 0).next().unwrap_or_default().to_vec()
}

impl Label {
    /// Decodes the label from a file's first bytes. 808 bytes are enough.
    pub(crate) fn decode(bytes: &[u8]) -> Decoded<Label> {
        let mut r = Fields::new(bytes);
        let (Ok(len), Ok(magic)) = (r.u32("label"), r.u32("label")) else {
            return Err(Bad { at: 0, code: Error::NODATA, reason: "the file is empty".into() });
        };
        let version = match magic & 0xff {
            2 => Version::V2,
            3 => Version::V3,
            other => return Err(bad(4, format!("label of version {other}, which is neither 2 nor 3"))),
        };
        if len as usize != version.label_len() {
            return Err(bad(0, format!("label of {len} bytes, not {}", version.label_len())));
        }
        let label = Self::fields(&mut r, version).map_err(|e| bad(e.at, "label is cut"))?;
        if r.u32("label").ok() != Some(len) {
            return Err(bad(r.pos(), "label ends without its length"));
        }
        if magic & !0xff != MAGIC {
            return Err(bad(4, format!("magic number {magic:#x} is not that of an archive")));
        }
        Ok(label)
    }

    fn fields(r: &mut Fields<'_>, version: Version) -> Decoded<Label> {
        let pid = r.i32("label")?;
        let start = r.stamp(version)?;
        let volume = r.i32("label")?;
        let (features, sizes) = match version {
            Version::V2 => (0, [64, 40, 0]),
            Version::V3 => {
                let features = r.u32("label")?;
                r.u32("label")?;
                (features, [256, 256, 256])
            }
        };
        let mut texts = [Vec::new(), Vec::new(), Vec::new()];
        for (found, size) in texts.iter_mut().zip(sizes) {
            *found = text(r.bytes(size, "label")?);
        }
        let [host, timezone, zoneinfo] = texts;
        Ok(Label { version, pid, start, volume, features, host, timezone, zoneinfo })
    }
}
