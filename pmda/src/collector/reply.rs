//! What agents answer.

use pcp_pdu::label::{LabelReq, RawLabelSet};
use pcp_pdu::result::{Changes, ResultPdu, ValueSet};
use pmapi::id::OptionWord as _;
use pmapi::label::LabelLevel;
use pmapi::{Atom, Domain, InDom, Inst, LabelSet, PmId, Type};

use super::{Error, Result};

/// PCP promises no encoding; what is no UTF-8 shows as U+FFFD. The raw PDU has the bytes.
pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The answer to a fetch.
#[derive(Clone, Copy, Debug)]
pub struct Fetched<'a> {
    result: ResultPdu<'a>,
}

impl<'a> Fetched<'a> {
    pub(super) fn new(result: ResultPdu<'a>) -> Self {
        Fetched { result }
    }

    /// The values of each metric, in the order of the request.
    pub fn sets(&self) -> impl Iterator<Item = ValueSet<'a>> + use<'a> {
        self.result.sets()
    }

    /// What has changed in the agent besides values; as in pmcd, other bits do not count.
    pub fn changes(&self) -> Changes {
        Changes(self.result.seconds as u8 & Changes::LABELS.union(Changes::NAMES).0)
    }

    /// The PDU.
    pub fn pdu(&self) -> ResultPdu<'a> {
        self.result
    }
}

/// The values of one metric.
#[derive(Clone, Copy, Debug)]
pub struct Values<'a> {
    set: ValueSet<'a>,
    ty: Type,
}

impl<'a> Values<'a> {
    /// The values of a set whose metric has this type. Fails with the set's error, or with
    /// `PM_ERR_CONV` when a value is of another type.
    pub fn new(set: ValueSet<'a>, ty: Type) -> Result<Self> {
        if let Some(code) = set.error {
            return Err(Error::Agent(code));
        }
        for (_, raw) in set.values() {
            raw.atom(ty).map_err(Error::Agent)?;
        }
        Ok(Values { set, ty })
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.set.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.set.is_empty()
    }

    /// The instances (`None` in a singular metric) and their values.
    pub fn iter(&self) -> impl Iterator<Item = (Option<Inst>, Atom<'a>)> + use<'a> {
        let ty = self.ty;
        self.set.values().filter_map(move |(inst, raw)| Some((inst, raw.atom(ty).ok()?)))
    }

    /// The value of an instance.
    pub fn get(&self, inst: Inst) -> Option<Atom<'a>> {
        self.iter().find(|(other, _)| *other == Some(inst)).map(|(_, atom)| atom)
    }
}

/// Whose labels: the levels of pmLookupLabels(3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LabelTarget {
    /// Of the whole context (`PM_LABEL_CONTEXT`).
    Context,
    /// Of the agent (`PM_LABEL_DOMAIN`).
    Domain(Domain),
    /// Of an instance domain (`PM_LABEL_INDOM`).
    InDom(InDom),
    /// Of the cluster of a metric (`PM_LABEL_CLUSTER`).
    Cluster(PmId),
    /// Of a metric (`PM_LABEL_ITEM`).
    Item(PmId),
    /// Of each instance of a domain, or of none for a singular metric (`PM_LABEL_INSTANCES`).
    Instances(Option<InDom>),
}

impl LabelTarget {
    /// The request.
    pub fn request(self) -> LabelReq {
        let (ident, level) = match self {
            LabelTarget::Context => (u32::MAX, LabelLevel::Context),
            LabelTarget::Domain(domain) => (domain.get().into(), LabelLevel::Domain),
            LabelTarget::InDom(indom) => (indom.word(), LabelLevel::InDom),
            LabelTarget::Cluster(pmid) => (pmid.word(), LabelLevel::Cluster),
            LabelTarget::Item(pmid) => (pmid.word(), LabelLevel::Item),
            LabelTarget::Instances(indom) => (indom.word(), LabelLevel::Instances),
        };
        LabelReq { ident, bits: level.code().cast_signed() }
    }
}

/// A set of labels, or the error that the agent gave in its place.
pub(super) fn label_set(set: &RawLabelSet<'_>) -> pmapi::Result<LabelSet> {
    match set.error {
        Some(code) => Err(code),
        None => Ok(LabelSet::from_raw(text(set.json), set.spans())?),
    }
}
