use std::time::Duration;

use pcp_pdu::codec::DecodeError;
use pcp_pdu::handshake::{Attribute, Features, encode_error};
use pcp_pdu::instance::InstanceWriter;
use pcp_pdu::label::{LabelSetRef, encode_label};
use pcp_pdu::metadata::{DescPdu, Subject, Text, TextKind, TextReq};
use pcp_pdu::names::{Node, Statuses, encode_ids, encode_names};
use pcp_pdu::profile::{Profile, ProfileState};
use pcp_pdu::result::Changes;
use pcp_pdu::result_writer::ResultWriter;
use pcp_pdu::{FrameError, Pdu, PduType};
use pmapi::{Atom, Desc, Domain, InDom, Inst, Item, LabelSet, PmId, Semantics, Serial, Type, Units};

use super::fake::{Fake, agent, stream};
use crate::{AgentState, Collector, Error, LabelTarget};

fn pmid(item: u16) -> PmId {
    PmId::new(Domain::new(253).unwrap(), Item::new(0, item))
}

fn indom() -> InDom {
    InDom::new(Domain::new(253).unwrap(), Serial::new(1))
}

const SHORT: Option<Duration> = Some(Duration::from_millis(20));

impl Fake {
    fn result(&mut self, changes: Changes, values: &[(PmId, Option<Inst>, Atom<'_>)]) {
        let mut w = ResultWriter::new();
        w.begin();
        for (pmid, inst, value) in values {
            w.begin_set(Some(*pmid));
            w.push(*inst, value.ty(), *value).unwrap();
            w.end_set(Ok(()));
        }
        let (lists, blocks) = w.seal(0, changes).unwrap();
        let pdu = [lists, blocks].concat();
        self.send_bytes(&pdu);
    }

    fn desc(&mut self, ty: Type) {
        let pmid = match self.expect(PduType::DESC_REQ).1 {
            Pdu::DescReq(req) => req.pmid.unwrap(),
            _ => unreachable!(),
        };
        let desc = Desc { pmid, ty, indom: None, semantics: Semantics::Instant, units: Units::NONE };
        self.send(|out, from| DescPdu { desc }.encode(out, from));
    }
}

#[test]
fn version_exchange_returns_only_authorize() {
    let (stream, thread) = stream(|fake| {
        let features = fake.creds(Features::AUTHORIZE | Features::CONTAINER | Features::SECURE);
        assert_eq!(features, Features::AUTHORIZE);
        let (header, pdu) = fake.expect(PduType::ATTR);
        assert!(matches!(pdu, Pdu::Attr(a) if a.attribute == Attribute::USERID && a.value == b"1000"));
        assert_eq!(header.from, 7);
    });
    let mut collector = Collector::connect(stream).unwrap();
    assert!(collector.as_client(7).attribute(Attribute::USERID, "1000").unwrap());
    thread.join().unwrap();

    let (stream, thread) = stream_without_features();
    let mut collector = Collector::connect(stream).unwrap();
    assert!(!collector.attribute(Attribute::USERID, "1000").unwrap());
    drop(collector);
    thread.join().unwrap();
}

fn stream_without_features() -> (crate::Stream, std::thread::JoinHandle<()>) {
    stream(|fake| {
        assert_eq!(fake.creds(Features::default()), Features::default());
        fake.expect_end();
    })
}

#[test]
fn version_exchange_with_no_agent() {
    let (stream1, thread) = stream(|fake| fake.error(pmapi::Error::PERMISSION));
    assert!(matches!(Collector::connect(stream1), Err(Error::Unexpected { got: PduType::ERROR, .. })));
    thread.join().unwrap();
    let (stream2, thread) = stream(|fake| fake.send_bytes(b"Log for simple"));
    assert!(matches!(Collector::connect(stream2), Err(Error::CutShort(14))));
    thread.join().unwrap();
}

#[test]
fn profile_goes_before_the_first_fetch_of_a_client_and_after_changes() {
    let (mut collector, thread) = agent(|fake| {
        let answer = |fake: &mut Fake, client| {
            let (header, pdu) = fake.expect(PduType::FETCH);
            assert!(matches!(pdu, Pdu::Fetch(f) if f.pmids().eq([Some(pmid(0))])));
            assert_eq!(header.from, client);
            fake.result(Changes::default(), &[(pmid(0), None, Atom::U32(1))]);
        };
        fake.expect(PduType::PROFILE);
        answer(fake, 0);
        answer(fake, 0);
        assert!(matches!(fake.expect(PduType::PROFILE).1, Pdu::Profile(p) if p.entries().count() == 1));
        answer(fake, 0);
        assert_eq!(fake.expect(PduType::PROFILE).0.from, 3);
        answer(fake, 3);
        let (header, pdu) = fake.expect(PduType::ERROR);
        assert!(matches!(pdu, Pdu::Error(e) if e.status() == Err(pmapi::Error::NOTCONN)));
        assert_eq!(header.from, 3);
        assert!(matches!(fake.expect(PduType::PROFILE).1, Pdu::Profile(p) if p.entries().count() == 1));
        answer(fake, 0);
    });
    let pmids = [pmid(0)];
    collector.fetch(&pmids).unwrap();
    collector.fetch(&pmids).unwrap();
    let mut profile = Profile::default();
    profile.set(indom(), ProfileState::Exclude, &[Inst::new(1)]);
    collector.set_profile(profile);
    collector.fetch(&pmids).unwrap();
    collector.as_client(3).fetch(&pmids).unwrap();
    collector.end_client().unwrap();
    collector.as_client(0).fetch(&pmids).unwrap();
    thread.join().unwrap();
}

#[test]
fn values_with_their_types() {
    let (mut collector, thread) = agent(|fake| {
        fake.desc(Type::I32);
        fake.expect(PduType::PROFILE);
        fake.expect(PduType::FETCH);
        fake.result(Changes::NAMES, &[(pmid(0), None, Atom::I32(-1))]);
        fake.expect(PduType::FETCH);
        fake.result(Changes::from_bits_retain(0xff), &[(pmid(0), None, Atom::I32(-1))]);
        fake.desc(Type::String);
        fake.expect(PduType::FETCH);
        fake.result(Changes::default(), &[(pmid(1), Some(Inst::new(4)), Atom::String(b"red"))]);
        fake.desc(Type::Double);
        fake.expect(PduType::FETCH);
        fake.result(Changes::default(), &[(pmid(1), None, Atom::Float(1.0))]);
    });
    assert_eq!(collector.value(pmid(0)).unwrap(), Atom::I32(-1));
    assert_eq!(collector.fetch(&[pmid(0)]).unwrap().changes(), Changes::from_bits_retain(24));
    assert_eq!(collector.values(pmid(1)).unwrap().get(Inst::new(4)), Some(Atom::String(b"red")));
    assert!(matches!(collector.value(pmid(1)), Err(Error::Agent(pmapi::Error::CONV))));
    thread.join().unwrap();
}

#[test]
fn a_wrong_number_of_value_sets_drops_the_agent() {
    let (mut collector, thread) = agent(|fake| {
        fake.expect(PduType::PROFILE);
        fake.expect(PduType::FETCH);
        fake.result(Changes::default(), &[(pmid(0), None, Atom::U32(1))]);
        fake.expect_end();
    });
    let error = collector.fetch(&[pmid(0), pmid(1)]).unwrap_err();
    assert_eq!(error.to_string(), "the answer to FETCH has 1 value sets, not 2");
    assert!(matches!(collector.desc(pmid(0)), Err(Error::Dropped)));
    assert_eq!(collector.state(), AgentState::Dropped);
    thread.join().unwrap();
}

#[test]
fn instances_by_all_id_and_name() {
    let (mut collector, thread) = agent(|fake| {
        let answer = |fake: &mut Fake, list: &[(Option<u32>, &str)]| {
            fake.send(|out, from| {
                let mut w = InstanceWriter::new(out, from, indom());
                list.iter().for_each(|(id, name)| w.push(id.map(Inst::new), name.as_bytes()));
                w.finish()
            });
        };
        fake.expect(PduType::INSTANCE_REQ);
        answer(fake, &[(Some(0), "bin"), (Some(9), "colour\u{e9}")]);
        assert!(matches!(fake.expect(PduType::INSTANCE_REQ).1, Pdu::InstanceReq(r) if r.name == Some(b"bin")));
        answer(fake, &[(Some(0), "")]);
        assert!(matches!(fake.expect(PduType::INSTANCE_REQ).1, Pdu::InstanceReq(r) if r.inst == Some(Inst::new(9))));
        answer(fake, &[(None, "colour")]);
        fake.expect(PduType::INSTANCE_REQ);
        fake.error(pmapi::Error::INST);
        fake.expect(PduType::INSTANCE_REQ);
        answer(fake, &[]);
    });
    let all = [(Inst::new(0), "bin".to_owned()), (Inst::new(9), "colour\u{e9}".to_owned())];
    assert_eq!(collector.instances(indom()).unwrap(), all);
    assert_eq!(collector.instance_of(indom(), "bin").unwrap(), Inst::new(0));
    assert_eq!(collector.instance_name(indom(), Inst::new(9)).unwrap(), "colour");
    for _ in 0..2 {
        assert!(matches!(collector.instance_name(indom(), Inst::new(8)), Err(Error::Agent(pmapi::Error::INST))));
    }
    assert_eq!(collector.state(), AgentState::Ready);
    thread.join().unwrap();
}

#[test]
fn text_store_and_labels() {
    let (mut collector, thread) = agent(|fake| {
        let req = TextReq::new(Subject::Metric(pmid(0)), TextKind::OneLine);
        assert!(matches!(fake.expect(PduType::TEXT_REQ).1, Pdu::TextReq(r) if r == req));
        fake.send(|out, from| Text { ident: 0, text: b"one line" }.encode(out, from));

        let stored: Vec<_> = match fake.expect(PduType::RESULT).1 {
            Pdu::Result(r) => r.sets().map(|set| (set.pmid.unwrap(), set.len())).collect(),
            _ => unreachable!(),
        };
        assert_eq!(stored, [(pmid(0), 2), (pmid(1), 1)]);
        fake.send(|out, from| encode_error(out, from, Ok(())));
        fake.expect(PduType::RESULT);
        fake.error(pmapi::Error::PERMISSION);

        let req = match fake.expect(PduType::LABEL_REQ).1 {
            Pdu::LabelReq(req) => req,
            _ => unreachable!(),
        };
        assert_eq!((req.ident, req.bits), (indom().word(), 32));
        let set = LabelSet::parse(r#"{"color":"red"}"#).unwrap();
        let index: Vec<_> = set.index().collect();
        let sets = [
            LabelSetRef { inst: Some(Inst::new(0)), labels: Ok(&index), json: set.json().as_bytes() },
            LabelSetRef { inst: Some(Inst::new(1)), labels: Err(pmapi::Error::INST), json: b"" },
        ];
        fake.send(|out, from| encode_label(out, from, req, &sets));
    });
    assert_eq!(collector.text(Subject::Metric(pmid(0)), TextKind::OneLine).unwrap(), "one line");
    let two = [0, 1].map(|inst| (pmid(0), Some(Inst::new(inst)), Atom::U32(inst)));
    collector.store_values(&[two[0], two[1], (pmid(1), None, Atom::String(b"x"))]).unwrap();
    let refused = collector.store(pmid(0), None, Atom::U32(1));
    assert!(matches!(refused, Err(Error::Agent(pmapi::Error::PERMISSION))));
    let labels = collector.labels(LabelTarget::Instances(Some(indom()))).unwrap();
    assert_eq!(labels[0].1.as_ref().unwrap().value("color"), Some("\"red\""));
    assert_eq!(labels[1], (Some(Inst::new(1)), Err(pmapi::Error::INST)));
    thread.join().unwrap();
}

#[test]
fn dynamic_names() {
    let (mut collector, thread) = agent(|fake| {
        let names = [(Node::Leaf, &b"secret.foo"[..]), (Node::NonLeaf, b"secret.bar")];
        assert!(matches!(fake.expect(PduType::PMNS_NAMES).1, Pdu::Names(n) if n.iter().next().unwrap().1 == b"a.b"));
        fake.send(|out, from| encode_ids(out, from, 0, &[Some(pmid(5))]));
        fake.expect(PduType::PMNS_NAMES);
        fake.send(|out, from| encode_ids(out, from, pmapi::Error::NAME.code(), &[None]));
        fake.expect(PduType::PMNS_IDS);
        fake.send(|out, from| encode_names(out, from, Statuses::Omitted, names));
        assert!(matches!(fake.expect(PduType::PMNS_CHILD).1, Pdu::Child(c) if c.statuses == Statuses::Included));
        fake.send(|out, from| encode_names(out, from, Statuses::Included, names));
        assert!(matches!(fake.expect(PduType::PMNS_CHILD).1, Pdu::Child(c) if c.statuses == Statuses::Omitted));
        fake.send(|out, from| encode_names(out, from, Statuses::Omitted, names));
        fake.expect(PduType::PMNS_TRAVERSE);
        fake.send(|out, from| encode_names(out, from, Statuses::Omitted, names[..1].iter().copied()));
    });
    let both = ["secret.foo", "secret.bar"];
    assert_eq!(collector.pmid("a.b").unwrap(), pmid(5));
    assert!(matches!(collector.pmid("a.c"), Err(Error::Agent(pmapi::Error::NAME))));
    assert_eq!(collector.names(pmid(5)).unwrap(), both);
    let status = [(both[0].to_owned(), Node::Leaf), (both[1].to_owned(), Node::NonLeaf)];
    assert_eq!(collector.children_status("a").unwrap(), status);
    assert_eq!(collector.children("a").unwrap(), both);
    assert_eq!(collector.traverse("a").unwrap(), both[..1]);
    thread.join().unwrap();
}

#[test]
fn not_ready_until_it_says_so() {
    let (mut collector, thread) = agent(|fake| {
        fake.expect(PduType::DESC_REQ);
        fake.error(pmapi::Error::PMDANOTREADY);
        fake.error(pmapi::Error::PMDAREADY);
        fake.desc(Type::U32);
    });
    let error = collector.desc(pmid(0)).unwrap_err();
    assert!(matches!(error, Error::NotReady), "{error}");
    assert_eq!(error.code(), pmapi::Error::AGAIN);
    assert!(collector.wait_ready(None).unwrap());
    assert_eq!(collector.desc(pmid(0)).unwrap().ty, Type::U32);
    thread.join().unwrap();
}

#[test]
fn nothing_is_sent_to_an_agent_that_is_not_ready() {
    let (mut collector, thread) = agent(|fake| {
        fake.expect(PduType::PROFILE);
        fake.expect_end();
    });
    collector.set_not_ready();
    assert!(matches!(collector.fetch(&[pmid(0)]), Err(Error::NotReady)));
    assert!(!collector.end_client().unwrap());
    assert!(!collector.wait_ready(SHORT).unwrap());
    collector.send_raw(|out, from| Profile::default().encode(out, from, 0)).unwrap();
    drop(collector);
    thread.join().unwrap();
}

#[test]
fn unsolicited_output_drops_the_agent() {
    for ready in [false, true] {
        let (mut collector, thread) = agent(move |fake| {
            fake.error(if ready { pmapi::Error::NOTCONN } else { pmapi::Error::PMDAREADY });
            fake.expect_end();
        });
        if ready {
            collector.set_not_ready();
        }
        // The collector closes only after it has read the PDU, so that the end of the agent proves it.
        while collector.settle().is_ok() {
            std::thread::yield_now();
        }
        assert!(matches!(collector.desc(pmid(0)), Err(Error::Dropped)));
        thread.join().unwrap();
    }
}

#[test]
fn wrong_answers() {
    let drops = |answer: fn(&mut Fake)| {
        let (mut collector, thread) = agent(move |fake| {
            fake.expect(PduType::DESC_REQ);
            answer(fake);
        });
        let error = collector.desc(pmid(0)).unwrap_err();
        thread.join().unwrap();
        assert_eq!(collector.state(), AgentState::Dropped);
        error
    };
    assert!(matches!(drops(|fake| fake.error(pmapi::Error::PMDAREADY)), Error::Unexpected { .. }));
    let other = drops(|fake| fake.send(|out, from| encode_ids(out, from, 0, &[])));
    assert_eq!(other.to_string(), "the answer to DESC_REQ is a PMNS_IDS PDU");
    assert_eq!(other.code(), pmapi::Error::IPC);
    assert!(matches!(drops(|fake| fake.send_bytes(&[0; 16])), Error::Frame(FrameError::TooShort(0))));
    assert!(matches!(drops(|fake| fake.send_bytes(&[0, 0, 0, 32, 0])), Error::CutShort(5)));
    assert!(matches!(drops(|_| {}), Error::Closed));
}

#[test]
fn damaged_answers() {
    let (mut collector, thread) = agent(|fake| {
        fake.expect(PduType::DESC_REQ);
        fake.send_bytes(&[0, 0, 0, 16, 0, 0, 0x70, 5, 0, 0, 0, 0, 0, 0, 0, 1]);
        fake.expect(PduType::TEXT_REQ);
        fake.send_bytes(&[0, 0, 0, 16, 0, 0, 0x70, 9, 0, 0, 0, 0, 0, 0, 0, 1]);
        fake.expect_end();
    });
    assert!(matches!(collector.desc(pmid(0)), Err(Error::Decode(DecodeError::Short { .. }))));
    assert_eq!(collector.state(), AgentState::Ready);
    let text = collector.text(Subject::Metric(pmid(0)), TextKind::OneLine);
    assert!(matches!(text, Err(Error::Decode(DecodeError::Short { .. }))));
    assert_eq!(collector.state(), AgentState::Dropped);
    thread.join().unwrap();
}

#[test]
fn errors_that_look_like_those_of_the_connection() {
    let (mut collector, thread) = agent(|fake| {
        fake.expect(PduType::DESC_REQ);
        fake.error(pmapi::Error::IPC);
        fake.expect(PduType::TEXT_REQ);
        fake.error(pmapi::Error::TIMEOUT);
        fake.expect_end();
    });
    assert!(matches!(collector.desc(pmid(0)), Err(Error::Agent(pmapi::Error::IPC))));
    assert_eq!(collector.state(), AgentState::Ready);
    let text = collector.text(Subject::InDom(indom()), TextKind::Help);
    assert!(matches!(text, Err(Error::Agent(pmapi::Error::TIMEOUT))));
    assert_eq!(collector.state(), AgentState::Dropped);
    thread.join().unwrap();
}

#[test]
fn a_hung_agent() {
    let (mut collector, thread) = agent(|fake| {
        fake.expect(PduType::DESC_REQ);
        fake.expect_end();
    });
    collector.set_timeout(SHORT);
    let error = collector.desc(pmid(0)).unwrap_err();
    assert_eq!(error.to_string(), "no answer within 20ms");
    assert_eq!(error.code(), pmapi::Error::TIMEOUT);
    assert_eq!(collector.state(), AgentState::Dropped);
    thread.join().unwrap();
}

#[test]
fn an_agent_that_does_not_read() {
    let (done, wait) = std::sync::mpsc::channel::<()>();
    let (mut collector, thread) = agent(move |_| wait.recv().unwrap());
    collector.set_timeout(SHORT);
    let error = collector.send_bytes(&vec![0; 16 << 20]).unwrap_err();
    assert!(matches!(error, Error::TimedOut(_)), "{error}");
    done.send(()).unwrap();
    thread.join().unwrap();
}
