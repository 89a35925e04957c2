//! Labels of the agent, a cluster and a metric, notes, and labels that change. Labels of instance domains and of
//! instances are in [the module of the bins](crate::bins).
//!
//! In C: pmdaSetLabelCallBack(3), a label function with pmdaAddLabels(3) and pmdaAddNotes(3), and
//! `PMDA_EXT_LABEL_CHANGE` to notify clients.

use pmda::Changes;
use pmda::prelude::*;

pub(crate) const CLUSTER: u16 = 16;

const LEVELS: Item = Item::new(CLUSTER, 0);
const CHANGING: Item = Item::new(CLUSTER, 1);

#[derive(Debug)]
pub(crate) struct Labels {
    mood: String,
    changes: Changes,
}

impl Labels {
    pub(crate) fn new(setup: &mut Setup) -> Self {
        setup.labels(json!({"agent": "showcase", "role": "example"}));
        setup.notes(json!({"language": "Rust"}));
        setup.cluster_labels(CLUSTER, json!({"feature": "labels", "origin": {"room": "attic", "shelf": 3}}));
        let levels = setup.metric("showcase.label.levels", LEVELS, Type::U32).labels(json!({"level": "item"}));
        levels.notes(json!({"remark": "notes do not distinguish metrics"}));
        levels.help("A metric with labels of every level", "pminfo -l shows also those of its agent and its cluster.");
        let changing = setup.metric("showcase.label.changing", CHANGING, Type::String).discrete().storable();
        changing.help("A metric with the label mood", "pmstore(1) sets the label, which is also the value.");
        Labels { mood: "calm".into(), changes: Changes::default() }
    }

    /// Returns the labels of a metric whose labels change. They replace declared labels.
    pub(crate) fn of(&self, item: Item) -> Result<Option<LabelSet>> {
        if item != CHANGING {
            return Ok(None);
        }
        Ok(Some(LabelSet::from_serialize(json!({"mood": self.mood}))?))
    }

    /// Returns the changes that clients have not been notified of.
    pub(crate) fn changes(&mut self) -> Changes {
        std::mem::take(&mut self.changes)
    }

    pub(crate) fn fetch(&self, item: Item, out: &mut Values<'_>) -> Result {
        match item {
            LEVELS => out.put(4u32),
            CHANGING => out.put(&self.mood),
            _ => Err(Error::PMID),
        }
    }

    pub(crate) fn store(&mut self, value: Atom<'_>) -> Result {
        self.mood = <&str>::try_from(value).map_err(|_| Error::BADSTORE)?.to_owned();
        self.changes = Changes::LABELS;
        Ok(())
    }
}
