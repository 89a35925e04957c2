//! The requests that PDUs make.

use pcp_pdu::Pdu;
use pcp_pdu::label::LabelReq;
use pmapi::{Domain, InDom, LabelLevel, Serial};

use crate::request::{Items, Request};

use super::{labels, names};

impl<'a> Request<'a> {
    /// Returns the request that a PDU makes of an agent with this domain. Returns `None` for a PDU that is not a
    /// request, and for one that is always answered with an error.
    pub(super) fn of(pdu: &Pdu<'a>, domain: Domain) -> Option<Self> {
        match *pdu {
            Pdu::Fetch(fetch) => Some(Request::Fetch(Items { fetch, domain })),
            Pdu::DescReq(req) => Some(Request::Desc(req.pmid?.item())),
            Pdu::InstanceReq(req) => own(req.indom, domain).map(Request::Instance),
            Pdu::TextReq(_) => Some(Request::Text),
            Pdu::LabelReq(req) => of_labels(req, domain),
            Pdu::Result(_) => Some(Request::Store),
            // An error in place of PMIDs is the outcome of a request.
            Pdu::Ids(ids) if ids.status != 0 => None,
            Pdu::Names(names) => Some(Request::Names(names.iter().next().and_then(|(_, name)| names::text(name)))),
            Pdu::Traverse(traverse) => Some(Request::Names(names::text(traverse.name))),
            Pdu::Child(_) | Pdu::Ids(_) => Some(Request::Names(None)),
            _ => None,
        }
    }
}

fn of_labels(req: LabelReq, domain: Domain) -> Option<Request<'static>> {
    let indom = InDom::from_word(req.ident);
    match labels::level(req).ok()? {
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
