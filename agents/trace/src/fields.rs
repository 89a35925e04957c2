//! Metrics of fields of event records: one metric for each key that is in use.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use pmda::prelude::*;

use crate::fair::{Fair, LeftOut, Room};
use crate::limits::{Account, Limits};
use crate::names::shown;

/// Cluster of the first fields.
pub(crate) const CLUSTER: u16 = 2;
/// First of the clusters of further fields.
const CLUSTERS: u16 = 16;
/// Longest key that gets a metric, in bytes.
const MAX_KEY: usize = 64;

/// The metrics of all fields, which filters share.
#[derive(Clone, Debug)]
pub(crate) struct Fields(Rc<RefCell<Known>>);

#[derive(Debug)]
struct Known {
    prefix: String,
    keys: HashMap<Box<str>, Field>,
    used: Fair,
    left_out: LeftOut,
    /// Metrics created so far. A PMID is never reused, because archives may have it for another field.
    number: u32,
}

#[derive(Debug)]
struct Field {
    /// `None` if another key has the same metric name.
    item: Option<Item>,
    account: Account,
    /// Last use, in seconds since the agent's start.
    used: u32,
}

/// Occurrence of a field in an event record.
#[derive(Clone, Copy)]
pub(crate) struct Occurrence<'a> {
    pub(crate) key: &'a str,
    pub(crate) account: Account,
    /// In seconds since the agent's start.
    pub(crate) now: u32,
}

pub(crate) fn is_own(item: Item) -> bool {
    item.cluster() == CLUSTER || item.cluster() >= CLUSTERS
}

impl Fields {
    pub(crate) fn new(prefix: String, limits: &Limits) -> Fields {
        let left_out = LeftOut::new(format_args!("metrics of fields, at most {} in all", limits.fields));
        let used = Fair::new(limits.fields, limits.fields);
        Fields(Rc::new(RefCell::new(Known { prefix, keys: HashMap::new(), used, left_out, number: 0 })))
    }

    /// The metric of a key, if there is one.
    pub(crate) fn find(&self, key: &str) -> Option<Item> {
        self.0.borrow().keys.get(key)?.item
    }

    /// The number of fields that got no metric.
    pub(crate) fn left_out(&self) -> u64 {
        self.0.borrow().left_out.count()
    }

    /// The metric of a field. Creates it if the key is new, and the account has room for it.
    pub(crate) fn item(&self, occurrence: Occurrence<'_>, names: &mut Dynamic) -> Option<Item> {
        let mut known = self.0.borrow_mut();
        if let Some(field) = known.keys.get_mut(occurrence.key) {
            field.used = occurrence.now;
            return field.item;
        }
        known.insert(occurrence, names)
    }

    /// Removes the metrics of fields that were not used since `since`, in seconds since the agent's start.
    pub(crate) fn forget(&self, since: u32, names: &mut Dynamic) {
        let mut known = self.0.borrow_mut();
        known.left_out.flush();
        known.retain(names, |_, field| field.used >= since);
    }
}

impl Known {
    #[cold]
    fn insert(&mut self, occurrence: Occurrence<'_>, names: &mut Dynamic) -> Option<Item> {
        let Occurrence { key, account, now } = occurrence;
        if key.len() > MAX_KEY {
            return None;
        }
        if let Room::From(largest, count) = self.used.room(account, 1) {
            self.give_back(largest, count, names);
        }
        if self.used.room(account, 1) != Room::Free {
            self.left_out.add(account, 1);
            return None;
        }
        let item = item(self.number).filter(|item| {
            let mut metric = Metric::new(format!("{}.{}", self.prefix, name_of(key)), *item, Type::String);
            metric.parameter().help(
                format!("Field {}", shown(key.as_bytes())),
                "A parameter of event records: it has a value there only.",
            );
            names.insert(&metric).is_ok()
        });
        self.number += u32::from(item.is_some());
        self.used.add(account, 1);
        self.keys.insert(key.into(), Field { item, account, used: now });
        item
    }

    /// Removes the `count` metrics of an account that were unused for longest.
    fn give_back(&mut self, account: Account, count: usize, names: &mut Dynamic) {
        let of_account = self.keys.iter().filter(|(_, field)| field.account == account);
        let mut oldest: Vec<(u32, Box<str>)> = of_account.map(|(key, field)| (field.used, key.clone())).collect();
        oldest.sort_unstable();
        oldest.truncate(count);
        self.left_out.add(account, oldest.len() as u64);
        self.retain(names, |key, _| oldest.iter().all(|(_, old)| **old != *key));
    }

