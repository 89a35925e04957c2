//! Answers to `LABEL_REQ`.

use std::borrow::Cow;

use pcp_pdu::FROM_AGENT;
use pcp_pdu::label::{LabelReq, LabelSetRef, encode_label};
use pcp_pdu::profile::{Profile, Selection};
use pmapi::{Config, Error, InDom, Inst, LabelFlags, LabelLevel, LabelSet, PmId, RawLabel, Result};

use crate::agent::Agent;
use crate::catalog::LabelSubject;

use super::catalogs::Catalogs;

/// Returns the level of a request.
///
/// # Errors
/// `PM_ERR_TYPE` for none or several levels.
pub(super) fn level(req: LabelReq) -> Result<LabelLevel> {
    let flags = i32::from(LabelFlags::COMPOUND.bits() | LabelFlags::OPTIONAL.bits());
    u32::try_from(req.bits & !flags).ok().and_then(LabelLevel::from_code).ok_or(Error::TYPE)
}

/// Appends the answer of at most about `max_reply` bytes (pmdaLabel(3)). Levels other than instances have one set, or none when it would be empty.
/// Instances have a set each, also without labels.
pub(super) fn answer<A: Agent>(
    catalogs: &Catalogs<'_, A>,
    profile: &Profile,
    config: &Config,
    req: LabelReq,
    max_reply: usize,
    out: &mut Vec<u8>,
) -> Result {
    let level = level(req)?;
    if level == LabelLevel::Instances {
        return of_instances(catalogs, profile, req, max_reply, out);
    }
    let domain = catalogs.schema.domain();
    let indom = InDom::from_word(req.ident).filter(|indom| indom.domain() == domain);
    let item = PmId::from_word(req.ident).filter(|pmid| pmid.domain() == domain).map(PmId::item);
    let of = match level {
        LabelLevel::Context => Some(LabelSubject::Context),
        LabelLevel::Domain => Some(LabelSubject::Agent),
        LabelLevel::InDom => indom.map(|indom| LabelSubject::InDom(indom.serial())),
        LabelLevel::Cluster => item.map(|item| LabelSubject::Cluster(item.cluster())),
        LabelLevel::Item => item.map(LabelSubject::Item),
        LabelLevel::Instances => None,
    };
    let set = of.map_or(Ok(None), |of| catalogs.labels(of))?;
    let context = || (of == Some(LabelSubject::Context)).then(|| Cow::Owned(LabelSet::context(config)));
    let set = set.or_else(context);
    let set = set.as_deref().filter(|set| !set.is_empty());
    let index = set.map_or_else(Vec::new, |set| marked(set, level));
    let set = set.map(|set| LabelSetRef { inst: None, labels: Ok(&index), json: set.json().as_bytes() });
    encode_label(out, FROM_AGENT, req, set.as_slice())
}

fn of_instances<A: Agent>(
    catalogs: &Catalogs<'_, A>,
    profile: &Profile,
    req: LabelReq,
    max_reply: usize,
    out: &mut Vec<u8>,
) -> Result {
    let indom = InDom::from_word(req.ident);
    let mut list = Vec::new();
    match indom {
        // A singular metric has one set, without an instance.
        None => list.push((None, Ok(LabelSet::new()))),
        Some(indom) if indom.domain() != catalogs.schema.domain() => return encode_label(out, FROM_AGENT, req, &[]),
        Some(indom) => {
            let selection: Selection<'_> = profile.selection(indom);
            let Some(instances) = catalogs.instances(indom.serial()) else {
                return encode_label(out, FROM_AGENT, req, &[]);
            };
            let mut wanted: Vec<Inst> = Vec::new();
            instances.each(&mut |inst, _| wanted.extend(Some(inst).filter(|inst| selection.includes(*inst))));
            let mut bytes = 0;
            for inst in wanted {
                let set = catalogs.agent.instance_labels(indom.serial(), inst);
                bytes += set.as_ref().map_or(0, |set| set.json().len());
                // Each of very many instances may have 64 KiB of labels.
                if bytes > max_reply {
                    return Err(Error::TOOBIG);
                }
                list.push((Some(inst), set));
            }
        }
    }
    let indexes: Vec<Result<Vec<RawLabel>>> = list
        .iter()
        .map(|(_, set)| set.as_ref().map(|set| marked(set, LabelLevel::Instances)).map_err(|e| *e))
        .collect();
    let sets: Vec<LabelSetRef<'_>> = list
        .iter()
        .zip(&indexes)
        .map(|((inst, set), index)| LabelSetRef {
            inst: *inst,
            labels: index.as_ref().map(Vec::as_slice).map_err(|e| *e),
            json: set.as_ref().map_or(&[][..], |set| set.json().as_bytes()),
        })
        .collect();
    encode_label(out, FROM_AGENT, req, &sets)
}

