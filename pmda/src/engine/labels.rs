//! Answers to `LABEL_REQ`.

use std::borrow::Cow;

use pcp_pdu::FROM_AGENT;
use pcp_pdu::label::{LabelReq, LabelSetRef, encode_label};
use pcp_pdu::profile::{Profile, Selection};
use pmapi::{Config, Error, InDom, Inst, LabelFlags, LabelLevel, LabelSet, PmId, RawLabel, Result};

use crate::agent::Agent;
use crate::catalog::LabelSubject;

use super::MAX_REPLY;
use super::catalogs::Catalogs;

/// Returns the level of a request.
///
/// # Errors
/// `PM_ERR_TYPE` for none or several levels.
pub(super) fn level(req: LabelReq) -> Result<LabelLevel> {
    let flags = i32::from(LabelFlags::COMPOUND.bits() | LabelFlags::OPTIONAL.bits());
    u32::try_from(req.bits & !flags).ok().and_then(LabelLevel::from_code).ok_or(Error::TYPE)
}

/// Appends the answer (pmdaLabel(3)). Levels other than instances have one set, or none when it would be empty.
/// Instances have a set each, also without labels.
pub(super) fn answer<A: Agent>(
    catalogs: &Catalogs<'_, A>,
    profile: &Profile,
    config: &Config,
    req: LabelReq,
    out: &mut Vec<u8>,
) -> Result {
    let level = level(req)?;
    if level == LabelLevel::Instances {
        return of_instances(catalogs, profile, req, out);
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

fn of_instances<A: Agent>(catalogs: &Catalogs<'_, A>, profile: &Profile, req: LabelReq, out: &mut Vec<u8>) -> Result {
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
                if bytes > MAX_REPLY {
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

    use pcp_pdu::{Header, Pdu};
    use serde_json::json;

    use super::super::{Engine, Reply};
    use super::*;
    use crate::prelude::*;

    const THINGS: Serial = Serial::new(0);

    /// Agent whose instances have very long labels. Counts how many it has made.
    struct Talkative(Cell<usize>);

    impl Agent for Talkative {
        const NAME: &'static str = "talkative";
        const DOMAIN: u16 = 400;

        fn new(setup: &mut Setup) -> Start<Self> {
            setup.indom(THINGS).instances((0..2_000).map(|inst| (inst, format!("thing{inst}"))));
            Ok(Talkative(Cell::new(0)))
        }

        fn fetch(&mut self, _: Item, _: &mut Values<'_>) -> Result {
            Ok(())
        }

        fn instance_labels(&self, _: Serial, _: Inst) -> Result<LabelSet> {
            self.0.set(self.0.get() + 1);
            LabelSet::of(json!({"text": "x".repeat(60_000)})).map_err(|_| Error::GENERIC)
        }
    }

    #[test]
    fn labels_beyond_the_largest_reply_are_not_made() {
        let domain = pmapi::Domain::new(400).unwrap();
        let mut engine = Engine::<Talkative>::builder().domain(domain).config(Config::new(b"", [])).build().unwrap();
        let mut bytes = Vec::new();
        let req = LabelReq { ident: InDom::new(domain, THINGS).word(), bits: LabelLevel::Instances.code() as i32 };
        req.encode(&mut bytes, 1).unwrap();
        let reply = engine.handle(Header::parse(&bytes).unwrap().unwrap(), &bytes, |reply| match reply {
            Reply::Pdu(head, rest) => [head, rest].concat(),
            reply => panic!("{reply:?}"),
        });
        let Ok(Pdu::Error(e)) = Pdu::decode(Header::parse(&reply).unwrap().unwrap(), &reply) else { panic!() };
        assert_eq!(e.status(), Err(Error::TOOBIG));
        assert!((1_000..1_200).contains(&engine.agent().0.get()), "{}", engine.agent().0.get());
    }
}
