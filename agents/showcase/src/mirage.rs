//! Instance domain that grows and shrinks with every fetch.
//!
//! In C: pmdaCacheStore(3) with `PMDA_CACHE_ADD` and `PMDA_CACHE_HIDE`. An instance that becomes active again keeps its
//! identifier, so that clients can follow it.

use pmda::prelude::*;

use crate::Showcase;

const CLUSTER: u16 = 6;

const NAMES: [&str; 6] = ["tower-a", "tower-b", "tower-c", "tower-d", "tower-e", "tower-f"];

#[derive(Debug)]
pub(crate) struct Mirage {
    /// Towers. The value of each is its height.
    towers: Table<u32>,
    shrinking: bool,
}

impl Mirage {
    pub(crate) fn new(setup: &mut Setup) -> Self {
        let mut towers = setup.table(Serial::new(3), |showcase: &Showcase| &showcase.mirage.towers);
        towers.labels(json!({"indom_name": "mirage"}));
        towers.help("Towers of a mirage", "Each fetch adds a tower up to six, then removes one until one is left.");
        let height = towers.gauge("showcase.mirage.height", Item::new(CLUSTER, 0), |height| *height);
        height.help("Height of each tower", "In floors: a tower that comes back is as high as before.");
        let count = towers.total("showcase.mirage.count", Item::new(CLUSTER, 1), |towers| towers.active_len() as u32);
        count.help("Towers that can be seen", "From one to six.");
        Mirage { towers: towers.finish(setup), shrinking: false }
    }

    /// Adds or hides a tower. Must be called once for each fetch request.
    pub(crate) fn step(&mut self) -> Result {
        let seen = self.towers.active_len();
        self.shrinking = seen == NAMES.len() || (self.shrinking && seen > 1);
        if !self.shrinking {
            if let Some(next) = NAMES.get(seen) {
                self.towers.store(next, 10 * seen as u32 + 10)?;
            }
        } else if let Some(last) = NAMES.get(seen - 1).and_then(|name| Some(self.towers.named(name)?.inst)) {
            self.towers.hide(last);
        }
        Ok(())
    }
}
