//! The output of PCP's `mmvdump`, byte for byte, also for invalid files.
//!
//! The output is that of PCP 6.0, with the extra units of PCP 7.2. PCP 7.2 complains about negative numbers of entries, but not about 0 values or
//! instances, and reports more about strings outside of the file. For unterminated strings and truncated string
//! sections, C reads beyond the end of the file. This function stops at the end.

use std::io::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use pcp_base::escape::is_plain;
use pmapi::Units;

use crate::format::{
    Bytes, HEADER_LEN, Header, INDOM_LEN, IndomRecord, InstanceRecord, LABEL_LEN, LabelRecord, MAGIC, MetricRecord,
    NameAt, STRING_LEN, Section, TOC_LEN, Toc, VALUE_LEN, ValueRecord, ValueType, Version, is_singular,
};

/// Writes the contents of a file, and returns whether the file is valid. `name` is printed as the file's name.
///
/// Texts of the file are written unchanged; use [`dump_to_terminal`] for a terminal.
///
/// # Errors
/// The errors of writing to `out`.
pub fn dump(out: &mut impl Write, name: &[u8], bytes: &[u8]) -> io::Result<bool> {
    write(out, name, bytes, Texts::Raw)
}

/// Writes the contents of a file to a terminal, and returns whether the file is valid.
///
/// The output is that of [`dump`], with each byte of a character that is not [plain](is_plain) escaped, as in `\x1b`.
///
/// # Errors
/// The errors of writing to `out`.
pub fn dump_to_terminal(out: &mut impl Write, name: &[u8], bytes: &[u8]) -> io::Result<bool> {
    write(out, name, bytes, Texts::Escaped)
}

/// Form in which texts of the file are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Texts {
    Raw,
    Escaped,
}

impl Texts {
    fn write(self, out: &mut impl Write, text: &[u8]) -> io::Result<()> {
        if self == Texts::Raw {
            return out.write_all(text);
        }
        for chunk in text.utf8_chunks() {
            for c in chunk.valid().chars() {
                if is_plain(c) {
                    write!(out, "{c}")?
                } else {
                    c.encode_utf8(&mut [0; 4]).bytes().try_for_each(|byte| write!(out, "\\x{byte:02x}"))?
                }
            }
            chunk.invalid().iter().try_for_each(|byte| write!(out, "\\x{byte:02x}"))?;
        }
        Ok(())
    }
}

fn write(out: &mut impl Write, name: &[u8], bytes: &[u8], texts: Texts) -> io::Result<bool> {
    let bytes = Bytes::new(bytes);
    let Some((header, version)) = head(out, name, bytes, texts)? else { return Ok(false) };
    let mut valid = true;
    for index in 0..header.tocs as usize {
        let Some(toc) = Toc::read(bytes, index) else { return Ok(false) };
        if toc.count == 0 {
            writeln!(out, "Bad TOC[{index}]: invalid entry count {}", toc.count)?;
            continue;
        }
        let Some(section) = Section::from_code(toc.section) else {
            writeln!(out, "Unrecognised TOC[{index}] type: 0x{:x}", toc.section)?;
            valid = false;
            continue;
        };
        let mut table = Table { out: &mut *out, texts, bytes, version, index, toc };
        table.title(section)?;
        match (0..u64::try_from(toc.count).unwrap_or_default()).try_for_each(|i| table.entry(section, i)) {
            Ok(()) => {}
            Err(Stop::Io(e)) => return Err(e),
            Err(Stop::Bad(complaint)) => {
                writeln!(out, "{complaint}")?;
                valid = false;
            }
        }
    }
    Ok(valid)
}

