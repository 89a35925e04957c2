//! Instance domains by time.
//!
//! Records stay in the metadata file; this module keeps their positions. A delta is applied to the previous state of
//! the domain. To limit the number of deltas per request, the whole domain is stored wherever the deltas since the last
//! whole one have become as long as that one. This needs at most twice as many entries as the deltas have.

use std::collections::hash_map::{Entry as Slot, RandomState};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::hash::BuildHasher as _;

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

/// Record of an instance domain: its instances from a time on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InDomRecord {
    /// Time from which on the instances exist.
    pub time: Stamp,
    /// Index of the record among the domain's records, in the order of time.
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
    /// The whole domain after a delta, where it is stored.
    full: Option<Box<[Entry]>>,
}

/// Instance with the place of its name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) inst: u32,
    pub(super) name: Place,
}

/// Instance, its name, and the last record that contains it.
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

    /// Adds a record. [`InDoms::finish`] must follow.
    pub(super) fn add(&mut self, indom: InDom, file: u32, list: InstList) {
        let records = self.by_id.entry(indom).or_insert_with(|| Vec::with_capacity(1));
        records.push(Stored { file, list, full: None });
    }

    /// Sorts the records by time, removes repeated ones, and stores whole domains between deltas.
    pub(super) fn finish(&mut self, files: &[Vec<u8>]) {
        for records in self.by_id.values_mut() {
            records.sort_by_key(|record| record.list.time);
            remove_repeated(files, records);
            store_whole(files, records);
        }
    }
}

/// Of equal records of the same time, keeps the last one.
fn remove_repeated(files: &[Vec<u8>], records: &mut Vec<Stored>) {
    let (hasher, mut repeated, mut start) = (RandomState::new(), HashSet::new(), 0);
    for run in records.chunk_by(|a, b| a.list.time == b.list.time) {
        let mut kept: HashMap<u64, &Stored> = HashMap::new();
        for (nth, record) in run.iter().enumerate().rev().filter(|_| run.len() > 1) {
            match kept.entry(hasher.hash_one(record.contents(files))) {
                Slot::Occupied(other) if other.get().contents(files) == record.contents(files) => {
                    repeated.insert(start + nth);
                }
                Slot::Occupied(_) => (),
                Slot::Vacant(slot) => _ = slot.insert(record),
            }
        }
        start += run.len();
    }
    let mut nth = 0..;
    records.retain(|_| nth.next().is_none_or(|nth| !repeated.contains(&nth)));
}

/// Stores the whole domain wherever the deltas since the last whole one have become as long as that one.
fn store_whole(files: &[Vec<u8>], records: &mut [Stored]) {
    if records.iter().all(|record| !record.list.is_delta) {
        return;
    }
    // `current` lacks the changes of the records from `first` on.
    let (mut current, mut first, mut len, mut since) = (Vec::new(), 0, 0, 0);
    for nth in 0..records.len() {
        match records.get(nth).map(|record| record.list) {
            Some(list) if list.is_delta => since += list.len(),
            Some(list) => (first, len, since) = (nth, list.len(), 0),
            None => (),
        }
        if since > len {
            apply(files, records.get(first..=nth).unwrap_or_default(), &mut current);
            (first, len, since) = (nth + 1, current.len(), 0);
            if let Some(record) = records.get_mut(nth) {
                record.full = Some(current.as_slice().into());
            }
        }
    }
}

fn bytes(files: &[Vec<u8>], file: u32) -> &[u8] {
    files.get(file as usize).map_or(&[], Vec::as_slice)
}

/// Whether a record is a delta, and its instances in their order, each with its name unless a delta deletes it.
type Contents<'f> = (bool, Vec<(u32, Option<&'f [u8]>)>);

impl Stored {
    fn is_whole(&self) -> bool {
        !self.list.is_delta || self.full.is_some()
    }

    /// Returns the contents by which records are compared.
    fn contents<'f>(&self, files: &'f [Vec<u8>]) -> Contents<'f> {
        let file = bytes(files, self.file);
        let instances = self.list.iter(file).map(|(inst, name)| (inst, name.map(|at| text_at(file, at))));
        let mut sorted: Vec<_> = instances.collect();
        sorted.sort_by_key(|(inst, _)| *inst);
        (self.list.is_delta, sorted)
    }

    /// Replaces the instances by those of this whole record.
    fn restore(&self, files: &[Vec<u8>], current: &mut Vec<Entry>) {
        current.clear();
        if let Some(full) = &self.full {
            current.extend_from_slice(full);
            return;
        }
        current.extend(self.changes(files).filter_map(|(_, entry)| entry));
        current.sort_by_key(|entry| entry.inst);
    }

    /// Iterates over the instances in the order of the file, without an entry for those that a delta deletes.
    fn changes<'f>(&self, files: &'f [Vec<u8>]) -> impl Iterator<Item = (u32, Option<Entry>)> + use<'f> {
        let file = self.file;
        let entries = self.list.iter(bytes(files, file));
        entries.map(move |(inst, name)| (inst, name.map(|at| Entry { inst, name: Place { file, at } })))
    }
}

