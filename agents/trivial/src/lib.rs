//! The smallest useful agent: one metric, the time.

use std::time::{SystemTime, UNIX_EPOCH};

use pmda::prelude::*;

/// Agent trivial.
#[derive(Debug)]
pub struct Trivial;

impl Agent for Trivial {
    const NAME: &'static str = "trivial";
    const DOMAIN: u16 = 250;

    fn new(setup: &mut Setup) -> Start<Self> {
        let time = setup.metric("trivial.time", Item::new(0, 0), Type::U64).counter().units(Units::SECONDS);
        time.help("Seconds since 1970", "The time of day, in seconds since 1970 began.");
        Ok(Trivial)
    }

    fn fetch(&mut self, _: Item, out: &mut Values<'_>) -> Result {
        out.put(SystemTime::now().duration_since(UNIX_EPOCH).map_err(|_| Error::VALUE)?.as_secs())
    }
}

pmda::dso!(trivial_init, Trivial);
