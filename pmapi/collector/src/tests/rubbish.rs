//! Any answer of an agent leads to an error or a result.

use std::time::Duration;

use pcp_pdu::metadata::{Subject, TextKind};
use pcp_pdu::{Header, PduType};
use pmapi::{Atom, Domain, InDom, Inst, Item, PmId, Serial};
use proptest::prelude::*;

use crate::{Channel, Collector, Error, LabelTarget, Result};

/// A channel that answers every request with the same bytes.
struct Canned {
    answer: Vec<u8>,
    asked: bool,
}

impl Channel for Canned {
    fn send(&mut self, _: &[u8], _: Option<Duration>) -> Result {
        self.asked = true;
        Ok(())
    }

    fn receive(&mut self, pdu: &mut Vec<u8>, timeout: Option<Duration>) -> Result<Header> {
        if !std::mem::take(&mut self.asked) {
            return Err(Error::TimedOut(timeout.unwrap_or_default()));
        }
        pdu.clone_from(&self.answer);
        Ok(Header::parse(pdu)?.unwrap())
    }

    fn close(&mut self) {}
}

type Request = fn(&mut Collector<Canned>, PmId, InDom) -> Result;

/// Requests, with the types of their answers.
const REQUESTS: &[(PduType, Request)] = &[
    (PduType::RESULT, |c, pmid, _| c.fetch(&[pmid]).map(|fetched| assert_eq!(fetched.sets().count(), 1))),
    (PduType::DESC, |c, pmid, _| c.desc(pmid).map(drop)),
    (PduType::ERROR, |c, pmid, _| c.store(pmid, None, Atom::U32(1))),
    (PduType::INSTANCE, |c, _, indom| c.instances(indom).map(drop)),
    (PduType::INSTANCE, |c, _, indom| c.instance_of(indom, "x").map(drop)),
    (PduType::INSTANCE, |c, _, indom| c.instance_name(indom, Inst::new(1)).map(drop)),
    (PduType::TEXT, |c, pmid, _| c.text(Subject::Metric(pmid), TextKind::Help).map(drop)),
    (PduType::PMNS_IDS, |c, _, _| c.pmid("x").map(drop)),
    (PduType::PMNS_NAMES, |c, pmid, _| c.names(pmid).map(drop)),
    (PduType::PMNS_NAMES, |c, _, _| c.children("x").map(drop)),
    (PduType::PMNS_NAMES, |c, _, _| c.children_status("x").map(drop)),
    (PduType::PMNS_NAMES, |c, _, _| c.traverse("x").map(drop)),
    (PduType::LABEL, |c, _, indom| c.labels(LabelTarget::Instances(Some(indom))).map(drop)),
];

proptest! {
    #[test]
    fn any_answer(
        request in prop::sample::select(REQUESTS),
        other in prop::option::weighted(0.1, 0x7000..0x7018i32),
        words in prop::collection::vec(prop_oneof![0..4u32, Just(u32::MAX), any::<u32>()], 0..24),
        tail in prop::collection::vec(any::<u8>(), 0..4),
    ) {
        let body: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).chain(tail).collect();
        let pdu = other.map_or(request.0, PduType::new);
        let header = Header { len: 12 + body.len() as u32, pdu, from: 0 };
        let answer = [&header.to_bytes()[..], &body].concat();
        let mut collector = Collector::new(Canned { answer, asked: false });
        let domain = Domain::new(253).unwrap();
        let (pmid, indom) = (PmId::new(domain, Item::new(0, 0)), InDom::new(domain, Serial::new(0)));
        let outcome = (request.1)(&mut collector, pmid, indom);
        // A dropped agent gets no more requests.
        if collector.state() == crate::AgentState::Dropped {
            prop_assert!(outcome.is_err());
            prop_assert!(matches!(collector.desc(pmid), Err(Error::Dropped)));
        }
    }
}
