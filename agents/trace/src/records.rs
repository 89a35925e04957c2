//! The metrics of event records, and their parameters.

use pmda::prelude::*;
use trace::protocol::Kind;

use crate::fields;

const CLUSTER: u16 = 1;

pub(crate) const RECORDS: Item = Item::new(CLUSTER, 0);
pub(crate) const COUNT: Item = Item::new(CLUSTER, 1);
pub(crate) const MISSED: Item = Item::new(CLUSTER, 2);
pub(crate) const MEMORY: Item = Item::new(CLUSTER, 3);
pub(crate) const CLIENTS: Item = Item::new(CLUSTER, 4);
pub(crate) const HIGHRES_RECORDS: Item = Item::new(CLUSTER, 5);
pub(crate) const TAG: Item = Item::new(CLUSTER, 10);
pub(crate) const KIND: Item = Item::new(CLUSTER, 11);
pub(crate) const DURATION: Item = Item::new(CLUSTER, 12);
pub(crate) const VALUE: Item = Item::new(CLUSTER, 13);
pub(crate) const ID: Item = Item::new(CLUSTER, 14);
pub(crate) const PARENT: Item = Item::new(CLUSTER, 15);
pub(crate) const PROCESS: Item = Item::new(CLUSTER, 16);
pub(crate) const FIELD: Item = Item::new(CLUSTER, 17);

/// Help text of the metrics with records.
const RECORDS_HELP: &str = "\
    Each client gets each record once (pminfo -x, pmval, pmevent). Over shared memory, a transaction has a record of\n\
    its beginning and one of its end. Over TCP it has one record. A client selects records by a filter (pmval -x):\n\
    conditions with semicolons between, such as tag=look up; kind=transact; longer=0.01 (seconds); process=77;\n\
    user=7 (a field). With ~ instead of = a POSIX extended regular expression follows. An empty filter selects all\n\
    records.";

/// A metric about records: name below `event`, item, type, units, one-line help, and help text.
type About = (&'static str, Item, Type, Units, &'static str, &'static str);

const ABOUT: [About; 4] = [
    ("memory", MEMORY, Type::U64, Units::BYTES, "Memory of the records that wait for clients", "At most 4 MiB."),
    (
        "clients",
        CLIENTS,
        Type::U32,
        Units::COUNT,
        "Clients that read records",
        "A client counts from its first fetch on.",
    ),
    (
        "count",
        COUNT,
        Type::U64,
        Units::COUNT,
        "Records so far",
        "Includes records that no client has read. Over TCP there are records only while a client reads them.",
    ),
    (
        "missed",
        MISSED,
        Type::U64,
        Units::COUNT,
        "Records that the agent has not read",
        "They were overwritten before, or there were too many. Their trace events are counted all the same. Each client\n\
         gets the number with the next record.",
    ),
];

/// A parameter of records: name below `event.param`, item, type, units, and help.
type Param = (&'static str, Item, Type, Units, &'static str);

const PARAMS: [Param; 8] = [
    ("tag", TAG, Type::String, Units::NONE, "Tag"),
    ("kind", KIND, Type::String, Units::NONE, "Kind: transact, point, observe or counter"),
    ("duration", DURATION, Type::U64, Units::NANOSECONDS, "Duration of a transaction that has ended"),
    ("value", VALUE, Type::Double, Units::NONE, "Value of an observation or a counter"),
    ("id", ID, Type::U64, Units::NONE, "Identifier of a transaction"),
    ("parent", PARENT, Type::U64, Units::NONE, "Identifier of the parent transaction"),
    ("process", PROCESS, Type::U32, Units::NONE, "Process that has traced the event"),
    ("field", FIELD, Type::String, Units::NONE, "Key and value of a field without a metric of its own"),
];

/// Declares the metrics.
pub(crate) fn declare(setup: &mut Setup) {
    let prefix = format!("{}.event", setup.name());
    for (name, item, ty, clock) in [
        ("records", RECORDS, Type::Event, "microseconds"),
        ("highres_records", HIGHRES_RECORDS, Type::HighResEvent, "nanoseconds"),
    ] {
        let oneline = format!("Event records of trace events, with times in {clock}");
        setup.metric(format!("{prefix}.{name}"), item, ty).storable().help(oneline, RECORDS_HELP);
    }
    for (name, item, ty, units, oneline, text) in ABOUT {
        let metric = setup.metric(format!("{prefix}.{name}"), item, ty).units(units).help(oneline, text);
        if matches!(item, COUNT | MISSED) {
            metric.counter();
        }
    }
    for (name, item, ty, units, oneline) in PARAMS {
        let metric = setup.metric(format!("{prefix}.param.{name}"), item, ty).parameter().units(units);
        metric.help(oneline, "A parameter of event records, without a value outside of these.");
    }
}

/// Returns the name of a kind, as in names of metrics.
pub(crate) const fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Transact => "transact",
        Kind::Point => "point",
        Kind::Observe => "observe",
        Kind::Counter => "counter",
    }
}

pub(crate) fn is_own(item: Item) -> bool {
    item.cluster() == CLUSTER || fields::is_own(item)
}