/// Returns the labels of a set with their level.
fn marked(set: &LabelSet, level: LabelLevel) -> Vec<RawLabel> {
    set.index()
        .map(|mut label| {
            label.flags = LabelFlags::from_bits_retain(label.flags.bits() | level.code() as u8);
            label
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use pcp_pdu::metadata::encode_fetch;
    use pcp_pdu::{Header, Pdu};
    use serde_json::json;

    use super::super::{Engine, Reply};
    use super::*;
    use crate::fixed_limit::FixedLimit;
    use crate::prelude::*;

    const THINGS: Serial = Serial::new(0);

    /// Agent with a metric whose instances have long labels. Counts how many labels it has made, and how many fetches.
    struct Talkative {
        labels: Cell<usize>,
        fetches: usize,
    }

    impl Agent for Talkative {
        const NAME: &'static str = "talkative";
        const DOMAIN: u16 = 400;

        fn new(setup: &mut Setup) -> Start<Self> {
            setup.indom(THINGS).instances((0..200).map(|inst| (inst, format!("thing{inst}"))));
            setup.metric("talkative.things", Item::new(0, 0), Type::U32).indom(THINGS);
            Ok(Talkative { labels: Cell::new(0), fetches: 0 })
        }

        fn fetch(&mut self, _: Item, out: &mut Values<'_>) -> Result {
            self.fetches += 1;
            (0..200).try_for_each(|inst| out.put_inst(Inst::new(inst), inst))
        }

        fn instance_labels(&self, _: Serial, _: Inst) -> Result<LabelSet> {
            self.labels.set(self.labels.get() + 1);
            LabelSet::of(json!({"text": "x".repeat(1_000)})).map_err(|_| Error::GENERIC)
        }
    }

    /// Returns the error with which an agent answers a request if answers may have 100 kB, and the agent.
    fn answer(request: impl FnOnce(&mut Vec<u8>)) -> (Result, Engine<Talkative>) {
        let config = Config::new(b"", []);
        let mut engine = Engine::<Talkative>::builder().domain(domain()).config(config).build().unwrap();
        engine.max_reply = 100_000;
        let mut bytes = Vec::new();
        request(&mut bytes);
        let reply = engine.handle(Header::parse(&bytes).unwrap().unwrap(), &bytes, |reply| match reply {
            Reply::Pdu(head, rest) => [head, rest].concat(),
            reply => panic!("{reply:?}"),
        });
        let Ok(Pdu::Error(e)) = Pdu::decode(Header::parse(&reply).unwrap().unwrap(), &reply) else { panic!() };
        (e.status(), engine)
    }

    fn domain() -> pmapi::Domain {
        pmapi::Domain::new(Talkative::DOMAIN).unwrap()
    }

    #[test]
    fn labels_beyond_the_largest_reply_are_not_made() {
        let bits = LabelLevel::Instances.code() as i32;
        let req = LabelReq { ident: InDom::new(domain(), THINGS).word(), bits };
        let (outcome, engine) = answer(|bytes| req.encode(bytes, 1).unwrap());
        assert_eq!(outcome, Err(Error::TOOBIG));
        assert!((90..110).contains(&engine.agent().labels.get()), "{}", engine.agent().labels.get());
    }

    /// A client that names a metric with many instances again and again gets no values after the largest reply.
    #[test]
    fn values_beyond_the_largest_reply_are_not_computed() {
        let before = FixedLimit::Pdus.exceeded();
        let names = std::iter::repeat_n(Some(PmId::new(domain(), Item::new(0, 0))), 5000);
        let (outcome, engine) = answer(|bytes| encode_fetch(bytes, 1, 0, names).unwrap());
        assert_eq!(outcome, Err(Error::TOOBIG));
        assert!((10..100).contains(&engine.agent().fetches), "{}", engine.agent().fetches);
        assert!(FixedLimit::Pdus.exceeded() > before);
    }
}
