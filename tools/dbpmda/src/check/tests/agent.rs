//! Agent in memory with a flaw.

use std::collections::VecDeque;
use std::time::Duration;

use pcp_collector::Channel;
use pcp_pdu::event::{EventArray, EventFlags, Layout, Stamp};
use pcp_pdu::handshake::encode_error;
use pcp_pdu::instance::{InstanceReq, InstanceWriter};
use pcp_pdu::label::{LabelReq, LabelSetRef, encode_label};
use pcp_pdu::metadata::{DescPdu, Subject, Text, TextReq};
use pcp_pdu::names::{Node, Statuses, encode_ids, encode_names};
use pcp_pdu::profile::Profile;
use pcp_pdu::result::{Changes, ResultPdu};
use pcp_pdu::result_writer::ResultWriter;
use pcp_pdu::{Header, Pdu};
use pmapi::{Atom, Desc, Error, InDom, Inst, LabelLevel, LabelSet, PmId, Semantics, Type, Units};

use crate::check::Rule;

macro_rules! flaws {
    ($($flaw:ident => $rule:ident,)*) => {
        /// Flaw of an agent.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(super) enum Flaw {
            None,
            /// No flaw, but the agent is not ready at first.
            Busy,
            $($flaw,)*
        }

        impl Flaw {
            /// All flaws, with the rule that each breaks.
            pub(super) const ALL: &[(Flaw, Rule)] = &[$((Flaw::$flaw, Rule::$rule)),*];
        }
    };
}

flaws! {
    ShortDescriptor => Malformed,
    OtherDescriptor => WrongAnswer,
    WrongType => WrongAnswer,
    TwoSets => WrongAnswer,
    Ends => Ended,
    Silent => Slow,
    Hesitates => Slow,
    NeverReady => Slow,
    NeverLists => Slow,
    NoDescriptor => NoDescriptor,
    Unnamed => NoName,
    NoDynamicMetric => DynamicName,
    OtherDynamicName => DynamicName,
    ForeignInDom => ForeignInDom,
    NoInDom => NoInDom,
    NoMetricHelp => NoHelp,
    NoInDomHelp => NoHelp,
    EmptyHelp => NoHelp,
    SameNumber => DuplicateInstance,
    SameName => DuplicateInstance,
    NegativeInstance => NegativeInstance,
    SameWord => AmbiguousName,
    NumberLookup => Lookup,
    NameLookup => Lookup,
    NulInValue => Nul,
    NulInName => Nul,
    NulInHelp => Nul,
    NulInParameter => Events,
    OtherType => ValueType,
    OtherSize => ValueType,
    UnknownInstance => ValueInstance,
    TwoValues => ValueInstance,
    InstanceOfSingular => ValueInstance,
    NoInstance => ValueInstance,
    Unfetchable => NoValue,
    Mistyped => FailedValue,
    TooWide => FailedValue,
    Negative => FailedValue,
    Panics => FailedValue,
    WithoutInstance => FailedValue,
    TextCounter => CounterType,
    Falls => CounterFalls,
    HalfAnEvent => Events,
    UnknownParameter => Events,
    ParameterType => Events,
    LabelText => Labels,
    LabelIndex => Labels,
    LabelOfOther => Labels,
    LabelsTwice => Labels,
    OtherLabels => WrongAnswer,
    TakesText => Store,
    TakesUnknown => Store,
    TakesOtherInstance => Store,
    StoreAnswer => WrongAnswer,
    NoProfile => Profile,
    InvertedProfile => Profile,
    NothingByProfile => Profile,
}

pub(super) struct Fake {
    flaw: Flaw,
    replies: VecDeque<Vec<u8>>,
    profile: Profile,
    fetches: u64,
    ended: bool,
    was_busy: bool,
    was_asked: bool,
    said_ready: bool,
}

const DYNAMIC: &str = "a.dynamic";
const NEW: &str = "a.dynamic.new";

fn pmid(text: &str) -> PmId {
    text.parse().unwrap()
}

fn indom(text: &str) -> InDom {
    text.parse().unwrap()
}

/// Returns the name space of the agent.
pub(super) fn names() -> Vec<(String, PmId)> {
    [
        ("a.count", "400.0.0"),
        ("a.level", "400.0.1"),
        ("a.name", "400.0.2"),
        ("a.events", "400.0.3"),
        (DYNAMIC, "511.400.0"),
    ]
    .map(|(name, id)| (name.to_owned(), pmid(id)))
    .to_vec()
}

/// Replaces a text by one of the same length, if it is there.
fn replace(bytes: &mut [u8], text: &[u8], by: &[u8]) {
    if let Some(at) = bytes.windows(text.len()).position(|window| window == text) {
        bytes[at..at + by.len()].copy_from_slice(by);
    }
}

