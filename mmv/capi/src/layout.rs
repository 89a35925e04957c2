//! The layout of C's files, and their bytes.
//!
//! ```text
//! header | contents | instance domains | instances | metrics | values | strings | labels
//! ```
//! Strings: names of instances and of metrics (versions 2 and 3), text values, help texts of metrics, and those of
//! instance domains. Crate `mmv` has another order, for files that grow; its records are the same.

use std::fs::File;
use std::io;

use libc::{EFBIG, ENOMEM};
use mmv::format::{
    Flags, HEADER_LEN, Header, INDOM_LEN, IndomRecord, LABEL_LEN, MAGIC, NAME_LEN, PAYLOAD_LEN, STRING_LEN, Section,
    TOC_LEN, Toc, VALUE_LEN, ValueRecord, Version,
};

use crate::facts::{Help, STRING};
use crate::plan::Plan;
use crate::sink::{Sink, put_text};

/// Length of the record of a metric without its name, in bytes.
const METRIC_REST: usize = 40;

/// Offset of a section, and the number of its records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table {
    pub at: usize,
    pub count: usize,
}

/// The values of a metric.
#[derive(Clone, Copy, Debug)]
struct Group {
    /// Index of the first value.
    first: u32,
    /// Number of values.
    count: u32,
    /// Index of the instance domain, or [`SINGULAR`].
    indom: u32,
    /// Type of the values.
    ty: u8,
}

/// Index that means no instance domain.
const SINGULAR: u32 = u32::MAX;

impl Group {
    /// Returns the index of the instance domain.
    fn indom(self) -> Option<usize> {
        (self.indom != SINGULAR).then_some(self.indom as usize)
    }
}

/// Offsets of all sections.
#[derive(Debug)]
pub(crate) struct Layout {
    pub version: Version,
    pub len: usize,
    pub indoms: Table,
    pub instances: Table,
    pub metrics: Table,
    pub values: Table,
    pub strings: Table,
    pub labels: Table,
    /// Position of each metric's values, or `None` if each metric has one number, without an instance.
    groups: Option<Vec<Group>>,
    /// Index of the first instance of each instance domain, and the number of its instances.
    pub spans: Box<[(usize, usize)]>,
    /// Type of each value. If all metrics have one number, [`Layout::write`] adds the types.
    pub types: Vec<u8>,
    /// Number of values that are strings.
    texts: usize,
    /// Number of help texts of metrics.
    metric_helps: usize,
}

impl Layout {
    /// Lays out the file of a plan. Returns the code of an error if the plan is not valid or the file is too large.
    pub(crate) fn new(plan: &Plan<'_>) -> Result<Layout, i32> {
        let spans = spans(plan)?;
        let facts = plan.metrics.facts();
        let (mut groups, mut all, mut texts) = (None, plan.metrics.len(), 0);
        if !facts.plain {
            let mut listed = Vec::new();
            listed.try_reserve_exact(plan.metrics.len()).map_err(|_| ENOMEM)?;
            (groups, all) = (Some(listed), 0);
        }
        // The number of values is known before memory is allocated for them.
        let version = plan.check(&facts, |ty, indom| {
            let Some(groups) = &mut groups else { return Ok(()) };
            let count = indom.and_then(|indom| spans.get(indom)).map_or(1, |(_, count)| *count);
            let first = all;
            all += count;
            if all > i32::MAX as usize {
                return Err(EFBIG);
            }
            texts += if ty == STRING { count } else { 0 };
            let indom = indom.map_or(SINGULAR, |indom| indom as u32);
            groups.push(Group { first: first as u32, count: count as u32, indom, ty });
            Ok(())
        })?;
        let types = types(groups.as_deref().unwrap_or_default(), all)?;
        let instances = spans.iter().map(|(_, count)| count).sum();
        let names = if version == Version::V1 { 0 } else { instances + plan.metrics.len() };
        let indom_helps: usize = plan.indoms.iter().map(|indom| indom.help.iter().flatten().count()).sum();
        let strings = names + texts + facts.helps + indom_helps;

        let tocs = 2 + 2 * usize::from(!plan.indoms.is_empty()) + usize::from(strings > 0);
        let tocs = tocs + usize::from(!plan.labels.is_empty());
        let mut end = HEADER_LEN + tocs * TOC_LEN;
        let mut section = |count: usize, size: usize| -> Result<Table, i32> {
            let at = end;
            let section_end = count.checked_mul(size).and_then(|bytes| bytes.checked_add(end));
            end = section_end.filter(|_| count <= i32::MAX as usize).ok_or(EFBIG)?;
            Ok(Table { at, count })
        };
        let indoms = section(plan.indoms.len(), INDOM_LEN)?;
        let instances = section(instances, version.instance_len())?;
        let metrics = section(plan.metrics.len(), version.metric_len())?;
        let values = section(all, VALUE_LEN)?;
        let strings = section(strings, STRING_LEN)?;
        let labels = section(plan.labels.len(), LABEL_LEN)?;
        Ok(Layout {
            version,
            len: end,
            indoms,
            instances,
            metrics,
            values,
            strings,
            labels,
            groups,
            spans,
            types,
            texts,
            metric_helps: facts.helps,
        })
    }

