//! Instance domain that grows and shrinks with every fetch.
//!
//! In C: pmdaCacheStore(3) with `PMDA_CACHE_ADD` and `PMDA_CACHE_HIDE`. An instance that becomes active again keeps its
//! identifier, so that clients can follow it.

use pmda::prelude::*;

pub(crate) const CLUSTER: u16 = 6;
pub(crate) const INDOM: Serial = Serial::new(3);

const HEIGHT: Item = Item::new(CLUSTER, 0);
const COUNT: Item = Item::new(CLUSTER, 1);

const NAMES: [&str; 6] = ["tower-a", "tower-b", "tower-c", "tower-d", "tower-e", "tower-f"];

#[derive(Debug)]
pub(crate) struct Mirage {
    /// Towers. The value of each is its height.
    pub(crate) towers: Cache<u32>,
    shrinking: bool,
}

impl Mirage {
    pub(crate) fn new(setup: &mut Setup) -> Self {
        let towers = setup.indom(INDOM).labels(json!({"indom_name": "mirage"}));
        towers.help("Towers of a mirage", "Each fetch adds a tower up to six, then removes one until one is left.");
        let height = setup.metric("showcase.mirage.height", HEIGHT, Type::U32).indom(INDOM);
        height.help("Height of each tower", "In floors: a tower that comes back is as high as before.");
        let count = setup.metric("showcase.mirage.count", COUNT, Type::U32);
        count.help("Towers that can be seen", "From one to six.");
        Mirage { towers: setup.cache(INDOM), shrinking: false }
    }

    /// Adds or hides a tower. Must be called once for each fetch request.
    pub(crate) fn step(&mut self) -> Result {
        let seen = self.towers.active_len();
        self.shrinking = seen == NAMES.len() || (self.shrinking && seen > 1);
        if !self.shrinking {
            if let Some(next) = NAMES.get(seen) {
                self.towers.store(next, 10 * seen as u32 + 10)?;
            }
        } else if let Some(last) = NAMES.get(seen - 1).and_then(|name| self.towers.named(name)) {
            self.towers.hide(last.inst);
        }
        Ok(())
    }

    pub(crate) fn fetch(&self, item: Item, out: &mut Values<'_>) -> Result {
        match item {
            HEIGHT => out.put_each(&self.towers, |height| *height),
            COUNT => out.put(self.towers.active_len() as u32),
            _ => Err(Error::PMID),
        }
    }
}
