//! The source file of an agent that declares the metrics of another one.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;

use pmapi::{Item, Semantics, Serial, Type, Units};

use crate::original::{Instances, Metric, Original};

/// Units that have a name in `pmapi::Units`.
const UNITS: [(Units, &str); 12] = [
    (Units::COUNT, "COUNT"),
    (Units::BYTES, "BYTES"),
    (Units::KBYTES, "KBYTES"),
    (Units::MBYTES, "MBYTES"),
    (Units::GBYTES, "GBYTES"),
    (Units::TBYTES, "TBYTES"),
    (Units::NANOSECONDS, "NANOSECONDS"),
    (Units::MICROSECONDS, "MICROSECONDS"),
    (Units::MILLISECONDS, "MILLISECONDS"),
    (Units::SECONDS, "SECONDS"),
    (Units::MINUTES, "MINUTES"),
    (Units::HOURS, "HOURS"),
];

/// Returns `src/lib.rs` of the agent with this name, type and domain. The names of the metrics keep all but the name of the
/// original agent, which is that of its directory.
pub(crate) fn source((name, type_name, domain): (&str, &str, u16), original: &Original, old: &str) -> String {
    let mut constants = Constants::default();
    let mut parts = Parts::default();
    for metric in &original.metrics {
        let Some(constant) = constants.of(metric, old) else {
            _ = writeln!(
                parts.singles,
                "        // {} is another name of a metric here, and each metric has one.",
                metric.name
            );
            continue;
        };
        parts.declare(metric, &renamed(&metric.name, old, name), &constant);
    }
    let Parts { items, singles, columns, arms } = parts;
    let (mut rows, mut fields, mut tables, mut reads) = Default::default();
    for (serial, domain) in &original.indoms {
        table((serial.get(), domain), columns.get(serial), [&mut rows, &mut fields, &mut tables, &mut reads]);
    }
    let fetch = if arms.is_empty() { String::new() } else { fetch(&arms) };
    let refresh = if reads.is_empty() { String::new() } else { refresh(&reads) };
    let names: Vec<_> = original.indoms.keys().map(|serial| indom(serial.get())).collect();
    let (fields, made) = match names.is_empty() {
        true => (";".to_owned(), type_name.to_owned()),
        false => (format!(" {{\n{fields}}}"), format!("{type_name} {{ {} }}", names.join(", "))),
    };
    let about = if original.has_help() {
        "names, numbers, types, units and help. The help is that of the original,\n//! under its licence."
    } else {
        "names, numbers, types and units. The original has no help."
    };
    format!(
        "//! Agent `{name}`, with the metrics of the agent `{old}`: {about}
//!
//! `APPVERSION` tells clients that this version of the agent has no value for the metric. Each one is to be replaced by the value.

use pmda::prelude::*;

{items}{rows}
/// The agent, with its state between two requests.
#[derive(Debug)]
pub struct {type_name}{fields}

impl Agent for {type_name} {{
    const NAME: &'static str = {name:?};
    const DOMAIN: u16 = {domain};

    fn new(setup: &mut Setup) -> Result<Self, BoxError> {{
{singles}{tables}        Ok({made})
    }}
{refresh}{fetch}}}

pmda::dso!({name}_init, {type_name});

#[cfg(test)]
mod tests {{
    use super::*;

    #[test]
    fn metrics_are_declared() {{
        let agent = pcp_collector::Local::<{type_name}>::collector().unwrap();
        agent.metric({:?}).unwrap();
    }}
}}
",
        renamed(&original.metrics[0].name, old, name)
    )
}

/// Parts of the source file.
#[derive(Default)]
struct Parts {
    /// Numbers of the metrics without a getter.
    items: String,
    /// Declarations of the metrics without instances.
    singles: String,
    /// Declarations of the metrics of each table.
    columns: BTreeMap<Serial, String>,
    /// Arms of `fetch`.
    arms: String,
}

impl Parts {
    fn declare(&mut self, metric: &Metric, name: &str, constant: &str) {
        let item = metric.desc.pmid.item();
        let number = format!("Item::new({}, {})", item.cluster(), item.item());
        let (place, owner, agent) = match metric.desc.indom {
            Some(domain) => {
                let serial = domain.serial();
                (self.columns.entry(serial).or_default(), indom(serial.get()), "_".to_owned())
            }
            None => (&mut self.singles, "setup".to_owned(), "_: &Self".to_owned()),
        };
        let desc = &metric.desc;
        let mut text = match value_type(desc.ty) {
            Some(ty) => {
                let kind = match desc.semantics {
                    Semantics::Counter => "counter",
                    Semantics::Discrete => "discrete",
                    _ => "gauge",
                };
                format!("        {owner}.{kind}({name:?}, {number}, |{agent}| Err::<{ty}, Error>(Error::APPVERSION))")
            }
            None => {
                _ = writeln!(self.items, "const {constant}: Item = {number};");
                _ = writeln!(self.arms, "            {constant} => Err(Error::APPVERSION),");
                let semantics = match desc.semantics {
                    Semantics::Counter => ".counter()",
                    Semantics::Discrete => ".discrete()",
                    _ => "",
                };
                format!("        {owner}.metric({name:?}, {constant}, Type::{:?}){semantics}", desc.ty)
            }
        };
        if desc.units != Units::NONE {
            text += &format!(".units({})", units(desc.units));
        }
        *place += &(text + &help(&metric.texts) + ";\n");
    }
}

