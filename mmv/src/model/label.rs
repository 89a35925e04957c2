//! Labels of a registry.

use pmapi::label::{LabelFlags, LabelLevel, LabelSet};
use serde::Serialize;

use super::Model;
use crate::Error;
use crate::format::PAYLOAD_LEN;

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
}

impl Label {
    pub(crate) fn new(subject: Subject, flags: LabelFlags, name: &str, value: impl Serialize) -> Result<Label, Error> {
        let mut set = LabelSet::new();
        set.insert(name, value).map_err(|source| Error::Label { name: name.to_owned(), source })?;
        if set.json().len() >= PAYLOAD_LEN {
            return Err(Error::TooLong { what: "label", text: set.json().to_owned(), max: PAYLOAD_LEN - 1 });
        }
        Ok(Label { subject, flags, json: set.json().into() })
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
