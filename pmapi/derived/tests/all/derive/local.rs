//! The installed libpcp with the metrics of `data/derive/agent.c` in its local context: without pmcd, and with the same
//! values at the same times in each run.

use std::process::Command;

use testkit::Pcp;

use crate::derive::live::{Oracle, compile, data};

pub(crate) const SAMPLES: u32 = 4;

pub(crate) const TYPES: [&str; 6] = ["i32", "u32", "i64", "u64", "float", "double"];
pub(crate) const SEMANTICS: [&str; 3] = ["counter", "instant", "discrete"];
pub(crate) const UNITS: [&str; 10] =
    ["byte", "mbyte", "msec", "hour", "count", "kcount", "byte_sec", "kbyte_hour", "per_msec", "sec2"];
pub(crate) const REST: [&str; 15] = [
    "text",
    "aggregate",
    "fails",
    "sometimes",
    "never",
    "moving",
    "small_counter",
    "other",
    "guard",
    "named",
    "named_counter",
    "named_text",
    "event",
    "high_event",
    "forbidden",
];
/// Units of libpcp 7.2.
const EXTRAS: [&str; 5] = ["celsius", "fahrenheit", "volt", "millivolt", "watt"];
const MISSING: [&str; 3] = ["e.unknown", "e.no_such", "no.such.metric"];

/// Compiles the agent and an oracle for it.
pub(crate) fn oracle() -> Oracle {
    Pcp::required();
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    compile(&data("agent.c"), &path("agent.so"), &["-shared", "-fPIC"]);
    compile(&data("agent.c"), &path("names"), &[]);
    std::fs::write(path("pmns"), Command::new(path("names")).output().unwrap().stdout).unwrap();
    let place = format!("{},edges_init,{}", path("agent.so").display(), path("pmns").display());
    Oracle::new(dir, place)
}

/// Returns the name of the operand of a type, with semantics, singular or with instances.
pub(crate) fn plain(ty: &str, semantics: &str, many: bool) -> String {
    format!("e.{ty}_{semantics}_{}", if many { "many" } else { "one" })
}

/// Returns the operands with units.
pub(crate) fn with_units() -> Vec<String> {
    let names = |unit: &&str| {
        let kinds = ["u32", "i64", "double"].iter().flat_map(|ty| ["counter", "instant"].map(|sem| (*ty, sem)));
        kinds.map(|(ty, sem)| format!("e.{unit}_{ty}_{sem}")).collect::<Vec<_>>()
    };
    UNITS.iter().flat_map(names).collect()
}

/// Returns all operands, and names that the agent does not know.
pub(crate) fn operands() -> Vec<String> {
    let plain = TYPES
        .iter()
        .flat_map(|ty| SEMANTICS.iter().flat_map(|semantics| [false, true].map(|many| plain(ty, semantics, many))));
    let rest = REST.iter().map(|name| format!("e.{name}"));
    let extras = EXTRAS.iter().flat_map(|unit| ["counter", "instant"].map(|sem| format!("e.{unit}_{sem}")));
    plain.chain(with_units()).chain(rest).chain(extras).chain(MISSING.map(str::to_owned)).collect()
}