/// Adds the table of an instance domain: the type of its rows, its field, its declaration, and how it is read.
fn table((serial, domain): (u32, &Instances), columns: Option<&String>, to: [&mut String; 4]) {
    let [rows, fields, tables, reads] = to;
    let name = indom(serial);
    _ = writeln!(rows, "/// A row of instance domain {serial}.\n#[derive(Debug)]\nstruct Row{serial};\n");
    _ = writeln!(fields, "    {name}: Table<Row{serial}>,");
    if !domain.present.is_empty() {
        let present = domain.present.iter().map(|(inst, name)| format!("{} {name:?}", inst.word()));
        let present = present.collect::<Vec<_>>().join(", ");
        _ = writeln!(tables, "        // Its instances when this file was written: {present}.");
    }
    _ = writeln!(tables, "        let mut {name} = setup.table(Serial::new({serial}), |agent: &Self| &agent.{name});");
    let texts = help(&domain.texts);
    if !texts.is_empty() {
        _ = writeln!(tables, "        {name}{texts};");
    }
    *tables += columns.map_or("", String::as_str);
    _ = writeln!(tables, "        let {name} = {name}.finish(setup);");
    _ = writeln!(reads, "        self.{name}.refresh(request, |_rows| Err(Error::APPVERSION));");
}

/// Returns the method that reads the rows of tables.
fn refresh(reads: &str) -> String {
    format!(
        "
    /// Reads the rows of the tables. In place of the error: `rows.add(name, Row {{ … }})` for each row, and `Ok(())`.
    fn refresh(&mut self, request: Request<'_>, _: Client) -> Result {{
{reads}        Ok(())
    }}
"
    )
}

/// Returns the method for the metrics that have no getter.
fn fetch(arms: &str) -> String {
    format!(
        "
    /// The metrics without a getter, such as events: `out.put_events(&self.queue)`.
    fn fetch(&mut self, item: Item, _: &mut Values<'_>) -> Result {{
        match item {{
{arms}            _ => Err(Error::PMID),
        }}
    }}
"
    )
}

/// Returns the Rust type of a metric that can have a getter: a number or a text.
fn value_type(ty: Type) -> Option<&'static str> {
    Some(match ty {
        Type::I32 => "i32",
        Type::U32 => "u32",
        Type::I64 => "i64",
        Type::U64 => "u64",
        Type::Float => "f32",
        Type::Double => "f64",
        Type::String => "String",
        _ => return None,
    })
}

/// Names of constants, each of which is used once.
#[derive(Default)]
struct Constants {
    used: HashSet<String>,
    last: Option<Item>,
}

impl Constants {
    /// Returns a name for a metric's number, or `None` for a number that has one already.
    fn of(&mut self, metric: &Metric, old: &str) -> Option<String> {
        let item = metric.desc.pmid.item();
        if self.last.replace(item) == Some(item) {
            return None;
        }
        let short = metric.name.strip_prefix(old).and_then(|rest| rest.strip_prefix('.')).unwrap_or(&metric.name);
        let mut constant: String =
            short.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect();
        if !constant.starts_with(|c: char| c.is_ascii_uppercase()) {
            constant.insert_str(0, "M_");
        }
        // `a.b_c` and `a_b.c`.
        while !self.used.insert(constant.clone()) {
            constant = format!("{constant}_{}_{}", item.cluster(), item.item());
        }
        Some(constant)
    }
}

fn indom(serial: u32) -> String {
    format!("indom_{serial}")
}

/// Returns a metric's name, with another first component if that is the name of the original agent.
fn renamed(metric: &str, old: &str, new: &str) -> String {
    match metric.strip_prefix(old) {
        Some(rest) if rest.starts_with('.') || rest.is_empty() => format!("{new}{rest}"),
        _ => metric.to_owned(),
    }
}

fn units(units: Units) -> String {
    match UNITS.iter().find(|(named, _)| *named == units) {
        Some((_, name)) => format!("Units::{name}"),
        None => format!("Units::from_word({:#010x}) /* {units} */", units.word()),
    }
}

/// Returns the call that sets the texts, or nothing if there is none.
fn help([oneline, text]: &[String; 2]) -> String {
    match (oneline.is_empty(), text.is_empty()) {
        (true, true) => String::new(),
        _ => format!(".help(\n            {},\n            {},\n        )", literal(oneline), literal(text)),
    }
}

/// Returns a string literal with a line for each line of the text.
fn literal(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let quoted = format!("{line:?}");
        let line = &quoted[1..quoted.len() - 1];
        // Blanks at the beginning of a line that continues a literal are not part of it.
        match line.strip_prefix(' ') {
            Some(rest) => format!("\\x20{rest}"),
            None => line.to_owned(),
        }
    });
    format!("\"{}\"", lines.collect::<Vec<_>>().join("\\n\\\n             "))
}
