//! The metrics of tags and of the agent itself. Names, types and units are those of PCP's agent.

use pmda::prelude::*;
use trace::protocol::Kind;

use crate::options::Options;
use crate::tags::{Bucket, Tag, Tags};

pub(crate) const RESET: Item = Item::new(0, 15);
pub(crate) const DEBUG: Item = Item::new(0, 16);
const PERIOD: Item = Item::new(0, 11);
const INTERVAL: Item = Item::new(0, 12);
const BUCKETS: Item = Item::new(0, 13);
const PORT: Item = Item::new(0, 14);

/// Metric whose instances are the tags of a kind of trace event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Field {
    Count,
    Rate,
    AveTime,
    MinTime,
    MaxTime,
    TotalTime,
    Value,
}

const FIELDS: [(u16, Kind, Field); 14] = [
    (0, Kind::Transact, Field::Count),
    (1, Kind::Transact, Field::Rate),
    (2, Kind::Transact, Field::AveTime),
    (3, Kind::Transact, Field::MinTime),
    (4, Kind::Transact, Field::MaxTime),
    (5, Kind::Transact, Field::TotalTime),
    (6, Kind::Point, Field::Count),
    (7, Kind::Point, Field::Rate),
    (8, Kind::Observe, Field::Count),
    (9, Kind::Observe, Field::Rate),
    (10, Kind::Observe, Field::Value),
    (17, Kind::Counter, Field::Count),
    (18, Kind::Counter, Field::Rate),
    (19, Kind::Counter, Field::Value),
];

const fn indom(kind: Kind) -> Serial {
    Serial::new(kind as u32 - 1)
}

pub(crate) fn kind_of(serial: Serial) -> Option<Kind> {
    Kind::ALL.into_iter().find(|kind| indom(*kind) == serial)
}

/// Returns a kind's name in metrics, its noun in help texts, and the C function that traces it.
fn words(kind: Kind) -> (&'static str, &'static str, &'static str) {
    match kind {
        Kind::Transact => ("transact", "transaction", "pmtracebegin(3)"),
        Kind::Point => ("point", "point", "pmtracepoint(3)"),
        Kind::Observe => ("observe", "observation", "pmtraceobs(3)"),
        Kind::Counter => ("counter", "counter", "pmtracecounter(3)"),
    }
}

