//! The layout of a registry's file, and its bytes.
//!
//! ```text
//! header | contents | values | instance domains | instances | metrics | strings | labels
//! ```
//! The values come first, at an offset that never changes, so values keep their offsets when the file grows. The table
//! of contents lists the sections in the order in which C writes them.

use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::slice;

use crate::format::{
    Flags, HEADER_LEN, Header, INDOM_LEN, IndomRecord, LABEL_LEN, MAGIC, NAME_LEN, PAYLOAD_LEN, STRING_LEN, Section,
    TOC_LEN, Toc, VALUE_LEN, ValueRecord, Version,
};
use crate::hash::HashMap;
use crate::model::{Kind, Metric, Model, TextId};
use crate::names::MAX_SHORT_NAME;

/// Size of a metric without its name, in bytes.
const METRIC_REST: usize = 40;

/// Offset of the values: after room for every section in the table of contents.
pub(crate) const VALUES_AT: u64 = ((HEADER_LEN + 6 * TOC_LEN).next_multiple_of(VALUE_LEN)) as u64;

/// The owner of a file, as its header describes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner {
    pub generation: u64,
    pub flags: Flags,
    pub process: i32,
    pub cluster: u16,
}

/// Placeholder in a new file for a value whose updates replace it, until the old value has been transferred.
///
/// As a floating-point number it is a signalling NaN, which no arithmetic produces. An integer may equal it; such a
/// value is updated while holding the gate.
pub(crate) const MARK: u64 = 0xfff6_a5c3_5eed_0b1e;

/// Offsets of all sections, records and strings.
pub(crate) struct Layout<'a> {
    model: &'a Model,
    version: Version,
    strings: Strings<'a>,
    values: Table,
    indoms: Table,
    instances: Table,
    metrics: Table,
    texts: Table,
    labels: Table,
}

/// Offset of a section, and the number of its records.
#[derive(Clone, Copy)]
struct Table {
    at: u64,
    count: usize,
}

/// Returns the lowest version of the format that can express a model.
fn version(model: &Model) -> Version {
    if !model.labels().is_empty() {
        Version::V3
    } else if model.longest_name() > MAX_SHORT_NAME {
        Version::V2
    } else {
        Version::V1
    }
}

impl<'a> Layout<'a> {
    /// Lays out the file of a model with room for `capacity` values.
    pub(crate) fn new(model: &'a Model, capacity: usize) -> Layout<'a> {
        let version = version(model);
        let mut strings = Strings::new(model.help_texts());
        if version > Version::V1 {
            strings.by_text();
            model.indoms().flat_map(|(_, indom)| indom.instances()).for_each(|(name, _)| strings.add(name));
            model.metrics().for_each(|(name, _)| strings.add(name));
        }

        let mut end = VALUES_AT + (capacity.max(model.values().len()) * VALUE_LEN) as u64;
        let mut section = |count: usize, size: usize| {
            let at = end;
            end += (count * size) as u64;
            Table { at, count }
        };
        let indoms = section(model.indoms().len(), INDOM_LEN);
        let instances = section(model.indoms().map(|(_, d)| d.instances().len()).sum(), version.instance_len());
        let metrics = section(model.metrics().len(), version.metric_len());
        let texts = section(2 * model.texts() + strings.list.len(), STRING_LEN);
        let labels = section(model.labels().len(), LABEL_LEN);
        let values = Table { at: VALUES_AT, count: model.values().len() };
        strings.at = texts.at + (2 * model.texts() * STRING_LEN) as u64;
        Layout { model, version, strings, values, indoms, instances, metrics, texts, labels }
    }

    /// Returns the length of the file, in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.labels.at + (self.labels.count * LABEL_LEN) as u64
    }

    /// Returns the offset of the strings of text values.
    pub(crate) fn texts_at(&self) -> u64 {
        self.texts.at
    }

