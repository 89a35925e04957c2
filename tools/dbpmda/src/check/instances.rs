//! Check of instance domains.

use std::collections::BTreeSet;

use pcp_collector::Channel;
use pcp_pdu::Pdu;
use pcp_pdu::instance::InstanceReq;
use pmapi::{Error, InDom, Inst};

use super::asker::Answer;
use super::events::cut;
use super::{Check, Rule};

/// Approximate number of instances of a domain to look up one by one.
const SINGLE: usize = 3;

pub(super) type Instances = Vec<(Option<Inst>, Vec<u8>)>;

impl<C: Channel> Check<C> {
    /// Lists the instances of all domains, and looks some of them up one by one.
    pub(super) fn check_instances(&mut self) {
        let indoms: BTreeSet<_> = self.metrics.iter().filter_map(|metric| metric.desc.indom).collect();
        for indom in indoms {
            match self.instances(indom) {
                Some(Ok(list)) => {
                    self.check_list(indom, &list);
                    self.check_single(indom, &list);
                    self.indoms.insert(indom, list);
                }
                // An agent may refuse some clients, or all of them for a while.
                Some(Err(Error::PERMISSION | Error::AGAIN)) => {}
                Some(Err(code)) => self.asker.note(Rule::NoInDom, &indom.to_string(), code.to_string()),
                None => {}
            }
        }
    }

    /// Lists the instances of a domain.
    pub(super) fn instances(&mut self, indom: InDom) -> Answer<Instances> {
        self.instance(indom, None, None)
    }

    fn instance(&mut self, indom: InDom, inst: Option<Inst>, name: Option<&[u8]>) -> Answer<Instances> {
        let request = InstanceReq { indom: Some(indom), inst, name };
        self.asker.ask(
            &indom.to_string(),
            |out, from| request.encode(out, from),
            |pdu| match pdu {
                Pdu::Instance(list) if list.indom == Some(indom) => {
                    Some(list.iter().map(|(inst, name)| (inst, name.to_owned())).collect())
                }
                _ => None,
            },
        )
    }

    fn check_list(&mut self, indom: InDom, list: &Instances) {
        let subject = indom.to_string();
        let (mut numbers, mut names, mut words) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for (inst, name) in list {
            let shown = String::from_utf8_lossy(name);
            if let Some(detail) = cut(name) {
                self.asker.note(Rule::Nul, &subject, detail);
            }
            let word = name.split(|c| *c == b' ').next().unwrap_or_default();
            match inst.map(|inst| inst.word() as i32) {
                Some(0..) => {}
                inst => {
                    let inst = inst.unwrap_or(-1);
                    self.asker.note(Rule::NegativeInstance, &subject, format!("{inst} \"{shown}\""));
                }
            }
            if let Some(inst) = inst {
                if !numbers.insert(*inst) {
                    let detail = format!("number {inst} is listed again: \"{shown}\"");
                    self.asker.note(Rule::DuplicateInstance, &subject, detail);
                }
            }
            if !names.insert(name) {
                self.asker.note(Rule::DuplicateInstance, &subject, format!("name \"{shown}\" is listed again"));
            } else if !words.insert(word) {
                let detail = format!("\"{shown}\" equals another name up to the first space");
                self.asker.note(Rule::AmbiguousName, &subject, detail);
            }
        }
    }

    /// Looks up instances spread over the list, by number and by name. Ignores instances that have disappeared since.
    fn check_single(&mut self, indom: InDom, list: &Instances) {
        let step = (list.len() / SINGLE).max(1);
        let mut wrong = Vec::new();
        for (inst, name) in list.iter().step_by(step) {
            let shown = String::from_utf8_lossy(name).into_owned();
            let Some(inst) = *inst else { continue };
            let namesakes = list.iter().filter(|(other, other_name)| *other == Some(inst) || other_name == name);
            if namesakes.count() > 1 {
                continue;
            }
            match self.instance(indom, Some(inst), None) {
                Some(Ok(got)) if !matches!(&*got, [(_, other)] if other == name) => {
                    wrong.push((inst, format!("lookup of number {inst} does not return \"{shown}\"")));
                }
                Some(Err(code)) => wrong.push((inst, format!("lookup of number {inst}: {code}"))),
                _ => {}
            }
            match self.instance(indom, None, Some(name)) {
                Some(Ok(got)) if !matches!(&*got, [(other, _)] if *other == Some(inst)) => {
                    wrong.push((inst, format!("lookup of name \"{shown}\" does not return {inst}")));
                }
                Some(Err(code)) => wrong.push((inst, format!("lookup of name \"{shown}\": {code}"))),
                _ => {}
            }
        }
        if wrong.is_empty() {
            return;
        }
        let Some(Ok(now)) = self.instances(indom) else { return };
        for (inst, detail) in wrong {
            if now.iter().any(|(other, _)| *other == Some(inst)) {
                self.asker.note(Rule::Lookup, &indom.to_string(), detail);
            }
        }
    }
}