/// Writes the header. Returns `None` if the rest cannot be printed.
fn head(out: &mut impl Write, name: &[u8], bytes: Bytes<'_>, texts: Texts) -> io::Result<Option<(Header, Version)>> {
    let Some(header) = Header::read(bytes) else {
        writeln!(out, "Bad file size: too small for a header")?;
        return Ok(None);
    };
    if header.magic != MAGIC {
        out.write_all(b"Bad magic: ")?;
        texts.write(out, header.magic.get(..3).unwrap_or_default())?;
        writeln!(out)?;
        return Ok(None);
    }
    let Some(version) = Version::from_code(header.version) else {
        writeln!(out, "Version {} not supported", header.version)?;
        return Ok(None);
    };
    out.write_all(b"MMV file   = ")?;
    texts.write(out, name)?;
    writeln!(out, "\nVersion    = {}\nGenerated  = {}", header.version, header.g1)?;
    if header.g1 != header.g2 {
        writeln!(out, "Generated2 = {}", header.g2)?;
        writeln!(out, "Mismatched generation numbers ({}/{})", header.g1, header.g2)?;
        return Ok(None);
    }
    writeln!(out, "TOC count  = {}", header.tocs as u32)?;
    if header.tocs < 2 {
        writeln!(out, "Bad tocs: invalid table of contents count ({})", header.tocs)?;
        return Ok(None);
    }
    writeln!(out, "Cluster    = {}", header.cluster as u32)?;
    if !(0..=i32::from(pmapi::Item::MAX_CLUSTER)).contains(&header.cluster) {
        writeln!(out, "Bad cluster: {} is not a valid cluster ID", header.cluster)?;
        return Ok(None);
    }
    writeln!(out, "Process    = {}\nFlags      = 0x{:x} ({})", header.process, header.flags.bits(), header.flags)?;
    if !bytes.has(HEADER_LEN as u64, header.tocs as u64, TOC_LEN) {
        writeln!(out, "Bad file size: too small for {} TOC entries", header.tocs)?;
        return Ok(None);
    }
    Ok(Some((header, version)))
}

/// Reason for ending a section.
enum Stop {
    /// The output cannot be written.
    Io(io::Error),
    /// The section cannot be read; with the complaint to print.
    Bad(String),
}

impl From<io::Error> for Stop {
    fn from(e: io::Error) -> Stop {
        Stop::Io(e)
    }
}

struct Table<'a, W> {
    out: &'a mut W,
    texts: Texts,
    bytes: Bytes<'a>,
    version: Version,
    index: usize,
    toc: Toc,
}

impl<'a, W: Write> Table<'a, W> {
    fn title(&mut self, section: Section) -> io::Result<()> {
        let (toc, what) = match section {
            Section::Indoms => ("offset", "indoms"),
            Section::Instances => ("offset", "instances"),
            Section::Metrics => ("toc offset", "metrics"),
            Section::Values => ("offset", "values"),
            Section::Strings => ("offset", "string"),
            Section::Labels => ("offset", "labels"),
        };
        let (index, base) = (self.index, Toc::at(self.index));
        let Toc { offset, count, .. } = self.toc;
        // C prints some offsets as signed numbers.
        match section {
            Section::Indoms | Section::Values | Section::Strings => {
                writeln!(self.out, "\nTOC[{index}]: {toc} {base}, {what} offset {offset} ({count} entries)")
            }
            Section::Instances | Section::Metrics | Section::Labels => {
                let offset = offset as i64;
                writeln!(self.out, "\nTOC[{index}]: {toc} {base}, {what} offset {offset} ({count} entries)")
            }
        }
    }

    fn entry(&mut self, section: Section, i: u64) -> Result<(), Stop> {
        match section {
            Section::Indoms => self.indom(i),
            Section::Instances => self.instance(i).map_err(|stop| match stop {
                Stop::Bad(complaint) => Stop::Bad(format!("\n{complaint}")),
                Stop::Io(_) => stop,
            }),
            Section::Metrics => self.metric(i),
            Section::Values => self.value(i),
            Section::Strings => self.string(i),
            Section::Labels => self.label(i),
        }
    }

    /// Returns the offset of the entry with this index.
    fn at(&self, i: u64, len: usize) -> u64 {
        self.toc.offset.wrapping_add(i * len as u64)
    }

    fn too_small(&self, what: &str, i: u64, rest: &str) -> Stop {
        Stop::Bad(format!("Bad file size: too small for toc[{}] {what}[{i}]{rest}", self.index))
    }

    /// Returns whether a name has no position. In version 1, a name is in its record.
    fn is_nowhere(&self, name: NameAt) -> bool {
        self.version != Version::V1 && name.at == 0
    }

    fn invalid_offset(&self, what: &str, i: u64, rest: &str) -> Stop {
        Stop::Bad(format!("Bad file: invalid offset for toc[{}] {what}[{i}]{rest}", self.index))
    }

    fn indom(&mut self, i: u64) -> Result<(), Stop> {
        let at = self.at(i, INDOM_LEN);
        let Some(indom) = IndomRecord::read(self.bytes, at) else { return Err(self.too_small("indom", i, "")) };
        let (count, offset) = (indom.count as i32, indom.offset as i64);
        writeln!(self.out, "  [{}/{}] {count} instances, starting at offset {offset}", indom.serial, at as i64)?;
        self.help("indom", i, indom.short, indom.long)
    }

