//! Instance domains by time.
//!
//! Records stay in the metadata file; here is only where each one is. A delta is applied to the domain before it. So
//! that few deltas have to be applied at a time, the domain is kept in full wherever the deltas since the last full
//! domain have become as long as the domain itself: the memory for that is at most that of the deltas.

use std::collections::{BTreeMap, HashMap, HashSet};

use pcp_pdu::event::Stamp;
use pmapi::{Error, InDom, Result};

use super::{Metadata, Place};
use crate::decode::meta::{InstList, text_at};

/// Instance of a domain and its external name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Instance<'a> {
    /// Internal identifier.
    pub inst: u32,
    /// External name.
    pub name: &'a [u8],
}

/// Record of an instance domain: what it was from a time on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InDomRecord {
    /// Time from which on the instances exist.
    pub time: Stamp,
    /// Number of the record among those of the domain, in the order of time.
    pub(super) nth: usize,
}

#[derive(Debug, Default)]
pub(super) struct InDoms {
    by_id: BTreeMap<InDom, Vec<Stored>>,
}

/// Record of an instance domain.
#[derive(Debug)]
struct Stored {
    file: u32,
    list: InstList,
    /// Whole domain after a delta.
    full: Option<Box<[Entry]>>,
}

/// Instance with the place of its name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) inst: u32,
    pub(super) name: Place,
}

/// Instance, name and last record that it is in.
struct Span {
    entry: Entry,
    last: usize,
}

impl InDoms {
    pub(super) fn keys(&self) -> impl Iterator<Item = InDom> {
        self.by_id.keys().copied()
    }

    fn records(&self, indom: InDom) -> Result<&[Stored]> {
        self.by_id.get(&indom).map(Vec::as_slice).ok_or(Error::INDOM_LOG)
    }

    /// Adds a record. One that equals another of the same time replaces it.
    pub(super) fn add(&mut self, files: &[Vec<u8>], indom: InDom, file: u32, list: InstList) {
        let records = self.by_id.entry(indom).or_default();
        let end = records.partition_point(|other| other.list.time <= list.time);
        let start = records.partition_point(|other| other.list.time < list.time);
        let new = Stored { file, list, full: None };
        let same = (start..end).find(|at| records.get(*at).is_some_and(|other| same(files, other, &new)));
        match same {
            Some(at) => {
                let known = records.remove(at);
                records.insert(end - 1, known);
            }
            None => records.insert(end, new),
        }
    }

    /// Keeps whole domains between deltas.
    pub(super) fn finish(&mut self, files: &[Vec<u8>]) {
        for records in self.by_id.values_mut() {
            if records.iter().all(|record| !record.list.is_delta) {
                continue;
            }
            let (mut current, mut since) = (Vec::new(), 0);
            for record in records {
                record.apply(files, &mut current);
                since = if record.list.is_delta { since + record.list.len() } else { 0 };
                if since > current.len() {
                    record.full = Some(current.as_slice().into());
                    since = 0;
                }
            }
        }
    }
}

fn same(files: &[Vec<u8>], a: &Stored, b: &Stored) -> bool {
    if a.list.len() != b.list.len() || a.list.is_delta != b.list.is_delta {
        return false;
    }
    let (file_a, file_b) = (bytes(files, a.file), bytes(files, b.file));
    let sorted = |list: InstList, file| {
        let mut all: Vec<_> = list.iter(file).map(|(inst, name)| (inst, name.map(|at| text_at(file, at)))).collect();
        all.sort_by_key(|(inst, _)| *inst);
        all
    };
    sorted(a.list, file_a) == sorted(b.list, file_b)
}

fn bytes(files: &[Vec<u8>], file: u32) -> &[u8] {
    files.get(file as usize).map_or(&[], Vec::as_slice)
}

