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

/// Metric of each tag of a kind.
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

/// For a kind: its name in metrics, its noun in help texts, and the C function that traces it.
fn words(kind: Kind) -> (&'static str, &'static str, &'static str) {
    match kind {
        Kind::Transact => ("transact", "transaction", "pmtracebegin(3)"),
        Kind::Point => ("point", "point", "pmtracepoint(3)"),
        Kind::Observe => ("observe", "observation", "pmtraceobs(3)"),
        Kind::Counter => ("counter", "counter", "pmtracecounter(3)"),
    }
}

pub(crate) fn declare(setup: &mut Setup, options: &Options) {
    let prefix = setup.name().to_owned();
    for kind in Kind::ALL {
        let (_, one, function) = words(kind);
        setup.indom(indom(kind)).help(
            format!("Tags of {one}s"),
            format!("One instance for each tag that applications have given to {function}."),
        );
    }
    for (item, kind, field) in FIELDS {
        declare_field(setup, &prefix, Item::new(0, item), (kind, field), options);
    }
    let mut control = |name, item, ty, units, oneline: &str, text: &str| {
        let metric = setup.metric(format!("{prefix}.control.{name}"), item, ty).discrete().units(units);
        let metric = if matches!(item, RESET | DEBUG) { metric.restricted() } else { metric.storable() };
        metric.help(oneline, text);
    };
    control(
        "period",
        PERIOD,
        Type::U32,
        Units::SECONDS,
        "Period of rates and times",
        "Rates, and average, minimum and maximum times, are of what has come in about this\n\
         many seconds. The agent's option -T sets it.",
    );
    control(
        "interval",
        INTERVAL,
        Type::U32,
        Units::SECONDS,
        "Time between updates of rates and times",
        "The period has buckets of this many seconds. What comes shows in rates and times when\n\
         the bucket is complete that it falls into.",
    );
    control(
        "buckets",
        BUCKETS,
        Type::U32,
        Units::NONE,
        "Number of buckets in the period",
        "The agent's option -N sets it.",
    );
    control(
        "port",
        PORT,
        Type::U32,
        Units::NONE,
        "Port for applications",
        "The TCP port that applications connect to: what the option -I or PCP_TRACE_PORT in the\n\
         agent's environment says, or else 4323.",
    );
    control(
        "reset",
        RESET,
        Type::U32,
        Units::NONE,
        "Store anything to forget all tags",
        "After pmstore(1) into this metric no metric has instances until applications trace\n\
         something. A tag that comes again has the instance number that it had.",
    );
    control(
        "debug",
        DEBUG,
        Type::String,
        Units::NONE,
        "Debug options",
        "What the agent tells in its log: option names of pmdbg(1) with commas between.\n\
         pmstore(1) sets them.",
    );
}

fn declare_field(setup: &mut Setup, prefix: &str, item: Item, (kind, field): (Kind, Field), options: &Options) {
    let (group, one, function) = words(kind);
    let per_second = Units::COUNT.per(Units::SECONDS);
    let (name, ty, units, oneline, text) = match field {
        Field::Count => (
            "count",
            Type::U64,
            Units::COUNT,
            format!("Number of {one}s"),
            format!("How often each tag has come from {function} since the agent started or was reset."),
        ),
        Field::Rate => (
            "rate",
            Type::Float,
            per_second,
            format!("Rate of {one}s"),
            "Their number in the complete buckets of the period, divided by the period.\n\
             A tag that has not come in that time has no value."
                .to_owned(),
        ),
        Field::AveTime => (
            "ave_time",
            Type::Float,
            Units::SECONDS.per(Units::COUNT),
            "Average time of transactions".to_owned(),
            "Of those that ended in the complete buckets of the period.".to_owned(),
        ),
        Field::MinTime => (
            "min_time",
            Type::Float,
            Units::SECONDS,
            "Shortest time of a transaction".to_owned(),
            "Of those that ended in the complete buckets of the period.".to_owned(),
        ),
        Field::MaxTime => (
            "max_time",
            Type::Float,
            Units::SECONDS,
            "Longest time of a transaction".to_owned(),
            "Of those that ended in the complete buckets of the period.".to_owned(),
        ),
        Field::TotalTime => (
            "total_time",
            Type::Double,
            Units::SECONDS,
            "Total time of transactions".to_owned(),
            "Of all that ended since the agent started or was reset.".to_owned(),
        ),
        Field::Value => (
            "value",
            Type::Double,
            if kind == Kind::Observe { options.observe } else { options.counter },
            format!("Last value of each {one}"),
            format!(
                "What the application gave last to {function}. The agent's option -{} sets the units.",
                if kind == Kind::Observe { 'U' } else { 'V' }
            ),
        ),
    };
    let metric = setup.metric(format!("{prefix}.{group}.{name}"), item, ty).indom(indom(kind)).units(units);
    if matches!(field, Field::Count | Field::TotalTime) || (kind, field) == (Kind::Counter, Field::Value) {
        metric.counter();
    }
    metric.storable().help(oneline, text);
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