/// A metric of the agent itself: name below `control`, item, type, units, one-line help, and help text.
type Control = (&'static str, Item, Type, Units, &'static str, &'static str);

const CONTROLS: [Control; 6] = [
    (
        "period",
        PERIOD,
        Type::U32,
        Units::SECONDS,
        "Period of rates and times",
        "Rates, and average, minimum and maximum times, cover about this many seconds. The\n\
         agent's option -T sets the period.",
    ),
    (
        "interval",
        INTERVAL,
        Type::U32,
        Units::SECONDS,
        "Time between updates of rates and times",
        "The period consists of buckets of this many seconds. A trace event appears in rates and\n\
         times when its bucket is complete.",
    ),
    (
        "buckets",
        BUCKETS,
        Type::U32,
        Units::NONE,
        "Number of buckets in the period",
        "The agent's option -N sets the number.",
    ),
    (
        "port",
        PORT,
        Type::U32,
        Units::NONE,
        "TCP port for applications",
        "The agent's option -I sets the port, or PCP_TRACE_PORT in its environment. The default\n\
         is 4323.",
    ),
    (
        "reset",
        RESET,
        Type::U32,
        Units::NONE,
        "Any value stored here resets all tags",
        "After pmstore(1), no metric has instances until the next trace event. A tag that is\n\
         used again keeps its instance number.",
    ),
    (
        "debug",
        DEBUG,
        Type::String,
        Units::NONE,
        "Debug options",
        "Comma-separated names of pmdbg(1). They select what the agent writes to its log.\n\
         pmstore(1) changes them.",
    ),
];

pub(crate) fn declare(setup: &mut Setup, options: &Options) {
    let prefix = setup.name().to_owned();
    for kind in Kind::ALL {
        let (_, one, function) = words(kind);
        setup.indom(indom(kind)).help(
            format!("Tags of {one}s"),
            format!("One instance for each tag that applications pass to {function}."),
        );
    }
    for (item, kind, field) in FIELDS {
        declare_field(setup, &prefix, Item::new(0, item), (kind, field), options);
    }
    for (name, item, ty, units, oneline, text) in CONTROLS {
        let metric = setup.metric(format!("{prefix}.control.{name}"), item, ty).discrete().units(units);
        let metric = if matches!(item, RESET | DEBUG) { metric.restricted() } else { metric.storable() };
        metric.help(oneline, text);
    }
}

fn declare_field(setup: &mut Setup, prefix: &str, item: Item, (kind, field): (Kind, Field), options: &Options) {
    let (name, ty, units) = field.desc(kind, options);
    let (oneline, text) = field.help(kind);
    let metric = setup.metric(format!("{prefix}.{}.{name}", words(kind).0), item, ty).indom(indom(kind)).units(units);
    if matches!(field, Field::Count | Field::TotalTime) || (kind, field) == (Kind::Counter, Field::Value) {
        metric.counter();
    }
    metric.storable().help(oneline, text);
}

impl Field {
    /// Returns the last component of the metric's name, its type, and its units.
    fn desc(self, kind: Kind, options: &Options) -> (&'static str, Type, Units) {
        match self {
            Field::Count => ("count", Type::U64, Units::COUNT),
            Field::Rate => ("rate", Type::Float, Units::COUNT.per(Units::SECONDS)),
            Field::AveTime => ("ave_time", Type::Float, Units::SECONDS.per(Units::COUNT)),
            Field::MinTime => ("min_time", Type::Float, Units::SECONDS),
            Field::MaxTime => ("max_time", Type::Float, Units::SECONDS),
            Field::TotalTime => ("total_time", Type::Double, Units::SECONDS),
            Field::Value if kind == Kind::Observe => ("value", Type::Double, options.observe),
            Field::Value => ("value", Type::Double, options.counter),
        }
    }

    /// Returns the one-line help and the help text.
    fn help(self, kind: Kind) -> (String, String) {
        let (_, one, function) = words(kind);
        let recent = "Covers transactions that ended in the complete buckets of the period.";
        let (oneline, text) = match self {
            Field::Count => {
                let text = format!("Number of {one}s of each tag since the agent was started or reset ({function}).");
                return (format!("Number of {one}s"), text);
            }
            Field::Rate => {
                let text = "Number in the complete buckets of the period, divided by the period. A tag without any\n\
                            has no value.";
                return (format!("Rate of {one}s"), text.to_owned());
            }
            Field::Value => {
                let option = if kind == Kind::Observe { 'U' } else { 'V' };
                let text = format!(
                    "The value that an application has last passed to {function}. The agent's option\n-{option} sets the \
                     units."
                );
                return (format!("Last value of each {one}"), text);
            }
            Field::AveTime => ("Average time of transactions", recent),
            Field::MinTime => ("Shortest time of a transaction", recent),
            Field::MaxTime => ("Longest time of a transaction", recent),
            Field::TotalTime => {
                ("Total time of transactions", "Covers all transactions since the agent was started or reset.")
            }
        };
        (oneline.to_owned(), text.to_owned())
    }
}

pub(crate) fn fetch(item: Item, tags: &Tags, port: u16, out: &mut Values<'_>) -> Result {
    let window = tags.window();
    let seconds = |time: std::time::Duration| u32::try_from(time.as_secs()).unwrap_or(u32::MAX);
    match item {
        PERIOD => out.put(seconds(window.period)),
        INTERVAL => out.put(seconds(window.interval())),
        BUCKETS => out.put(window.buckets),
        PORT => out.put(u32::from(port)),
        RESET => out.put(1_u32),
        DEBUG => out.put(pmda::log::debug_options().to_string().as_str()),
        _ => {
            let (_, kind, field) = FIELDS.into_iter().find(|f| f.0 == item.item()).ok_or(Error::PMID)?;
            tags.of(kind).each().try_for_each(|(inst, tag)| match value(tag, tags, field) {
                Some(value) if out.wants(inst) => out.put_inst(inst, value),
                _ => Ok(()),
            })
        }
    }
}

fn value(tag: &Tag, tags: &Tags, field: Field) -> Option<Atom<'static>> {
    let window = tags.window();
    let recent = |value: fn(Bucket) -> f64| Some(Atom::Float(value(tag.recent(window)?) as f32));
    match field {
        Field::Count => Some(Atom::U64(tag.count)),
        Field::TotalTime => Some(Atom::Double(tag.total)),
        Field::Value => Some(Atom::Double(tag.last)),
        Field::Rate => Some(Atom::Float((tag.recent(window)?.count as f64 / window.period.as_secs_f64()) as f32)),
        Field::AveTime => recent(|bucket| bucket.sum / bucket.count as f64),
        Field::MinTime => recent(|bucket| bucket.min),
        Field::MaxTime => recent(|bucket| bucket.max),
    }
}
