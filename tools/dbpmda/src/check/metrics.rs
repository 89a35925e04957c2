//! Check of metrics: names, descriptors, help texts.

use std::collections::{BTreeMap, BTreeSet};
use std::thread::sleep;
use std::time::{Duration, Instant};

use pcp_collector::Channel;
use pcp_pdu::Pdu;
use pcp_pdu::metadata::{DescReq, Subject, Text, TextKind, TextReq};
use pcp_pdu::names::{Node, Statuses, Traverse, encode_ids, encode_names};
use pmapi::{Desc, Error, Item, PmId, Semantics, Type};

use super::asker::Answer;
use super::events::cut;
use super::{Check, Metric, Rule};

/// Time between two requests for the names of an agent that is not ready.
const PAUSE: Duration = Duration::from_millis(20);

/// Number of items to try after the last one of a cluster.
const BEYOND: u16 = 8;

impl<C: Channel> Check<C> {
    /// Requests the descriptors of all names.
    pub(super) fn find_metrics(&mut self, names: &[(String, PmId)]) {
        for (name, pmid) in names {
            match pmid.dynamic_root() {
                Some(_) => self.find_dynamic(name),
                None => self.find_metric(name, *pmid),
            }
        }
    }

    fn find_metric(&mut self, name: &str, pmid: PmId) {
        self.named.insert(pmid);
        match self.desc(name, pmid) {
            Some(Ok(desc)) => {
                if let Some(indom) = desc.indom.filter(|indom| indom.domain() != pmid.domain()) {
                    self.asker.note(Rule::ForeignInDom, name, format!("{pmid} has instance domain {indom}"));
                }
                if desc.semantics == Semantics::Counter && !is_number(desc.ty) {
                    let detail = format!(
                        "is a counter of type {}, whose rate clients cannot compute: declare it with semantics instant or \
                         discrete",
                        desc.ty.word()
                    );
                    self.asker.note(Rule::CounterType, name, detail);
                }
                self.metrics.push(Metric { name: name.to_owned(), desc });
            }
            Some(Err(code)) => {
                let detail = format!("the name space has it as {pmid}, of which the agent knows no descriptor: {code}");
                self.asker.note(Rule::NoDescriptor, name, detail);
            }
            None => {}
        }
    }

    fn desc(&mut self, subject: &str, pmid: PmId) -> Answer<Desc> {
        self.asker.ask(
            subject,
            |out, from| DescReq { pmid: Some(pmid) }.encode(out, from),
            |pdu| match pdu {
                Pdu::Desc(desc) => Some(desc.desc).filter(|desc| desc.pmid == pmid),
                _ => None,
            },
        )
    }

    /// Finds the metrics below a root of dynamic names. A root without metrics is valid, because dynamic metrics come
    /// and go.
    fn find_dynamic(&mut self, root: &str) {
        let Some(Ok(names)) = self.traverse(root) else { return };
        for name in names {
            match self.pmid_of(&name) {
                Some(Ok(Some(pmid))) => {
                    self.check_name(&name, pmid);
                    self.find_metric(&name, pmid);
                }
                Some(Ok(None)) => self.asker.note(Rule::DynamicName, &name, "has no PMID"),
                Some(Err(code)) => self.asker.note(Rule::DynamicName, &name, code.to_string()),
                None => {}
            }
        }
    }

    /// Lists the names below a root. An agent that is not ready answers with `PM_ERR_AGAIN`, since pmcd accepts no other
    /// error about names.
    fn traverse(&mut self, root: &str) -> Answer<Vec<String>> {
        let traverse = Traverse { name: root.as_bytes() };
        let start = Instant::now();
        loop {
            match self.asker.ask(root, |out, from| traverse.encode(out, from), take_names)? {
                Err(Error::AGAIN) if start.elapsed() < self.timeout => sleep(PAUSE),
                Err(Error::AGAIN) => {
                    let detail = format!("the agent was not ready within {:.1?}", self.timeout);
                    self.asker.note(Rule::Slow, root, detail);
                    return None;
                }
                answer => return Some(answer),
            }
        }
    }

    fn check_name(&mut self, name: &str, pmid: PmId) {
        match self.asker.ask(name, |out, from| encode_ids(out, from, 0, &[Some(pmid)]), take_names) {
            Some(Ok(names)) if names.iter().any(|other| other == name) => {}
            Some(Ok(names)) => {
                let names = names.join(", ");
                self.asker.note(Rule::DynamicName, name, format!("is not among the names of {pmid}: {names}"));
            }
            Some(Err(code)) => self.asker.note(Rule::DynamicName, name, format!("no names of {pmid}: {code}")),
            None => {}
        }
    }

