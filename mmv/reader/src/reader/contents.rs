//! Positions of the sections of a file.

use super::{Problem, Problems};
use crate::format::{
    Bytes, HEADER_LEN, INDOM_LEN, LABEL_LEN, MAX_LABELS, MAX_METRICS, Section, Toc, VALUE_LEN, Version,
};

/// The records of a section, all of which are in the file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Table {
    pub at: u64,
    pub count: u32,
}

impl Table {
    pub(super) fn record(self, index: u32, size: usize) -> u64 {
        self.at + u64::from(index) * size as u64
    }
}

/// The first section of each kind.
#[derive(Default)]
pub(super) struct Tables {
    pub metrics: Option<Table>,
    pub indoms: Option<Table>,
    pub values: Option<Table>,
    pub labels: Option<Table>,
}

impl Tables {
    pub(super) fn add(&mut self, toc: Toc, version: Version, bytes: Bytes<'_>, problems: &mut Problems) {
        let Some(section) = Section::from_code(toc.section) else {
            return problems.push(Problem::Section { code: toc.section });
        };
        let (slot, size, max) = match section {
            Section::Metrics => (&mut self.metrics, version.metric_len(), MAX_METRICS),
            Section::Indoms => (&mut self.indoms, INDOM_LEN, pmapi::Serial::MAX as usize),
            Section::Values => (&mut self.values, VALUE_LEN, i32::MAX as usize),
            Section::Labels => (&mut self.labels, LABEL_LEN, MAX_LABELS),
            // These are found through the records that refer to them.
            Section::Instances | Section::Strings => return,
        };
        let count = u32::try_from(toc.count).ok().filter(|count| *count as usize <= max);
        let Some(count) = count else { return problems.push(Problem::Count { section, count: toc.count }) };
        if toc.offset < HEADER_LEN as u64 {
            return problems.push(Problem::OverHeader { section });
        }
        if !bytes.has(toc.offset, count.into(), size) {
            return problems.push(Problem::BeyondEnd { section, offset: toc.offset, count: toc.count });
        }
        if slot.is_some() {
            return problems.push(Problem::Repeated { section });
        }
        *slot = Some(Table { at: toc.offset, count });
    }
}
