//! Records of a file.

use std::time::Duration;

use pmapi::Units;

use super::{
    Bytes, Flags, HEADER_LEN, INDOM_LEN, LABEL_LEN, NAME_LEN, PAYLOAD_LEN, STRING_LEN, TOC_LEN, VALUE_LEN, Version,
};

/// Returns a record of fields, one after the other. The lengths of inlined fields are constants, so that each is one move.
#[inline(always)]
fn record<const LEN: usize>(fields: &[&[u8]]) -> [u8; LEN] {
    let (mut bytes, mut at) = ([0; LEN], 0);
    for field in fields {
        if let Some(place) = bytes.get_mut(at..at + field.len()) {
            place.copy_from_slice(field);
        }
        at += field.len();
    }
    bytes
}

/// The header of a file (`mmv_disk_header_t`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The magic number, [`MAGIC`](super::MAGIC) in every valid file.
    pub magic: [u8; 4],
    /// The number of a [`Version`] in every valid file.
    pub version: i32,
    /// Generation number: the time of writing, or 0 while the file is not valid.
    pub g1: u64,
    /// Second generation number, which equals `g1` when the file is complete.
    pub g2: u64,
    /// Number of entries in the table of contents.
    pub tocs: i32,
    /// The file's flags.
    pub flags: Flags,
    /// Identifier of the process that wrote the file.
    pub process: i32,
    /// The cluster that the file requests, or 0 for any.
    pub cluster: i32,
}

impl Header {
    /// Reads the header. Returns `None` if the file is too short for one.
    pub fn read(bytes: Bytes<'_>) -> Option<Header> {
        let bytes = Bytes::new(bytes.slice(0, HEADER_LEN)?);
        Some(Header {
            magic: bytes.array(0)?,
            version: bytes.i32(4)?,
            g1: bytes.u64(8)?,
            g2: bytes.u64(16)?,
            tocs: bytes.i32(24)?,
            flags: Flags::from_bits_retain(bytes.u32(28)?),
            process: bytes.i32(32)?,
            cluster: bytes.i32(36)?,
        })
    }

    /// Returns the header as bytes.
    #[inline]
    pub fn bytes(&self) -> [u8; HEADER_LEN] {
        record(&[
            &self.magic,
            &self.version.to_ne_bytes(),
            &self.g1.to_ne_bytes(),
            &self.g2.to_ne_bytes(),
            &self.tocs.to_ne_bytes(),
            &self.flags.bits().to_ne_bytes(),
            &self.process.to_ne_bytes(),
            &self.cluster.to_ne_bytes(),
        ])
    }
}

/// An entry of the table of contents (`mmv_disk_toc_t`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Toc {
    /// Code of a [`Section`](super::Section).
    pub section: u32,
    /// Number of records.
    pub count: i32,
    /// Offset of the first record.
    pub offset: u64,
}

impl Toc {
    /// Returns the offset of the entry with this index.
    pub const fn at(index: usize) -> u64 {
        HEADER_LEN as u64 + (index as u64) * TOC_LEN as u64
    }

    /// Reads the entry with this index. Returns `None` if it is not in the file.
    pub fn read(bytes: Bytes<'_>, index: usize) -> Option<Toc> {
        let bytes = Bytes::new(bytes.slice(Self::at(index), TOC_LEN)?);
        Some(Toc { section: bytes.u32(0)?, count: bytes.i32(4)?, offset: bytes.u64(8)? })
    }

    /// Returns the entry as bytes.
    #[inline]
    pub fn bytes(&self) -> [u8; TOC_LEN] {
        record(&[&self.section.to_ne_bytes(), &self.count.to_ne_bytes(), &self.offset.to_ne_bytes()])
    }
}

/// An instance domain (`mmv_disk_indom_t`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndomRecord {
    /// Serial number.
    pub serial: u32,
    /// Number of instances.
    pub count: u32,
    /// Offset of the first instance.
    pub offset: u64,
    /// Offset of the one-line help text, or 0 for none.
    pub short: u64,
    /// Offset of the full help text, or 0 for none.
    pub long: u64,
}

impl IndomRecord {
    /// Reads the instance domain at an offset. Returns `None` if it is not in the file.
    pub fn read(bytes: Bytes<'_>, at: u64) -> Option<IndomRecord> {
        let bytes = Bytes::new(bytes.slice(at, INDOM_LEN)?);
        Some(IndomRecord {
            serial: bytes.u32(0)?,
            count: bytes.u32(4)?,
            offset: bytes.u64(8)?,
            short: bytes.u64(16)?,
            long: bytes.u64(24)?,
        })
    }

    /// Returns the instance domain as bytes.
    #[inline]
    pub fn bytes(&self) -> [u8; INDOM_LEN] {
        record(&[
            &self.serial.to_ne_bytes(),
            &self.count.to_ne_bytes(),
            &self.offset.to_ne_bytes(),
            &self.short.to_ne_bytes(),
            &self.long.to_ne_bytes(),
        ])
    }
}

/// Position of a name: in its record (version 1) or in the strings section.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NameAt {
    /// Offset of the name.
    pub at: u64,
    /// Room for the name in bytes, including the terminating NUL.
    pub room: usize,
}

impl NameAt {
    const fn string(at: u64) -> NameAt {
        NameAt { at, room: STRING_LEN }
    }

    const fn inline(at: u64) -> NameAt {
        NameAt { at, room: NAME_LEN }
    }

    /// Returns the name, or `None` if it is not in the file.
    pub fn text(self, bytes: Bytes<'_>) -> Option<&[u8]> {
        bytes.text(self.at, self.room)
    }
}