    /// Requests the descriptors of items without a name in the name space, between and after those with one. An agent with
    /// dynamic names (`is_dynamic`) may have names that it does not list.
    pub(super) fn find_unnamed(&mut self, is_dynamic: bool) {
        let mut clusters: BTreeMap<_, BTreeSet<u16>> = BTreeMap::new();
        for pmid in &self.named {
            clusters.entry((pmid.domain(), pmid.item().cluster())).or_default().insert(pmid.item().item());
        }
        for ((domain, cluster), items) in clusters {
            let last = items.last().map_or(0, |last| last + BEYOND).min(Item::MAX_ITEM);
            for item in (0..=last).filter(|item| !items.contains(item)) {
                let pmid = PmId::new(domain, Item::new(cluster, item));
                if let Some(Ok(_)) = self.desc(&pmid.to_string(), pmid) {
                    match is_dynamic.then(|| self.unlisted(pmid)).flatten() {
                        Some(name) => self.find_metric(&name, pmid),
                        None => self.asker.note(Rule::NoName, &pmid.to_string(), "has a descriptor but no name"),
                    }
                }
            }
        }
    }

    /// Returns a name that leads to a metric, although the agent does not list it.
    fn unlisted(&mut self, pmid: PmId) -> Option<String> {
        let subject = pmid.to_string();
        let names = self.asker.ask(&subject, |out, from| encode_ids(out, from, 0, &[Some(pmid)]), take_names)?;
        let name = names.ok()?.into_iter().next()?;
        (self.pmid_of(&name)?.ok()? == Some(pmid)).then_some(name)
    }

    /// Requests the PMID of a dynamic name.
    fn pmid_of(&mut self, name: &str) -> Answer<Option<PmId>> {
        let list = [(Node::Leaf, name.as_bytes())];
        self.asker.ask(
            name,
            |out, from| encode_names(out, from, Statuses::Omitted, list),
            |pdu| match pdu {
                Pdu::Ids(ids) if ids.pmids().len() == 1 => Some(ids.pmids().next().flatten()),
                _ => None,
            },
        )
    }

    /// Checks that help texts exist.
    pub(super) fn check_help(&mut self) {
        let metrics = self.metrics.iter().map(|metric| (metric.name.clone(), Subject::Metric(metric.desc.pmid)));
        let indoms = self.indoms.keys().map(|indom| (indom.to_string(), Subject::InDom(*indom)));
        let subjects: Vec<_> = metrics.chain(indoms).collect();
        for (name, subject) in subjects {
            let (line, help) =
                (self.text(&name, subject, TextKind::OneLine), self.text(&name, subject, TextKind::Help));
            let why = match (line, help) {
                (Some(Ok(true)), _) | (_, Some(Ok(true))) | (None, _) | (_, None) => continue,
                (Some(Err(Error::TEXT)), _) | (_, Some(Err(Error::TEXT))) => "has no help text".to_owned(),
                (Some(Err(code)), _) | (_, Some(Err(code))) => format!("the request for its help text fails: {code}"),
                _ => "its help texts are empty".to_owned(),
            };
            let remedy =
                "pminfo -t should say what it is, so add a line of help to its declaration or to the help file";
            self.asker.note(Rule::NoHelp, &name, format!("{why}: {remedy}"));
        }
    }

    /// Returns whether a text exists and is not blank.
    fn text(&mut self, name: &str, subject: Subject, kind: TextKind) -> Answer<bool> {
        let request = TextReq::new(subject, kind);
        // The subject in the answer is not checked, because libpcp sends it in the host's byte order.
        let answer = self.asker.ask(
            name,
            |out, from| request.encode(out, from),
            |pdu| match pdu {
                Pdu::Text(Text { text, .. }) => {
                    Some((text.iter().any(|c| !c.is_ascii_whitespace() && *c != 0), cut(text)))
                }
                _ => None,
            },
        )?;
        Some(answer.map(|(is_there, cut)| {
            if let Some(detail) = cut {
                self.asker.note(Rule::Nul, name, detail);
            }
            is_there
        }))
    }
}

fn take_names(pdu: Pdu<'_>) -> Option<Vec<String>> {
    match pdu {
        Pdu::Names(names) => Some(names.iter().map(|(_, name)| String::from_utf8_lossy(name).into_owned()).collect()),
        _ => None,
    }
}

/// Returns whether values of a type are numbers.
fn is_number(ty: Type) -> bool {
    matches!(ty, Type::I32 | Type::U32 | Type::I64 | Type::U64 | Type::Float | Type::Double | Type::NoSupport)
}

/// Returns whether an error means that the metric does not exist.
pub(super) fn is_unknown(code: Error) -> bool {
    [Error::PMID, Error::NAME].contains(&code)
}
