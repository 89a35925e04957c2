//! The tags of all kinds, with a quota of names for each account.
//!
//! While the agent runs, a tag's number is not reused for another tag of its kind, because archives may contain it.
//! After a reset, a tag is not exported until its next trace event, and then has the same number. A tag that was not
//! used for `forget-time` is removed, and gets a new number at its next trace event. A name is charged to the account that
//! introduced it; every account can use it.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use crate::sums::Change;
use hashbrown::{DefaultHashBuilder, HashTable};
use pmda::limits::{Quota, Refusals};
use pmda::prelude::*;
use trace::protocol::{Data, Kind};

use crate::limits::{self, Account, Limits};
pub(crate) use crate::tag::{Bucket, Tag, Window};
use crate::tag::{plausible, plausible_change};

/// The tags of all kinds.
#[derive(Debug)]
pub(crate) struct Tags {
    kinds: [Tagged; 4],
    window: Window,
    limits: Limits,
    /// Bytes of names.
    pub(crate) names: Quota<Account>,
    /// Accounts that may have names without a trace event since the last reset.
    dormant: HashSet<Account>,
    start: Instant,
    /// Seconds since the start, the end of the current second, and when unused names were last removed.
    now: u32,
    next_second: Instant,
    swept: u32,
    /// Trace events that were not counted because their values were not valid.
    pub(crate) values: Refusals<Account>,
}

/// Cost of a short name, in bytes.
const SHORT: u64 = 64;

/// The tags of one kind: an instance domain.
#[derive(Debug, Default)]
pub(crate) struct Tagged {
    hasher: DefaultHashBuilder,
    /// Indexes in `tags`, by name as clients send it.
    places: HashTable<usize>,
    /// Tags in the order of their numbers, which begin with 1.
    tags: Vec<Tag>,
    active: usize,
    last: u32,
}

impl Tags {
    pub(crate) fn new(window: Window, limits: Limits) -> Tags {
        let start = Instant::now();
        Tags {
            kinds: Default::default(),
            window,
            names: limits::quota(
                "bytes of new tags",
                limits.names_each.saturating_mul(SHORT),
                limits.names.saturating_mul(SHORT),
            ),
            dormant: HashSet::new(),
            start,
            now: 0,
            next_second: start,
            swept: 0,
            values: Refusals::new("trace events with invalid values"),
            limits,
        }
    }

    pub(crate) fn window(&self) -> &Window {
        &self.window
    }

    /// Sets the time for later calls. Removes unused names at intervals.
    pub(crate) fn set_now(&mut self, now: Instant) {
        self.window.advance(now);
        if now < self.next_second {
            return;
        }
        self.now = u32::try_from(now.saturating_duration_since(self.start).as_secs()).unwrap_or(u32::MAX);
        self.next_second = self.start + Duration::from_secs(u64::from(self.now) + 1);
        let forget = self.limits.forget_time;
        let rest = (forget / 8).clamp(Duration::from_secs(1), Duration::from_secs(600));
        if u64::from(self.now - self.swept.min(self.now)) >= rest.as_secs() {
            self.swept = self.now;
            self.forget_before(self.now.saturating_sub(u32::try_from(forget.as_secs()).unwrap_or(u32::MAX)));
        }
    }

    /// Removes names that were not used since the time `since`, in seconds since the start.
    fn forget_before(&mut self, since: u32) {
        self.remove(|tag| tag.used < since);
    }

    pub(crate) fn of(&self, kind: Kind) -> &Tagged {
        let [transact, point, observe, counter] = &self.kinds;
        match kind {
            Kind::Transact => transact,
            Kind::Point => point,
            Kind::Observe => observe,
            Kind::Counter => counter,
        }
    }

    fn of_mut(&mut self, kind: Kind) -> &mut Tagged {
        of_mut(&mut self.kinds, kind)
    }

    /// Counts a trace event of a TCP client.
    #[inline]
    pub(crate) fn add(&mut self, account: Account, data: &Data<'_>) {
        let Some(value) = plausible(data.kind, data.value) else { return self.values.add(&account, 1) };
        let window = self.window;
        if let Some(tag) = self.tag(account, data.kind, data.tag) {
            tag.add(data.kind, value, &window);
        }
    }

    /// Counts the change in a file: at about the time `when`, or before the agent's start if that is `None`.
    pub(crate) fn change(&mut self, account: Account, kind: Kind, tag: &[u8], change: &Change, when: Option<Instant>) {
        let Some(change) = plausible_change(kind, change, trace::shared_memory::now(), when.is_none()) else {
            return self.values.add(&account, 1);
        };
        let window = self.window;
        if let Some(tag) = self.tag(account, kind, tag) {
            tag.change(&change, when.map(|when| window.number(when)), &window);
        }
    }

    /// Finds or adds the tag of a name, and makes it active. `None` if there is no room for it.
    #[inline]
    fn tag(&mut self, account: Account, kind: Kind, name: &[u8]) -> Option<&mut Tag> {
        let place = match self.of(kind).find(name) {
            Some(place) => place,
            None => self.insert(account, kind, name)?,
        };
        if self.of(kind).tags.get(place).is_some_and(|tag| !tag.active) {
            self.activate(kind, place);
        }
        let now = self.now;
        let tag = self.of_mut(kind).tags.get_mut(place)?;
        tag.used = now;
        Some(tag)
    }

