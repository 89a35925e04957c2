//! Counters of every type, which clients convert to rates.
//!
//! In C: `PM_SEM_COUNTER`, and a fetch function that counts before it calls pmdaFetch(3). A store function resets a
//! counter.

use std::time::Instant;

use pmda::prelude::*;

pub(crate) const CLUSTER: u16 = 4;

const FETCHES: Item = Item::new(CLUSTER, 0);
const I32: Item = Item::new(CLUSTER, 1);
const I64: Item = Item::new(CLUSTER, 2);
const U64: Item = Item::new(CLUSTER, 3);
const FLOAT: Item = Item::new(CLUSTER, 4);
const DOUBLE: Item = Item::new(CLUSTER, 5);
const WRAP: Item = Item::new(CLUSTER, 6);

#[derive(Debug)]
pub(crate) struct Counters {
    fetches: u32,
    since: Instant,
}

impl Counters {
    pub(crate) fn new(setup: &mut Setup) -> Self {
        let mut counter = |name, item, ty, units, oneline, text| {
            setup.metric(format!("showcase.counter.{name}"), item, ty).counter().units(units).help(oneline, text);
        };
        let (count, bytes, seconds, milliseconds) = (Units::COUNT, Units::BYTES, Units::SECONDS, Units::MILLISECONDS);
        counter("i32", I32, Type::I32, count, "Two for each fetch", "In 32 bits, of which one is for the sign.");
        counter("i64", I64, Type::I64, bytes, "A kilobyte for each fetch", "Clients show it in bytes per second.");
        counter("u64", U64, Type::U64, bytes, "A gigabyte for each fetch", "More than 32 bits after four fetches.");
        counter("float", FLOAT, Type::Float, milliseconds, "Ten milliseconds a fetch", "Its rate is a utilization.");
        counter("double", DOUBLE, Type::Double, seconds, "Time since the agent started", "Its rate is 1.");
        counter("wrap", WRAP, Type::U32, count, "A counter that wraps soon", "Each 16 fetches. Its rate is steady.");
        let fetches = setup.metric("showcase.counter.fetches", FETCHES, Type::U32).counter().units(count).storable();
        fetches.help("Fetches that have reached the agent", "pmstore(1) sets it, and all counters that depend on it.");
        Counters { fetches: 0, since: Instant::now() }
    }

    /// Counts a fetch. Must be called once for each fetch request.
    pub(crate) fn step(&mut self) {
        self.fetches = self.fetches.wrapping_add(1);
    }

    pub(crate) fn fetch(&self, item: Item, out: &mut Values<'_>) -> Result {
        let n = self.fetches;
        match item {
            FETCHES => out.put(n),
            I32 => out.put((n & 0x3fff_ffff) as i32 * 2),
            I64 => out.put(i64::from(n) << 10),
            U64 => out.put(u64::from(n) << 30),
            FLOAT => out.put(n as f32 * 10.0),
            DOUBLE => out.put(self.since.elapsed().as_secs_f64()),
            WRAP => out.put(n.wrapping_mul(1 << 28)),
            _ => Err(Error::PMID),
        }
    }

    pub(crate) fn store(&mut self, value: Atom<'_>) -> Result {
        self.fetches = value.try_into()?;
        Ok(())
    }
}
