//! The requests that PDUs make.

use pcp_pdu::Pdu;
use pcp_pdu::label::LabelReq;
use pmapi::label::LabelLevel;
use pmapi::{Domain, InDom, Serial};

use crate::agent::Request;

use super::labels;

impl Request {
    /// Returns the request that a PDU makes of an agent with this domain; `None` for a PDU that is not a request, and
    /// for one that is answered with an error whatever the agent's state is.
    pub(super) fn of(pdu: &Pdu<'_>, domain: Domain) -> Option<Request> {
        match pdu {
            Pdu::Fetch(_) => Some(Request::Fetch),
            Pdu::DescReq(req) => Some(Request::Desc(req.pmid?.item())),
            Pdu::InstanceReq(req) => own(req.indom, domain).map(Request::Instance),
            Pdu::TextReq(_) => Some(Request::Text),
            Pdu::LabelReq(req) => of_labels(*req, domain),
            Pdu::Result(_) => Some(Request::Store),
            // An error in place of PMIDs is the outcome of a request.
            Pdu::Ids(ids) if ids.status != 0 => None,
            Pdu::Names(_) | Pdu::Child(_) | Pdu::Traverse(_) | Pdu::Ids(_) => Some(Request::Names),
            _ => None,
        }
    }
}

fn of_labels(req: LabelReq, domain: Domain) -> Option<Request> {
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
