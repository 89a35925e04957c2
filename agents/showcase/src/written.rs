//! Metrics of every type that hold what a client stores.
//!
//! In C: a store function that takes the value out with pmExtractValue(3); here it comes in the
//! metric's type.

use pmda::prelude::*;

pub(crate) const CLUSTER: u16 = 8;

const TYPES: [(&str, Type); 8] = [
    ("i32", Type::I32),
    ("u32", Type::U32),
    ("i64", Type::I64),
    ("u64", Type::U64),
    ("float", Type::Float),
    ("double", Type::Double),
    ("string", Type::String),
    ("aggregate", Type::Aggregate),
];

/// In the order of the items.
#[derive(Debug)]
pub(crate) struct Written {
    numbers: [Atom<'static>; 6],
    string: Vec<u8>,
    aggregate: Vec<u8>,
}

const STRING: Item = Item::new(CLUSTER, 6);
const AGGREGATE: Item = Item::new(CLUSTER, 7);

impl Written {
    pub(crate) fn new(setup: &mut Setup) -> Self {
        for (i, (name, ty)) in (0..).zip(TYPES) {
            let metric = setup.metric(format!("showcase.write.{name}"), Item::new(CLUSTER, i), ty).storable();
            metric.help(format!("What was last stored, of type {name}"), "pmstore(1) changes it, for all clients.");
        }
        Written {
            numbers: [Atom::I32(-2), Atom::U32(2), Atom::I64(-2), Atom::U64(2), Atom::Float(2.0), Atom::Double(2.0)],
            string: b"two".to_vec(),
            aggregate: vec![0, 2],
        }
    }

    pub(crate) fn fetch(&self, item: Item, out: &mut Values<'_>) -> Result {
        match item {
            STRING => out.put(Atom::String(&self.string)),
            AGGREGATE => out.put(Atom::Aggregate(&self.aggregate)),
            _ => out.put(*self.numbers.get(usize::from(item.item())).ok_or(Error::PMID)?),
        }
    }

    pub(crate) fn store(&mut self, item: Item, value: Atom<'_>) -> Result {
        let number = self.numbers.get_mut(usize::from(item.item()));
        match value {
            Atom::String(text) => self.string = text.to_vec(),
            Atom::Aggregate(bytes) => self.aggregate = bytes.to_vec(),
            Atom::I32(value) => *number.ok_or(Error::PMID)? = Atom::I32(value),
            Atom::U32(value) => *number.ok_or(Error::PMID)? = Atom::U32(value),
            Atom::I64(value) => *number.ok_or(Error::PMID)? = Atom::I64(value),
            Atom::U64(value) => *number.ok_or(Error::PMID)? = Atom::U64(value),
            Atom::Float(value) => *number.ok_or(Error::PMID)? = Atom::Float(value),
            Atom::Double(value) => *number.ok_or(Error::PMID)? = Atom::Double(value),
            _ => return Err(Error::CONV),
        }
        Ok(())
    }
}
