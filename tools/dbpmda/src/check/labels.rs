//! Check of labels.

use std::collections::BTreeSet;

use pcp_collector::{Channel, LabelTarget};
use pcp_pdu::Pdu;
use pcp_pdu::label::RawLabelSet;
use pcp_pdu::profile::Profile;
use pmapi::{LabelFlags, LabelLevel, LabelSet, PmId};

use super::{Check, Rule};

impl<C: Channel> Check<C> {
    /// Checks the labels of every level, for everything with a descriptor.
    pub(super) fn check_labels(&mut self) {
        self.send_profile(&Profile::default());
        let pmids: Vec<_> = self.metrics.iter().map(|metric| metric.desc.pmid).collect();
        let domains: BTreeSet<_> = pmids.iter().map(|pmid| pmid.domain()).collect();
        let clusters: BTreeSet<_> = pmids.iter().map(|pmid| (pmid.domain(), pmid.item().cluster())).collect();
        let domains = domains.into_iter().map(|domain| (format!("domain {domain}"), LabelTarget::Domain(domain)));
        let clusters = clusters.into_iter().map(|(domain, cluster)| {
            let first = PmId::new(domain, pmapi::Item::new(cluster, 0));
            (format!("cluster {domain}.{cluster}"), LabelTarget::Cluster(first))
        });
        let items = self.metrics.iter().map(|metric| (metric.name.clone(), LabelTarget::Item(metric.desc.pmid)));
        let indoms = self.indoms.keys().flat_map(|&indom| {
            [LabelTarget::InDom(indom), LabelTarget::Instances(Some(indom))].map(|target| (indom.to_string(), target))
        });
        let targets: Vec<_> = domains.chain(clusters).chain(items).chain(indoms).collect();
        for (subject, target) in targets {
            self.check_sets(&subject, target);
        }
    }

    /// Checks the label sets of a subject. Errors are allowed, because agents need not have labels.
    fn check_sets(&mut self, subject: &str, target: LabelTarget) {
        let request = target.request();
        let level = u32::try_from(request.bits).ok().and_then(LabelLevel::from_code);
        let answer = self.asker.ask(
            subject,
            |out, from| request.encode(out, from),
            |pdu| match pdu {
                Pdu::Label(labels) if u32::try_from(labels.bits).ok().and_then(LabelLevel::from_code) == level => {
                    let sets = labels.sets().map(|set| (set.inst, mistake(&set)));
                    Some(sets.collect::<Vec<_>>())
                }
                _ => None,
            },
        );
        let Some(Ok(sets)) = answer else { return };
        for detail in sets.iter().filter_map(|(_, mistake)| mistake.as_ref()) {
            self.asker.note(Rule::Labels, subject, detail);
        }
        let LabelTarget::Instances(Some(indom)) = target else { return };
        let Some(Ok(known)) = self.instances(indom) else { return };
        let mut seen = BTreeSet::new();
        for (inst, _) in sets {
            let shown = inst.map_or_else(|| "no instance".to_owned(), |inst| format!("instance {inst}"));
            match known.iter().filter(|(other, _)| *other == inst).count() {
                0 => self.asker.note(Rule::Labels, subject, format!("labels for {shown}, not in the domain")),
                1 if !seen.insert(inst) => {
                    self.asker.note(Rule::Labels, subject, format!("two sets of labels for {shown}"));
                }
                _ => {}
            }
        }
    }
}

/// Returns the mistake in a label set, if there is one.
fn mistake(set: &RawLabelSet<'_>) -> Option<String> {
    if set.error.is_some() {
        return None;
    }
    let json = String::from_utf8_lossy(set.json);
    let labels = match LabelSet::parse_strict(&json, LabelFlags::COMPOUND) {
        Ok(labels) => labels,
        Err(e) => return Some(format!("{json:.60}: {e}")),
    };
    if labels.len() != set.len() {
        return Some(format!("{json:.60}: {} labels in the index, {} in the text", set.len(), labels.len()));
    }
    // Spaces in the text are allowed, but the parsed text has none.
    let is_compact = labels.json() == json;
    set.spans().find_map(|span| {
        let name = String::from_utf8_lossy(span.name_in(set.json)?).into_owned();
        let value = String::from_utf8_lossy(span.value_in(set.json)?).into_owned();
        // libpcp's index has only the last part of a compound name.
        let found = labels.labels().any(|label| {
            (label.name == name || label.name.strip_suffix(&*name).is_some_and(|rest| rest.ends_with('.')))
                && (!is_compact || label.value == value)
        });
        (!found).then(|| format!("{json:.60}: the index has {name:.40?} as {value:.40}"))
    })
}