    /// Makes a tag active at its first trace event, or its first one after a reset.
    #[cold]
    fn activate(&mut self, kind: Kind, place: usize) {
        let tagged = self.of_mut(kind);
        let Some(tag) = tagged.tags.get_mut(place) else { return };
        tag.active = true;
        tagged.active += 1;
    }

    /// Adds a name, if its account has room for it. Returns the index of the tag.
    #[cold]
    fn insert(&mut self, account: Account, kind: Kind, name: &[u8]) -> Option<usize> {
        let tag = Tag::new(account, name);
        let cost = cost(&tag);
        // Once after a reset, names of the same account from before the reset give way.
        if self.names.check(&account, cost).is_err() && self.dormant.remove(&account) {
            self.remove(|tag| tag.account == account && !tag.active);
        }
        self.names.try_add(&account, cost).ok()?;
        self.of_mut(kind).push(tag)
    }

    /// Removes tags for which `goes` returns true.
    fn remove(&mut self, goes: impl Fn(&Tag) -> bool) {
        let Tags { kinds, names, .. } = self;
        kinds.iter_mut().for_each(|tagged| tagged.remove(&goes, |tag| names.remove(&tag.account, cost(tag))));
    }

    /// Resets all tags except their names and numbers, and begins a new period.
    pub(crate) fn reset(&mut self) {
        self.window.restart();
        for tagged in &mut self.kinds {
            tagged.active = 0;
            tagged.tags.iter_mut().for_each(Tag::clear);
        }
        self.dormant = self.names.accounts().map(|(account, _)| *account).collect();
    }
}

fn of_mut(kinds: &mut [Tagged; 4], kind: Kind) -> &mut Tagged {
    let [transact, point, observe, counter] = kinds;
    match kind {
        Kind::Transact => transact,
        Kind::Point => point,
        Kind::Observe => observe,
        Kind::Counter => counter,
    }
}

impl Tagged {
    #[inline]
    fn find(&self, bytes: &[u8]) -> Option<usize> {
        let hash = self.hash(bytes);
        self.places.find(hash, |place| self.tags.get(*place).is_some_and(|tag| *tag.bytes == *bytes)).copied()
    }

    #[inline]
    fn hash(&self, bytes: &[u8]) -> u64 {
        use std::hash::BuildHasher as _;
        self.hasher.hash_one(bytes)
    }

    /// Adds a tag with the next number. Returns its index.
    fn push(&mut self, mut tag: Tag) -> Option<usize> {
        self.last = self.last.checked_add(1).filter(|last| *last <= i32::MAX as u32)?;
        tag.number = self.last;
        self.tags.push(tag);
        let place = self.tags.len() - 1;
        self.index(place);
        Some(place)
    }

    fn index(&mut self, place: usize) {
        let Tagged { hasher, places, tags, .. } = self;
        let hash = |place: &usize| {
            use std::hash::BuildHasher as _;
            hasher.hash_one(tags.get(*place).map_or(&[][..], |tag| &*tag.bytes))
        };
        places.insert_unique(hash(&place), place, hash);
    }

    fn remove(&mut self, goes: impl Fn(&Tag) -> bool, mut gone: impl FnMut(&Tag)) {
        if !self.tags.iter().any(&goes) {
            return;
        }
        let active = &mut self.active;
        self.tags.retain(|tag| {
            let stays = !goes(tag);
            if !stays {
                *active -= usize::from(tag.active);
                gone(tag);
            }
            stays
        });
        self.tags.shrink_to_fit();
        self.places = HashTable::with_capacity(self.tags.len());
        (0..self.tags.len()).for_each(|place| self.index(place));
    }

    /// Returns the active instances, in the order of their numbers.
    pub(crate) fn each(&self) -> impl Iterator<Item = (Inst, &Tag)> {
        self.tags.iter().filter(|tag| tag.active).map(|tag| (Inst::new(tag.number), tag))
    }
}

impl Instances for Tagged {
    fn each<'a>(&'a self, f: &mut dyn FnMut(Inst, &'a str)) {
        Tagged::each(self).for_each(|(inst, tag)| f(inst, tag.name()));
    }

    fn name(&self, inst: Inst) -> Option<&str> {
        let place = self.tags.binary_search_by_key(&inst.word(), |tag| tag.number).ok()?;
        self.tags.get(place).filter(|tag| tag.active).map(Tag::name)
    }

    /// If several names have the same first word, that word means the oldest of these names, so a later name cannot
    /// replace it.
    fn lookup(&self, name: &str) -> Option<Inst> {
        let whole = self.find(name.as_bytes()).and_then(|place| self.tags.get(place));
        let whole = whole.filter(|tag| tag.active && tag.name() == name).map(|tag| Inst::new(tag.number));
        if whole.is_some() {
            return whole;
        }
        // The index has names as clients send them: an escaped name needs a search of all tags.
        if name.contains("\\x") {
            if let Some((inst, _)) = Tagged::each(self).find(|(_, tag)| tag.name() == name) {
                return Some(inst);
            }
        }
        let mut all = Tagged::each(self);
        all.find(|(_, tag)| tag.name().split(' ').next() == Some(name)).map(|(inst, _)| inst)
    }
}

/// Returns the cost of a name: its bytes in a reply to an instance request, and at least [`SHORT`] for
/// its memory.
fn cost(tag: &Tag) -> u64 {
    (8 + tag.name().len().next_multiple_of(4) as u64).max(SHORT)
}

#[cfg(test)]
mod tests;
