//! Labels of files.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::fmt::Write as _;
use std::str;

use hashbrown::HashMap;
use pmapi::escape::is_control;
use pmapi::{Inst, Item, LabelFlags, LabelLevel, LabelSet, Serial};

use super::numbers::exported_serial;
use super::source::Source;
use crate::reader::Label;

/// Subject of labels.
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

/// The labels of a group's files.
#[derive(Debug, Default)]
pub(super) struct LabelTable(HashMap<LabelSubject, Labels>);

/// The labels of a subject, which are merged at the first access.
#[derive(Debug, Default)]
struct Labels {
    /// Index of the source, and of the label there.
    parts: Vec<(u32, u32)>,
    set: OnceCell<LabelSet>,
}

/// Most labels per subject that are merged, from all files: twice as many as a set can hold. Further ones are left out.
const MOST: usize = 512;

impl LabelTable {
    /// Returns the labels of a subject, or `None` if it has none. The sources are those of the table.
    pub(super) fn get(&self, of: LabelSubject, prefix: &str, sources: &[Source]) -> Option<&LabelSet> {
        let labels = self.0.get(&of)?;
        Some(labels.set.get_or_init(|| labels.merge(prefix, sources))).filter(|set| !set.is_empty())
    }

    pub(super) fn build(sources: &[Source]) -> LabelTable {
        let mut table = LabelTable::default();
        for (number, source) in (0..).zip(sources) {
            for (index, label) in (0..).zip(source.file.labels()) {
                for subject in subjects(source, label) {
                    let parts = &mut table.0.entry(subject).or_default().parts;
                    if parts.len() < MOST {
                        parts.push((number, index));
                    }
                }
            }
        }
        table
    }
}

impl Labels {
    fn merge(&self, prefix: &str, sources: &[Source]) -> LabelSet {
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
    let mut set = LabelSet::parse_flagged(&escaped(json), flags).ok()?;
    set.merge(&set.clone()).ok()?;
    Some(set)
}

/// Escapes characters that act on a terminal, as JSON does: PCP's tools print labels as they are. The labels stay equal.
/// JSON permits such characters only in strings, except for ASCII white space between tokens.
fn escaped(json: &str) -> Cow<'_, str> {
    let acts = |c: char| is_control(c) && !matches!(c, '\t' | '\n' | '\r');
    if !json.chars().any(acts) {
        return json.into();
    }
    let mut text = String::with_capacity(2 * json.len());
    for c in json.chars() {
        if acts(c) {
            c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| _ = write!(text, "\\u{unit:04x}"));
        } else {
            text.push(c);
        }
    }
    text.into()
}

/// Returns the subjects of a label: one, unless its flags name several levels.
fn subjects(source: &Source, label: &Label) -> impl Iterator<Item = LabelSubject> {
    let cluster = source.cluster;
    let item = u16::try_from(label.identity).ok().and_then(|item| Item::try_new(cluster, item));
    let serial = exported_serial(cluster, label.identity);
    let inst = Inst::from_word(label.instance as u32);
    let wanted = source.file.header().cluster as u32;
    let own = label.identity == wanted || label.identity == u32::from(cluster);
    [
        (LabelLevel::Cluster, own.then_some(LabelSubject::Cluster(cluster))),
        (LabelLevel::Item, item.map(LabelSubject::Item)),
        (LabelLevel::InDom, Some(LabelSubject::InDom(serial))),
        (LabelLevel::Instances, inst.map(|inst| LabelSubject::Instance(serial, inst))),
    ]
    .into_iter()
    .filter(|(level, _)| label.flags & level.code() != 0)
    .filter_map(|(_, subject)| subject)
}
