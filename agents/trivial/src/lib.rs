//! The smallest useful agent: one metric, the time.

use std::time::UNIX_EPOCH;

use pmda::prelude::*;

/// Agent trivial.
#[derive(Debug)]
pub struct Trivial;

impl Agent for Trivial {
    const NAME: &'static str = "trivial";
    const DOMAIN: u16 = 250;

    fn new(setup: &mut Setup) -> Result<Self, BoxError> {
        let now = setup.counter("trivial.time", Item::new(0, 0), |_: &Self| Some(UNIX_EPOCH.elapsed().ok()?.as_secs()));
        now.units(Units::SECONDS).help("Seconds since 1970", "The time of day, in seconds since 1970 began.");
        Ok(Trivial)
    }
}

pmda::dso!(trivial_init, Trivial);
