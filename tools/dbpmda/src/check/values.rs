//! Check of values.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use pcp_collector::Channel;
use pcp_pdu::Pdu;
use pcp_pdu::metadata::encode_fetch;
use pcp_pdu::profile::{Profile, ProfileState};
use pcp_pdu::result::RawValue;
use pmapi::{Atom, Error, InDom, Inst, Semantics, Type};

use super::asker::Answer;
use super::events::{self, cut};
use super::metrics::is_unknown;
use super::{Check, Metric, Rule};

/// Values of a metric by instance; as numbers where a counter can have them.
type Sample = Vec<(Option<Inst>, Option<f64>)>;

impl<C: Channel> Check<C> {
    /// Fetches every metric twice and checks the values. Returns the number of values at first, and the metrics that had
    /// none then, each with the reason.
    pub(super) fn check_values(&mut self) -> (usize, Vec<String>) {
        self.send_profile(&Profile::default());
        let metrics = self.metrics.clone();
        let first: Vec<_> = metrics.iter().map(|metric| self.sample(metric)).collect();
        let second: Vec<_> = metrics.iter().map(|metric| self.sample(metric)).collect();
        let (mut values, mut without) = (0, Vec::new());
        for (metric, (first, second)) in metrics.iter().zip(first.into_iter().zip(second)) {
            let reason = match &first {
                Ok(first) if !first.is_empty() => None,
                Ok(_) if metric.desc.indom.is_some() => Some("no instances"),
                Ok(_) => Some("the agent returns none"),
                Err(reason) => reason.as_deref(),
            };
            without.extend(reason.map(|reason| format!("{}: {reason}", metric.name)));
            let Ok(first) = first else { continue };
            values += first.len();
            if let (Ok(second), Semantics::Counter) = (second, metric.desc.semantics) {
                self.check_counter(metric, &first, &second);
            }
        }
        (values, without)
    }

    pub(super) fn send_profile(&mut self, profile: &Profile) {
        self.asker.tell("profile", |out, from| profile.encode(out, from, 0));
    }

    /// Fetches and checks the values of a metric. If it has none, the error is the reason; `None` for a broken rule,
    /// which has been noted.
    fn sample(&mut self, metric: &Metric) -> Result<Sample, Option<String>> {
        if metric.desc.ty == Type::NoSupport {
            return Err(Some("not supported".to_owned()));
        }
        match self.fetch(metric).ok_or(None)? {
            Ok((sample, mistakes)) => {
                for (rule, detail) in mistakes {
                    self.asker.note(rule, &metric.name, detail);
                }
                self.check_sample(metric, &sample);
                Ok(sample)
            }
            Err(code) if is_unknown(code) => {
                let detail = format!("has a descriptor, but a fetch of it says that it does not exist: {code}");
                self.asker.note(Rule::NoValue, &metric.name, detail);
                Err(None)
            }
            Err(code) => {
                let Some(reason) = mistake(code) else { return Err(Some(code.to_string())) };
                // The text of that error would send a reader to a report that is not there.
                let answer =
                    if code == Error::GENERIC { String::new() } else { format!(" (the answer is \"{code}\")") };
                self.asker.note(Rule::FailedValue, &metric.name, format!("{reason}{answer}"));
                Err(None)
            }
        }
    }

    /// Fetches a metric and returns its values with the mistakes in them.
    fn fetch(&mut self, metric: &Metric) -> Answer<(Sample, Vec<(Rule, String)>)> {
        let (pmid, ty) = (metric.desc.pmid, metric.desc.ty);
        let types: HashMap<_, _> = match ty {
            Type::Event | Type::HighResEvent => self.metrics.iter().map(|m| (m.desc.pmid, m.desc.ty)).collect(),
            _ => HashMap::new(),
        };
        let answer = self.asker.ask(
            &metric.name,
            |out, from| encode_fetch(out, from, 0, [Some(pmid)].into_iter()),
            |pdu| {
                let Pdu::Result(result) = pdu else { return None };
                let set = result.sets().next().filter(|set| result.len() == 1 && set.pmid == Some(pmid))?;
                let mut wrong = Vec::new();
                let values = set.values().map(|(inst, raw)| match raw.atom(ty) {
                    Ok(atom) => {
                        if let (Type::String, RawValue::Block(_, payload)) = (ty, raw) {
                            wrong.extend(cut(payload).map(|detail| (Rule::Nul, detail)));
                        }
                        wrong.extend(events::mistakes(atom, &types).into_iter().map(|detail| (Rule::Events, detail)));
                        (inst, number(atom))
                    }
                    Err(_) => {
                        wrong.push((Rule::ValueType, format!("{raw:.40?} is not of type {}", ty.word())));
                        (inst, None)
                    }
                });
                let values = values.collect();
                Some(set.error.map_or(Ok((values, wrong)), Err))
            },
        );
        answer.map(|answer| answer.and_then(|inner| inner))
    }