impl Stored {
    /// Changes the domain before this record into that from it on.
    fn apply(&self, files: &[Vec<u8>], current: &mut Vec<Entry>) {
        if let Some(full) = &self.full {
            current.clear();
            current.extend_from_slice(full);
            return;
        }
        let mut changes: Vec<_> = self.list.iter(bytes(files, self.file)).collect();
        changes.sort_by_key(|(inst, _)| *inst);
        let entry = |inst, at| Entry { inst, name: Place { file: self.file, at } };
        if !self.list.is_delta {
            current.clear();
            current.extend(changes.into_iter().filter_map(|(inst, name)| Some(entry(inst, name?))));
            return;
        }
        let mut old = std::mem::take(current).into_iter().peekable();
        for (inst, name) in changes {
            while let Some(before) = old.next_if(|before| before.inst < inst) {
                current.push(before);
            }
            match name {
                // An instance that exists keeps its name: libpcp finds the old entry first.
                Some(at) => {
                    current.extend(old.next_if(|before| before.inst == inst));
                    current.push(entry(inst, at));
                }
                None => _ = old.next_if(|before| before.inst == inst),
            }
        }
        current.extend(old);
    }
}

impl Metadata {
    /// Iterates over the records of an instance domain in the order of time. Each has the whole domain.
    ///
    /// # Errors
    /// `PM_ERR_INDOM_LOG` for a domain that the archive does not have.
    pub fn indom_records(&self, indom: InDom) -> Result<impl ExactSizeIterator<Item = InDomRecord>> {
        let records = self.indoms.records(indom)?;
        Ok(records.iter().enumerate().map(|(nth, record)| InDomRecord { time: record.list.time, nth }))
    }

    /// Returns the number of the record with the domain as of a time.
    pub(super) fn indom_at(&self, indom: InDom, time: Stamp) -> Result<usize> {
        let later = self.indoms.records(indom)?.partition_point(|record| record.list.time <= time);
        later.checked_sub(1).ok_or(Error::INDOM_LOG)
    }

    /// Brings the domain from the record `from` to the record `to`, or makes it anew.
    pub(super) fn indom_entries(&self, indom: InDom, from: Option<usize>, to: usize, current: &mut Vec<Entry>) {
        let Ok(records) = self.indoms.records(indom) else { return };
        let is_whole = |record: &Stored| !record.list.is_delta || record.full.is_some();
        let whole = records.get(..=to).unwrap_or_default().iter().rposition(is_whole);
        let start = match (from, whole) {
            (Some(from), _) if from <= to && whole.is_none_or(|whole| whole <= from) => from + 1,
            (_, whole) => {
                current.clear();
                whole.unwrap_or(0)
            }
        };
        for record in records.get(start..=to).unwrap_or_default() {
            record.apply(&self.files, current);
        }
    }

