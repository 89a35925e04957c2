//! Metrics of groups in the name space, each with the number that it has always had.

use std::collections::HashMap;
use std::sync::Arc;

use pmapi::{InDom, Semantics};
use pmda::Failure;
use pmda::prelude::*;
use tracing::error;

use crate::control;
use crate::metrics::{self, Metrics};

/// Files of numbers that stay the same: those of metrics, and those of instance domains.
const ITEMS: Serial = Serial::new(Serial::MAX);
const SERIALS: Serial = Serial::new(Serial::MAX - 1);

/// How many items a cluster has.
const CLUSTER: u32 = Item::MAX_ITEM as u32 + 1;

/// Metrics in the name space.
#[derive(Debug)]
pub(crate) struct Show {
    pub(crate) dynamic: Dynamic,
    metrics: HashMap<Item, At>,
    /// The group and the operands' domain that one of ours stands for.
    indoms: HashMap<Serial, (usize, InDom)>,
    items: Cache<()>,
    serials: Cache<()>,
}

/// A group, and a place among its metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct At {
    pub(crate) group: usize,
    pub(crate) place: usize,
}

impl Show {
    /// Metrics are at or below some names.
    pub(crate) fn new(setup: &mut Setup, roots: impl IntoIterator<Item = String>) -> Show {
        Show {
            dynamic: setup.dynamic(roots),
            metrics: HashMap::new(),
            indoms: HashMap::new(),
            items: Cache::open(setup.indom_id(ITEMS), setup.config()),
            serials: Cache::open(setup.indom_id(SERIALS), setup.config()),
        }
    }

    /// Metrics are at or below further names.
    pub(crate) fn add_roots(&mut self, roots: impl IntoIterator<Item = String>) {
        roots.into_iter().for_each(|root| self.dynamic.add_root(&root));
    }

    /// Where a metric's values are.
    pub(crate) fn find(&self, item: Item) -> Option<At> {
        self.metrics.get(&item).copied()
    }

    /// Where a domain's instances are: the group, and the domain of the operands.
    pub(crate) fn find_indom(&self, serial: Serial) -> Option<(usize, InDom)> {
        self.indoms.get(&serial).copied()
    }

    /// Shows the metrics of a group in place of those that it had. Gives those that cannot be shown, and why.
    pub(crate) fn take_over(
        &mut self,
        group: (usize, &str),
        old: Option<&Arc<Metrics>>,
        new: &Metrics,
    ) -> Vec<(usize, Failure)> {
        let mut failures = Vec::new();
        let mut numbered = HashMap::with_capacity(new.good.len());
        for (place, metric) in new.good.iter().enumerate() {
            match self.number(&metric.name) {
                Ok(item) => _ = numbered.insert(item, place),
                Err(e) => failures.push((place, e)),
            }
        }
        let old = |place: usize| old.and_then(|old| old.good.get(place));
        let same = |place: usize, now: Option<&usize>| {
            let both = old(place).zip(now.and_then(|now| new.good.get(*now)));
            both.is_some_and(|(old, new)| old.looks_like(new))
        };
        let of_group = self.metrics.iter().filter(|(_, at)| at.group == group.0);
        let gone: Vec<Item> =
            of_group.filter(|(item, at)| !same(at.place, numbered.get(item))).map(|(item, _)| *item).collect();
        for item in gone {
            self.metrics.remove(&item);
            let names: Vec<String> = self.dynamic.names(item).map(str::to_owned).collect();
            names.iter().for_each(|name| _ = self.dynamic.remove(name));
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
            cache.save().unwrap_or_else(|e| error!("{e}"));
        }
        failures
    }

    /// Shows no metrics of groups.
    pub(crate) fn clear(&mut self) {
        for item in std::mem::take(&mut self.metrics).into_keys() {
            let names: Vec<String> = self.dynamic.names(item).map(str::to_owned).collect();
            names.iter().for_each(|name| _ = self.dynamic.remove(name));
        }
        self.indoms.clear();
    }

    fn number(&mut self, name: &str) -> Start<Item> {
        let number = self.items.store(name, ())?.word();
        let cluster = u16::try_from(number / CLUSTER + 1 + u32::from(control::CLUSTER)).ok();
        let item = cluster.and_then(|cluster| Item::try_new(cluster, (number % CLUSTER) as u16));
        Ok(item.ok_or("no number is left for a metric")?)
    }

    fn insert(&mut self, item: Item, derived: &metrics::Metric, group: (usize, &str)) -> Start<()> {
        let mut metric = Metric::new(&derived.name, item, derived.desc.ty);
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

    /// The domain that stands for the operands': each group has its own, because its instances are from its own pmcd.
    fn indom(&mut self, operand: InDom, (group, name): (usize, &str)) -> Start<Serial> {
        let number = self.serials.store(&format!("{name}:{operand}"), ())?.word();
        let serial = Serial::try_new(number + control::SERIALS).filter(|serial| *serial < SERIALS);
        let serial = serial.ok_or("no number is left for an instance domain")?;
        if self.indoms.insert(serial, (group, operand)).is_none() {
            let mut indom = Indom::new(serial);
            indom.help(
                format!("Instances of domain {operand}"),
                format!("Those of the metrics that group {name} is about."),
            );
            self.dynamic.insert_indom(&indom)?;
        }
        Ok(serial)
    }
}