    /// Returns the index of each metric's first value, and that of its instance domain.
    pub(crate) fn groups(&self) -> impl Iterator<Item = (usize, Option<usize>)> {
        let single = if self.groups.is_none() { 0..self.metrics.count } else { 0..0 };
        let listed = self.groups.iter().flatten().map(|group| (group.first as usize, group.indom()));
        single.map(|first| (first, None)).chain(listed)
    }

    /// Returns the offset of the string with this index.
    fn string(&self, index: usize) -> u64 {
        (self.strings.at + index * STRING_LEN) as u64
    }

    /// Returns the offset of the name of a metric, and the length of its field.
    pub(crate) fn metric_name(&self, metric: usize) -> (usize, usize) {
        match self.version {
            Version::V1 => (self.metrics.at + metric * self.version.metric_len(), NAME_LEN),
            _ => (self.strings.at + (self.instances.count + metric) * STRING_LEN, STRING_LEN),
        }
    }

    /// Returns the offset of the name of an instance, counted over all instance domains, and the length of its field.
    pub(crate) fn instance_name(&self, instance: usize) -> (usize, usize) {
        match self.version {
            Version::V1 => (self.instances.at + instance * self.version.instance_len() + 16, NAME_LEN),
            _ => (self.strings.at + instance * STRING_LEN, STRING_LEN),
        }
    }

    /// Writes the file of a process, which is not valid for readers until its second generation number is set.
    pub(crate) fn write(&mut self, plan: &Plan<'_>, generation: u64, process: u32, file: &File) -> io::Result<()> {
        let mut types = std::mem::take(&mut self.types);
        let mut out = Sink::new(file)?;
        self.write_head(plan, generation, process, &mut out)?;
        // Help texts follow the names and the text values; `next` is the index of the next string.
        let names = if self.version == Version::V1 { 0 } else { self.instances.count + self.metrics.count };
        self.write_indoms(plan, names + self.texts + self.metric_helps, &mut out)?;
        self.write_instances(plan, &mut out)?;
        self.write_metrics(plan, names + self.texts, &mut types, &mut out)?;
        self.write_values(names, &mut out)?;
        self.types = types;
        if self.version != Version::V1 {
            for indom in &plan.indoms {
                indom.instances.try_each(|_, name| out.put_string(name))?;
            }
            plan.metrics.try_each(|metric| out.put_string(metric.name))?;
        }
        (0..self.texts).try_for_each(|_| out.put_string(&[]))?;
        plan.metrics.try_each(|metric| put_help(metric.help, &mut out))?;
        plan.indoms.iter().try_for_each(|indom| put_help(indom.help, &mut out))?;
        for label in plan.labels {
            out.put(&label.flags.to_ne_bytes())?;
            out.put(&label.identity.to_ne_bytes())?;
            out.put(&label.internal.to_ne_bytes())?;
            put_text(out.place::<PAYLOAD_LEN>()?, &label.payload);
        }
        out.finish()
    }

    fn write_head(&self, plan: &Plan<'_>, generation: u64, process: u32, out: &mut Sink<'_>) -> io::Result<()> {
        let optional = |table: Table| Some(table).filter(|table| table.count > 0);
        let indoms = optional(self.indoms);
        let sections = [
            (Section::Indoms, indoms),
            (Section::Instances, indoms.map(|_| self.instances)),
            (Section::Metrics, Some(self.metrics)),
            (Section::Values, Some(self.values)),
            (Section::Strings, optional(self.strings)),
            (Section::Labels, optional(self.labels)),
        ];
        let header = Header {
            magic: MAGIC,
            version: self.version as i32,
            g1: generation,
            g2: 0,
            tocs: sections.iter().filter(|(_, table)| table.is_some()).count() as i32,
            flags: Flags::from_bits_retain(plan.flags),
            process: process as i32,
            cluster: plan.cluster,
        };
        out.put(&header.bytes())?;
        for (section, table) in sections {
            let Some(table) = table else { continue };
            let toc = Toc { section: section as u32, count: table.count as i32, offset: table.at as u64 };
            out.put(&toc.bytes())?;
        }
        Ok(())
    }

    fn write_indoms(&self, plan: &Plan<'_>, mut next: usize, out: &mut Sink<'_>) -> io::Result<()> {
        for (indom, (first, count)) in plan.indoms.iter().zip(&self.spans) {
            let [short, long] = self.help(&indom.help, &mut next);
            let offset = (self.instances.at + first * self.version.instance_len()) as u64;
            out.put(&IndomRecord { serial: indom.serial, count: *count as u32, offset, short, long }.bytes())?;
        }
        Ok(())
    }