    fn check_sample(&mut self, metric: &Metric, sample: &Sample) {
        let Some(indom) = metric.desc.indom else {
            if !matches!(sample[..], [] | [(None, _)]) {
                let detail = format!("is singular, but has {} values or one for an instance", sample.len());
                self.asker.note(Rule::ValueInstance, &metric.name, detail);
            }
            return;
        };
        let mut seen = BTreeSet::new();
        for (inst, _) in sample {
            match inst {
                None => self.asker.note(Rule::ValueInstance, &metric.name, "has a value without an instance"),
                Some(inst) if !seen.insert(*inst) => {
                    self.asker.note(Rule::ValueInstance, &metric.name, format!("has two values for instance {inst}"));
                }
                Some(_) => {}
            }
        }
        self.check_known(metric, indom, &seen);
    }

    /// Checks that the domain has the instances, if necessary with a new list, as some may have appeared meanwhile.
    fn check_known(&mut self, metric: &Metric, indom: InDom, insts: &BTreeSet<Inst>) {
        let known: BTreeSet<_> = self.indoms.get(&indom).into_iter().flatten().filter_map(|(inst, _)| *inst).collect();
        let unknown: Vec<_> = insts.difference(&known).collect();
        if unknown.is_empty() {
            return;
        }
        let Some(Ok(now)) = self.instances(indom) else { return };
        if let Some(inst) = unknown.into_iter().find(|inst| !now.iter().any(|(other, _)| *other == Some(**inst))) {
            let detail = format!("has a value for instance {inst}, which {indom} does not have");
            self.asker.note(Rule::ValueInstance, &metric.name, detail);
        }
    }

    fn check_counter(&mut self, metric: &Metric, first: &Sample, second: &Sample) {
        let first: BTreeMap<_, _> = first.iter().copied().collect();
        for (inst, now) in second {
            let (Some(before), Some(now)) = (first.get(inst).copied().flatten(), *now) else { continue };
            // A 32-bit counter may wrap around.
            let wraps = metric.desc.ty == Type::U32 && before - now > f64::from(1_u32 << 31);
            if now < before && !wraps {
                let of = inst.map_or_else(String::new, |inst| format!(" of instance {inst}"));
                self.asker.note(Rule::CounterFalls, &metric.name, format!("{before}{of}, then {now}"));
            }
        }
    }

    /// Fetches a single instance, then all others. Ignores instances that appear or disappear meanwhile.
    pub(super) fn check_profile(&mut self) {
        let metrics: Vec<_> = self.metrics.iter().filter(|m| m.desc.ty != Type::NoSupport).cloned().collect();
        for metric in metrics {
            let Some(indom) = metric.desc.indom else { continue };
            self.send_profile(&Profile::default());
            let Some(all) = self.insts(&metric) else { continue };
            let Some(one) = all.iter().nth(all.len() / 2).copied() else { continue };
            let mut only = Profile::new(ProfileState::Exclude);
            only.set(indom, ProfileState::Exclude, &[one]);
            let mut others = Profile::default();
            others.set(indom, ProfileState::Include, &[one]);
            self.send_profile(&only);
            let with_one = self.insts(&metric).unwrap_or_default();
            self.send_profile(&others);
            let with_others = self.insts(&metric).unwrap_or_default();
            self.send_profile(&Profile::default());
            let Some(after) = self.insts(&metric) else { continue };
            let lasting: BTreeSet<_> = all.intersection(&after).copied().collect();
            if let Some(inst) = with_one.iter().find(|inst| **inst != one) {
                self.asker.note(Rule::Profile, &metric.name, format!("returns {inst}, but the profile has only {one}"));
            } else if lasting.contains(&one) && !with_one.contains(&one) {
                self.asker.note(Rule::Profile, &metric.name, format!("omits {one}, the only one in the profile"));
            } else if with_others.contains(&one) {
                self.asker.note(Rule::Profile, &metric.name, format!("returns {one}, which the profile excludes"));
            } else if let Some(inst) = lasting.iter().find(|inst| **inst != one && !with_others.contains(inst)) {
                let detail = format!("omits {inst}, but the profile excludes only {one}");
                self.asker.note(Rule::Profile, &metric.name, detail);
            }
        }
    }

    fn insts(&mut self, metric: &Metric) -> Option<BTreeSet<Inst>> {
        Some(self.sample(metric).ok()?.into_iter().filter_map(|(inst, _)| inst).collect())
    }
}

/// Returns the mistake of the agent that an error in place of values shows, and what to do. Other errors are normal, such as
/// no value for now, or no access.
fn mistake(code: Error) -> Option<&'static str> {
    match code {
        Error::TYPE => {
            Some("the agent makes a value that is not of the metric's type: change the value or the declaration")
        }
        Error::CONV => Some(
            "the agent makes a text with a NUL byte, or a value that is not of the metric's type: change the value or the \
             declaration",
        ),
        Error::TRUNC => Some("the agent makes a value that is too large for the metric's type: declare a wider type"),
        Error::SIGN => {
            Some("the agent makes a negative value, and the metric's type is unsigned: declare a signed type")
        }
        Error::GENERIC => Some(
            "the agent fails to make the value, by a panic if it is written with crate pmda: its log has the reason and the \
             line",
        ),
        Error::INST => Some(
            "the agent makes a value with an instance for a metric without any, or without one for a metric with instances: \
             change the value or the declaration",
        ),
        _ => None,
    }
}

/// Converts the value of a counter to a number.
fn number(atom: Atom<'_>) -> Option<f64> {
    match atom.convert(Type::Double).ok()?.as_atom() {
        Atom::Double(n) => Some(n),
        _ => None,
    }
}
