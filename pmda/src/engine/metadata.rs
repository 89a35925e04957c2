//! The catalogs of an agent, and answers to requests for metadata.

use std::borrow::Cow;

use pcp_pdu::instance::{InstanceReq, InstanceWriter};
use pcp_pdu::label::{LabelReq, LabelSetRef, encode_label};
use pcp_pdu::metadata::{DescPdu, DescReq, Subject, Text, TextKind, TextReq};
use pcp_pdu::names::{NamesWriter, Node, Statuses, encode_ids};
use pcp_pdu::profile::Profile;
use pcp_pdu::{FROM_AGENT, Pdu};
use pmapi::{Config, Error, InDom, Inst, LabelFlags, LabelLevel, LabelSet, PmId, RawLabel, Result, Serial};
use tracing::error;

use crate::agent::Agent;
use crate::catalog::{Catalog, LabelSubject, MetricInfo, Version};
use crate::indom::Instances;
use crate::request::label_level;
use crate::schema::Schema;
use crate::unserved::Named;
use crate::values::Getters;

/// Sources of answers, in their order: the agent's own methods, its tables, its declarations, and [`Agent::catalogs`].
pub(super) struct Catalogs<'a, A> {
    pub(super) agent: &'a A,
    pub(super) schema: &'a Schema,
    pub(super) getters: &'a Getters<A>,
}

/// Look-ups.
impl<'a, A: Agent> Catalogs<'a, A> {
    fn iter(&self) -> impl Iterator<Item = &'a dyn Catalog> {
        std::iter::once(self.schema as &dyn Catalog).chain(self.agent.catalogs())
    }

    pub(super) fn metric(&self, pmid: PmId) -> Option<MetricInfo> {
        self.iter().find_map(|catalog| catalog.metric(pmid))
    }

    /// Returns a metric's PMID together with its name, if it has one.
    pub(super) fn named(&self, pmid: PmId) -> Named {
        let mut name = self.schema.name_of(pmid).map(str::to_owned);
        if name.is_none() {
            self.agent.catalogs().into_iter().find_map(|catalog| {
                catalog.names(pmid, &mut |first| {
                    name.get_or_insert_with(|| first.to_owned());
                })
            });
        }
        Named::new(pmid, name)
    }

    fn instances(&self, indom: Serial) -> Option<&'a dyn Instances> {
        let own = self.agent.instances(indom).or_else(|| self.getters.instances(self.agent, indom));
        own.or_else(|| self.iter().find_map(|catalog| catalog.instances(indom)))
    }

    fn help(&self, of: Subject, kind: TextKind) -> Result<Option<&'a [u8]>> {
        let own = self.agent.text(of, kind)?;
        Ok(own.or_else(|| self.iter().find_map(|catalog| catalog.text(of, kind))))
    }

    fn labels(&self, of: LabelSubject) -> Result<Option<Cow<'a, LabelSet>>> {
        let own = self.agent.labels(of)?.map(Cow::Owned);
        Ok(own.or_else(|| self.iter().find_map(|catalog| catalog.labels(of)).map(Cow::Borrowed)))
    }
}