    fn help(&mut self, what: &str, i: u64, short: u64, long: u64) -> Result<(), Stop> {
        for (at, name, missing) in [(short, "shorttext", " oneline"), (long, "helptext", " help")] {
            if at == 0 {
                writeln!(self.out, "       (no {name})")?;
                continue;
            }
            let Some(text) = self.bytes.string(at) else { return Err(self.too_small(what, i, missing)) };
            write!(self.out, "       {name}=")?;
            self.texts.write(self.out, cut(text))?;
            writeln!(self.out)?;
        }
        Ok(())
    }

    fn instance(&mut self, i: u64) -> Result<(), Stop> {
        let at = self.at(i, self.version.instance_len());
        let instance =
            InstanceRecord::read(self.bytes, at, self.version).ok_or_else(|| self.too_small("inst", i, ""))?;
        let indom = IndomRecord::read(self.bytes, instance.indom).ok_or_else(|| match self.version {
            Version::V1 => self.too_small("indom", i, ""),
            _ => self.too_small("inst", i, " indom"),
        })?;
        let name = instance.name.text(self.bytes).ok_or_else(|| self.too_small("inst", i, " name"))?;
        if self.is_nowhere(instance.name) {
            return Err(self.invalid_offset("inst", i, " name"));
        }
        // C computes offsets with the record size of version 1 for all versions.
        let shown = self.at(i, Version::V1.instance_len()) as i64;
        write!(self.out, "  [{}/{shown}] instance = [{} or \"", indom.serial, instance.internal)?;
        self.texts.write(self.out, cut(name))?;
        writeln!(self.out, "\"]")?;
        Ok(())
    }

    fn metric(&mut self, i: u64) -> Result<(), Stop> {
        let at = self.at(i, self.version.metric_len());
        let Some(metric) = MetricRecord::read(self.bytes, at, self.version) else {
            return Err(self.too_small("metric", i, ""));
        };
        let name = self.metric_name(&metric, "metric", i, " name")?;
        write!(self.out, "  [{}/{}] ", metric.item, at as i64)?;
        self.texts.write(self.out, name)?;
        writeln!(self.out)?;
        let (ty, sem) = (type_name(metric.ty), semantics_name(metric.semantics));
        writeln!(
            self.out,
            "       type={ty} (0x{:x}), sem={sem} (0x{:x}), pad=0x{:x}",
            metric.ty, metric.semantics, metric.padding
        )?;
        writeln!(self.out, "       units={}", units_text(metric.units))?;
        if is_singular(metric.indom) {
            writeln!(self.out, "       (no indom)")?;
        } else {
            writeln!(self.out, "       indom={}", metric.indom as i32)?;
        }
        self.help("metric", i, metric.short, metric.long)
    }

