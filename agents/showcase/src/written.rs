//! Metrics of every type that contain the value that a client has stored.
//!
//! In C: a store function that extracts the value with pmExtractValue(3). Here the value has the metric's type. Stores
//! to metrics that are not [`storable`](pmda::MetricDef::storable) never reach the agent.

use pmda::prelude::*;

pub(crate) const CLUSTER: u16 = 8;

const I32: Item = Item::new(CLUSTER, 0);
const U32: Item = Item::new(CLUSTER, 1);
const I64: Item = Item::new(CLUSTER, 2);
const U64: Item = Item::new(CLUSTER, 3);
const FLOAT: Item = Item::new(CLUSTER, 4);
const DOUBLE: Item = Item::new(CLUSTER, 5);
const STRING: Item = Item::new(CLUSTER, 6);
const AGGREGATE: Item = Item::new(CLUSTER, 7);

#[derive(Debug)]
pub(crate) struct Written {
    i32: i32,
    u32: u32,
    i64: i64,
    u64: u64,
    float: f32,
    double: f64,
    string: Vec<u8>,
    aggregate: Vec<u8>,
}

impl Written {
    pub(crate) fn new(setup: &mut Setup) -> Self {
        for (name, item, ty) in [
            ("i32", I32, Type::I32),
            ("u32", U32, Type::U32),
            ("i64", I64, Type::I64),
            ("u64", U64, Type::U64),
            ("float", FLOAT, Type::Float),
            ("double", DOUBLE, Type::Double),
            ("string", STRING, Type::String),
            ("aggregate", AGGREGATE, Type::Aggregate),
        ] {
            let metric = setup.metric(format!("showcase.write.{name}"), item, ty).storable();
            metric.help(format!("Last value stored, of type {name}"), "pmstore(1) changes it, for all clients.");
        }
        let (string, aggregate) = (b"two".to_vec(), vec![0, 2]);
        Written { i32: -2, u32: 2, i64: -2, u64: 2, float: 2.0, double: 2.0, string, aggregate }
    }

    pub(crate) fn fetch(&self, item: Item, out: &mut Values<'_>) -> Result {
        match item {
            I32 => out.put(self.i32),
            U32 => out.put(self.u32),
            I64 => out.put(self.i64),
            U64 => out.put(self.u64),
            FLOAT => out.put(self.float),
            DOUBLE => out.put(self.double),
            // Strings from clients may not be UTF-8.
            STRING => out.put(Atom::String(&self.string)),
            AGGREGATE => out.put(Atom::Aggregate(&self.aggregate)),
            _ => Err(Error::PMID),
        }
    }

    pub(crate) fn store(&mut self, item: Item, value: Atom<'_>) -> Result {
        match (item, value) {
            (I32, Atom::I32(value)) => self.i32 = value,
            (U32, Atom::U32(value)) => self.u32 = value,
            (I64, Atom::I64(value)) => self.i64 = value,
            (U64, Atom::U64(value)) => self.u64 = value,
            (FLOAT, Atom::Float(value)) => self.float = value,
            (DOUBLE, Atom::Double(value)) => self.double = value,
            (STRING, Atom::String(text)) => self.string = text.to_vec(),
            (AGGREGATE, Atom::Aggregate(bytes)) => self.aggregate = bytes.to_vec(),
            _ => return Err(Error::PERMISSION),
        }
        Ok(())
    }
}