/// An instance (`mmv_disk_instance_t`, `mmv_disk_instance2_t`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InstanceRecord {
    /// Offset of the instance domain.
    pub indom: u64,
    /// Instance identifier.
    pub internal: i32,
    /// Position of the name.
    pub name: NameAt,
}

impl InstanceRecord {
    /// Reads the instance at an offset. Returns `None` if it is not in the file.
    pub fn read(bytes: Bytes<'_>, at: u64, version: Version) -> Option<InstanceRecord> {
        let bytes = Bytes::new(bytes.slice(at, version.instance_len())?);
        let name = match version {
            Version::V1 => NameAt::inline(at.checked_add(16)?),
            Version::V2 | Version::V3 => NameAt::string(bytes.u64(16)?),
        };
        Some(InstanceRecord { indom: bytes.u64(0)?, internal: bytes.i32(12)?, name })
    }
}

/// A metric (`mmv_disk_metric_t`, `mmv_disk_metric2_t`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MetricRecord {
    /// Position of the name.
    pub name: NameAt,
    /// Item number.
    pub item: u32,
    /// Code of a [`ValueType`](super::ValueType).
    pub ty: i32,
    /// Code of [`Semantics`](pmapi::Semantics), or 0 for a counter.
    pub semantics: i32,
    /// Dimension and scale.
    pub units: Units,
    /// Serial number of the instance domain; 0 and all ones mean none.
    pub indom: u32,
    /// Unused.
    pub padding: u32,
    /// Offset of the one-line help text, or 0 for none.
    pub short: u64,
    /// Offset of the full help text, or 0 for none.
    pub long: u64,
}

impl MetricRecord {
    /// Reads the metric at an offset. Returns `None` if it is not in the file.
    pub fn read(bytes: Bytes<'_>, at: u64, version: Version) -> Option<MetricRecord> {
        let bytes = Bytes::new(bytes.slice(at, version.metric_len())?);
        let (name, rest) = match version {
            Version::V1 => (NameAt::inline(at), NAME_LEN),
            Version::V2 | Version::V3 => (NameAt::string(bytes.u64(0)?), 8),
        };
        Some(MetricRecord {
            name,
            item: bytes.u32(rest)?,
            ty: bytes.i32(rest + 4)?,
            semantics: bytes.i32(rest + 8)?,
            units: Units::from_word(bytes.u32(rest + 12)?),
            indom: bytes.u32(rest + 16)?,
            padding: bytes.u32(rest + 20)?,
            short: bytes.u64(rest + 24)?,
            long: bytes.u64(rest + 32)?,
        })
    }
}

/// A value (`mmv_disk_value_t`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ValueRecord {
    /// The value. 32-bit values are in its first four bytes.
    pub word: u64,
    /// Offset of a string, or the negated start of a running interval in microseconds since the epoch.
    pub extra: i64,
    /// Offset of the metric.
    pub metric: u64,
    /// Offset of the instance.
    pub instance: u64,
}

impl ValueRecord {
    /// Reads the value at an offset. Returns `None` if it is not in the file.
    pub fn read(bytes: Bytes<'_>, at: u64) -> Option<ValueRecord> {
        Self::of(bytes.slice(at, VALUE_LEN)?)
    }

    /// Reads the value from the bytes of its record.
    #[inline]
    pub fn of(bytes: &[u8]) -> Option<ValueRecord> {
        let (word, rest) = bytes.split_first_chunk()?;
        let (extra, rest) = rest.split_first_chunk()?;
        let (metric, rest) = rest.split_first_chunk()?;
        let instance = rest.first_chunk()?;
        let word_of = |bytes: &[u8; 8]| u64::from_ne_bytes(*bytes);
        Some(ValueRecord {
            word: word_of(word),
            extra: word_of(extra) as i64,
            metric: word_of(metric),
            instance: word_of(instance),
        })
    }

    /// Returns the first four bytes of the word, which hold a 32-bit value.
    pub fn half(&self) -> u32 {
        let [a, b, c, d, ..] = self.word.to_ne_bytes();
        u32::from_ne_bytes([a, b, c, d])
    }

    /// Returns an elapsed time in microseconds, including a running interval. `now` is the time since the epoch.
    pub fn elapsed(&self, now: Duration) -> i64 {
        let done = self.word as i64;
        if self.extra >= 0 {
            return done;
        }
        done.wrapping_add(now.as_micros() as i64).wrapping_add(self.extra)
    }

    /// Returns the value as bytes.
    #[inline]
    pub fn bytes(&self) -> [u8; VALUE_LEN] {
        let mut bytes = [0; VALUE_LEN];
        let words = [self.word, self.extra as u64, self.metric, self.instance];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }
}

/// A label (`mmv_disk_label_t`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LabelRecord {
    /// Level of the label, and whether it is optional (`PM_LABEL_*`).
    pub flags: u32,
    /// Number of the cluster, item or instance domain that has the label.
    pub identity: u32,
    /// Instance identifier; -1 on the other levels.
    pub internal: i32,
    /// Position of the JSON text.
    pub payload: NameAt,
}

impl LabelRecord {
    /// Reads the label at an offset. Returns `None` if it is not in the file.
    pub fn read(bytes: Bytes<'_>, at: u64) -> Option<LabelRecord> {
        let bytes = Bytes::new(bytes.slice(at, LABEL_LEN)?);
        Some(LabelRecord {
            flags: bytes.u32(0)?,
            identity: bytes.u32(4)?,
            internal: bytes.i32(8)?,
            payload: NameAt { at: at.checked_add(12)?, room: PAYLOAD_LEN },
        })
    }
}