/// Applies records to the instances of the domain. Only the first record may be a whole one.
fn apply(files: &[Vec<u8>], records: &[Stored], current: &mut Vec<Entry>) {
    let deltas = match records.split_first() {
        Some((first, rest)) if first.is_whole() => {
            first.restore(files, current);
            rest
        }
        _ => records,
    };
    let mut changes: Vec<(u32, usize, Option<Entry>)> = Vec::new();
    for (nth, record) in deltas.iter().enumerate() {
        changes.extend(record.changes(files).map(|(inst, entry)| (inst, nth, entry)));
    }
    if changes.is_empty() {
        return;
    }
    changes.sort_by_key(|(inst, ..)| *inst);
    let mut old = std::mem::take(current).into_iter().peekable();
    let (mut entries, mut passed) = (VecDeque::new(), Vec::new());
    for changes in changes.chunk_by(|a, b| a.0 == b.0) {
        let inst = changes.first().map_or(0, |(inst, ..)| *inst);
        while let Some(before) = old.next_if(|before| before.inst < inst) {
            current.push(before);
        }
        while let Some(before) = old.next_if(|before| before.inst == inst) {
            entries.push_back(before);
        }
        for changes in changes.chunk_by(|a, b| a.1 == b.1) {
            for (.., entry) in changes {
                let before = entries.pop_front();
                if let Some(entry) = entry {
                    // An instance that exists keeps its name: libpcp finds the old entry first.
                    passed.extend(before);
                    passed.push(*entry);
                }
            }
            passed.drain(..).rev().for_each(|entry| entries.push_front(entry));
        }
        current.extend(entries.drain(..));
    }
    current.extend(old);
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

    /// Moves the instances from the record `from` to the record `to`, or builds them from the start.
    pub(super) fn indom_entries(&self, indom: InDom, from: Option<usize>, to: usize, current: &mut Vec<Entry>) {
        let Ok(records) = self.indoms.records(indom) else { return };
        let whole = records.get(..=to).unwrap_or_default().iter().rposition(Stored::is_whole);
        let start = match (from, whole) {
            (Some(from), _) if from <= to && whole.is_none_or(|whole| whole <= from) => from + 1,
            (_, whole) => {
                current.clear();
                whole.unwrap_or(0)
            }
        };
        apply(&self.files, records.get(start..=to).unwrap_or_default(), current);
    }

    pub(super) fn instance(&self, entry: Entry) -> Instance<'_> {
        Instance { inst: entry.inst, name: self.text_at(entry.name) }
    }

    /// Returns instances, their names, and the last record that contains both, the newest record first.
    fn history(&self, indom: InDom) -> Result<Vec<Span>> {
        let records = self.indoms.records(indom)?;
        let (mut done, mut live, mut current): (Vec<Span>, HashMap<u32, Entry>, _) =
            (Vec::new(), HashMap::new(), vec![]);
        let mut seen = HashMap::new();
        for (nth, record) in records.iter().enumerate() {
            if !record.is_whole() {
                for (inst, entry) in record.changes(&self.files) {
                    match entry {
                        Some(entry) => _ = live.entry(inst).or_insert(entry),
                        None => {
                            done.extend(live.remove(&inst).map(|entry| Span { entry, last: nth.saturating_sub(1) }))
                        }
                    }
                }
                continue;
            }
            record.restore(&self.files, &mut current);
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

    /// Returns every instance that a domain has at any time, each with its latest name (pmGetInDomArchive(3)).
    ///
    /// # Errors
    /// `PM_ERR_INDOM_LOG` for a domain that the archive does not have.
    pub fn instances_ever(&self, indom: InDom) -> Result<Vec<Instance<'_>>> {
        let mut known = HashSet::new();
        let all = self.history(indom)?.into_iter().filter(|span| known.insert(span.entry.inst));
        Ok(all.map(|span| self.instance(span.entry)).collect())
    }

    /// Returns the instance that has a name at any time (pmLookupInDomArchive(3)). If several do, returns the latest
    /// one. The part of an instance's name before the first space is enough.
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

    /// Returns the latest name that an instance has at any time (pmNameInDomArchive(3)).
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
    /// Returns the lifetimes of a domain's instances, in the order of their identifiers, and the largest number that
    /// exist at a time.
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;

    const INDOM: u32 = 253 << 22 | 7;
    const DELETED: u32 = u32::MAX;

    /// Record of the test: seconds, whether it is a delta, and instances, each added or deleted.
    type Record = (u8, bool, Vec<(u8, bool)>);

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    fn framed(kind: u32, body: &[u8]) -> Vec<u8> {
        let len = words(&[body.len() as u32 + 12]);
        [&len, &words(&[kind]), body, &len].concat()
    }

    /// Returns a record of version 3. The names of instances are unique: the number of the record, and the place.
    fn encoded(nth: usize, (time, is_delta, list): &Record) -> Vec<u8> {
        let head = words(&[0, u32::from(*time), 0, INDOM, list.len() as u32]);
        let (mut insts, mut offsets, mut names) = (Vec::new(), Vec::new(), Vec::new());
        for (place, (inst, is_added)) in list.iter().enumerate() {
            insts.extend(words(&[u32::from(*inst)]));
            let is_added = *is_added || !is_delta;
            offsets.extend(words(&[if is_added { names.len() as u32 } else { DELETED }]));
            if is_added {
                names.extend(format!("{nth}-{place}\0").bytes());
            }
        }
        framed(if *is_delta { 6 } else { 5 }, &[head, insts, offsets, names].concat())
    }

    /// Applies a record as libpcp does.
    fn model(nth: usize, (_, is_delta, list): &Record, current: &mut Vec<(u32, String)>) {
        if !is_delta {
            current.clear();
        }
        let (mut old, mut new) = (std::mem::take(current), Vec::new());
        let mut changes: Vec<_> = list.iter().enumerate().collect();
        changes.sort_by_key(|(_, (inst, _))| *inst);
        for (place, (inst, is_added)) in changes {
            let inst = u32::from(*inst);
            while old.first().is_some_and(|(before, _)| *before < inst) {
                new.push(old.remove(0));
            }
            let before = old.first().is_some_and(|(before, _)| *before == inst).then(|| old.remove(0));
            if *is_added || !is_delta {
                new.extend(before);
                new.push((inst, format!("{nth}-{place}")));
            }
        }
        new.extend(old);
        *current = new;
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

        /// Domains after any sequence of records are those that the records lead to one by one.
        #[test]
        fn deltas(
            records in prop::collection::vec((0..40_u8, any::<bool>(), prop::collection::vec((0..9_u8, any::<bool>()), 1..5)), 1..30)
        ) {
            // With another instance in each, no records are equal.
            let mut records = records;
            records.iter_mut().for_each(|(.., list)| list.push((9, true)));
            let mut file = framed(1, &words(&[253 << 22 | 1, 3, INDOM, 3, 0, 0]));
            records.iter().enumerate().for_each(|(nth, record)| file.extend(encoded(nth, record)));
            let mut meta = Metadata::default();
            meta.load(Path::new("x.meta"), file, 0).unwrap();
            meta.finish();
            let mut sorted: Vec<_> = records.iter().enumerate().collect();
            sorted.sort_by_key(|(_, (time, ..))| *time);
            let (indom, mut expected) = (InDom::from_word(INDOM).unwrap(), Vec::new());
            let states: Vec<_> = sorted
                .into_iter()
                .map(|(nth, record)| {
                    model(nth, record, &mut expected);
                    expected.clone()
                })
                .collect();
            let found: Vec<_> = meta.indom_records(indom).unwrap().collect();
            let shown = |instances: Vec<Instance<'_>>| -> Vec<(u32, String)> {
                instances.iter().map(|i| (i.inst, String::from_utf8_lossy(i.name).into_owned())).collect()
            };
            let mut names = meta.instance_names();
            prop_assert_eq!(found.len(), states.len());
            for (record, state) in found.iter().zip(&states) {
                prop_assert_eq!(&shown(names.instances_of(indom, *record)), state);
                prop_assert_eq!(&shown(meta.instance_names().instances_of(indom, *record)), state);
            }
        }
    }

    #[test]
    fn repeated_records() {
        let record = |time, insts: &[u8]| -> Record { (time, false, insts.iter().map(|inst| (*inst, true)).collect()) };
        let records = [record(1, &[1]), record(2, &[1, 2]), record(2, &[3]), record(2, &[1, 2]), record(3, &[1, 2])];
        let mut file = framed(1, &words(&[253 << 22 | 1, 3, INDOM, 3, 0, 0]));
        records.iter().for_each(|record| file.extend(encoded(0, record)));
        let mut meta = Metadata::default();
        meta.load(Path::new("x.meta"), file, 0).unwrap();
        meta.finish();
        let indom = InDom::from_word(INDOM).unwrap();
        let mut names = meta.instance_names();
        let lens = meta.indom_records(indom).unwrap().map(|record| names.instances_of(indom, record)[0].inst);
        assert_eq!(lens.collect::<Vec<_>>(), [1, 3, 1, 1]);
    }
}
