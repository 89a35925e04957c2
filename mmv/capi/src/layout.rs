//! The bytes of C's files.
//!
//! ```text
//! header | contents | instance domains | instances | metrics | values | strings | labels
//! ```
//! Strings: names of instances and of metrics (versions 2 and 3), text values, help texts of metrics, and those of
//! instance domains. Programs keep the offsets of values, so that this order is C's. The records are those of crate `mmv`.

use libc::{EFBIG, ENOMEM};
use mmv::format::{
    Flags, HEADER_LEN, Header, INDOM_LEN, IndomRecord, LABEL_LEN, MAGIC, NAME_LEN, PAYLOAD_LEN, STRING_LEN, Section,
    TOC_LEN, Toc, VALUE_LEN, ValueRecord, Version, is_singular,
};

use crate::contents::{Contents, OwnHelp, STRING};

/// Offset of a section, and the number of its records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Table {
    pub at: usize,
    pub count: usize,
}

/// Offsets of all sections.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Layout {
    pub version: Version,
    pub len: usize,
    indoms: Table,
    instances: Table,
    pub metrics: Table,
    pub values: Table,
    pub strings: Table,
    labels: Table,
}

/// Appends the bytes of a file.
struct Writer<'a> {
    contents: &'a Contents,
    layout: &'a Layout,
    bytes: Vec<u8>,
    /// Texts of the strings section so far, in order.
    strings: Vec<&'a [u8]>,
}

impl Layout {
    /// Lays out a file. Returns the code of an error if the contents are not valid or the file is too large.
    pub(crate) fn new(contents: &Contents) -> Result<Layout, i32> {
        let version = contents.check()?;
        let (mut values, mut texts) = (0_usize, 0);
        for metric in &contents.metrics {
            let count = count(contents, metric.serial);
            values += count;
            texts += if metric.ty == STRING { count } else { 0 };
            // So few that the sum of all cannot overflow.
            if values > i32::MAX as usize {
                return Err(EFBIG);
            }
        }
        let instances = contents.indoms.iter().map(|indom| indom.instances.len()).sum();
        let names = if version == Version::V1 { 0 } else { instances + contents.metrics.len() };
        let helps = |help: &OwnHelp| help.iter().flatten().count();
        let helps = contents.metrics.iter().map(|metric| helps(&metric.help)).sum::<usize>()
            + contents.indoms.iter().map(|indom| helps(&indom.help)).sum::<usize>();
        let strings = names + texts + helps;

        let tocs = 2 + 2 * usize::from(!contents.indoms.is_empty()) + usize::from(strings > 0);
        let tocs = tocs + usize::from(!contents.labels.is_empty());
        let mut end = HEADER_LEN + tocs * TOC_LEN;
        let mut section = |count: usize, size: usize| -> Result<Table, i32> {
            let at = end;
            let section_end = count.checked_mul(size).and_then(|bytes| bytes.checked_add(end));
            end = section_end.filter(|_| count <= i32::MAX as usize).ok_or(EFBIG)?;
            Ok(Table { at, count })
        };
        let indoms = section(contents.indoms.len(), INDOM_LEN)?;
        let instances = section(instances, version.instance_len())?;
        let metrics = section(contents.metrics.len(), version.metric_len())?;
        let values = section(values, VALUE_LEN)?;
        let strings = section(strings, STRING_LEN)?;
        let labels = section(contents.labels.len(), LABEL_LEN)?;
        Ok(Layout { version, len: end, indoms, instances, metrics, values, strings, labels })
    }

    /// Returns the bytes of the file of a process.
    pub(crate) fn bytes(&self, contents: &Contents, generation: u64, process: u32) -> Result<Vec<u8>, i32> {
        let (mut bytes, mut strings) = (Vec::new(), Vec::new());
        bytes.try_reserve_exact(self.len).map_err(|_| ENOMEM)?;
        strings.try_reserve_exact(self.strings.count).map_err(|_| ENOMEM)?;
        let mut writer = Writer { contents, layout: self, bytes, strings };
        writer.head(generation, process);
        writer.records();
        writer.rest();
        debug_assert_eq!(writer.bytes.len(), self.len);
        Ok(writer.bytes)
    }

    fn string(&self, index: usize) -> u64 {
        (self.strings.at + index * STRING_LEN) as u64
    }
}

/// Returns the number of values of a metric over the domain with a serial number.
fn count(contents: &Contents, serial: u32) -> usize {
    let indom = || contents.indom(serial).map_or(0, |(_, indom)| indom.instances.len());
    if is_singular(serial) { 1 } else { indom() }
}

impl<'a> Writer<'a> {
    fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends a text with padding, cut to leave room for a NUL.
    fn put_text(&mut self, text: &[u8], room: usize) {
        let end = self.bytes.len() + room;
        self.put(text.get(..room - 1).unwrap_or(text));
        self.bytes.resize(end, 0);
    }