impl Fake {
    pub(super) fn new(flaw: Flaw) -> Fake {
        Fake {
            flaw,
            replies: VecDeque::new(),
            profile: Profile::default(),
            fetches: 0,
            ended: false,
            was_busy: false,
            was_asked: false,
            said_ready: false,
        }
    }

    fn desc(&self, id: PmId) -> Option<Desc> {
        let (ty, domain, semantics) = match &*id.to_string() {
            "400.0.0" => (Type::U64, None, Semantics::Counter),
            "400.0.1" if self.flaw == Flaw::ForeignInDom => (Type::U32, Some("401.1"), Semantics::Instant),
            "400.0.1" => (Type::U32, Some("400.1"), Semantics::Instant),
            "400.0.2" if self.flaw == Flaw::TextCounter => (Type::String, None, Semantics::Counter),
            "400.0.2" if self.flaw != Flaw::NoDescriptor => (Type::String, None, Semantics::Discrete),
            "400.0.3" => (Type::Event, None, Semantics::Instant),
            "400.0.5" if self.flaw == Flaw::Unnamed => (Type::U32, None, Semantics::Instant),
            "400.1.0" => (Type::Double, None, Semantics::Instant),
            _ => return None,
        };
        Some(Desc { pmid: id, ty, indom: domain.map(indom), semantics, units: Units::default() })
    }

    fn instances(&self) -> Vec<(i32, &'static str)> {
        let mut list = vec![(0, "one small"), (1, "two"), (5, "five")];
        match self.flaw {
            Flaw::SameNumber => list.push((1, "three")),
            Flaw::SameName => list.push((6, "two")),
            Flaw::NegativeInstance => list.push((-7, "seven")),
            Flaw::SameWord => list.push((6, "one large")),
            Flaw::NulInName => list.push((6, "six\0ty")),
            _ => {}
        }
        list
    }

    fn instance(&self, out: &mut Vec<u8>, request: &InstanceReq<'_>) -> pmapi::Result {
        let (Some(of), false) = (request.indom, self.flaw == Flaw::NoInDom) else { return Err(Error::INDOM) };
        let mut writer = InstanceWriter::new(out, 0, of);
        for (inst, name) in self.instances() {
            let number = Inst::from_word(inst as u32);
            match (request.inst, request.name) {
                (None, None) => writer.push(number, name.as_bytes()),
                (Some(wanted), _) if Some(wanted) == number => {
                    writer.push(None, if self.flaw == Flaw::NumberLookup { b"x" } else { name.as_bytes() });
                }
                (None, Some(wanted)) if wanted == name.as_bytes() => match self.flaw {
                    Flaw::NameLookup => writer.push(Inst::from_word(77), b""),
                    _ => writer.push(number, b""),
                },
                _ => {}
            }
        }
        writer.finish()
    }

    fn fetch(&mut self, out: &mut Vec<u8>, id: PmId) -> pmapi::Result {
        self.fetches += 1;
        let mut writer = ResultWriter::new();
        writer.begin();
        writer.begin_set(Some(id));
        let status = self.values(&mut writer, &id.to_string());
        writer.end_set(status);
        if self.flaw == Flaw::TwoSets {
            writer.begin_set(Some(id));
            writer.end_set(Ok(()));
        }
        let (lists, blocks) = writer.seal(0, Changes::default())?;
        out.extend([lists, blocks].concat());
        // The writer takes no NUL byte. Those behind a text are usual in C.
        match self.flaw {
            Flaw::NulInValue => replace(out, b"a name", b"a\0name"),
            Flaw::None => replace(out, b"a name", b"a na\0\0"),
            Flaw::NulInParameter => replace(out, b"a text", b"a\0text"),
            _ => {}
        }
        Ok(())
    }

