//! Answers to `LABEL_REQ`.

use pcp_pdu::FROM_AGENT;
use pcp_pdu::label::{LabelReq, LabelSetRef, encode_label};
use pcp_pdu::profile::{Profile, Selection};
use pmapi::config::Config;
use pmapi::label::{LabelFlags, LabelLevel, LabelSet, RawLabel};
use pmapi::{Error, InDom, Inst, PmId, Result};

use crate::agent::{Agent, Labelled};
use crate::dynamic::Dynamic;
use crate::schema::{Labels, Schema};

use super::instances;

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
    agent: &A,
    schema: &Schema,
    profile: &Profile,
    config: &Config,
    req: LabelReq,
    out: &mut Vec<u8>,
) -> Result {
    let level = level(req)?;
    if level == LabelLevel::Instances {
        return of_instances(agent, schema, profile, req, out);
    }
    let domain = schema.domain();
    let indom = InDom::from_word(req.ident).filter(|indom| indom.domain() == domain);
    let item = PmId::from_word(req.ident).filter(|pmid| pmid.domain() == domain).map(PmId::item);
    let of = match level {
        LabelLevel::Context => Some(Labelled::Context),
        LabelLevel::Domain => Some(Labelled::Agent),
        LabelLevel::InDom => indom.map(|indom| Labelled::InDom(indom.serial())),
        LabelLevel::Cluster => item.map(|item| Labelled::Cluster(item.cluster())),
        LabelLevel::Item => item.map(Labelled::Item),
        LabelLevel::Instances => None,
    };
    let given = of.map_or(Ok(None), |of| agent.labels(of))?;
    let given = given.or_else(|| (of == Some(Labelled::Context)).then(|| LabelSet::context(config)));
    let set = given.as_ref().or_else(|| declared(agent.dynamic(), &schema.labels, of?));
    let set = set.filter(|set| !set.is_empty());
    let index = set.map_or_else(Vec::new, |set| marked(set, level));
    let set = set.map(|set| LabelSetRef { inst: None, labels: Ok(&index), json: set.json().as_bytes() });
    encode_label(out, FROM_AGENT, req, set.as_slice())
}

fn declared<'a>(dynamic: Option<&'a Dynamic>, labels: &'a Labels, of: Labelled) -> Option<&'a LabelSet> {
    match of {
        Labelled::Context => None,
        Labelled::Agent => Some(&labels.domain),
        Labelled::InDom(indom) => labels.indoms.get(&indom).or_else(|| dynamic?.indom_labels(indom)),
        Labelled::Cluster(cluster) => labels.clusters.get(&cluster),
        Labelled::Item(item) => labels.items.get(&item).or_else(|| dynamic?.labels(item)),
    }
}

fn of_instances<A: Agent>(agent: &A, schema: &Schema, profile: &Profile, req: LabelReq, out: &mut Vec<u8>) -> Result {
    let indom = InDom::from_word(req.ident);
    let mut list = Vec::new();
    match indom {
        // A singular metric has one set, without an instance.
        None => list.push((None, Ok(LabelSet::new()))),
        Some(indom) if indom.domain() != schema.domain() => return encode_label(out, FROM_AGENT, req, &[]),
        Some(indom) => {
            let selection: Selection<'_> = profile.selection(indom);
            let Some(instances) = instances(agent, schema, indom.serial()) else {
                return encode_label(out, FROM_AGENT, req, &[]);
            };
            let mut wanted: Vec<Inst> = Vec::with_capacity(instances.len());
            instances.each(&mut |inst, _| wanted.extend(Some(inst).filter(|inst| selection.includes(*inst))));
            list.extend(wanted.into_iter().map(|inst| (Some(inst), agent.instance_labels(indom.serial(), inst))));
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
    let mark = |mut label: RawLabel| {
        label.flags = LabelFlags::from_bits(label.flags.bits() | level.code() as u8);
        label
    };
    set.index().map(mark).collect()
}
