//! Levels and flags of labels (`PM_LABEL_*`).

use std::fmt;
use std::ops::BitOr;

/// Level of a label set: the kind of object that its labels describe.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
#[repr(u8)]
pub enum LabelLevel {
    /// Host, or archive.
    Context = 1,
    /// Agent.
    Domain = 2,
    /// Instance domain.
    InDom = 4,
    /// Cluster of metrics.
    Cluster = 8,
    /// Metric.
    Item = 16,
    /// Instances of an instance domain.
    Instances = 32,
}

impl LabelLevel {
    /// All levels, from the host to the instances. A label of a later level overrides one of an earlier level.
    pub const ALL: [LabelLevel; 6] = {
        use LabelLevel::*;
        [Context, Domain, InDom, Cluster, Item, Instances]
    };

    /// Returns the code of the wire encoding.
    pub const fn code(self) -> u32 {
        self as u32
    }

    /// Returns the level with a code from the wire; ignores the bits of [`LabelFlags::COMPOUND`] and
    /// [`LabelFlags::OPTIONAL`].
    pub fn from_code(code: u32) -> Option<LabelLevel> {
        let level = code & !u32::from((LabelFlags::COMPOUND | LabelFlags::OPTIONAL).0);
        Self::ALL.into_iter().find(|l| l.code() == level)
    }
}

/// Flags of a label: its level and its kind.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct LabelFlags(u8);

impl LabelFlags {
    /// Empty set of flags.
    pub const NONE: LabelFlags = LabelFlags(0);
    /// Label whose name has several components separated by dots.
    pub const COMPOUND: LabelFlags = LabelFlags(64);
    /// Note, which does not identify the object that it annotates.
    pub const OPTIONAL: LabelFlags = LabelFlags(128);

    /// Returns the byte of the wire encoding.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Creates the flags from a byte of the wire encoding.
    pub const fn from_bits(bits: u8) -> LabelFlags {
        LabelFlags(bits)
    }

    /// Returns whether all of the other flags are set.
    pub const fn contains(self, others: LabelFlags) -> bool {
        self.0 & others.0 == others.0
    }

    /// Returns the level if exactly one is set.
    pub fn level(self) -> Option<LabelLevel> {
        LabelLevel::from_code(self.0.into())
    }
}

impl From<LabelLevel> for LabelFlags {
    fn from(level: LabelLevel) -> LabelFlags {
        LabelFlags(level as u8)
    }
}

impl BitOr for LabelFlags {
    type Output = LabelFlags;

    fn bitor(self, other: LabelFlags) -> LabelFlags {
        LabelFlags(self.0 | other.0)
    }
}

impl fmt::Debug for LabelFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let levels = LabelLevel::ALL.into_iter().filter(|l| self.contains((*l).into())).map(|l| format!("{l:?}"));
        let kinds = [(Self::COMPOUND, "COMPOUND"), (Self::OPTIONAL, "OPTIONAL")];
        let kinds = kinds.into_iter().filter(|(k, _)| self.contains(*k)).map(|(_, name)| name.to_owned());
        write!(f, "LabelFlags({})", levels.chain(kinds).collect::<Vec<_>>().join(" | "))
    }
}
