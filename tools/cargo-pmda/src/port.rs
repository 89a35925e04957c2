//! The source file of an agent that declares the metrics of another one.

use std::collections::HashSet;
use std::fmt::Write as _;

use pmapi::{Item, Semantics, Type, Units};

use crate::original::{Metric, Original};

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
    let metrics: Vec<_> = original.metrics.iter().map(|metric| (metric, constants.of(metric, old))).collect();
    let (mut items, mut declared, mut arms) = (String::new(), String::new(), String::new());
    for (metric, constant) in &metrics {
        let Some(constant) = constant else {
            _ = writeln!(
                declared,
                "        // {} is another name of the metric above, and each metric has one.",
                metric.name
            );
            continue;
        };
        let item = metric.desc.pmid.item();
        let number = format!("Item::new({}, {})", item.cluster(), item.item());
        let name = renamed(&metric.name, old, name);
        declared += &match value_type(metric) {
            Some(ty) => declaration(
                metric,
                &name,
                &number,
                &format!(".getter(|_: &Self| Err::<{ty}, Error>(Error::APPVERSION))"),
            ),
            None => {
                _ = writeln!(items, "const {constant}: Item = {number};");
                _ = writeln!(arms, "            {constant} => Err(Error::APPVERSION),");
                declaration(metric, &name, constant, "")
            }
        };
    }
    let mut indoms = String::new();
    for (serial, domain) in &original.indoms {
        _ = writeln!(items, "const {}: Serial = Serial::new({});", indom(serial.get()), serial.get());
        let mut line = format!("        setup.indom({})", indom(serial.get()));
        if !domain.present.is_empty() {
            let present = domain.present.iter().map(|(inst, name)| format!("({}, {name:?})", inst.word()));
            line += &format!(".instances([{}])", present.collect::<Vec<_>>().join(", "));
        }
        _ = writeln!(indoms, "{line}{};", help(&domain.texts));
    }
    if !indoms.is_empty() {
        indoms.insert_str(
            0,
            "        // Instances that come and go are rows of a `Table`, as in the template `table`. Those that are listed here were \
             there when this file\n        // was written.\n",
        );
    }
    let fetch = if arms.is_empty() { String::new() } else { fetch(&arms) };
    format!(
        "//! Agent `{name}`, with the metrics of the agent `{old}`: names, numbers, types, units and help. The help is that of the original,
//! under its licence.
//!
//! `APPVERSION` tells clients that this version of the agent has no value for the metric. Each one is to be replaced by the value.

use pmda::prelude::*;

{items}
/// The agent, with its state between two requests.
#[derive(Debug)]
pub struct {type_name};

impl Agent for {type_name} {{
    const NAME: &'static str = {name:?};
    const DOMAIN: u16 = {domain};

    fn new(setup: &mut Setup) -> Start<Self> {{
{indoms}{declared}        Ok({type_name})
    }}
{fetch}}}

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

/// Returns the method for the metrics that have no getter.
fn fetch(arms: &str) -> String {
    format!(
        "
    /// The metrics with instances: `out.put_inst(inst, value)` for each. Those of a table can have a getter, as in the
    /// template `table`.
    fn fetch(&mut self, item: Item, _: &mut Values<'_>) -> Result {{
        match item {{
{arms}            _ => Err(Error::PMID),
        }}
    }}
"
    )
}

/// Returns the Rust type of a metric that can have a getter: a number or a text without instances.
fn value_type(metric: &Metric) -> Option<&'static str> {
    let ty = match metric.desc.ty {
        Type::I32 => "i32",
        Type::U32 => "u32",
        Type::I64 => "i64",
        Type::U64 => "u64",
        Type::Float => "f32",
        Type::Double => "f64",
        Type::String => "String",
        _ => return None,
    };
    metric.desc.indom.is_none().then_some(ty)
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
        // `a.b_c` and `a_b.c`, and the constants of instance domains.
        while constant.starts_with("INDOM_") || !self.used.insert(constant.clone()) {
            constant = format!("{constant}_{}_{}", item.cluster(), item.item()).replacen("INDOM_", "OF_INDOM_", 1);
        }
        Some(constant)
    }
}

fn indom(serial: u32) -> String {
    format!("INDOM_{serial}")
}

/// Returns a metric's name, with another first component if that is the name of the original agent.
fn renamed(metric: &str, old: &str, new: &str) -> String {
    match metric.strip_prefix(old) {
        Some(rest) if rest.starts_with('.') || rest.is_empty() => format!("{new}{rest}"),
        _ => metric.to_owned(),
    }
}

fn declaration(metric: &Metric, name: &str, number: &str, getter: &str) -> String {
    let desc = &metric.desc;
    let mut text = format!("        setup.metric({name:?}, {number}, Type::{})", type_of(desc.ty));
    match desc.semantics {
        Semantics::Counter => text += ".counter()",
        Semantics::Discrete => text += ".discrete()",
        _ => {}
    }
    if let Some(domain) = desc.indom {
        text += &format!(".indom({})", indom(domain.serial().get()));
    }
    if desc.units != Units::NONE {
        text += &format!(".units({})", units(desc.units));
    }
    text + &help(&metric.texts) + getter + ";\n"
}

fn type_of(ty: Type) -> String {
    // The names of the variants.
    format!("{ty:?}")
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
