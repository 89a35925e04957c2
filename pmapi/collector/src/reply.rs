//! The answers of agents.

use pcp_pdu::event::{Layout, Record, records};
use pcp_pdu::label::{LabelReq, RawLabelSet};
use pcp_pdu::result::{Changes, ResultPdu, ValueSet};
use pmapi::{Atom, Domain, InDom, Inst, LabelLevel, LabelSet, OptionWord as _, PmId, Type};

use crate::{Error, Result};

/// Converts text to UTF-8. PCP promises no encoding, so that invalid bytes become U+FFFD. The raw PDU has the bytes.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The answer to a fetch.
#[derive(Clone, Copy, Debug)]
pub struct Fetched<'a> {
    result: ResultPdu<'a>,
}

impl<'a> Fetched<'a> {
    pub(crate) fn new(result: ResultPdu<'a>) -> Self {
        Fetched { result }
    }

    /// Iterates over the value sets of the metrics, in the order of the request.
    pub fn sets(&self) -> impl Iterator<Item = ValueSet<'a>> + use<'a> {
        self.result.sets()
    }

    /// Returns which metadata have changed in the agent. Unknown bits are ignored, as in pmcd.
    pub fn changes(&self) -> Changes {
        Changes::from_bits_retain(self.result.seconds as u8) & (Changes::LABELS | Changes::NAMES)
    }

    /// Returns the PDU, for access to its raw values.
    pub fn pdu(&self) -> ResultPdu<'a> {
        self.result
    }
}

/// The values of one metric.
#[derive(Clone, Copy, Debug)]
pub struct MetricValues<'a> {
    set: ValueSet<'a>,
    ty: Type,
}

impl<'a> MetricValues<'a> {
    /// Decodes the values of a set whose metric is of type `ty`.
    ///
    /// # Errors
    /// [`Error::Agent`] with the error of the set, or with `PM_ERR_CONV` for a value of another type.
    pub fn new(set: ValueSet<'a>, ty: Type) -> Result<Self> {
        if let Some(code) = set.error {
            return Err(Error::Agent(code));
        }
        for (_, raw) in set.values() {
            raw.atom(ty).map_err(Error::Agent)?;
        }
        Ok(MetricValues { set, ty })
    }

    /// Returns the number of values.
    pub fn len(&self) -> usize {
        self.set.len()
    }

    /// Returns whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.set.is_empty()
    }

    /// Iterates over instances and values. The instance is `None` in a singular metric.
    pub fn iter(&self) -> impl Iterator<Item = (Option<Inst>, Atom<'a>)> + use<'a> {
        let ty = self.ty;
        self.set.values().filter_map(move |(inst, raw)| Some((inst, raw.atom(ty).ok()?)))
    }

    /// Returns the value of an instance.
    pub fn get(&self, inst: Inst) -> Option<Atom<'a>> {
        self.iter().find(|(other, _)| *other == Some(inst)).map(|(_, atom)| atom)
    }

    /// Returns the records of event values (pmUnpackEventRecords(3)).
    ///
    /// ```
    /// # use pmda::prelude::*;
    /// # use pmda::{EventFlags, EventQueue, Stamp};
    /// # const LINE: Item = Item::new(0, 1);
    /// # struct Lines(EventQueue);
    /// # impl Agent for Lines {
    /// #     const NAME: &'static str = "lines";
    /// #     const DOMAIN: u16 = 400;
    /// #     fn new(setup: &mut Setup) -> Result<Self, BoxError> {
    /// #         setup.metric("lines.records", Item::new(0, 0), Type::Event);
    /// #         setup.metric("lines.line", LINE, Type::String).parameter();
    /// #         Ok(Lines(setup.event_queue(1 << 20).keeping()))
    /// #     }
    /// #     fn fetch(&mut self, _: Item, out: &mut Values<'_>) -> Result {
    /// #         out.put_events(&self.0)
    /// #     }
    /// # }
    /// let mut lines = pcp_collector::Local::<Lines>::collector()?;
    /// # lines.agent().0.sender().send(Stamp::now(), EventFlags::POINT, [(LINE, "a line".into())])?;
    /// let records = lines.metric("lines.records")?;
    /// for record in lines.values(records)?.records()? {
    ///     assert_eq!((record.missed, record.text(LINE).as_deref()), (0, Some("a line")));
    /// }
    /// # Ok::<(), pmda::BoxError>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Agent`] with `PM_ERR_TYPE` for values of another type, or with `PM_ERR_CONV` for a damaged record.
    pub fn records(&self) -> Result<Vec<Record<'a>>> {
        let mut all = Vec::new();
        for (_, value) in self.iter() {
            let (payload, layout) = match value {
                Atom::Event(payload) => (payload, Layout::Micro),
                Atom::HighResEvent(payload) => (payload, Layout::Nano),
                _ => return Err(Error::Agent(pmapi::Error::TYPE)),
            };
            all.extend(records(payload, layout).map_err(Error::Agent)?);
        }
        Ok(all)
    }
}

/// The object of a label request: the levels of pmLookupLabels(3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum LabelTarget {
    /// The whole context (`PM_LABEL_CONTEXT`).
    Context,
    /// The agent (`PM_LABEL_DOMAIN`).
    Domain(Domain),
    /// An instance domain (`PM_LABEL_INDOM`).
    InDom(InDom),
    /// The cluster of a metric (`PM_LABEL_CLUSTER`).
    Cluster(PmId),
    /// A metric (`PM_LABEL_ITEM`).
    Item(PmId),
    /// Each instance of a domain, or the value of a singular metric for `None` (`PM_LABEL_INSTANCES`).
    Instances(Option<InDom>),
}

impl LabelTarget {
    /// Returns the request for the labels of this object.
    pub fn request(self) -> LabelReq {
        let (ident, level) = match self {
            LabelTarget::Context => (u32::MAX, LabelLevel::Context),
            LabelTarget::Domain(domain) => (domain.get().into(), LabelLevel::Domain),
            LabelTarget::InDom(indom) => (indom.word(), LabelLevel::InDom),
            LabelTarget::Cluster(pmid) => (pmid.word(), LabelLevel::Cluster),
            LabelTarget::Item(pmid) => (pmid.word(), LabelLevel::Item),
            LabelTarget::Instances(indom) => (indom.word(), LabelLevel::Instances),
        };
        LabelReq { ident, bits: level.code() as i32 }
    }
}

/// Decodes a set of labels, or returns the error in its place.
pub(crate) fn label_set(set: &RawLabelSet<'_>) -> pmapi::Result<LabelSet> {
    match set.error {
        Some(code) => Err(code),
        None => Ok(LabelSet::from_raw(text(set.json), set.spans())?),
    }
}
