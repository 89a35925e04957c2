//! Metrics that clients add and remove by name.
//!
//! In C: pmdaDynamicPMNS(3), pmdaTreeInsert(3), and `PMDA_EXT_NAMES_CHANGE` to notify clients.

use std::collections::HashMap;
use std::fmt::Display;

use pmda::prelude::*;
use tracing::warn;

pub(crate) const CLUSTER: u16 = 10;
/// Cluster of the metrics that clients add.
pub(crate) const DYNAMIC: u16 = 11;

const ADD: Item = Item::new(CLUSTER, 0);
const REMOVE: Item = Item::new(CLUSTER, 1);
const COUNT: Item = Item::new(CLUSTER, 2);

const ROOT: &str = "showcase.dynamic";

#[derive(Debug)]
pub(crate) struct Names {
    pub(crate) dynamic: Dynamic,
    /// Number of fetches of each metric.
    fetches: HashMap<Item, u64>,
    added: String,
    removed: String,
}

impl Names {
    pub(crate) fn new(setup: &mut Setup) -> Result<Self, BoxError> {
        let add = setup.metric("showcase.names.add", ADD, Type::String).storable();
        add.help("The last metric that was added", "pmstore(1) adds one: a.b becomes showcase.dynamic.a.b.");
        let remove = setup.metric("showcase.names.remove", REMOVE, Type::String).storable();
        remove.help("The last name that was removed", "pmstore(1) removes one, and all names below it.");
        let count = setup.metric("showcase.names.count", COUNT, Type::U32).units(Units::COUNT);
        count.help("Metrics below showcase.dynamic", "One of them, showcase.dynamic.first, exists from the start.");
        let (added, removed) = (String::new(), String::new());
        let mut names = Names { dynamic: setup.dynamic([ROOT]), fetches: HashMap::new(), added, removed };
        names.add("first", &"the start")?;
        Ok(names)
    }

    pub(crate) fn fetch(&mut self, item: Item, out: &mut Values<'_>) -> Result {
        match item {
            ADD => out.put(&self.added),
            REMOVE => out.put(&self.removed),
            COUNT => out.put(self.dynamic.len() as u32),
            _ => {
                let fetches = self.fetches.get_mut(&item).ok_or(Error::PMID)?;
                *fetches += 1;
                out.put(*fetches)
            }
        }
    }

    pub(crate) fn store(&mut self, item: Item, value: Atom<'_>, client: Client) -> Result {
        let name: &str = value.try_into().map_err(|_| Error::BADSTORE)?;
        if item == ADD { self.add(name, &client.source()) } else { self.remove(name) }
    }

    /// Adds a metric. `by` names the client in the log.
    fn add(&mut self, name: &str, by: &dyn Display) -> Result {
        let mut items = (0..=Item::MAX_ITEM).map(|item| Item::new(DYNAMIC, item));
        let free = items.find(|item| !self.fetches.contains_key(item)).ok_or(Error::TOOBIG)?;
        let mut metric = MetricDef::new(format!("{ROOT}.{name}"), free, Type::U64);
        metric.counter().units(Units::COUNT).help("Fetches of this metric", "Added by a client, or at the start.");
        self.dynamic.insert(&metric).map_err(|mistake| {
            warn!(source = %by, "showcase.names.add refuses a name: {mistake}");
            Error::BADSTORE
        })?;
        self.fetches.insert(free, 0);
        name.clone_into(&mut self.added);
        Ok(())
    }

    fn remove(&mut self, name: &str) -> Result {
        if self.dynamic.remove(&format!("{ROOT}.{name}")) == 0 {
            return Err(Error::BADSTORE);
        }
        self.fetches.retain(|item, _| self.dynamic.names(*item).next().is_some());
        name.clone_into(&mut self.removed);
        Ok(())
    }
}
