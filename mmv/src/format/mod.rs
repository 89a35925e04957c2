//! The format of mmv(5) files, versions 1 to 3: sizes, codes and records.
//!
//! All fields are in host byte order and naturally aligned. Records refer to each other by offsets from the start of
//! the file.

use std::fmt;

use bitflags::bitflags;
use pmapi::{Error, Semantics, Type};

mod bytes;
mod owner;
mod record;

pub use bytes::{Bytes, Extent, Sparse};
pub use owner::process_exists;
pub use record::{Header, IndomRecord, InstanceRecord, LabelRecord, MetricRecord, NameAt, Toc, ValueRecord};

/// The first bytes of every file.
pub const MAGIC: [u8; 4] = *b"MMV\0";
/// Size of the header, in bytes (`mmv_disk_header_t`).
pub const HEADER_LEN: usize = 40;
/// Size of an entry of the table of contents, in bytes (`mmv_disk_toc_t`).
pub const TOC_LEN: usize = 16;
/// Size of an instance domain, in bytes (`mmv_disk_indom_t`).
pub const INDOM_LEN: usize = 32;
/// Size of a value, in bytes (`mmv_disk_value_t`).
pub const VALUE_LEN: usize = 32;
/// Size of a string in bytes, including the terminating NUL (`MMV_STRINGMAX`).
pub const STRING_LEN: usize = 256;
/// Size of a label, in bytes (`mmv_disk_label_t`).
pub const LABEL_LEN: usize = 256;
/// Room for a label's JSON text in bytes, including the terminating NUL (`MMV_LABELMAX`).
pub const PAYLOAD_LEN: usize = 244;
/// Length of the field for a name of version 1 in bytes, including the terminating NUL (`MMV_NAMEMAX`).
pub const NAME_LEN: usize = 64;

/// Largest number of metrics of a file. If a file has more, PCP's agent exports none of them.
pub const MAX_METRICS: usize = 1023;
/// Largest number of components of a metric's name, without the prefix. Agent mmv leaves out metrics with longer names.
pub const MAX_COMPONENTS: usize = 24;
/// Largest number of labels of a file. If a file has more, PCP's agent exports none of them.
pub const MAX_LABELS: usize = 255;
/// Largest serial number of an instance domain whose exported identifier is distinct in every cluster.
pub const MAX_SERIAL: u32 = (1 << 11) - 1;

/// Version of a file's format.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Version {
    /// Names are in their records, and have at most 63 bytes.
    V1 = 1,
    /// Names are in the strings section.
    V2 = 2,
    /// Version 2 with labels.
    V3 = 3,
}

impl Version {
    /// Returns the version with this number, if it is known.
    pub const fn from_code(code: i32) -> Option<Version> {
        match code {
            1 => Some(Version::V1),
            2 => Some(Version::V2),
            3 => Some(Version::V3),
            _ => None,
        }
    }

    /// Returns the size of a metric, in bytes.
    pub const fn metric_len(self) -> usize {
        if matches!(self, Version::V1) { 104 } else { 48 }
    }

    /// Returns the size of an instance, in bytes.
    pub const fn instance_len(self) -> usize {
        if matches!(self, Version::V1) { 80 } else { 24 }
    }
}

/// Kind of a section (`mmv_toc_type_t`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Section {
    /// Instance domains.
    Indoms = 1,
    /// Instances.
    Instances = 2,
    /// Metrics.
    Metrics = 3,
    /// Values.
    Values = 4,
    /// Strings.
    Strings = 5,
    /// Labels (version 3).
    Labels = 6,
}

impl Section {
    /// Returns the kind of section with this code, if it is known.
    pub const fn from_code(code: u32) -> Option<Section> {
        Some(match code {
            1 => Section::Indoms,
            2 => Section::Instances,
            3 => Section::Metrics,
            4 => Section::Values,
            5 => Section::Strings,
            6 => Section::Labels,
            _ => return None,
        })
    }
}

bitflags! {
    /// Flags of a file (`mmv_stats_flags_t`).
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct Flags: u32 {
        /// Names of metrics do not begin with the name of the file.
        const NO_PREFIX = 1;
        /// The file is valid only while the process that wrote it lives.
        const PROCESS = 2;
        /// Values of all ones, NaN and empty strings stand for "no value".
        const SENTINEL = 4;
    }
}

/// Writes the flags as `mmvdump` does.
impl fmt::Display for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [(Flags::NO_PREFIX, "noprefix"), (Flags::PROCESS, "process"), (Flags::SENTINEL, "sentinel")];
        let mut text: Vec<String> =
            names.iter().filter(|(flag, _)| self.contains(*flag)).map(|(_, name)| (*name).to_owned()).collect();
        let unknown = *self - Flags::all();
        if !unknown.is_empty() {
            text.push(format!("unknown={:x}", unknown.bits()));
        }
        f.write_str(if text.is_empty() { "none" } else { "" })?;
        f.write_str(&text.join(", "))
    }
}

/// Type of a value in a file (`mmv_metric_type_t`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ValueType {
    /// A metric that is known but not available; it has no values.
    NoSupport = -1,
    /// Signed, 32 bits.
    I32 = 0,
    /// Unsigned, 32 bits.
    U32 = 1,
    /// Signed, 64 bits.
    I64 = 2,
    /// Unsigned, 64 bits.
    U64 = 3,
    /// Floating point, 32 bits.
    Float = 4,
    /// Floating point, 64 bits.
    Double = 5,
    /// Text of at most 255 bytes.
    String = 6,
    /// Elapsed time in microseconds; an interval may be running.
    Elapsed = 9,
}

impl ValueType {
    /// Returns the type with this code.
    ///
    /// # Errors
    /// [`Error::TYPE`] (`PM_ERR_TYPE`) for any other code.
    pub const fn from_code(code: i32) -> Result<ValueType, Error> {
        Ok(match code {
            -1 => ValueType::NoSupport,
            0 => ValueType::I32,
            1 => ValueType::U32,
            2 => ValueType::I64,
            3 => ValueType::U64,
            4 => ValueType::Float,
            5 => ValueType::Double,
            6 => ValueType::String,
            9 => ValueType::Elapsed,
            _ => return Err(Error::TYPE),
        })
    }

    /// Returns the type under which PCP's agent exports the value.
    pub const fn exported(self) -> Type {
        match self {
            ValueType::NoSupport => Type::NoSupport,
            ValueType::I32 => Type::I32,
            ValueType::U32 => Type::U32,
            ValueType::I64 | ValueType::Elapsed => Type::I64,
            ValueType::U64 => Type::U64,
            ValueType::Float => Type::Float,
            ValueType::Double => Type::Double,
            ValueType::String => Type::String,
        }
    }
}

/// Returns the semantics of a code. In a file, 0 is a counter.
///
/// # Errors
/// [`Error::CONV`] for an unknown code.
pub const fn semantics(code: i32) -> Result<Semantics, Error> {
    if code == 0 { Ok(Semantics::Counter) } else { Semantics::from_code(code) }
}

/// Returns whether a metric with this serial number of an instance domain has a single value.
pub const fn is_singular(indom: u32) -> bool {
    indom == 0 || indom == u32::MAX
}

/// Returns the word that holds a 32-bit value in its first four bytes.
pub(crate) const fn word_of_half(half: u32) -> u64 {
    let [a, b, c, d] = half.to_ne_bytes();
    u64::from_ne_bytes([a, b, c, d, 0, 0, 0, 0])
}
