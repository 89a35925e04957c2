//! Where everything of a registry's file is, and its bytes.
//!
//! ```text
//! header | contents | values | instance domains | instances | metrics | strings | labels
//! ```
//! The values come first, at an offset that never changes, so that values keep their place when
//! the file grows. The contents list the sections in the order that C writes them in.

use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;

use hashbrown::HashMap;

use crate::format::{
    Flags, HEADER_LEN, Header, INDOM_LEN, IndomRecord, LABEL_LEN, MAGIC, NAME_LEN, PAYLOAD_LEN, STRING_LEN, Section,
    TOC_LEN, Toc, VALUE_LEN, ValueRecord, Version,
};
use crate::model::{Kind, Metric, Model, TextId};
use crate::names::MAX_SHORT_NAME;

/// Size of a metric without its name.
const METRIC_REST: usize = 40;

/// Where the values begin: after room for every section in the contents.
pub(crate) const VALUES_AT: u64 = ((HEADER_LEN + 6 * TOC_LEN).next_multiple_of(VALUE_LEN)) as u64;

/// What a header says about the file's owner.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner {
    pub generation: u64,
    pub flags: Flags,
    pub process: i32,
    pub cluster: u16,
}

/// The word that stands in a new file for a value that is set, not added to, until its value has
/// been brought over. As a floating point number it is a signalling NaN, which no arithmetic gives;
/// an integer may be equal to it, and takes the slow way then.
pub(crate) const MARK: u64 = 0xfff6_a5c3_5eed_0b1e;

/// Where everything is.
pub(crate) struct Layout<'a> {
    model: &'a Model,
    version: Version,
    strings: Strings<'a>,
    values: Place,
    indoms: Place,
    instances: Place,
    metrics: Place,
    texts: Place,
    labels: Place,
}

/// A section: where it is and how many records it has.
#[derive(Clone, Copy)]
struct Place {
    at: u64,
    count: usize,
}

/// The version that a model needs.
pub(crate) fn version(model: &Model) -> Version {
    let long = |name: &str| name.len() > MAX_SHORT_NAME;
    if !model.labels().is_empty() {
        Version::V3
    } else if model.metrics().any(|(name, _)| long(name))
        || model.indoms().any(|(_, indom)| indom.instances().any(|(name, _)| long(name)))
    {
        Version::V2
    } else {
        Version::V1
    }
}

