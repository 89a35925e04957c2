//! The layout of a registry's file.
//!
//! ```text
//! header | contents | metrics | instance domains | instances | labels | strings | values | buffers of texts
//! ```
//! Each section has reserved room, so that no record ever moves: records are appended, and then their number in the
//! contents changes. Unused room is a hole of the file, which takes no memory and no blocks. The values are the last
//! section, and the file grows with them, unless there are texts. A text follows its value, so that a program that reads
//! the file from the start to the end never has the value of a text that it has read before.

use crate::format::{
    HEADER_LEN, INDOM_LEN, LABEL_LEN, MAX_LABELS, MAX_METRICS, MAX_SERIAL, STRING_LEN, TOC_LEN, VALUE_LEN, Version,
};

/// Number of sections: the buffers of texts are a second section of strings.
pub(crate) const SECTIONS: usize = 7;

/// Number of instances, and of text values, for which a file has room unless
/// [`RegistryBuilder::room`](crate::RegistryBuilder::room) sets another number.
pub(crate) const ROOM: u32 = 16_384;
/// Largest room of a file. Its values, after the other sections, must be within the length of files that agents read.
pub(crate) const MOST_ROOM: u32 = 131_072;
/// Smallest room of a file, for a process with little address space.
pub(crate) const LEAST_ROOM: u32 = 16;
/// Largest file, in bytes: agent mmv reads no larger one.
const MOST_LEN: u64 = 256 << 20;

/// Room for help texts and metric names, where there is room for many instances.
const MOST_TEXTS: u32 = 8192;
/// Room for values: metrics over a domain have one for each instance.
const VALUES_EACH: u32 = 64;

/// Reserved room for the records of a section.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table {
    pub at: u64,
    pub most: u32,
    size: u64,
}

impl Table {
    /// Returns the offset of the record with this index.
    pub(crate) fn record(&self, index: usize) -> u64 {
        self.at + index as u64 * self.size
    }

    /// Returns the offset after the last record for which there is room.
    pub(crate) fn end(&self) -> u64 {
        self.record(self.most as usize)
    }
}

/// Positions of all sections.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub metrics: Table,
    pub indoms: Table,
    pub instances: Table,
    pub labels: Table,
    pub strings: Table,
    pub values: Table,
    /// Two buffers of each text value.
    pub texts: Table,
}

impl Layout {
    /// Lays out a file with room for `room` instances and text values. The values, and the
    /// buffers of texts, begin and end with pages of `page` bytes.
    pub(crate) fn new(room: u32, page: u64) -> Layout {
        let mut at = (HEADER_LEN + SECTIONS * TOC_LEN) as u64;
        let mut table = |most: u32, size: usize, align: u64| {
            at = at.next_multiple_of(align);
            let table = Table { at, most, size: size as u64 };
            at = table.end();
            table
        };
        let texts = room.saturating_mul(4);
        let metrics = table(texts.min(MAX_METRICS as u32), Version::V2.metric_len(), 8);
        let indoms = table(room.min(MAX_SERIAL), INDOM_LEN, 8);
        // A domain that has grown leaves records behind, which together are fewer than three times its own.
        let instances = table(texts, Version::V2.instance_len(), 8);
        let labels = table(room.min(MAX_LABELS as u32), LABEL_LEN, 8);
        // Each instance has a name.
        let strings = table(room + texts.min(MOST_TEXTS), STRING_LEN, 8);
        let mut values = table(0, VALUE_LEN, page);
        let buffers = u64::from(room) * 2 * STRING_LEN as u64;
        let most = ((MOST_LEN - 2 * page - buffers - values.at) / VALUE_LEN as u64) as u32;
        values.most = room.saturating_mul(VALUES_EACH).min(most);
        at = values.end().next_multiple_of(page);
        let texts = Table { at, most: room, size: 2 * STRING_LEN as u64 };
        Layout { metrics, indoms, instances, labels, strings, values, texts }
    }

    /// Returns the length of a file without unused room, in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.texts.end()
    }

    /// Returns the offset of a string.
    pub(crate) fn string(&self, index: u32) -> u64 {
        self.strings.record(index as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_room_fits_into_a_file_that_agents_read() {
        for room in [LEAST_ROOM, 100, ROOM, MOST_ROOM] {
            for page in [4096, 65536] {
                let layout = Layout::new(room, page);
                let all = [
                    layout.metrics,
                    layout.indoms,
                    layout.instances,
                    layout.labels,
                    layout.strings,
                    layout.values,
                    layout.texts,
                ];
                assert!(all.windows(2).all(|two| two[0].end() <= two[1].at && two[1].at % 8 == 0));
                assert!(layout.len().next_multiple_of(page) <= MOST_LEN && layout.values.most >= 16 * room);
                assert_eq!([layout.texts.at % page, layout.values.at % page], [0, 0]);
            }
        }
        assert!(Layout::new(LEAST_ROOM, 4096).len() < 100 << 10);
    }
}