    fn values(&self, writer: &mut ResultWriter, id: &str) -> pmapi::Result {
        let mut push = |inst: Option<u32>, atom: Atom<'_>| writer.push(inst.map(Inst::new), atom.ty(), atom);
        match (id, self.flaw) {
            ("400.0.0", Flaw::Unfetchable) => Err(Error::PMID),
            ("400.0.0", Flaw::Mistyped) => Err(Error::TYPE),
            ("400.0.0", Flaw::TooWide) => Err(Error::TRUNC),
            ("400.0.0", Flaw::Negative) => Err(Error::SIGN),
            ("400.0.0", Flaw::Panics) => Err(Error::GENERIC),
            ("400.0.0", Flaw::WithoutInstance) => Err(Error::INST),
            // Each fetch has one of five metrics, so the same metric comes again after five fetches.
            ("400.0.0", Flaw::Falls) => push(None, Atom::U64(1000 - self.fetches / 5)),
            ("400.0.0", Flaw::OtherType) => push(None, Atom::Double(1.0)),
            ("400.0.0", Flaw::InstanceOfSingular) => push(Some(1), Atom::U64(1)),
            ("400.0.0", _) => push(None, Atom::U64(self.fetches)),
            ("400.0.2", _) => push(None, Atom::String(b"a name")),
            ("400.0.3", flaw) => {
                let mut events = EventArray::new(Layout::Micro);
                events.record(Stamp::now(), EventFlags::default())?;
                match flaw {
                    Flaw::UnknownParameter => events.param(pmid("400.0.77"), Atom::U32(1))?,
                    Flaw::NulInParameter => events.param(pmid("400.0.2"), Atom::String(b"a text"))?,
                    Flaw::ParameterType => events.param(pmid("400.0.0"), Atom::U32(1))?,
                    _ => events.param(pmid("400.0.0"), Atom::U64(1))?,
                }
                match events.atom() {
                    Atom::Event(bytes) if flaw == Flaw::HalfAnEvent => push(None, Atom::Event(&bytes[..12])),
                    whole => push(None, whole),
                }
            }
            ("400.1.0", _) => push(None, Atom::Double(0.5)),
            ("400.0.1", flaw) => {
                let domain = if flaw == Flaw::ForeignInDom { "401.1" } else { "400.1" };
                for (inst, _) in self.instances() {
                    let Some(number) = Inst::from_word(inst as u32) else { continue };
                    let selection = self.profile.selection(indom(domain));
                    let wanted = match flaw {
                        Flaw::NoProfile => true,
                        Flaw::InvertedProfile => selection.is_all() || !selection.includes(number),
                        Flaw::NothingByProfile => selection.is_all(),
                        _ => selection.includes(number),
                    };
                    if wanted && (flaw != Flaw::SameNumber || inst != 1) {
                        let value = if flaw == Flaw::OtherSize { Atom::U64(7) } else { Atom::U32(7) };
                        push(Some(number.word()), value)?;
                    }
                }
                let selection = self.profile.selection(indom(domain));
                match flaw {
                    Flaw::UnknownInstance if selection.includes(Inst::new(99)) => push(Some(99), Atom::U32(7)),
                    _ if !selection.is_all() => Ok(()),
                    Flaw::TwoValues => push(Some(5), Atom::U32(7)),
                    Flaw::NoInstance => push(None, Atom::U32(7)),
                    _ => Ok(()),
                }
            }
            _ => Err(Error::PMID),
        }
    }

    fn label(&self, out: &mut Vec<u8>, mut request: LabelReq) -> pmapi::Result {
        let set = LabelSet::parse(r#"{"color":"red","size":7}"#).unwrap();
        let mut index: Vec<_> = set.index().collect();
        let mut json = set.json().as_bytes();
        let mut insts = match LabelLevel::from_code(request.bits as u32) {
            Some(LabelLevel::Instances) => {
                self.instances().iter().map(|(inst, _)| Inst::from_word(*inst as u32)).collect()
            }
            // An agent need not have labels.
            Some(LabelLevel::Domain) => return Err(Error::NYI),
            _ => vec![None],
        };
        match self.flaw {
            Flaw::OtherLabels if insts == [None] => request.bits = LabelLevel::Context.code() as i32,
            Flaw::LabelIndex => (index[0].value, index[0].value_len) = (index[1].value, index[1].value_len),
            Flaw::LabelText => json = br#"{"color":"red","size":7,"#,
            Flaw::LabelOfOther if insts.len() > 1 => insts.push(Inst::from_word(99)),
            Flaw::LabelsTwice if insts.len() > 1 => insts.push(insts[0]),
            _ => {}
        }
        let sets: Vec<_> = insts.into_iter().map(|inst| LabelSetRef { inst, labels: Ok(&index), json }).collect();
        encode_label(out, 0, request, &sets)
    }

    fn text(&self, request: TextReq) -> pmapi::Result<&'static [u8]> {
        match (request.parse()?.0, self.flaw) {
            (Subject::Metric(_), Flaw::NoMetricHelp) | (Subject::InDom(_), Flaw::NoInDomHelp) => Err(Error::TEXT),
            (_, Flaw::EmptyHelp) => Ok(b""),
            (_, Flaw::NulInHelp) => Ok(b"He\0lp"),
            _ => Ok(b"Help"),
        }
    }

