//! Levels and flags of labels (`PM_LABEL_*`).

use std::fmt;
use std::ops::BitOr;

/// What a set of labels belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
#[repr(u8)]
pub enum LabelLevel {
    /// The host, or the archive.
    Context = 1,
    /// An agent.
    Domain = 2,
    /// An instance domain.
    InDom = 4,
    /// A cluster of metrics.
    Cluster = 8,
    /// A metric.
    Item = 16,
    /// The instances of an instance domain.
    Instances = 32,
}

impl LabelLevel {
    /// Every level, from the host to the instances: each one wins over those before it.
    pub const ALL: [LabelLevel; 6] = {
        use LabelLevel::*;
        [Context, Domain, InDom, Cluster, Item, Instances]
    };

    /// The code as it travels.
    pub const fn code(self) -> u32 {
        self as u32
    }

    /// The level of a code from the wire, whose bits for compound and optional don't matter.
    pub fn from_code(code: u32) -> Option<LabelLevel> {
        let level = code & !u32::from((LabelFlags::COMPOUND | LabelFlags::OPTIONAL).0);
        Self::ALL.into_iter().find(|l| l.code() == level)
    }
}

/// The flags of a label: the level that it comes from and its kind.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct LabelFlags(u8);

impl LabelFlags {
    /// No flags.
    pub const NONE: LabelFlags = LabelFlags(0);
    /// The name has several components.
    pub const COMPOUND: LabelFlags = LabelFlags(64);
    /// A note that does not identify what it annotates.
    pub const OPTIONAL: LabelFlags = LabelFlags(128);

    /// The byte as it travels.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// The flags of a byte from the wire.
    pub const fn from_bits(bits: u8) -> LabelFlags {
        LabelFlags(bits)
    }

    /// Whether all of the others are set.
    pub const fn contains(self, others: LabelFlags) -> bool {
        self.0 & others.0 == others.0
    }

    /// The level, when exactly one is set.
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