/// Answers, appended to `out`.
impl<A: Agent> Catalogs<'_, A> {
    /// Answers `DESC_REQ`.
    pub(super) fn desc(&self, req: DescReq, out: &mut Vec<u8>) -> Result {
        let metric = req.pmid.and_then(|pmid| self.metric(pmid)).ok_or(Error::PMID)?;
        DescPdu { desc: metric.desc }.encode(out, FROM_AGENT)
    }

    /// Answers `INSTANCE_REQ`.
    pub(super) fn instance(&self, req: InstanceReq<'_>, out: &mut Vec<u8>) -> Result {
        let domain = self.schema.domain();
        let indom = req.indom.filter(|indom| InDom::new(domain, indom.serial()) == *indom).ok_or(Error::INDOM)?;
        let instances = self.instances(indom.serial()).ok_or(Error::INDOM)?;
        let mut out = InstanceWriter::new(out, FROM_AGENT, indom);
        match (req.inst, req.name) {
            (None, None) => instances.each(&mut |inst, name| {
                if is_whole(indom, inst, name) {
                    out.push(Some(inst), name.as_bytes());
                }
            }),
            (Some(inst), None) => {
                let name = instances.name(inst).filter(|name| is_whole(indom, inst, name)).ok_or(Error::INST)?;
                out.push(None, name.as_bytes());
            }
            (None, Some(name)) => {
                // Names of instances are UTF-8 in this framework, so other bytes match none.
                let inst = std::str::from_utf8(name).ok().and_then(|name| instances.lookup(name));
                out.push(Some(inst.ok_or(Error::INST)?), b"");
            }
            (Some(_), Some(_)) => return Err(Error::INST),
        }
        out.finish()
    }

    /// Answers `TEXT_REQ`.
    pub(super) fn text(&self, req: TextReq, out: &mut Vec<u8>) -> Result {
        let (subject, kind) = req.parse().map_err(|_| Error::TEXT)?;
        let text = self.help(subject, kind)?.ok_or(Error::TEXT)?;
        if text.contains(&0) {
            match subject {
                Subject::Metric(pmid) => error!(source = "help", "{}: the help has a NUL byte", self.named(pmid)),
                Subject::InDom(indom) => error!(source = "help", "instance domain {indom}: the help has a NUL byte"),
            }
            return Err(Error::TEXT);
        }
        Text { ident: req.ident, text }.encode(out, FROM_AGENT)
    }

    /// Answers `PMNS_NAMES`, `PMNS_IDS`, `PMNS_CHILD` and `PMNS_TRAVERSE` about dynamic names. pmcd knows the other names
    /// itself.
    pub(super) fn names(&self, request: Pdu<'_>, out: &mut Vec<u8>) -> Result {
        fn text(name: &[u8]) -> Result<&str> {
            std::str::from_utf8(name).map_err(|_| Error::NAME)
        }
        let mut catalogs = self.agent.catalogs().into_iter();
        match request {
            Pdu::Names(names) => {
                let name = text(names.iter().next().ok_or(Error::NAME)?.1)?;
                let pmid = catalogs.find_map(|catalog| catalog.lookup(name)).ok_or(Error::NAME)?;
                encode_ids(out, FROM_AGENT, 0, &[Some(pmid)])
            }
            Pdu::Ids(ids) => {
                if let Some(outcome) = Error::from_code(ids.status) {
                    // This is the outcome of a request, not a request.
                    return Err(outcome);
                }
                let pmid = ids.pmids().next().flatten().ok_or(Error::PMID)?;
                let mut names = NamesWriter::new(out, FROM_AGENT, Statuses::Omitted);
                catalogs
                    .find_map(|catalog| catalog.names(pmid, &mut |name| names.push(Node::Leaf, name.as_bytes())))
                    .ok_or(Error::PMID)?;
                names.finish()
            }
            Pdu::Child(child) => {
                let name = text(child.name)?;
                let mut names = NamesWriter::new(out, FROM_AGENT, child.statuses);
                let mut push = |name: &str, is_leaf| {
                    names.push(if is_leaf { Node::Leaf } else { Node::NonLeaf }, name.as_bytes());
                };
                catalogs.fold(None, |found, catalog| catalog.children(name, &mut push).or(found)).ok_or(Error::NAME)?;
                names.finish()
            }
            Pdu::Traverse(traverse) => {
                let name = text(traverse.name)?;
                let mut names = NamesWriter::new(out, FROM_AGENT, Statuses::Omitted);
                let mut push = |name: &str| names.push(Node::Leaf, name.as_bytes());
                catalogs.fold(None, |found, catalog| catalog.traverse(name, &mut push).or(found)).ok_or(Error::NAME)?;
                names.finish()
            }
            _ => Err(Error::NAME),
        }
    }

    /// Answers `LABEL_REQ`, with at most about `max_reply` bytes (pmdaLabel(3)). Levels other than instances have one
    /// set, or none when it would be empty. Instances have a set each, also without labels.
    pub(super) fn label(
        &self,
        req: LabelReq,
        profile: &Profile,
        config: &Config,
        max_reply: usize,
        out: &mut Vec<u8>,
    ) -> Result {
        let level = label_level(req)?;
        if level == LabelLevel::Instances {
            return self.label_instances(req, profile, max_reply, out);
        }
        let domain = self.schema.domain();
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
        let set = of.map_or(Ok(None), |of| self.labels(of))?;
        let context = || (of == Some(LabelSubject::Context)).then(|| Cow::Owned(LabelSet::context(config)));
        let set = set.or_else(context);
        let set = set.as_deref().filter(|set| !set.is_empty());
        let index = set.map_or_else(Vec::new, |set| marked(set, level));
        let set = set.map(|set| LabelSetRef { inst: None, labels: Ok(&index), json: set.json().as_bytes() });
        encode_label(out, FROM_AGENT, req, set.as_slice())
    }

    fn label_instances(&self, req: LabelReq, profile: &Profile, max_reply: usize, out: &mut Vec<u8>) -> Result {
        let mut list = Vec::new();
        match InDom::from_word(req.ident) {
            // A singular metric has one set, without an instance.
            None => list.push((None, Ok(LabelSet::new()))),
            Some(indom) if indom.domain() != self.schema.domain() => {}
            Some(indom) => {
                let selection = profile.selection(indom);
                let mut wanted: Vec<Inst> = Vec::new();
                if let Some(instances) = self.instances(indom.serial()) {
                    instances.each(&mut |inst, _| wanted.extend(Some(inst).filter(|inst| selection.includes(*inst))));
                }
                let mut bytes = 0;
                for inst in wanted {
                    let set = self.agent.instance_labels(indom.serial(), inst);
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
}

/// Returns the version of all catalogs.
pub(super) fn version(agent: &impl Agent) -> Version {
    // The counters only grow, so their sum changes whenever one of them does.
    agent.catalogs().into_iter().map(Catalog::version).fold(Version::default(), |sum, version| Version {
        names: sum.names.wrapping_add(version.names),
        labels: sum.labels.wrapping_add(version.labels),
    })
}

/// Returns whether clients see the whole name of an instance, which they end at a NUL byte. Otherwise logs an error, and
/// the instance has no name.
fn is_whole(indom: InDom, inst: Inst, name: &str) -> bool {
    let is_whole = !name.contains('\0');
    if !is_whole {
        error!(source = "names", "instance domain {indom}: the name {name:?} of instance {inst} has a NUL byte");
    }
    is_whole
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

        fn new(setup: &mut Setup) -> Result<Self, BoxError> {
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
            LabelSet::from_serialize(json!({"text": "x".repeat(1_000)})).map_err(|_| Error::GENERIC)
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