    fn metric_name(&self, metric: &MetricRecord, what: &str, i: u64, rest: &str) -> Result<&'a [u8], Stop> {
        let name = metric.name.text(self.bytes).ok_or_else(|| self.too_small(what, i, rest))?;
        if self.is_nowhere(metric.name) { Err(self.invalid_offset(what, i, rest)) } else { Ok(cut(name)) }
    }

    fn value(&mut self, i: u64) -> Result<(), Stop> {
        let at = self.at(i, VALUE_LEN);
        let toc = self.index;
        let Some(value) = ValueRecord::read(self.bytes, at) else { return Err(self.too_small("value", i, "")) };
        let Some(metric) = MetricRecord::read(self.bytes, value.metric, self.version) else {
            return Err(Stop::Bad(format!("Bad file size: toc[{toc}] value[{i}] metric offset")));
        };
        let name = self.metric_name(&metric, "value", i, " mname")?;
        write!(self.out, "  [{}/{at}] ", metric.item)?;
        self.texts.write(self.out, name)?;
        if !is_singular(metric.indom) {
            self.value_instance(&value, i)?;
        }
        Ok(self.number(&value, &metric, i)?)
    }

    fn value_instance(&mut self, value: &ValueRecord, i: u64) -> Result<(), Stop> {
        let toc = self.index;
        let Some(instance) = InstanceRecord::read(self.bytes, value.instance, self.version) else {
            return Err(Stop::Bad(format!("\nBad file size: toc[{toc}] value[{i}] inst offset")));
        };
        let Some(name) = instance.name.text(self.bytes) else {
            return Err(self.too_small("value", i, " iname"));
        };
        if self.is_nowhere(instance.name) {
            return Err(self.invalid_offset("metric", i, " iname"));
        }
        write!(self.out, "[{} or \"", instance.internal)?;
        self.texts.write(self.out, cut(name))?;
        write!(self.out, "\"]")?;
        Ok(())
    }

    fn number(&mut self, value: &ValueRecord, metric: &MetricRecord, i: u64) -> io::Result<()> {
        let half = value.half();
        match ValueType::from_code(metric.ty) {
            Ok(ValueType::I32) => writeln!(self.out, " = {}", half as i32),
            Ok(ValueType::U32) => writeln!(self.out, " = {half}"),
            Ok(ValueType::I64) => writeln!(self.out, " = {}", value.word as i64),
            Ok(ValueType::U64) => writeln!(self.out, " = {}", value.word),
            Ok(ValueType::Float) => writeln!(self.out, " = {}", float(f32::from_bits(half).into())),
            Ok(ValueType::Double) => writeln!(self.out, " = {}", float(f64::from_bits(value.word))),
            Ok(ValueType::String) => self.text(value, i),
            Ok(ValueType::Elapsed) => self.elapsed(value),
            Ok(ValueType::NoSupport) | Err(_) => writeln!(self.out, "Unknown type {}", metric.ty),
        }
    }

    fn text(&mut self, value: &ValueRecord, i: u64) -> io::Result<()> {
        let Some(text) = self.bytes.string(value.extra as u64) else {
            return writeln!(self.out, " = ?\nBad file size: toc[{}] str value[{i}] extra", self.index);
        };
        write!(self.out, " = \"")?;
        self.texts.write(self.out, text)?;
        writeln!(self.out, "\"")
    }

    fn elapsed(&mut self, value: &ValueRecord) -> io::Result<()> {
        let (word, extra) = (value.word as i64, value.extra);
        let total = value.elapsed(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
        write!(self.out, " = {total} (value={word}/extra={extra})")?;
        if extra > 0 {
            write!(self.out, "\nBad (positive) ELAPSED 'extra' value found!")?;
        }
        writeln!(self.out)
    }

    fn string(&mut self, i: u64) -> Result<(), Stop> {
        let at = self.at(i, STRING_LEN);
        let Some(text) = self.bytes.string(at) else {
            return Err(Stop::Bad(format!("Bad file size: toc[{}] string[{i}]", self.index)));
        };
        write!(self.out, "  [{}/{at}] ", i + 1)?;
        self.texts.write(self.out, text)?;
        writeln!(self.out)?;
        Ok(())
    }

    fn label(&mut self, i: u64) -> Result<(), Stop> {
        let at = self.at(i, LABEL_LEN);
        let Some(label) = LabelRecord::read(self.bytes, at) else { return Err(self.too_small("metric", i, "")) };
        write!(self.out, "  [{}/{at}] ", i + 1)?;
        self.texts.write(self.out, label.payload.text(self.bytes).unwrap_or_default())?;
        writeln!(self.out, "\n        flags=0x{:x}, identity=0x{:x}", label.flags, label.identity)?;
        writeln!(self.out, "        internal=0x{:x}", label.internal)?;
        Ok(())
    }
}

/// Cuts a text as C does: C terminates its copy of a string, so the last byte of an unterminated string is not printed.
fn cut(text: &[u8]) -> &[u8] {
    text.get(..STRING_LEN - 1).unwrap_or(text)
}

/// Formats a number as C's `%f` does.
fn float(value: f64) -> String {
    if value.is_nan() {
        let sign = if value.is_sign_negative() { "-" } else { "" };
        return format!("{sign}nan");
    }
    format!("{value:.6}")
}

/// Formats units as PCP 6.0 does, which prints a scale without a dimension as `x 10^6`; extra units as PCP 7.2.
fn units_text(units: Units) -> String {
    let text = units.to_string();
    text.strip_prefix("count ").filter(|_| units.is_dimensionless()).map(str::to_owned).unwrap_or(text)
}

fn type_name(code: i32) -> &'static str {
    match ValueType::from_code(code) {
        Ok(ValueType::I32) => "32-bit int",
        Ok(ValueType::U32) => "32-bit unsigned int",
        Ok(ValueType::I64) => "64-bit int",
        Ok(ValueType::U64) => "64-bit unsigned int",
        Ok(ValueType::Float) => "float",
        Ok(ValueType::Double) => "double",
        Ok(ValueType::String) => "string",
        Ok(ValueType::Elapsed) => "elapsed",
        Ok(ValueType::NoSupport) | Err(_) => "?",
    }
}

fn semantics_name(code: i32) -> &'static str {
    match code {
        1 => "counter",
        3 => "instant",
        4 => "discrete",
        _ => "?",
    }
}
