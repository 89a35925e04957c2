//! Labels of files.

use std::str;
use std::sync::{Arc, OnceLock};

use hashbrown::HashMap;
use pcp_base::escape::escaped_json;
use pmapi::{Inst, Item, LabelFlags, LabelLevel, LabelSet, Serial};

use super::source::Source;
use super::source::exported_serial;
use crate::reader::Label;

/// Object that labels describe.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum LabelSubject {
    /// All metrics of a cluster.
    Cluster(u16),
    /// A metric.
    Item(Item),
    /// An instance domain.
    InDom(Serial),
    /// An instance.
    Instance(Serial, Inst),
}

/// The labels of all files.
#[derive(Debug, Default)]
pub(super) struct LabelTable(HashMap<LabelSubject, Labels>);

/// The labels of a subject. They are merged at the first access.
#[derive(Debug, Default)]
struct Labels {
    /// Index of each source, and of the label in that source.
    parts: Vec<(u32, u32)>,
    set: OnceLock<LabelSet>,
}

/// Largest number of labels per subject, from all files, that are merged: twice as many as a set can hold. Further
/// labels are left out.
const MOST: usize = 512;

impl LabelTable {
    /// Returns the labels of a subject, or `None` if it has none. `sources` must be those of the table.
    pub(super) fn get(&self, of: LabelSubject, prefix: &str, sources: &[Arc<Source>]) -> Option<&LabelSet> {
        let labels = self.0.get(&of)?;
        Some(labels.set.get_or_init(|| labels.merge(prefix, sources))).filter(|set| !set.is_empty())
    }

    /// Adds the labels of a source. `accepts` selects the subjects that the source may label.
    pub(super) fn add(
        &mut self,
        (number, source): (u32, &Source),
        cluster: u16,
        accepts: impl Fn(LabelSubject) -> bool,
    ) {
        for (index, label) in (0..).zip(source.file.labels()) {
            for subject in subjects(source, cluster, label).filter(|subject| accepts(*subject)) {
                let parts = &mut self.0.entry(subject).or_default().parts;
                if parts.len() < MOST {
                    parts.push((number, index));
                }
            }
        }
    }
}

impl Labels {
    fn merge(&self, prefix: &str, sources: &[Arc<Source>]) -> LabelSet {
        let mut all = LabelSet::new();
        for (number, index) in &self.parts {
            let Some(source) = sources.get(*number as usize) else { continue };
            let Some(label) = source.file.labels().get(*index as usize) else { continue };
            let optional = label.flags & u32::from(LabelFlags::OPTIONAL.bits()) != 0;
            let flags = if optional { LabelFlags::OPTIONAL } else { LabelFlags::empty() };
            match str::from_utf8(source.file.payload(label)).ok().and_then(|json| parse(json, flags)) {
                None => source.log(prefix, format_args!("a label is left out: it is not a JSON object")),
                Some(set) => {
                    if let Err(e) = all.merge(&set) {
                        source.log(prefix, format_args!("{e}"));
                    }
                }
            }
        }
        all
    }
}

/// Parses labels as PCP's agent shows them. Merging a set writes nested names in full into the text.
fn parse(json: &str, flags: LabelFlags) -> Option<LabelSet> {
    let mut set = LabelSet::parse_flagged(&escaped_json(json), flags).ok()?;
    set.merge(&set.clone()).ok()?;
    Some(set)
}

/// Returns the subjects of a label: one, unless its flags name several levels.
fn subjects(source: &Source, cluster: u16, label: &Label) -> impl Iterator<Item = LabelSubject> + use<> {
    let item = u16::try_from(label.identity).ok().and_then(|item| Item::try_new(cluster, item));
    let serial = exported_serial(cluster, label.identity);
    let inst = Inst::from_word(label.instance as u32);
    let wanted = source.file.header().cluster as u32;
    let own = label.identity == wanted || label.identity == u32::from(cluster);
    let flags = label.flags;
    [
        (LabelLevel::Cluster, own.then_some(LabelSubject::Cluster(cluster))),
        (LabelLevel::Item, item.map(LabelSubject::Item)),
        (LabelLevel::InDom, Some(LabelSubject::InDom(serial))),
        (LabelLevel::Instances, inst.map(|inst| LabelSubject::Instance(serial, inst))),
    ]
    .into_iter()
    .filter(move |(level, _)| flags & level.code() != 0)
    .filter_map(|(_, subject)| subject)
}