    fn head(&mut self, generation: u64, process: u32) {
        let layout = self.layout;
        let optional = |table: Table| Some(table).filter(|table| table.count > 0);
        let indoms = optional(layout.indoms);
        let sections = [
            (Section::Indoms, indoms),
            (Section::Instances, indoms.map(|_| layout.instances)),
            (Section::Metrics, Some(layout.metrics)),
            (Section::Values, Some(layout.values)),
            (Section::Strings, optional(layout.strings)),
            (Section::Labels, optional(layout.labels)),
        ];
        let header = Header {
            magic: MAGIC,
            version: layout.version as i32,
            g1: generation,
            g2: 0,
            tocs: sections.iter().filter(|(_, table)| table.is_some()).count() as i32,
            flags: Flags::from_bits_retain(self.contents.flags),
            process: process as i32,
            cluster: self.contents.cluster,
        };
        self.put(&header.bytes());
        for (section, table) in sections {
            let Some(table) = table else { continue };
            let toc = Toc { section: section as u32, count: table.count as i32, offset: table.at as u64 };
            self.put(&toc.bytes());
        }
    }

    /// Adds the strings. Returns the indexes of the first help text of a metric, and of a domain.
    fn strings(&mut self) -> [usize; 2] {
        let contents = self.contents;
        if self.layout.version != Version::V1 {
            let instances = contents.indoms.iter().flat_map(|indom| &indom.instances);
            self.strings.extend(instances.map(|instance| &*instance.name));
            self.strings.extend(contents.metrics.iter().map(|metric| &*metric.name));
        }
        let texts = contents.metrics.iter().filter(|metric| metric.ty == STRING);
        let texts: usize = texts.map(|metric| count(contents, metric.serial)).sum();
        self.strings.resize(self.strings.len() + texts, &[]);
        let of_metrics = self.strings.len();
        self.strings.extend(contents.metrics.iter().flat_map(|metric| &metric.help).flatten().map(|text| &**text));
        let of_indoms = self.strings.len();
        self.strings.extend(contents.indoms.iter().flat_map(|indom| &indom.help).flatten().map(|text| &**text));
        [of_metrics, of_indoms]
    }

    /// Returns the offsets of help texts, whose strings begin with number `next`.
    fn help(&self, help: &OwnHelp, next: &mut usize) -> [u64; 2] {
        help.each_ref().map(|text| {
            *next += usize::from(text.is_some());
            text.as_ref().map_or(0, |_| self.layout.string(*next - 1))
        })
    }

    fn records(&mut self) {
        let [mut of_metrics, mut of_indoms] = self.strings();
        let (contents, layout) = (self.contents, self.layout);
        let mut first = layout.instances.at;
        for indom in &contents.indoms {
            let [short, long] = self.help(&indom.help, &mut of_indoms);
            let count = indom.instances.len();
            self.put(
                &IndomRecord { serial: indom.serial, count: count as u32, offset: first as u64, short, long }.bytes(),
            );
            first += count * layout.version.instance_len();
        }
        let mut name = 0;
        for (index, indom) in contents.indoms.iter().enumerate() {
            for instance in &indom.instances {
                self.put(&((layout.indoms.at + index * INDOM_LEN) as u64).to_ne_bytes());
                self.put([[0; 4], instance.id.to_ne_bytes()].as_flattened());
                self.name(&instance.name, &mut name);
            }
        }
        for metric in &contents.metrics {
            let help = self.help(&metric.help, &mut of_metrics);
            self.name(&metric.name, &mut name);
            let words = [metric.item, metric.ty as u32, metric.semantics as u32, metric.units, metric.serial, 0];
            self.put(words.map(u32::to_ne_bytes).as_flattened());
            self.put(help.map(u64::to_ne_bytes).as_flattened());
        }
        self.values();
    }

    /// Writes a name in its place, or the offset of the next string.
    fn name(&mut self, name: &[u8], next: &mut usize) {
        if self.layout.version == Version::V1 {
            return self.put_text(name, NAME_LEN);
        }
        let at = self.layout.string(*next);
        self.put(&at.to_ne_bytes());
        *next += 1;
    }

    fn values(&mut self) {
        let (contents, layout) = (self.contents, self.layout);
        let names = if layout.version == Version::V1 { 0 } else { layout.instances.count + layout.metrics.count };
        let mut texts = names..;
        for (index, metric) in contents.metrics.iter().enumerate() {
            let metric_at = (layout.metrics.at + index * layout.version.metric_len()) as u64;
            let indom = if is_singular(metric.serial) { None } else { contents.indom(metric.serial) };
            let before = indom.map(|(index, _)| contents.indoms.iter().take(index).map(|indom| indom.instances.len()));
            let first =
                before.map(|before| layout.instances.at + before.sum::<usize>() * layout.version.instance_len());
            for n in 0..count(contents, metric.serial) {
                let instance = first.map_or(0, |first| first + n * layout.version.instance_len()) as u64;
                let text = (metric.ty == STRING).then(|| texts.next()).flatten();
                let extra = text.map_or(0, |text| layout.string(text) as i64);
                self.put(&ValueRecord { word: 0, extra, metric: metric_at, instance }.bytes());
            }
        }
    }

    fn rest(&mut self) {
        for text in std::mem::take(&mut self.strings) {
            self.put_text(text, STRING_LEN);
        }
        for label in &self.contents.labels {
            self.put(&label.flags.to_ne_bytes());
            self.put(&label.identity.to_ne_bytes());
            self.put(&label.internal.to_ne_bytes());
            self.put_text(&label.payload, PAYLOAD_LEN);
        }
    }
}