    /// Writes the file. Values in the ranges `slotted` may have handles. They get the word that their [`Kind`] requires
    /// for a move. All other values get the word that `initial` returns.
    pub(crate) fn write(
        &self,
        owner: &Owner,
        slotted: &[Range<usize>],
        initial: impl Fn(&Metric) -> u64,
        file: &File,
    ) -> io::Result<()> {
        let mut out = Sink { file, buffer: [0; FULL], len: 0, done: 0 };
        self.write_head(owner, &mut out)?;
        out.pad_to(self.values.at)?;
        self.write_values(slotted, initial, &mut out)?;
        out.pad_to(self.indoms.at)?;
        self.write_indoms(&mut out)?;
        self.write_instances(&mut out)?;
        self.write_metrics(&mut out)?;
        out.pad_to(self.strings.at)?;
        for text in &self.strings.list {
            out.put_padded::<STRING_LEN>(text)?;
        }
        self.write_labels(owner, &mut out)?;
        out.finish()
    }

    fn write_head(&self, owner: &Owner, out: &mut Sink<'_>) -> io::Result<()> {
        let sections = [
            (Section::Indoms, self.indoms),
            (Section::Instances, self.instances),
            (Section::Metrics, self.metrics),
            (Section::Values, self.values),
            (Section::Strings, self.texts),
            (Section::Labels, self.labels),
        ];
        let needed = |section: &&(Section, Table)| match section.0 {
            // The agent requires at least these two sections.
            Section::Metrics | Section::Values => true,
            // C's mmvdump complains about a section without entries.
            _ => section.1.count > 0,
        };
        let header = Header {
            magic: MAGIC,
            version: self.version as i32,
            g1: owner.generation,
            g2: owner.generation,
            tocs: sections.iter().filter(needed).count() as i32,
            flags: owner.flags,
            process: owner.process,
            cluster: owner.cluster.into(),
        };
        out.put(&header.bytes())?;
        for (section, table) in sections.iter().filter(needed) {
            let toc = Toc { section: *section as u32, count: table.count as i32, offset: table.at };
            out.put(&toc.bytes())?;
        }
        Ok(())
    }

    fn write_values(
        &self,
        slotted: &[Range<usize>],
        initial: impl Fn(&Metric) -> u64,
        out: &mut Sink<'_>,
    ) -> io::Result<()> {
        let firsts = self.first_instances();
        let instance_len = self.version.instance_len() as u64;
        let mut texts = (self.texts.at..).step_by(2 * STRING_LEN);
        let mut parts = Parts { others: slotted.iter(), other: 0..0 };
        for run in self.model.values().all() {
            let metric = self.model.metric(run.metric);
            let metric_at = self.metrics.at + (run.metric * self.version.metric_len()) as u64;
            let (mut instance, step) = metric.indom().map_or((0, 0), |indom| {
                let first = firsts.get(indom).copied().unwrap_or_default() + run.instance;
                (self.instances.at + first as u64 * instance_len, instance_len)
            });
            let (mut at, end) = (run.first, run.first + run.count);
            while at < end {
                let (until, slotted) = parts.part(at, end);
                let (word, mut extra) = match metric.kind {
                    Kind::Added | Kind::Text if slotted => (0, 0),
                    Kind::Set | Kind::Counted if slotted => (MARK, 0),
                    Kind::Interval if slotted => (MARK, MARK),
                    _ => (initial(metric), 0),
                };
                out.put_all(until - at, || {
                    if metric.kind == Kind::Text {
                        extra = texts.next().unwrap_or_default();
                    }
                    let value = ValueRecord { word, extra: extra as i64, metric: metric_at, instance };
                    instance += step;
                    value.bytes()
                })?;
                at = until;
            }
        }
        Ok(())
    }

    /// Returns the index of each instance domain's first instance.
    fn first_instances(&self) -> Vec<usize> {
        let counts = self.model.indoms().map(|(_, d)| d.instances().len());
        counts.scan(0, |next, count| Some(std::mem::replace(next, *next + count))).collect()
    }