    fn retain(&mut self, names: &mut Dynamic, stays: impl Fn(&str, &Field) -> bool) {
        let Known { keys, used, .. } = self;
        keys.retain(|key, field| {
            let stays = stays(key, field);
            if !stays {
                used.remove(field.account, 1);
                let name = field.item.and_then(|item| names.names(item).next().map(str::to_owned));
                name.into_iter().for_each(|name| _ = names.remove(&name));
            }
            stays
        });
    }
}

/// The item of the field with this number, counted from 0. `None` after some four million.
fn item(number: u32) -> Option<Item> {
    let per_cluster = u32::from(Item::MAX_ITEM) + 1;
    let cluster = match u16::try_from(number / per_cluster).ok()? {
        0 => CLUSTER,
        more => CLUSTERS.checked_add(more - 1)?,
    };
    Item::try_new(cluster, u16::try_from(number % per_cluster).ok()?)
}

/// The component of a metric's name for a key: characters that are not allowed become `_`.
fn name_of(key: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let name: String = key.chars().map(|c| if fits(c) { c } else { '_' }).collect();
    if name.starts_with(|c: char| c.is_ascii_alphabetic()) { name } else { format!("f{name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Account = Account::User(1);
    const TWO: Account = Account::User(2);

    /// An agent that has only metrics of fields.
    struct Own {
        names: Dynamic,
    }

    impl Agent for Own {
        const NAME: &'static str = "own";
        const DOMAIN: u16 = 400;

        fn new(setup: &mut Setup) -> Start<Self> {
            Ok(Own { names: setup.dynamic(["own.field"]) })
        }

        fn dynamic(&self) -> Option<&Dynamic> {
            Some(&self.names)
        }

        fn fetch(&mut self, _: Item, _: &mut Values<'_>) -> Result {
            Ok(())
        }
    }

    fn with(limit: usize, test: impl FnOnce(&Fields, &mut Dynamic)) {
        let limits = Limits { fields: limit, ..Limits::default() };
        let mut agent = pcp_collector::Local::<Own>::new().unwrap();
        test(&Fields::new("own.field".into(), &limits), &mut agent.engine_mut().agent_mut().names);
    }

    #[test]
    fn users_share_the_metrics_of_fields() {
        with(100, |fields, names| {
            let come =
                |key: &str, account, now, names: &mut Dynamic| fields.item(Occurrence { key, account, now }, names);
            (0..1000).for_each(|n| _ = come(&format!("hostile{n}"), ONE, 1, names));
            assert_eq!((names.len(), fields.left_out()), (100, 900));
            assert!(come("honest", TWO, 1, names).is_some());
            // Both keys have the same metric name: the second one gets no metric.
            assert!(come("honest?", TWO, 1, names).is_some() && come("honest!", TWO, 1, names).is_none());
            assert!((70..=100).contains(&names.len()), "{}", names.len());
        });
    }

    #[test]
    fn metrics_are_given_back_and_their_numbers_are_not() {
        with(2, |fields, names| {
            let come = |key: &str, now, names: &mut Dynamic| fields.item(Occurrence { key, account: ONE, now }, names);
            let [a, b] = ["a", "b"].map(|key| come(key, 1, names).unwrap());
            assert_eq!((come("c", 2, names), come("b", 3, names)), (None, Some(b)));
            fields.forget(2, names);
            assert_eq!((fields.find("a"), names.item("own.field.a"), fields.find("b")), (None, None, Some(b)));
            let c = come("c", 4, names).unwrap();
            assert!(c != a && c != b);
            assert_eq!(names.item("own.field.c"), Some(c));
        });
    }

    #[test]
    fn there_are_numbers_for_millions() {
        assert_eq!(item(0), Some(Item::new(CLUSTER, 0)));
        assert_eq!(item(1024), Some(Item::new(CLUSTERS, 0)));
        assert_eq!(item(1024 * 4080 + 1023), Some(Item::new(4095, 1023)));
        assert_eq!(item(1024 * 4081), None);
        assert_eq!(item(u32::MAX), None);
    }
}
