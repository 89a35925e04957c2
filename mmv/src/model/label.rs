//! Labels of a registry.

use pmapi::{LabelFlags, LabelLevel, LabelSet};
use serde::Serialize;

use super::Model;
use crate::Error;
use crate::format::{MAX_LABELS, PAYLOAD_LEN};

/// Subject of a label, by indexes of the model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Subject {
    Registry,
    Metric(usize),
    Indom(usize),
    Instance(usize, usize),
}

impl Subject {
    /// Returns the label's identity and instance as the file contains them.
    pub(crate) fn numbers(self, model: &Model, cluster: u16) -> (u32, i32) {
        match self {
            Subject::Registry => (cluster.into(), -1),
            Subject::Metric(i) => (model.metric(i).item.into(), -1),
            Subject::Indom(i) => (model.indom(i).serial, -1),
            Subject::Instance(i, instance) => {
                let indom = model.indom(i);
                (indom.serial, indom.id(instance))
            }
        }
    }
}

#[derive(Debug)]
pub(crate) struct Label {
    pub subject: Subject,
    /// Flags besides the level.
    pub flags: LabelFlags,
    pub json: Box<str>,
    /// Number of labels in the text: one, or the members of an object.
    pub count: usize,
}

impl Label {
    pub(crate) fn new(subject: Subject, flags: LabelFlags, name: &str, value: impl Serialize) -> Result<Label, Error> {
        let set = LabelSet::single(name, value).map_err(|source| Error::Label { name: name.to_owned(), source })?;
        if set.is_empty() {
            return Err(Error::Name {
                what: "label",
                name: name.to_owned(),
                reason: "has an empty object as its value",
            });
        }
        if set.json().len() >= PAYLOAD_LEN {
            return Err(Error::TooLong { what: "label", text: set.json().to_owned(), max: PAYLOAD_LEN - 1 });
        }
        Ok(Label { subject, flags, json: set.json().into(), count: set.labels().count() })
    }

    /// Returns the flags as the file contains them.
    pub(crate) fn code(&self) -> u32 {
        let level = match self.subject {
            Subject::Registry => LabelLevel::Cluster,
            Subject::Metric(_) => LabelLevel::Item,
            Subject::Indom(_) => LabelLevel::InDom,
            Subject::Instance(..) => LabelLevel::Instances,
        };
        level.code() | u32::from(self.flags.bits())
    }
}

/// Checks that an agent can merge the labels of a subject into one set. The number of labels in a set is limited, and
/// each member of an object is a label.
pub(super) fn check_set<'a>(labels: impl Iterator<Item = &'a Label> + Clone) -> Result<(), Error> {
    // The texts of all labels of a file are within the set's limit of bytes.
    const { assert!(MAX_LABELS * PAYLOAD_LEN < LabelSet::MAX_JSON) };
    if labels.clone().map(|label| label.count).sum::<usize>() <= LabelSet::MAX_LABELS {
        return Ok(());
    }
    // Labels of the same name count once.
    let mut all = LabelSet::new();
    for label in labels {
        let set = LabelSet::parse(&label.json);
        set.and_then(|set| all.merge(&set)).map_err(|source| Error::Label {
            name: label.json.split('"').nth(1).unwrap_or_default().to_owned(),
            source,
        })?;
    }
    Ok(())
}
