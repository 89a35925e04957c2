//! Instance domain of 1 to 100,000 instances, whose number a client stores.
//!
//! In C: pmdaCacheStore(3) with `PMDA_CACHE_ADD` and `PMDA_CACHE_CULL` in a store function.

use pmda::CacheError;
use pmda::prelude::*;

pub(crate) const CLUSTER: u16 = 7;
pub(crate) const INDOM: Serial = Serial::new(4);

const COUNT: Item = Item::new(CLUSTER, 0);
const NUMBER: Item = Item::new(CLUSTER, 1);

const MOST: u32 = 100_000;

#[derive(Debug)]
pub(crate) struct Many {
    /// Instances. The value of each is its number.
    pub(crate) instances: Cache<u32>,
}

impl Many {
    pub(crate) fn new(setup: &mut Setup) -> Result<Self, CacheError> {
        setup.indom(INDOM).labels(json!({"indom_name": "many"})).help(
            "Instances in a number that clients choose",
            "From 1 to 100,000, as stored to showcase.many.count. Their names are i-0, i-1 and so on.",
        );
        let count = setup.metric("showcase.many.count", COUNT, Type::U32).discrete().storable();
        count.help("How many instances showcase.many.number has", "One at first. pmstore(1) sets it, up to 100,000.");
        let number = setup.metric("showcase.many.number", NUMBER, Type::U32).indom(INDOM);
        number.help("The number of each instance", "The value of i-7 is 7.");
        let mut many = Many { instances: setup.cache(INDOM) };
        many.set_count(1)?;
        Ok(many)
    }

    pub(crate) fn fetch(&self, item: Item, out: &mut Values<'_>) -> Result {
        match item {
            COUNT => out.put(self.count()),
            NUMBER => out.put_each(&self.instances, |number| *number),
            _ => Err(Error::PMID),
        }
    }

    pub(crate) fn store(&mut self, value: Atom<'_>) -> Result {
        let Atom::U32(count @ 1..=MOST) = value else { return Err(Error::BADSTORE) };
        Ok(self.set_count(count)?)
    }

    fn count(&self) -> u32 {
        self.instances.active_len() as u32
    }

    /// Adds or culls instances. A new instance gets the lowest free identifier, which is the one after the last.
    fn set_count(&mut self, count: u32) -> Result<(), CacheError> {
        self.instances.reuse_numbers();
        for number in self.count()..count {
            self.instances.store(&format!("i-{number}"), number)?;
        }
        for number in count..self.count() {
            self.instances.cull(Inst::new(number));
        }
        Ok(())
    }
}