impl<'a> Layout<'a> {
    /// The layout of a model's file with room for `capacity` values.
    pub(crate) fn new(model: &'a Model, capacity: usize) -> Layout<'a> {
        let version = version(model);
        let mut strings = Strings::new(model.help_texts());
        if version > Version::V1 {
            strings.by_text();
            model.indoms().flat_map(|(_, indom)| indom.instances()).for_each(|(name, _)| strings.add(name));
            model.metrics().for_each(|(name, _)| strings.add(name));
        }

        let mut end = VALUES_AT + (capacity * VALUE_LEN) as u64;
        let mut section = |count: usize, size: usize| {
            let at = end;
            end += (count * size) as u64;
            Place { at, count }
        };
        let indoms = section(model.indoms().len(), INDOM_LEN);
        let instances = section(model.indoms().map(|(_, d)| d.instances().len()).sum(), version.instance_len());
        let metrics = section(model.metrics().len(), version.metric_len());
        let texts = section(2 * model.texts() + strings.list.len(), STRING_LEN);
        let labels = section(model.labels().len(), LABEL_LEN);
        let values = Place { at: VALUES_AT, count: model.values().len() };
        strings.at = texts.at + (2 * model.texts() * STRING_LEN) as u64;
        Layout { model, version, strings, values, indoms, instances, metrics, texts, labels }
    }

    /// Where the strings of text values are.
    pub(crate) fn texts_at(&self) -> u64 {
        self.texts.at
    }

    /// Writes the file. Values that are `seated`, which means that they may have a handle, get what
    /// [`Kind`] asks for when they move; the others get the word that `initial` gives.
    pub(crate) fn write(
        &self,
        owner: &Owner,
        seated: &[Range<usize>],
        initial: impl Fn(&Metric) -> u64,
        file: &File,
    ) -> io::Result<()> {
        let room = Sink::FULL.min(self.labels.at as usize + self.labels.count * LABEL_LEN) + Sink::SPARE;
        let mut out = Sink { file, buffer: Vec::with_capacity(room), done: 0 };
        self.write_head(owner, &mut out);
        out.pad_to(self.values.at)?;
        self.write_values(seated, initial, &mut out)?;
        out.pad_to(self.indoms.at)?;
        self.write_indoms(&mut out)?;
        self.write_instances(&mut out)?;
        self.write_metrics(&mut out)?;
        out.pad_to(self.strings.at)?;
        for text in &self.strings.list {
            push_padded(out.record()?, text, STRING_LEN);
        }
        self.write_labels(owner, &mut out)?;
        out.finish()
    }

    fn write_head(&self, owner: &Owner, out: &mut Sink<'_>) {
        let sections = [
            (Section::Indoms, self.indoms),
            (Section::Instances, self.instances),
            (Section::Metrics, self.metrics),
            (Section::Values, self.values),
            (Section::Strings, self.texts),
            (Section::Labels, self.labels),
        ];
        let needed = |section: &&(Section, Place)| match section.0 {
            // An agent wants at least these two.
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
        header.write(&mut out.buffer);
        for (section, place) in sections.iter().filter(needed) {
            let toc = Toc { section: *section as u32, count: place.count as i32, offset: place.at };
            toc.write(&mut out.buffer);
        }
    }

    fn write_values(
        &self,
        seated: &[Range<usize>],
        initial: impl Fn(&Metric) -> u64,
        out: &mut Sink<'_>,
    ) -> io::Result<()> {
        let firsts = self.first_instances();
        let instance_len = self.version.instance_len() as u64;
        let mut texts = (self.texts.at..).step_by(2 * STRING_LEN);
        for run in self.model.values().all() {
            let metric = self.model.metric(run.metric);
            let initial = initial(metric);
            let moving = match metric.kind {
                Kind::Added | Kind::Text => (0, 0),
                Kind::Set | Kind::Counted => (MARK, 0),
                Kind::Interval => (MARK, MARK),
            };
            let metric_at = self.metrics.at + (run.metric * self.version.metric_len()) as u64;
            let (mut instance, step) = metric.indom().map_or((0, 0), |indom| {
                let first = firsts.get(indom).copied().unwrap_or_default() + run.instance;
                (self.instances.at + first as u64 * instance_len, instance_len)
            });
            for (values, moves) in cut(run.first..run.first + run.count, seated) {
                for _ in values {
                    let (word, extra) = match metric.kind {
                        Kind::Text => (0, texts.next().unwrap_or_default()),
                        _ if moves => moving,
                        _ => (initial, 0),
                    };
                    let value = ValueRecord { word, extra: extra.cast_signed(), metric: metric_at, instance };
                    value.write(out.record()?);
                    instance += step;
                }
            }
        }
        Ok(())
    }

    /// Index of each instance domain's first instance.
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
            record.write(out.record()?);
        }
        Ok(())
    }

    fn write_instances(&self, out: &mut Sink<'_>) -> io::Result<()> {
        for ((_, indom), i) in self.model.indoms().zip(0u64..) {
            let at = self.indoms.at + i * INDOM_LEN as u64;
            for (name, id) in indom.instances() {
                let out = out.record()?;
                out.extend(at.to_ne_bytes());
                out.extend([0; 4]);
                out.extend(id.to_ne_bytes());
                self.write_name(name, out);
            }
        }
        Ok(())
    }

    fn write_metrics(&self, out: &mut Sink<'_>) -> io::Result<()> {
        for (name, metric) in self.model.metrics() {
            let out = out.record()?;
            self.write_name(name, out);
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
            out.extend_from_slice(&rest);
        }
        Ok(())
    }