    fn write_indoms(&self, out: &mut Sink<'_>) -> io::Result<()> {
        for ((_, indom), first) in self.model.indoms().zip(self.first_instances()) {
            let record = IndomRecord {
                serial: indom.serial,
                count: indom.instances().len() as u32,
                offset: self.instances.at + (first * self.version.instance_len()) as u64,
                short: self.strings.help(indom.help.short),
                long: self.strings.help(indom.help.long),
            };
            out.put(&record.bytes())?;
        }
        Ok(())
    }

    fn write_instances(&self, out: &mut Sink<'_>) -> io::Result<()> {
        for ((_, indom), i) in self.model.indoms().zip(0u64..) {
            let at = self.indoms.at + i * INDOM_LEN as u64;
            for (name, id) in indom.instances() {
                let mut bytes = [0; 16];
                bytes[..8].copy_from_slice(&at.to_ne_bytes());
                bytes[12..].copy_from_slice(&id.to_ne_bytes());
                out.put(&bytes)?;
                self.write_name(name, out)?;
            }
        }
        Ok(())
    }

    fn write_metrics(&self, out: &mut Sink<'_>) -> io::Result<()> {
        for (name, metric) in self.model.metrics() {
            self.write_name(name, out)?;
            let indom = metric.indom().map_or(u32::MAX, |i| self.model.indom(i).serial);
            let help = [metric.help.short, metric.help.long].map(|text| self.strings.help(text));
            let mut rest = [0; METRIC_REST];
            rest[..4].copy_from_slice(&u32::from(metric.item).to_ne_bytes());
            rest[4..8].copy_from_slice(&(metric.ty as i32).to_ne_bytes());
            rest[8..12].copy_from_slice(&metric.semantics.code().to_ne_bytes());
            rest[12..16].copy_from_slice(&metric.units.word().to_ne_bytes());
            rest[16..20].copy_from_slice(&indom.to_ne_bytes());
            rest[24..32].copy_from_slice(&help[0].to_ne_bytes());
            rest[32..].copy_from_slice(&help[1].to_ne_bytes());
            out.put(&rest)?;
        }
        Ok(())
    }

    fn write_name(&self, name: &str, out: &mut Sink<'_>) -> io::Result<()> {
        match self.version {
            Version::V1 => out.put_padded::<NAME_LEN>(name),
            Version::V2 | Version::V3 => out.put(&self.strings.offset(name).to_ne_bytes()),
        }
    }

    fn write_labels(&self, owner: &Owner, out: &mut Sink<'_>) -> io::Result<()> {
        for label in self.model.labels() {
            let (identity, internal) = label.subject.numbers(self.model, owner.cluster);
            out.put(&label.code().to_ne_bytes())?;
            out.put(&identity.to_ne_bytes())?;
            out.put(&internal.to_ne_bytes())?;
            out.put_padded::<PAYLOAD_LEN>(&label.json)?;
        }
        Ok(())
    }
}

/// Splits ranges of values into parts inside and outside of given ranges. Both are in ascending order.
struct Parts<'a> {
    others: slice::Iter<'a, Range<usize>>,
    other: Range<usize>,
}

impl Parts<'_> {
    /// Returns the end of the longest part of `at..end` that is entirely inside or outside of the ranges, and whether
    /// it is inside.
    fn part(&mut self, at: usize, end: usize) -> (usize, bool) {
        while self.other.end <= at {
            let Some(other) = self.others.next() else { return (end, false) };
            self.other = other.clone();
        }
        let inside = self.other.start <= at;
        (end.min(if inside { self.other.end } else { self.other.start }), inside)
    }
}

/// A buffered writer of records. The buffer is on the stack, whose memory is already mapped. Touching new memory would
/// take nearly as long as writing the bytes.
struct Sink<'a> {
    file: &'a File,
    buffer: [u8; FULL],
    len: usize,
    done: u64,
}

/// Size of the buffer, in bytes. Stacks of loom's threads are small.
const FULL: usize = if cfg!(mmv_loom) { 2 << 10 } else { 32 << 10 };

