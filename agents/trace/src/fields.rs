//! Metrics of fields of event records: one metric for each key that is in use.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use pmda::prelude::*;

use crate::fair::{LeftOut, Room};
use crate::limits::{Account, Limits};
use crate::names::shown;
use crate::users::{NameBudget, ROUNDS, Users};

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
    budget: NameBudget,
    left_out: LeftOut,
    /// Metrics created so far. A PMID is never reused, because archives may have it for another field.
    number: u32,
}

#[derive(Debug)]
struct Field {
    /// Item of the metric. `None` if another key has the same metric name.
    item: Option<Item>,
    users: Users,
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
        let left_out = LeftOut::new(format_args!("metrics of fields, at most {} in all", limits.fields));
        let budget = NameBudget::new(limits.fields, limits.fields);
        Fields(Rc::new(RefCell::new(Known { prefix, keys: HashMap::new(), budget, left_out, number: 0 })))
    }

    /// Returns the metric of a key, if there is one.
    pub(crate) fn find(&self, key: &str) -> Option<Item> {
        self.0.borrow().keys.get(key)?.item
    }

    /// Returns the number of fields that got no metric.
    pub(crate) fn left_out(&self) -> u64 {
        self.0.borrow().left_out.count()
    }

    /// Returns the metric of a field. Creates it if the key is new, and the account has room for it.
    pub(crate) fn item(&self, occurrence: Occurrence<'_>, names: &mut Dynamic) -> Option<Item> {
        let mut known = self.0.borrow_mut();
        let Some(field) = known.keys.get_mut(occurrence.key) else { return known.insert(occurrence, names) };
        let item = field.item;
        if !field.users.renew(occurrence.account, occurrence.now) {
            known.add_user(occurrence);
        }
        item
    }

    /// Removes the metrics of fields that were not used since `since`, in seconds since the agent's start.
    pub(crate) fn forget(&self, since: u32, names: &mut Dynamic) {
        let mut known = self.0.borrow_mut();
        known.left_out.flush();
        let Known { keys, budget, .. } = &mut *known;
        keys.values_mut().for_each(|field| _ = budget.forget_before(since, &mut field.users, 1));
        known.retain(names, |_, field| field.users.last_use() >= since);
    }
}

impl Known {
    #[cold]
    fn insert(&mut self, occurrence: Occurrence<'_>, names: &mut Dynamic) -> Option<Item> {
        let Occurrence { key, account, now } = occurrence;
        if key.len() > MAX_KEY {
            return None;
        }
        for _ in 0..ROUNDS {
            let Room::From(largest, count) = self.budget.room(account, 1) else { break };
            self.give_back(largest, count, names);
        }
        if self.budget.room(account, 1) != Room::Free {
            self.left_out.add(account, 1);
            return None;
        }
        let item = item(self.number).filter(|item| {
            let mut metric = MetricDef::new(format!("{}.{}", self.prefix, name_of(key)), *item, Type::String);
            metric.parameter().help(
                format!("Field {}", shown(key.as_bytes())),
                "A parameter of event records, without a value outside of these.",
            );
            names.insert(&metric).is_ok()
        });
        self.number += u32::from(item.is_some());
        self.budget.add(account, 1);
        self.keys.insert(key.into(), Field { item, users: Users::new(account, now) });
        item
    }

    /// Records that an account uses a field that is charged to another account.
    #[cold]
    fn add_user(&mut self, Occurrence { key, account, now }: Occurrence<'_>) {
        let Known { keys, budget, .. } = self;
        if let Room::From(largest, count) = budget.room_for_use(account) {
            budget.forget_uses(largest, count, keys.values_mut().map(|field| &mut field.users));
        }
        if let Some(field) = keys.get_mut(key) {
            budget.add_use(&mut field.users, account, now);
        }
    }

    /// Removes metrics of an account until `count` are free.
    fn give_back(&mut self, account: Account, count: usize, names: &mut Dynamic) {
        let keys = self.keys.iter_mut().map(|(key, field)| (key.clone(), 1, &mut field.users));
        let gone = self.budget.give_back(account, count, keys);
        self.left_out.add(account, gone.len() as u64);
        self.retain(names, |key, _| gone.iter().all(|gone| **gone != *key));
    }

    fn retain(&mut self, names: &mut Dynamic, stays: impl Fn(&str, &Field) -> bool) {
        let Known { keys, budget, .. } = self;
        keys.retain(|key, field| {
            let stays = stays(key, field);
            if !stays {
                budget.remove(&field.users, 1);
                if let Some(name) = field.item.and_then(|item| names.names(item).next().map(str::to_owned)) {
                    names.remove(&name);
                }
            }
            stays
        });
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

        fn new(setup: &mut Setup) -> Start<Self> {
            Ok(Own { names: setup.dynamic(["own.field"]) })
        }

        fn catalogs(&self) -> impl IntoIterator<Item = &dyn Catalog> {
            [&self.names as &dyn Catalog]
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
    fn metrics_that_another_account_introduced_stay() {
        with(100, |fields, names| {
            let come =
                |key: &str, account, now, names: &mut Dynamic| fields.item(Occurrence { key, account, now }, names);
            let user = come("user", ONE, 1, names);
            assert_eq!(come("user", TWO, 1, names), user);
            (0..1000).for_each(|n| _ = come(&format!("hostile{n}"), ONE, 2, names));
            for host in 1..10 {
                let account = Account::Host([10, 0, 0, host].into());
                (0..100).for_each(|n| _ = come(&format!("host{host}_{n}"), account, 3, names));
            }
            assert_eq!(fields.find("user"), user);
            // The account that was charged for the field no longer uses it.
            assert_eq!(come("user", TWO, 9, names), user);
            fields.forget(9, names);
            assert_eq!((fields.find("user"), names.len()), (user, 1));
            fields.forget(10, names);
            assert_eq!((names.len(), fields.0.borrow().budget.accounts()), (0, 0));
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
