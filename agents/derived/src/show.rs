//! Metrics of all groups in the name space. A name keeps its PMID forever.

use std::collections::HashMap;
use std::sync::Arc;

use pmapi::{InDom, Semantics};
use pmda::BoxError;
use pmda::prelude::*;
use tracing::error;

use crate::control;
use crate::limits;
use crate::metrics::{self, Metrics};

/// Serials of the caches that persist the numbers of metrics and of instance domains.
const ITEMS: Serial = Serial::new(Serial::MAX);
const SERIALS: Serial = Serial::new(Serial::MAX - 1);

/// Number of items in a cluster.
const CLUSTER: u32 = Item::MAX_ITEM as u32 + 1;

/// Metrics of all groups in the name space.
#[derive(Debug)]
pub(crate) struct Show {
    pub(crate) dynamic: Dynamic,
    metrics: HashMap<Item, At>,
    /// Group and operands' domain that each of the agent's domains stands for.
    indoms: HashMap<Serial, (usize, InDom)>,
    items: Cache<()>,
    serials: Cache<()>,
}

/// Location of a metric: the index of its group, and its place in the group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct At {
    pub(crate) group: usize,
    pub(crate) place: usize,
}

impl Show {
    /// Creates a name space without metrics. All metrics will be at or below `roots`.
    pub(crate) fn new(setup: &mut Setup, roots: impl IntoIterator<Item = String>) -> Show {
        Show {
            dynamic: setup.dynamic(roots),
            metrics: HashMap::new(),
            indoms: HashMap::new(),
            items: setup.cache(ITEMS).persistent(),
            serials: setup.cache(SERIALS).persistent(),
        }
    }

    /// Adds names that metrics may be at or below.
    pub(crate) fn add_roots(&mut self, roots: impl IntoIterator<Item = String>) {
        for root in roots {
            self.dynamic.add_root(&root);
        }
    }

    /// Returns where the values of a metric are.
    pub(crate) fn find(&self, item: Item) -> Option<At> {
        self.metrics.get(&item).copied()
    }

    /// Returns the group, by its index, and the instance domain of its operands that an instance domain of the agent
    /// represents.
    pub(crate) fn find_indom(&self, serial: Serial) -> Option<(usize, InDom)> {
        self.indoms.get(&serial).copied()
    }

    /// Replaces the metrics `old` of a group by `new`. Returns the places of the metrics that cannot be shown, with the
    /// reasons.
    pub(crate) fn replace(
        &mut self,
        group: (usize, &str),
        old: Option<&Arc<Metrics>>,
        new: &Metrics,
    ) -> Vec<(usize, BoxError)> {
        let mut failures = Vec::new();
        let mut numbered = HashMap::with_capacity(new.good.len());
        for (place, metric) in new.good.iter().enumerate() {
            match self.number(&metric.name) {
                Ok(item) => {
                    numbered.insert(item, place);
                }
                Err(e) => failures.push((place, e)),
            }
        }
        let mut gone = Vec::new();
        for (item, at) in self.metrics.iter().filter(|(_, at)| at.group == group.0) {
            let before = old.and_then(|old| old.good.get(at.place));
            let now = numbered.get(item).and_then(|place: &usize| new.good.get(*place));
            if !before.zip(now).is_some_and(|(before, now)| before.looks_like(now)) {
                gone.push(*item);
            }
        }
        for item in gone {
            self.metrics.remove(&item);
            self.hide(item);
        }
        for (item, place) in numbered {
            let shown = match (self.metrics.contains_key(&item), new.good.get(place)) {
                (false, Some(metric)) => self.insert(item, metric, group),
                _ => Ok(()),
            };
            match shown {
                Ok(()) => _ = self.metrics.insert(item, At { group: group.0, place }),
                Err(e) => failures.push((place, e)),
            }
        }
        for cache in [&mut self.items, &mut self.serials] {
            cache.save().unwrap_or_else(|e| error!("metrics may get other numbers after a restart: {e}"));
        }
        failures
    }

    /// Removes the metrics of all groups.
    pub(crate) fn clear(&mut self) {
        for item in std::mem::take(&mut self.metrics).into_keys() {
            self.hide(item);
        }
        self.indoms.clear();
    }

    /// Removes a metric from the name space.
    fn hide(&mut self, item: Item) {
        let names: Vec<String> = self.dynamic.names(item).map(str::to_owned).collect();
        for name in names {
            self.dynamic.remove(&name);
        }
    }

    fn number(&mut self, name: &str) -> Result<Item, BoxError> {
        let number = self.items.store(name, ())?.word();
        let cluster = u16::try_from(number / CLUSTER + 1 + u32::from(control::CLUSTER)).ok();
        let item = cluster.and_then(|cluster| Item::try_new(cluster, (number % CLUSTER) as u16));
        Ok(item.ok_or("all numbers for metrics are in use")?)
    }

    fn insert(&mut self, item: Item, derived: &metrics::Metric, group: (usize, &str)) -> Result<(), BoxError> {
        let mut metric = MetricDef::new(&derived.name, item, derived.desc.ty);
        metric.units(derived.desc.units).help(&derived.oneline, &derived.help);
        match derived.desc.semantics {
            Semantics::Counter => _ = metric.counter(),
            Semantics::Discrete => _ = metric.discrete(),
            Semantics::Instant => {}
        }
        if !derived.labels.is_empty() {
            let pairs = derived.labels.iter().map(|(name, value)| format!("{}:{value}", json!(name)));
            metric.labels(format!("{{{}}}", pairs.collect::<Vec<_>>().join(",")));
        }
        if let Some(operand) = derived.desc.indom {
            metric.indom(self.indom(operand, group)?);
        }
        Ok(self.dynamic.insert(&metric)?)
    }

    /// Returns the agent's domain that stands for an operands' domain. Groups do not share domains, because the
    /// instances of each group come from its pmcd.
    fn indom(&mut self, operand: InDom, (group, group_name): (usize, &str)) -> Result<Serial, BoxError> {
        let number = domain(&mut self.serials, &format!("{group_name}:{operand}"), limits::DOMAINS)?;
        let serial = Serial::try_new(number + control::SERIALS).filter(|serial| *serial < SERIALS);
        let serial = serial.ok_or("all numbers for instance domains are in use")?;
        if self.indoms.insert(serial, (group, operand)).is_none() {
            let mut indom = InDomDef::new(serial);
            indom.help(
                format!("Instances of domain {operand}"),
                format!("Instances of the metrics that group {group_name} refers to."),
            );
            self.dynamic.insert_indom(&indom)?;
        }
        Ok(serial)
    }
}

/// Returns the number of an instance domain. At most `limit` domains have numbers, because numbers are kept forever,
/// and a source of operands could report another domain each time.
fn domain(numbers: &mut Cache<()>, name: &str, limit: usize) -> Result<u32, BoxError> {
    if numbers.len() >= limit && numbers.named(name).is_none() {
        return Err(format!("there are more than {limit} instance domains").into());
    }
    Ok(numbers.store(name, ())?.word())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_domains_is_limited() {
        let mut numbers =
            Cache::new(InDom::new(pmapi::Domain::new(404).unwrap(), SERIALS), &pmapi::Config::new(b"", []));
        let mut number = |name| domain(&mut numbers, name, 2).ok();
        let first = number("g:60.1");
        assert!(first.is_some() && number("g:60.2").is_some());
        assert_eq!((number("g:60.3"), number("g:60.1")), (None, first));
    }
}
