//! Metrics of fields of event records: one metric for each key that is in use.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use pmda::limits::Quota;
use pmda::prelude::*;

use crate::limits::{self, Account, Limits};
use crate::names::shown;

/// Cluster of the first fields.
pub(crate) const CLUSTER: u16 = 2;
/// First of the clusters of further fields.
const CLUSTERS: u16 = 16;
/// Longest key that gets a metric, in bytes.
const MAX_KEY: usize = 64;

/// The metrics of all fields. Filters share them.
#[derive(Clone, Debug)]
pub(crate) struct Fields(Rc<RefCell<Known>>);

#[derive(Debug)]
struct Known {
    prefix: String,
    keys: HashMap<Box<str>, Field>,
    quota: Quota<Account>,
    /// Metrics created so far. A PMID is never reused, because archives may have it for another field.
    number: u32,
}

#[derive(Debug)]
struct Field {
    /// Item of the metric. `None` if another key has the same metric name.
    item: Option<Item>,
    /// Account that introduced the field, and is charged for it.
    account: Account,
    /// Time of the last use, in seconds since the agent's start.
    used: u32,
}

/// Occurrence of a field in an event record.
#[derive(Clone, Copy)]
pub(crate) struct Occurrence<'a> {
    pub(crate) key: &'a str,
    pub(crate) account: Account,
    /// Seconds since the agent's start.
    pub(crate) now: u32,
}

pub(crate) fn is_own(item: Item) -> bool {
    item.cluster() == CLUSTER || item.cluster() >= CLUSTERS
}

impl Fields {
    pub(crate) fn new(prefix: String, limits: &Limits) -> Fields {
        let quota = limits::quota("metrics of fields", limits.fields, limits.fields);
        Fields(Rc::new(RefCell::new(Known { prefix, keys: HashMap::new(), quota, number: 0 })))
    }

    /// Returns the metric of a key, if there is one.
    pub(crate) fn find(&self, key: &str) -> Option<Item> {
        self.0.borrow().keys.get(key)?.item
    }

    /// Returns the number of fields that got no metric.
    pub(crate) fn left_out(&self) -> u64 {
        self.0.borrow().quota.refused()
    }

    /// Returns the metric of a field. Creates it if the key is new, and the account has room for it.
    pub(crate) fn item(&self, occurrence: Occurrence<'_>, names: &mut Dynamic) -> Option<Item> {
        let mut known = self.0.borrow_mut();
        let Some(field) = known.keys.get_mut(occurrence.key) else { return known.insert(occurrence, names) };
        field.used = occurrence.now;
        field.item
    }

    /// Removes the metrics of fields that were not used since `since`, in seconds since the agent's start.
    pub(crate) fn forget(&self, since: u32, names: &mut Dynamic) {
        let mut known = self.0.borrow_mut();
        let Known { keys, quota, .. } = &mut *known;
        keys.retain(|_, field| {
            let stays = field.used >= since;
            if !stays {
                quota.remove(&field.account, 1);
                if let Some(name) = field.item.and_then(|item| names.names(item).next().map(str::to_owned)) {
                    names.remove(&name);
                }
            }
            stays
        });
    }
}

impl Known {
    #[cold]
    fn insert(&mut self, occurrence: Occurrence<'_>, names: &mut Dynamic) -> Option<Item> {
        let Occurrence { key, account, now } = occurrence;
        if key.len() > MAX_KEY {
            return None;
        }
        self.quota.try_add(&account, 1).ok()?;
        let item = item(self.number).filter(|item| {
            let mut metric = MetricDef::new(format!("{}.{}", self.prefix, name_of(key)), *item, Type::String);
            metric.parameter().help(
                format!("Field {}", shown(key.as_bytes())),
                "A parameter of event records, without a value outside of these.",
            );
            names.insert(&metric).is_ok()
        });
        self.number += u32::from(item.is_some());
        self.keys.insert(key.into(), Field { item, account, used: now });
        item
    }
}

/// Returns the item of the field with this number, counted from 0. Returns `None` after about four million fields.
fn item(number: u32) -> Option<Item> {
    let per_cluster = u32::from(Item::MAX_ITEM) + 1;
    let cluster = match u16::try_from(number / per_cluster).ok()? {
        0 => CLUSTER,
        more => CLUSTERS.checked_add(more - 1)?,
    };
    Item::try_new(cluster, u16::try_from(number % per_cluster).ok()?)
}

/// Returns the component of a metric's name for a key: characters that are not allowed become `_`.
fn name_of(key: &str) -> String {
    let name = key.replace(|c: char| !c.is_ascii_alphanumeric(), "_");
    if name.starts_with(|c: char| c.is_ascii_alphabetic()) { name } else { format!("f{name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Account = Account::User(1);
    const TWO: Account = Account::User(2);

    /// An agent that has only the metrics of fields.
    struct Own {
        names: Dynamic,
    }

    impl Agent for Own {
        const NAME: &'static str = "own";
        const DOMAIN: u16 = 400;

        fn new(setup: &mut Setup) -> Result<Self, BoxError> {
            Ok(Own { names: setup.dynamic(["own.field"]) })
        }

        fn catalogs(&self) -> impl IntoIterator<Item = &dyn Catalog> {
            [&self.names as &dyn Catalog]
        }

        fn fetch(&mut self, _: Item, _: &mut Values<'_>) -> Result {
            Ok(())
        }
    }

    fn with(limit: u64, test: impl FnOnce(&Fields, &mut Dynamic)) {
        let limits = Limits { fields: limit, ..Limits::default() };
        let mut agent = pcp_collector::Local::<Own>::new().unwrap();
        test(&Fields::new("own.field".into(), &limits), &mut agent.engine_mut().agent_mut().names);
    }

    #[test]
    fn a_user_within_its_floor_gets_metrics_beside_a_hostile_one() {
        with(1280, |fields, names| {
            let come =
                |key: &str, account, now, names: &mut Dynamic| fields.item(Occurrence { key, account, now }, names);
            let user = come("user", ONE, 1, names);
            (0..2000).for_each(|n| _ = come(&format!("hostile{n}"), ONE, 1, names));
            assert_eq!((names.len(), fields.left_out()), (650, 1351));
            // A metric that another account introduced is used, and stays while it is.
            assert_eq!(come("user", TWO, 3, names), user);
            assert!((0..9).all(|n| come(&format!("honest{n}"), TWO, 3, names).is_some()));
            // Both keys have the same metric name: the second one gets no metric.
            assert!(come("honest?", TWO, 3, names).is_some() && come("honest!", TWO, 3, names).is_none());
            fields.forget(3, names);
            assert_eq!((fields.find("user"), names.len()), (user, 11));
            fields.forget(10, names);
            assert_eq!((names.len(), fields.0.borrow().quota.used()), (0, 0));
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
