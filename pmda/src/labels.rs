//! Answers LABEL_REQ.

use pmapi::config::Config;
use pmapi::label::{LabelFlags, LabelLevel, LabelSet, RawLabel};
use pmapi::pdu::FROM_AGENT;
use pmapi::pdu::label::{LabelReq, LabelSetRef, encode_label};
use pmapi::pdu::profile::{Profile, Selection};
use pmapi::{Error, InDom, Inst, PmId, Result};

use crate::agent::{Agent, Client, Request};
use crate::engine::instances;
use crate::schema::Schema;

/// Appends the answer. Levels other than instances have one set, or none when it would be empty;
/// instances have a set each, those without labels too (pmdaLabel(3)).
pub(crate) fn answer<A: Agent>(
    agent: &mut A,
    schema: &Schema,
    profile: &Profile,
    config: &Config,
    client: Client,
    req: LabelReq,
    out: &mut Vec<u8>,
) -> Result {
    let flags = i32::from(LabelFlags::COMPOUND.bits() | LabelFlags::OPTIONAL.bits());
    let level = u32::try_from(req.bits & !flags).ok().and_then(LabelLevel::from_code).ok_or(Error::TYPE)?;
    if level == LabelLevel::Instances {
        return of_instances(agent, schema, profile, client, req, out);
    }
    agent.refresh(Request::Labels, client)?;
    let declared = &schema.labels;
    let context;
    let set = match level {
        LabelLevel::Context => {
            context = LabelSet::context(config);
            Some(&context)
        }
        LabelLevel::Domain => declared.domain.as_ref(),
        LabelLevel::InDom => InDom::from_word(req.ident).and_then(|i| declared.indoms.get(&i.serial())),
        LabelLevel::Cluster => PmId::from_word(req.ident).and_then(|p| declared.clusters.get(&p.item().cluster())),
        LabelLevel::Item => PmId::from_word(req.ident).and_then(|p| declared.items.get(&p.item())),
        LabelLevel::Instances => None,
    };
    let set = set.filter(|set| !set.is_empty());
    let index = set.map_or_else(Vec::new, |set| marked(set, level));
    let set = set.map(|set| LabelSetRef { inst: None, labels: Ok(&index), json: set.json().as_bytes() });
    encode_label(out, FROM_AGENT, req, set.as_slice())
}

fn of_instances<A: Agent>(
    agent: &mut A,
    schema: &Schema,
    profile: &Profile,
    client: Client,
    req: LabelReq,
    out: &mut Vec<u8>,
) -> Result {
    let indom = InDom::from_word(req.ident);
    let mut list = Vec::new();
    match indom {
        // Singular metrics have one set, of no instance.
        None => list.push((None, Ok(LabelSet::new()))),
        Some(indom) if indom.domain() != schema.domain() => return encode_label(out, FROM_AGENT, req, &[]),
        Some(indom) => {
            agent.refresh(Request::InstanceLabels(indom.serial()), client)?;
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

/// The labels of a set with their level.
fn marked(set: &LabelSet, level: LabelLevel) -> Vec<RawLabel> {
    let mark = |mut label: RawLabel| {
        label.flags = LabelFlags::from_bits(label.flags.bits() | level.code() as u8);
        label
    };
    set.index().map(mark).collect()
}
