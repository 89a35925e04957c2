//! Levels and flags of labels (`PM_LABEL_*`).

use bitflags::bitflags;

use crate::{Desc, Item, PmId};

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

    /// Identifier of the labels of the host or archive, in requests and records of labels.
    pub const CONTEXT_IDENT: u32 = u32::MAX;

    /// Returns the identifier of the labels of a metric's cluster: the PMID of the cluster's item 0.
    pub fn cluster_ident(pmid: PmId) -> u32 {
        PmId::new(pmid.domain(), Item::new(pmid.item().cluster(), 0)).word()
    }

    /// Returns the levels of the labels of a metric with their identifiers, from the most general one
    /// (pmLookupLabels(3)): host, agent, instance domain, cluster and metric.
    pub fn of_metric(desc: &Desc) -> impl Iterator<Item = (LabelLevel, u32)> + use<> {
        let pmid = desc.pmid;
        let levels = [
            Some((LabelLevel::Context, LabelLevel::CONTEXT_IDENT)),
            Some((LabelLevel::Domain, pmid.domain().get().into())),
            desc.indom.map(|indom| (LabelLevel::InDom, indom.word())),
            Some((LabelLevel::Cluster, LabelLevel::cluster_ident(pmid))),
            Some((LabelLevel::Item, pmid.word())),
        ];
        levels.into_iter().flatten()
    }

    /// Returns the code of the wire encoding.
    pub const fn code(self) -> u32 {
        self as u32
    }

    /// Returns the level with a code from the wire; ignores the bits of [`LabelFlags::COMPOUND`] and
    /// [`LabelFlags::OPTIONAL`].
    pub fn from_code(code: u32) -> Option<LabelLevel> {
        let level = code & !u32::from(LabelFlags::COMPOUND.union(LabelFlags::OPTIONAL).bits());
        Self::ALL.into_iter().find(|l| l.code() == level)
    }
}

bitflags! {
    /// Flags of a label: its level and its kind.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct LabelFlags: u8 {
        /// Label of the host or archive.
        const CONTEXT = 1;
        /// Label of an agent.
        const DOMAIN = 2;
        /// Label of an instance domain.
        const INDOM = 4;
        /// Label of a cluster of metrics.
        const CLUSTER = 8;
        /// Label of a metric.
        const ITEM = 16;
        /// Label of the instances of an instance domain.
        const INSTANCES = 32;
        /// Label whose name has several components separated by dots.
        const COMPOUND = 64;
        /// Note, which does not identify the object that it annotates.
        const OPTIONAL = 128;
    }
}

impl LabelFlags {
    /// Returns the level if exactly one is set.
    pub fn level(self) -> Option<LabelLevel> {
        LabelLevel::from_code(self.bits().into())
    }
}

impl From<LabelLevel> for LabelFlags {
    fn from(level: LabelLevel) -> LabelFlags {
        LabelFlags::from_bits_retain(level as u8)
    }
}