    pub(super) fn instance(&self, entry: Entry) -> Instance<'_> {
        Instance { inst: entry.inst, name: self.text_at(entry.name) }
    }

    /// Returns instances, their names, and the last record in which they have them: the newest record first.
    fn history(&self, indom: InDom) -> Result<Vec<Span>> {
        let records = self.indoms.records(indom)?;
        let (mut done, mut live, mut current): (Vec<Span>, HashMap<u32, Entry>, _) =
            (Vec::new(), HashMap::new(), vec![]);
        let mut seen = HashMap::new();
        for (nth, record) in records.iter().enumerate() {
            if record.list.is_delta && record.full.is_none() {
                for (inst, name) in record.list.iter(self.file(record.file)) {
                    match name {
                        Some(at) => {
                            _ = live.entry(inst).or_insert(Entry { inst, name: Place { file: record.file, at } })
                        }
                        None => {
                            done.extend(live.remove(&inst).map(|entry| Span { entry, last: nth.saturating_sub(1) }))
                        }
                    }
                }
                continue;
            }
            record.apply(&self.files, &mut current);
            seen.clear();
            for entry in &current {
                seen.entry(entry.inst).or_insert(*entry);
            }
            std::mem::swap(&mut live, &mut seen);
            for (inst, entry) in &seen {
                let is_kept = live.get(inst).is_some_and(|new| self.text_at(new.name) == self.text_at(entry.name));
                if !is_kept {
                    done.push(Span { entry: *entry, last: nth.saturating_sub(1) });
                }
            }
        }
        done.extend(live.into_values().map(|entry| Span { entry, last: records.len() - 1 }));
        done.sort_by(|a, b| b.last.cmp(&a.last).then(a.entry.inst.cmp(&b.entry.inst)));
        Ok(done)
    }

    /// Returns every instance that a domain ever has, each with its latest name (pmGetInDomArchive(3)).
    ///
    /// # Errors
    /// `PM_ERR_INDOM_LOG` for a domain that the archive does not have.
    pub fn instances_ever(&self, indom: InDom) -> Result<Vec<Instance<'_>>> {
        let mut known = HashSet::new();
        let all = self.history(indom)?.into_iter().filter(|span| known.insert(span.entry.inst));
        Ok(all.map(|span| self.instance(span.entry)).collect())
    }

    /// Returns the instance that has a name at any time, the latest such time (pmLookupInDomArchive(3)). The part of
    /// an instance's name before the first space is enough.
    ///
    /// # Errors
    /// `PM_ERR_INDOM_LOG` for a domain that the archive does not have, `PM_ERR_INST_LOG` for an unknown name.
    pub fn lookup_ever(&self, indom: InDom, name: &[u8]) -> Result<u32> {
        let mut best: Option<(usize, bool, u32)> = None;
        for span in self.history(indom)? {
            let known = self.text_at(span.entry.name);
            if best.is_some_and(|(last, ..)| last > span.last) {
                break;
            }
            let is_full = known == name;
            let is_better = best.is_none_or(|(_, was_full, _)| is_full && !was_full);
            if is_better && (is_full || is_short_match(known, name)) {
                best = Some((span.last, is_full, span.entry.inst));
            }
        }
        best.map(|(_, _, inst)| inst).ok_or(Error::INST_LOG)
    }

    /// Returns the name that an instance has at any time, the latest one (pmNameInDomArchive(3)).
    ///
    /// # Errors
    /// `PM_ERR_INDOM_LOG` for a domain that the archive does not have, `PM_ERR_INST_LOG` for an unknown instance.
    pub fn name_ever(&self, indom: InDom, inst: u32) -> Result<&[u8]> {
        let found = self.history(indom)?.into_iter().find(|span| span.entry.inst == inst);
        found.map(|span| self.text_at(span.entry.name)).ok_or(Error::INST_LOG)
    }
}

/// Times between which an instance exists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Lifetime {
    pub(crate) inst: u32,
    /// Time of the first record that has the instance.
    pub(crate) birth: Stamp,
    /// Time of the record after the last one that has the instance; `None` if that is the latest one.
    pub(crate) death: Option<Stamp>,
}

impl Metadata {
    /// Returns when the instances of a domain exist, in the order of their identifiers, and the most that exist at a
    /// time.
    pub(crate) fn lifetimes(&self, indom: InDom) -> Result<(usize, Vec<Lifetime>)> {
        let (mut lives, mut live, mut most) = (HashMap::<u32, Lifetime>::new(), HashSet::new(), 0);
        for record in self.indoms.records(indom)? {
            let (time, file) = (record.list.time, self.file(record.file));
            let mut named = HashSet::new();
            for (inst, name) in record.list.iter(file) {
                match name {
                    Some(_) => {
                        let life = lives.entry(inst).or_insert(Lifetime { inst, birth: time, death: None });
                        life.death = None;
                        if record.list.is_delta {
                            live.insert(inst)
                        } else {
                            named.insert(inst)
                        };
                    }
                    None if live.remove(&inst) => _ = lives.get_mut(&inst).map(|life| life.death = Some(time)),
                    None => (),
                }
            }
            if !record.list.is_delta {
                for inst in live.difference(&named) {
                    if let Some(life) = lives.get_mut(inst) {
                        life.death = Some(time);
                    }
                }
                live = named;
            }
            most = most.max(live.len());
        }
        let mut lives: Vec<Lifetime> = lives.into_values().collect();
        lives.sort_unstable_by_key(|life| life.inst);
        Ok((most, lives))
    }
}

/// Returns whether a name begins with the known name's part before its first space, as libpcp matches.
pub(super) fn is_short_match(known: &[u8], name: &[u8]) -> bool {
    let end = known.iter().position(|b| *b == b' ');
    end.and_then(|end| known.get(..end)).is_some_and(|key| name.starts_with(key))
}
