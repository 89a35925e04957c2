//! Constant values of every type, and types without values.
//!
//! In C: the cases of a fetch callback that set one member of `pmAtomValue` each and return
//! `PMDA_FETCH_STATIC`.

use pmda::prelude::*;

pub(crate) const CLUSTER: u16 = 3;

const NUMBERS: [(&str, u32); 5] = [("zero", 0), ("one", 1), ("ten", 10), ("hundred", 100), ("million", 1_000_000)];
const TYPES: [(&str, Type); 6] = [
    ("i32", Type::I32),
    ("u32", Type::U32),
    ("i64", Type::I64),
    ("u64", Type::U64),
    ("float", Type::Float),
    ("double", Type::Double),
];

const EMPTY: Item = Item::new(CLUSTER, 100);
const HELLO: Item = Item::new(CLUSTER, 101);
const AGGREGATE: Item = Item::new(CLUSTER, 102);
const AGGREGATE_STATIC: Item = Item::new(CLUSTER, 103);
const NO_SUPPORT: Item = Item::new(CLUSTER, 104);

pub(crate) fn declare(setup: &mut Setup) {
    for (t, (type_name, ty)) in (0..).zip(TYPES) {
        for (n, (name, number)) in (0..).zip(NUMBERS) {
            let metric =
                setup.metric(format!("showcase.constant.{type_name}.{name}"), Item::new(CLUSTER, t * 10 + n), ty);
            metric.discrete().help(format!("The number {number}"), format!("A constant of type {type_name}."));
        }
    }
    let mut other = |name, item, ty, oneline, text| {
        setup.metric(format!("showcase.constant.{name}"), item, ty).discrete().help(oneline, text);
    };
    other("string.empty", EMPTY, Type::String, "A text without characters", "It has a value, which is empty.");
    other("string.hello", HELLO, Type::String, "A greeting", "A constant text.");
    other("aggregate", AGGREGATE, Type::Aggregate, "Three bytes", "The bytes 1, 2 and 3, without any meaning.");
    other("aggregate_static", AGGREGATE_STATIC, Type::AggregateStatic, "Three static bytes", "C does not free them.");
    other("no_support", NO_SUPPORT, Type::NoSupport, "A metric without support", "Clients get PM_ERR_APPVERSION.");
}

pub(crate) fn fetch(item: Item, out: &mut Values<'_>) -> Result {
    match item {
        EMPTY => out.put(""),
        HELLO => out.put("hello, world"),
        AGGREGATE | AGGREGATE_STATIC => out.put(Atom::Aggregate(&[1, 2, 3])),
        // `put` accepts any number that converts to the metric's type without loss.
        _ => out.put(NUMBERS.get(usize::from(item.item() % 10)).ok_or(Error::PMID)?.1),
    }
}
