//! The contents of a file as a JSON object.

use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mmv_reader::format::{Flags, ValueRecord, ValueType};
use mmv_reader::{self as reader, File, TextKind};
use pcp_base::escape::escaped_json;
use pmapi::{LabelFlags, LabelLevel, Semantics, Units};
use serde::Serialize;
use serde_json::Value;

/// Writes the object, and returns whether the file is valid.
pub(crate) fn dump(out: &mut impl Write, path: &Path, bytes: Vec<u8>) -> io::Result<bool> {
    let name = path.display().to_string();
    let (shown, valid) = match File::parse(bytes) {
        Ok(file) => (Shown::new(name, &file), file.problems().count() == 0),
        Err(e) => (Shown { file: name, error: Some(e.to_string()), ..Shown::default() }, false),
    };
    let text = serde_json::to_string_pretty(&shown)?;
    // JSON need not escape all characters that act on a terminal.
    writeln!(out, "{}", escaped_json(&text))?;
    Ok(valid)
}

#[derive(Serialize, Default)]
struct Shown {
    file: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(flatten)]
    contents: Option<Contents>,
}

#[derive(Serialize)]
struct Contents {
    version: i32,
    generation: u64,
    cluster: i32,
    process: i32,
    flags: Vec<&'static str>,
    indoms: Vec<Indom>,
    metrics: Vec<Metric>,
    labels: Vec<Label>,
    problems: Vec<String>,
}

#[derive(Serialize)]
struct Indom {
    serial: u32,
    #[serde(flatten)]
    texts: Texts,
    instances: Vec<Instance>,
}

#[derive(Serialize)]
struct Instance {
    id: i32,
    name: String,
}

#[derive(Serialize)]
struct Metric {
    name: String,
    item: u32,
    #[serde(rename = "type")]
    ty: &'static str,
    semantics: Semantics,
    units: Units,
    indom: Option<u32>,
    #[serde(flatten)]
    texts: Texts,
    values: Vec<Sample>,
}

#[derive(Serialize)]
struct Texts {
    oneline: Option<String>,
    help: Option<String>,
}

#[derive(Serialize)]
struct Sample {
    #[serde(skip_serializing_if = "Option::is_none")]
    instance: Option<i32>,
    value: Value,
}

#[derive(Serialize)]
struct Label {
    level: &'static str,
    identity: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    instance: Option<i32>,
    optional: bool,
    labels: Value,
}

impl Shown {
    fn new(name: String, file: &File) -> Shown {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let header = file.header();
        let flags = [(Flags::NO_PREFIX, "noprefix"), (Flags::PROCESS, "process"), (Flags::SENTINEL, "sentinel")];
        let contents = Contents {
            version: header.version,
            generation: header.g1,
            cluster: header.cluster,
            process: header.process,
            flags: flags.iter().filter(|(f, _)| header.flags.contains(*f)).map(|(_, name)| *name).collect(),
            indoms: file.indoms().iter().map(|indom| Indom::new(file, indom)).collect(),
            metrics: file.metrics().iter().map(|metric| Metric::new(file, metric, now)).collect(),
            labels: file.labels().iter().map(|label| Label::new(file, label)).collect(),
            problems: file.problems().first().iter().map(ToString::to_string).collect(),
        };
        Shown { file: name, error: None, contents: Some(contents) }
    }
}

impl Indom {
    fn new(file: &File, indom: &reader::Indom) -> Indom {
        Indom {
            serial: indom.serial,
            texts: Texts::new(|which| file.indom_help(indom, which)),
            instances: indom
                .instances()
                .iter()
                .map(|i| Instance { id: i.id, name: text(file.instance_name(i)) })
                .collect(),
        }
    }
}

impl Metric {
    fn new(file: &File, metric: &reader::Metric, now: Duration) -> Metric {
        Metric {
            name: text(file.name(metric)),
            item: metric.item,
            ty: type_name(metric.ty),
            semantics: metric.semantics,
            units: metric.units,
            indom: metric.indom,
            texts: Texts::new(|which| file.help(metric, which)),
            values: metric
                .values()
                .iter()
                .filter_map(|value| {
                    let record = file.value(value.index)?;
                    let instance = metric.indom.map(|_| value.instance);
                    Some(Sample { instance, value: number(file, metric.ty, &record, now) })
                })
                .collect(),
        }
    }
}

impl Texts {
    fn new<'a>(help: impl Fn(TextKind) -> Option<&'a [u8]>) -> Texts {
        Texts { oneline: help(TextKind::OneLine).map(text), help: help(TextKind::Help).map(text) }
    }
}

impl Label {
    fn new(file: &File, label: &reader::Label) -> Label {
        let payload = file.payload(label);
        let level = match LabelLevel::from_code(label.flags) {
            Some(LabelLevel::Cluster) => "cluster",
            Some(LabelLevel::Item) => "item",
            Some(LabelLevel::InDom) => "indom",
            Some(LabelLevel::Instances) => "instances",
            Some(LabelLevel::Context | LabelLevel::Domain) | None => "?",
        };
        Label {
            level,
            identity: label.identity,
            instance: (level == "instances").then_some(label.instance),
            optional: label.flags & u32::from(LabelFlags::OPTIONAL.bits()) != 0,
            labels: serde_json::from_slice(payload).unwrap_or_else(|_| Value::String(text(payload))),
        }
    }
}

/// Returns the value, or null for a number that JSON cannot express.
fn number(file: &File, ty: ValueType, value: &ValueRecord, now: Duration) -> Value {
    match ty {
        ValueType::I32 => (value.half() as i32).into(),
        ValueType::U32 => value.half().into(),
        ValueType::I64 => (value.word as i64).into(),
        ValueType::U64 => value.word.into(),
        ValueType::Float => f32::from_bits(value.half()).into(),
        ValueType::Double => f64::from_bits(value.word).into(),
        ValueType::Elapsed => value.elapsed(now).into(),
        ValueType::String => file.string(value).map_or(Value::Null, |string| text(string).into()),
        ValueType::NoSupport => Value::Null,
    }
}

fn type_name(ty: ValueType) -> &'static str {
    match ty {
        ValueType::NoSupport => "unsupported",
        ValueType::I32 => "i32",
        ValueType::U32 => "u32",
        ValueType::I64 => "i64",
        ValueType::U64 => "u64",
        ValueType::Float => "float",
        ValueType::Double => "double",
        ValueType::String => "string",
        ValueType::Elapsed => "elapsed",
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
