//! The requests that an agent prepares for.

use pcp_pdu::Pdu;
use pcp_pdu::label::LabelReq;
use pcp_pdu::metadata::Fetch;
use pmapi::{Domain, Error, InDom, Item, LabelFlags, LabelLevel, PmId, Result, Serial};

/// The subject of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Request<'a> {
    /// Values of metrics.
    Fetch(Items<'a>),
    /// Instances of a domain.
    Instance(Serial),
    /// A metric's descriptor.
    Desc(Item),
    /// Help text.
    Text,
    /// Labels of a domain.
    InDomLabels(Serial),
    /// Labels of the instances of a domain.
    InstanceLabels(Serial),
    /// Labels of the context, the agent, a cluster or a metric.
    Labels,
    /// Values to be stored.
    Store,
    /// Names of metrics. With a name, the client looks up the metrics at or below it, and is likely to fetch them next.
    Names(Option<&'a str>),
}

/// The metrics of a fetch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Items<'a> {
    fetch: Fetch<'a>,
    domain: Domain,
}

impl<'a> Items<'a> {
    /// Iterates over the metrics of the agent's domain, known or not, in the client's order and with repetitions.
    pub fn iter(self) -> impl Iterator<Item = Item> + Clone + 'a {
        self.fetch.pmids().flatten().filter(move |pmid| pmid.domain() == self.domain).map(PmId::item)
    }
}

impl<'a> Request<'a> {
    /// Returns the request that a PDU makes of an agent with this domain. Returns `None` for a PDU that is not a
    /// request, and for one that is always answered with an error.
    pub(crate) fn of(pdu: &Pdu<'a>, domain: Domain) -> Option<Self> {
        fn text(name: &[u8]) -> Option<&str> {
            std::str::from_utf8(name).ok()
        }
        match *pdu {
            Pdu::Fetch(fetch) => Some(Request::Fetch(Items { fetch, domain })),
            Pdu::DescReq(req) => Some(Request::Desc(req.pmid?.item())),
            Pdu::InstanceReq(req) => own(req.indom, domain).map(Request::Instance),
            Pdu::TextReq(_) => Some(Request::Text),
            Pdu::LabelReq(req) => of_labels(req, domain),
            Pdu::Result(_) => Some(Request::Store),
            // An error in place of PMIDs is the outcome of a request.
            Pdu::Ids(ids) if ids.status != 0 => None,
            Pdu::Names(names) => Some(Request::Names(names.iter().next().and_then(|(_, name)| text(name)))),
            Pdu::Traverse(traverse) => Some(Request::Names(text(traverse.name))),
            Pdu::Child(_) | Pdu::Ids(_) => Some(Request::Names(None)),
            _ => None,
        }
    }
}

fn of_labels(req: LabelReq, domain: Domain) -> Option<Request<'static>> {
    let indom = InDom::from_word(req.ident);
    match label_level(req).ok()? {
        // A singular metric has one set of labels, without an instance.
        LabelLevel::Instances if indom.is_none() => Some(Request::Labels),
        LabelLevel::Instances => own(indom, domain).map(Request::InstanceLabels),
        LabelLevel::InDom => own(indom, domain).map(Request::InDomLabels),
        _ => Some(Request::Labels),
    }
}

/// Returns the serial of an instance domain of the agent.
fn own(indom: Option<InDom>, domain: Domain) -> Option<Serial> {
    indom.filter(|indom| indom.domain() == domain).map(InDom::serial)
}

/// Returns the level of a request for labels.
///
/// # Errors
/// `PM_ERR_TYPE` for none or several levels.
pub(crate) fn label_level(req: LabelReq) -> Result<LabelLevel> {
    let flags = i32::from(LabelFlags::COMPOUND.bits() | LabelFlags::OPTIONAL.bits());
    u32::try_from(req.bits & !flags).ok().and_then(LabelLevel::from_code).ok_or(Error::TYPE)
}