    fn write_instances(&self, plan: &Plan<'_>, out: &mut Sink<'_>) -> io::Result<()> {
        let mut next = 0;
        for (index, indom) in plan.indoms.iter().enumerate() {
            let at = (self.indoms.at + index * INDOM_LEN) as u64;
            indom.instances.try_each(|id, name| {
                let (place, rest) = out.place::<16>()?.split_at_mut(8);
                place.copy_from_slice(&at.to_ne_bytes());
                rest.copy_from_slice([[0; 4], id.to_ne_bytes()].as_flattened());
                self.write_name(name, &mut next, out)
            })?;
        }
        Ok(())
    }

    fn write_metrics(
        &self,
        plan: &Plan<'_>,
        mut help: usize,
        types: &mut Vec<u8>,
        out: &mut Sink<'_>,
    ) -> io::Result<()> {
        let (mut next, is_plain) = (self.instances.count, self.groups.is_none());
        plan.metrics.try_each(|metric| {
            if is_plain {
                types.push(metric.ty as u8);
            }
            let words = [metric.item, metric.ty as u32, metric.semantics as u32, metric.units, metric.serial, 0];
            let words = words.map(u32::to_ne_bytes);
            let helps = self.help(&metric.help, &mut help).map(u64::to_ne_bytes);
            let rest = [words.as_flattened(), helps.as_flattened()];
            if self.version == Version::V1 {
                let (name, place) = out.place::<{ NAME_LEN + METRIC_REST }>()?.split_at_mut(NAME_LEN);
                put_text(name, metric.name);
                put(place, rest);
            } else {
                let (name, place) = out.place::<{ 8 + METRIC_REST }>()?.split_at_mut(8);
                name.copy_from_slice(&self.string(next).to_ne_bytes());
                put(place, rest);
                next += 1;
            }
            Ok(())
        })
    }

    /// Writes a name in its place, or the offset of string `next`.
    fn write_name(&self, name: &[u8], next: &mut usize, out: &mut Sink<'_>) -> io::Result<()> {
        if self.version == Version::V1 {
            put_text(out.place::<NAME_LEN>()?, name);
            return Ok(());
        }
        *next += 1;
        out.put(&self.string(*next - 1).to_ne_bytes())
    }

    /// Returns the offsets of help texts, whose strings begin with number `next`.
    fn help(&self, help: &Help<'_>, next: &mut usize) -> [u64; 2] {
        help.map(|text| match text {
            Some(_) => {
                *next += 1;
                self.string(*next - 1)
            }
            None => 0,
        })
    }

    fn write_values(&self, mut text: usize, out: &mut Sink<'_>) -> io::Result<()> {
        let (mut metric, metric_len) = (self.metrics.at as u64, self.version.metric_len() as u64);
        let Some(groups) = &self.groups else {
            return out.put_all(self.values.count, |position| {
                let metric = metric + position as u64 * metric_len;
                ValueRecord { word: 0, extra: 0, metric, instance: 0 }.bytes()
            });
        };
        for group in groups {
            let span = group.indom().and_then(|indom| self.spans.get(indom));
            let first = span.map(|(first, _)| self.instances.at + first * self.version.instance_len());
            let step = if first.is_some() { self.version.instance_len() } else { 0 };
            let texts = if group.ty == STRING { group.count as usize } else { 0 };
            out.put_all(group.count as usize, |position| {
                let instance = (first.unwrap_or_default() + position * step) as u64;
                let extra = if texts > 0 { self.string(text + position) as i64 } else { 0 };
                ValueRecord { word: 0, extra, metric, instance }.bytes()
            })?;
            text += texts;
            metric += metric_len;
        }
        Ok(())
    }
}

/// Copies both parts to a place that has room for them.
#[inline(always)]
fn put(place: &mut [u8], [first, second]: [&[u8]; 2]) {
    let (start, end) = place.split_at_mut(first.len());
    start.copy_from_slice(first);
    end.copy_from_slice(second);
}

fn put_help(help: Help<'_>, out: &mut Sink<'_>) -> io::Result<()> {
    help.into_iter().flatten().try_for_each(|text| out.put_string(text))
}

/// Returns the types of `all` values, as far as there are groups, with room for all types.
fn types(groups: &[Group], all: usize) -> Result<Vec<u8>, i32> {
    let mut types = Vec::new();
    types.try_reserve_exact(all).map_err(|_| ENOMEM)?;
    for group in groups {
        match group.count {
            1 => types.push(group.ty),
            count => types.resize(types.len() + count as usize, group.ty),
        }
    }
    Ok(types)
}

/// Returns the index of the first instance of each instance domain, and the number of its instances.
fn spans(plan: &Plan<'_>) -> Result<Box<[(usize, usize)]>, i32> {
    let mut spans = Vec::new();
    spans.try_reserve_exact(plan.indoms.len()).map_err(|_| ENOMEM)?;
    let mut next = 0;
    spans.extend(plan.indoms.iter().map(|indom| indom.instances.len()).map(|count| {
        next += count;
        (next - count, count)
    }));
    Ok(spans.into())
}