    /// Stores a value; only one metric accepts values.
    fn store(&self, out: &mut Vec<u8>, request: &ResultPdu<'_>) -> pmapi::Result {
        let set = request.sets().next().unwrap();
        let (inst, value) = set.values().next().unwrap();
        match (&*set.pmid.unwrap().to_string(), self.flaw) {
            ("400.0.0", Flaw::StoreAnswer) => return Text { ident: 0, text: b"x" }.encode(out, 0),
            ("400.0.0", Flaw::TakesText) if inst.is_none() => {}
            ("400.0.0", _) if inst.is_some() => return Err(Error::INST),
            ("400.0.0", _) => _ = value.atom(Type::U64)?,
            ("400.0.1", Flaw::TakesOtherInstance) => _ = value.atom(Type::U32)?,
            ("400.4095.1023", Flaw::TakesUnknown) => {}
            _ => return Err(Error::PERMISSION),
        }
        encode_error(out, 0, Ok(()))
    }

    fn answer(&mut self, out: &mut Vec<u8>, pdu: Pdu<'_>) -> pmapi::Result {
        match pdu {
            Pdu::DescReq(_) if [Flaw::NeverReady, Flaw::Busy].contains(&self.flaw) && !self.was_busy => {
                self.was_busy = true;
                Err(Error::PMDANOTREADY)
            }
            Pdu::DescReq(request) => {
                let mut desc = request.pmid.and_then(|id| self.desc(id)).ok_or(Error::PMID)?;
                match (self.flaw, &*desc.pmid.to_string()) {
                    (Flaw::OtherDescriptor, "400.0.2") => desc.pmid = pmid("400.0.3"),
                    (Flaw::WrongType, "400.0.2") => return Text { ident: 0, text: b"x" }.encode(out, 0),
                    (Flaw::ShortDescriptor, "400.0.1") => {
                        DescPdu { desc }.encode(out, 0)?;
                        out.truncate(20);
                        out[3] = 20;
                        return Ok(());
                    }
                    _ => {}
                }
                DescPdu { desc }.encode(out, 0)
            }
            Pdu::InstanceReq(request) => self.instance(out, &request),
            Pdu::TextReq(request) => Text { ident: 0, text: self.text(request)? }.encode(out, 0),
            Pdu::Result(request) => self.store(out, &request),
            Pdu::LabelReq(request) => self.label(out, request),
            Pdu::Fetch(fetch) => match fetch.pmids().next().flatten() {
                Some(id) => self.fetch(out, id),
                None => Err(Error::PMID),
            },
            Pdu::Traverse(_) if self.flaw == Flaw::NeverLists => Err(Error::AGAIN),
            Pdu::Traverse(_) if self.flaw == Flaw::Busy && !self.was_asked => {
                self.was_asked = true;
                Err(Error::AGAIN)
            }
            Pdu::Traverse(_) => encode_names(out, 0, Statuses::Omitted, [(Node::Leaf, NEW.as_bytes())]),
            Pdu::Ids(_) => {
                let name = if self.flaw == Flaw::OtherDynamicName { "a.b" } else { NEW };
                encode_names(out, 0, Statuses::Omitted, [(Node::Leaf, name.as_bytes())])
            }
            Pdu::Names(_) if self.flaw == Flaw::NoDynamicMetric => Err(Error::NAME),
            Pdu::Names(_) => encode_ids(out, 0, 0, &[Some(pmid("400.1.0"))]),
            _ => Err(Error::IPC),
        }
    }
}

impl Channel for Fake {
    fn send(&mut self, bytes: &[u8], _: Option<Duration>) -> pcp_collector::Result {
        let header = Header::parse(bytes)?.unwrap();
        let pdu = Pdu::decode(header, bytes)?;
        if let Pdu::Profile(profile) = &pdu {
            self.profile.assign(profile);
            return Ok(());
        }
        self.ended = self.flaw == Flaw::Ends && matches!(pdu, Pdu::Fetch(_)) && self.fetches > 0;
        if self.flaw == Flaw::Silent && matches!(pdu, Pdu::InstanceReq(_)) {
            return Ok(());
        }
        let mut out = Vec::new();
        if let Err(code) = self.answer(&mut out, pdu) {
            out.clear();
            encode_error(&mut out, 0, Err(code)).unwrap();
        }
        self.replies.push_back(out);
        if self.was_busy && self.flaw == Flaw::Busy && !self.said_ready {
            self.said_ready = true;
            let mut ready = Vec::new();
            encode_error(&mut ready, 0, Err(Error::PMDAREADY)).unwrap();
            self.replies.push_back(ready);
        }
        Ok(())
    }

    fn receive(&mut self, pdu: &mut Vec<u8>, timeout: Option<Duration>) -> pcp_collector::Result<Header> {
        if self.ended {
            return Err(pcp_collector::Error::Closed);
        }
        let reply = self.replies.pop_front();
        *pdu = reply.ok_or(pcp_collector::Error::TimedOut(timeout.unwrap_or_default()))?;
        Ok(Header::parse(pdu)?.unwrap())
    }

    fn close(&mut self) {}
}