impl Sink<'_> {
    /// Returns room for `LEN` bytes in the buffer.
    fn place<const LEN: usize>(&mut self) -> io::Result<&mut [u8; LEN]> {
        const { assert!(LEN <= FULL) };
        if self.len + LEN > FULL {
            self.spill()?;
        }
        let start = self.len;
        self.len += LEN;
        let place = self.buffer.get_mut(start..).and_then(|rest| rest.first_chunk_mut());
        place.ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }

    fn put<const LEN: usize>(&mut self, bytes: &[u8; LEN]) -> io::Result<()> {
        *self.place()? = *bytes;
        Ok(())
    }

    /// Appends `count` records.
    fn put_all<const LEN: usize>(&mut self, mut count: usize, mut next: impl FnMut() -> [u8; LEN]) -> io::Result<()> {
        if count == 1 {
            *self.place()? = next();
            return Ok(());
        }
        while count > 0 {
            let places = self.buffer.get_mut(self.len..).unwrap_or_default().chunks_exact_mut(LEN);
            let room = places.len().min(count);
            places.take(room).for_each(|place| place.copy_from_slice(&next()));
            (self.len, count) = (self.len + room * LEN, count - room);
            if count > 0 {
                self.spill()?;
            }
        }
        Ok(())
    }

    /// Appends a text, padded with NULs to `ROOM` bytes. The text must be shorter than that.
    fn put_padded<const ROOM: usize>(&mut self, text: &str) -> io::Result<()> {
        debug_assert!(text.len() < ROOM);
        let place = self.place::<ROOM>()?;
        *place = [0; ROOM];
        place[..text.len()].copy_from_slice(text.as_bytes());
        Ok(())
    }

    fn spill(&mut self) -> io::Result<()> {
        let mut file = self.file;
        file.write_all(&self.buffer[..self.len])?;
        self.done += self.len as u64;
        self.len = 0;
        Ok(())
    }

    /// Appends zeros up to an offset of the file. Sections begin at multiples of 8 bytes.
    fn pad_to(&mut self, at: u64) -> io::Result<()> {
        (self.done + self.len as u64..at).step_by(8).try_for_each(|_| self.put(&[0; 8]))
    }

    fn finish(mut self) -> io::Result<()> {
        self.spill()
    }
}

/// The constant strings, without duplicates: first the help texts, in the order of their numbers.
struct Strings<'a> {
    list: Vec<&'a str>,
    index: HashMap<&'a str, usize>,
    at: u64,
}

impl<'a> Strings<'a> {
    fn new(help: impl Iterator<Item = &'a str>) -> Strings<'a> {
        Strings { list: help.collect(), index: HashMap::default(), at: 0 }
    }

    /// Indexes the strings by their text.
    fn by_text(&mut self) {
        self.index = self.list.iter().copied().zip(0..).collect();
    }

    fn add(&mut self, text: &'a str) {
        let list = &mut self.list;
        self.index.entry(text).or_insert_with(|| {
            list.push(text);
            list.len() - 1
        });
    }

    fn offset(&self, text: &str) -> u64 {
        self.index.get(text).map_or(0, |i| self.at + (i * STRING_LEN) as u64)
    }

    fn help(&self, text: Option<TextId>) -> u64 {
        text.map_or(0, |TextId(number)| self.at + u64::from(number) * STRING_LEN as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts() {
        let slotted = [0..3, 5..5, 7..9];
        let parts = |starts: &[usize], end| {
            let mut parts = Parts { others: slotted.iter(), other: 0..0 };
            starts.iter().map(|at| parts.part(*at, end)).collect::<Vec<_>>()
        };
        assert_eq!(parts(&[0, 3, 5, 7, 9], 10), [(3, true), (5, false), (7, false), (9, true), (10, false)]);
        assert_eq!(parts(&[1], 2), [(2, true)]);
        assert_eq!(parts(&[6, 7], 8), [(7, false), (8, true)]);
        assert_eq!(parts(&[1, 2, 5, 6, 8], 9), [(3, true), (3, true), (7, false), (7, false), (9, true)]);
        assert_eq!(Parts { others: [].iter(), other: 0..0 }.part(2, 4), (4, false));
    }
}