    fn write_name(&self, name: &str, out: &mut Vec<u8>) {
        match self.version {
            Version::V1 => push_padded(out, name, NAME_LEN),
            Version::V2 | Version::V3 => out.extend(self.strings.offset(name).to_ne_bytes()),
        }
    }

    fn write_labels(&self, owner: &Owner, out: &mut Sink<'_>) -> io::Result<()> {
        for label in self.model.labels() {
            let (identity, internal) = label.subject.numbers(self.model, owner.cluster);
            let out = out.record()?;
            out.extend(label.flags().to_ne_bytes());
            out.extend(identity.to_ne_bytes());
            out.extend(internal.to_ne_bytes());
            push_padded(out, &label.json, PAYLOAD_LEN);
        }
        Ok(())
    }
}

/// Cuts a range where it enters or leaves one of the `others`, which are in ascending order, and says of
/// each part whether it is in one.
fn cut(range: Range<usize>, others: &[Range<usize>]) -> impl Iterator<Item = (Range<usize>, bool)> {
    let mut at = range.start;
    let next = others.partition_point(|other| other.end <= at);
    let mut others = others.iter().skip(next).filter(|other| !other.is_empty());
    let mut other = others.next();
    std::iter::from_fn(move || {
        if at >= range.end {
            return None;
        }
        let start = at;
        let (end, inside) = match other {
            Some(other) if other.start <= at => (other.end, true),
            Some(other) => (other.start, false),
            None => (range.end, false),
        };
        at = end.min(range.end);
        if inside {
            other = others.next();
        }
        Some((start..at, inside))
    })
}

/// Collects records and writes many at a time.
struct Sink<'a> {
    file: &'a File,
    buffer: Vec<u8>,
    done: u64,
}

impl Sink<'_> {
    const FULL: usize = 64 << 10;
    /// More than a record.
    const SPARE: usize = 4 << 10;

    /// Where to append a record.
    fn record(&mut self) -> io::Result<&mut Vec<u8>> {
        if self.buffer.len() >= Self::FULL {
            self.spill()?;
        }
        Ok(&mut self.buffer)
    }

    fn spill(&mut self) -> io::Result<()> {
        let mut file = self.file;
        file.write_all(&self.buffer)?;
        self.done += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Appends zeros up to an offset in the file.
    fn pad_to(&mut self, at: u64) -> io::Result<()> {
        while self.done + (self.buffer.len() as u64) < at {
            let missing = at - self.done - self.buffer.len() as u64;
            let buffer = self.record()?;
            buffer.resize(buffer.len() + missing.min(Self::SPARE as u64) as usize, 0);
        }
        Ok(())
    }

    fn finish(mut self) -> io::Result<()> {
        self.spill()
    }
}

/// The constant strings, equal ones once: first the help texts, in the order of their numbers.
struct Strings<'a> {
    list: Vec<&'a str>,
    index: HashMap<&'a str, usize>,
    at: u64,
}

impl<'a> Strings<'a> {
    fn new(help: impl Iterator<Item = &'a str>) -> Strings<'a> {
        Strings { list: help.collect(), index: HashMap::new(), at: 0 }
    }

    /// Makes strings known by their text.
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

/// Appends a text, which is shorter than its room, with NULs behind it.
fn push_padded(out: &mut Vec<u8>, text: &str, room: usize) {
    debug_assert!(text.len() < room);
    let end = out.len() + room;
    out.extend(text.as_bytes());
    out.resize(end, 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts() {
        let seated = [0..3, 5..5, 7..9];
        let parts = |range| cut(range, &seated).collect::<Vec<_>>();
        assert_eq!(parts(0..10), [(0..3, true), (3..7, false), (7..9, true), (9..10, false)]);
        assert_eq!(parts(1..2), [(1..2, true)]);
        assert_eq!(parts(3..8), [(3..7, false), (7..8, true)]);
        assert_eq!(parts(9..9), []);
        assert_eq!(cut(2..4, &[]).collect::<Vec<_>>(), [(2..4, false)]);
    }
}
