//! Agent that cannot answer for some time, and reports that it is not ready.
//!
//! In C: pmdaSendError(3) with `PM_ERR_PMDANOTREADY` and later `PM_ERR_PMDAREADY`. In between pmcd sends no requests to
//! the agent, and returns `PM_ERR_AGAIN` to its clients.

use std::time::{Duration, Instant};

use pmda::PollSet;
use pmda::prelude::*;

pub(crate) const CLUSTER: u16 = 14;

const NOT_READY: Item = Item::new(CLUSTER, 0);

#[derive(Debug)]
pub(crate) struct Readiness {
    until: Option<Instant>,
}

impl Readiness {
    pub(crate) fn new(setup: &mut Setup) -> Self {
        let not_ready = setup.metric("showcase.not_ready", NOT_READY, Type::U32).units(Units::MILLISECONDS).storable();
        not_ready.help("Time until the agent is ready again", "Until then clients of any metric get \"Try again\".");
        Readiness { until: None }
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.until.is_none_or(|until| until <= Instant::now())
    }

    /// Adds the time at which pmcd is to be notified.
    pub(crate) fn sources(&self, set: &mut PollSet<'_>) {
        if let Some(until) = self.until {
            set.at(until);
        }
    }

    pub(crate) fn wake(&mut self) {
        self.until = None;
    }

    pub(crate) fn fetch(&self, _: Item, out: &mut Values<'_>) -> Result {
        let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
        out.put(left.unwrap_or_default().as_millis() as u32)
    }

    pub(crate) fn store(&mut self, value: Atom<'_>) -> Result {
        self.until = Some(Instant::now() + Duration::from_millis(u32::try_from(value)?.into()));
        Ok(())
    }
}
