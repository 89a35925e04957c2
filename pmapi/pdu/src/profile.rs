//! The `PROFILE` PDU and the profile that it contains: the instances that a client requests.

use std::collections::HashSet;

use super::PduType;
use super::codec::{Decoded, Reader, Writer, words};
use pmapi::{InDom, Inst, Result};

/// State of the instances that a list does not name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum ProfileState {
    /// Included (`PM_PROFILE_INCLUDE`).
    #[default]
    Include,
    /// Excluded (`PM_PROFILE_EXCLUDE`).
    Exclude,
}

impl ProfileState {
    fn decode(r: &mut Reader<'_>, field: &'static str) -> Decoded<ProfileState> {
        match r.i32(field)? {
            0 => Ok(ProfileState::Include),
            1 => Ok(ProfileState::Exclude),
            other => Err(r.bad(field, other, "is neither 0 nor 1")),
        }
    }
}

/// `PROFILE`: the encoded form of a [`Profile`].
#[derive(Clone, Copy, Debug)]
pub struct ProfilePdu<'a> {
    /// Context that the profile belongs to.
    pub context: i32,
    /// State of instance domains without an entry.
    pub state: ProfileState,
    heads: &'a [u8],
    insts: &'a [u8],
}

impl<'a> ProfilePdu<'a> {
    const HEAD: usize = 16;

    pub(super) fn decode(r: &mut Reader<'a>) -> Decoded<Self> {
        let context = r.i32("context")?;
        let state = ProfileState::decode(r, "global state")?;
        let count = r.count("number of profiles")?;
        r.u32("padding")?;
        let mut checked = r.clone();
        let heads = r.records(count, Self::HEAD, "profiles")?;
        let mut total = 0usize;
        for _ in 0..count {
            checked.u32("instance domain")?;
            ProfileState::decode(&mut checked, "state")?;
            total = total.saturating_add(checked.count("number of instances")?);
            checked.u32("padding")?;
        }
        Ok(ProfilePdu { context, state, heads, insts: r.records(total, 4, "instances")? })
    }

    /// Iterates over the entries: instance domain, state and listed instances of each.
    pub fn entries(
        &self,
    ) -> impl Iterator<Item = (u32, ProfileState, impl Iterator<Item = u32> + Clone + use<'a>)> + use<'a> {
        let mut rest = self.insts;
        self.heads.chunks_exact(Self::HEAD).map(move |head| {
            let mut head = words(head);
            let indom = head.next().unwrap_or_default();
            let state = if head.next() == Some(0) { ProfileState::Include } else { ProfileState::Exclude };
            let bytes = (head.next().unwrap_or_default() as usize).saturating_mul(4).min(rest.len());
            let (insts, tail) = rest.split_at(bytes);
            rest = tail;
            (indom, state, words(insts))
        })
    }
}

/// Profile of a client: the instances that its fetches include (pmAddProfile(3)). The default includes all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    state: ProfileState,
    entries: Vec<Entry>,
    /// Listed instances of all entries, sorted within each.
    insts: Vec<u32>,
    /// Positions of the entries, sorted by domain and position, so that a client with thousands of entries does not
    /// slow down each metric. Empty for up to [`FEW`] entries, for which a linear search is faster.
    index: Vec<usize>,
}

/// Number of entries and listed instances up to which a linear search is used.
const FEW: usize = 8;

/// Number of entries and listed instances for which memory is always kept.
const KEPT: usize = 4096;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    indom: u32,
    state: ProfileState,
    start: usize,
    end: usize,
}

/// Instances of one domain that a client's fetches include.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selection<'a> {
    state: ProfileState,
    /// Listed instances in ascending order.
    listed: &'a [u32],
}

impl Profile {
    /// Creates a profile that includes all instances of all domains, or none.
    pub fn new(state: ProfileState) -> Self {
        Profile { state, ..Self::default() }
    }

    /// Replaces this profile by a received one. A session that receives profiles of a steady size allocates nothing.
    pub fn assign(&mut self, pdu: &ProfilePdu<'_>) {
        self.state = pdu.state;
        self.entries.clear();
        self.insts.clear();
        for (indom, state, insts) in pdu.entries() {
            self.push(indom, state, insts);
        }
        self.order();
        // One large profile must not keep its memory forever.
        give_back(&mut self.entries);
        give_back(&mut self.insts);
        give_back(&mut self.index);
    }

    /// Rebuilds the index.
    fn order(&mut self) {
        self.index.clear();
        if self.entries.len() > FEW {
            self.index.extend(0..self.entries.len());
            self.index.sort_unstable_by_key(|&at| (self.entries[at].indom, at));
        }
    }

    /// Returns the first entry of a domain.
    fn find(&self, indom: InDom) -> Option<&Entry> {
        let word = indom.word();
        if self.index.is_empty() {
            return self.entries.iter().find(|entry| entry.indom == word);
        }
        let first = self.index.partition_point(|&at| self.entries[at].indom < word);
        self.index.get(first).map(|&at| &self.entries[at]).filter(|entry| entry.indom == word)
    }

    fn push(&mut self, indom: u32, state: ProfileState, insts: impl Iterator<Item = u32>) {
        let start = self.insts.len();
        self.insts.extend(insts);
        self.insts[start..].sort_unstable();
        // Removes duplicates in this entry's part only.
        let mut kept = start;
        for at in start..self.insts.len() {
            if at == start || self.insts[at] != self.insts[kept - 1] {
                self.insts[kept] = self.insts[at];
                kept += 1;
            }
        }
        self.insts.truncate(kept);
        self.entries.push(Entry { indom, state, start, end: self.insts.len() });
    }

    /// Replaces the entry of a domain. `Include` includes all instances but the listed ones, `Exclude` only the listed
    /// ones.
    pub fn set(&mut self, indom: InDom, state: ProfileState, listed: &[Inst]) {
        self.entries.retain(|e| e.indom != indom.word());
        self.push(indom.word(), state, listed.iter().map(|inst| inst.word()));
        self.order();
    }

    /// Includes instances of a domain; an empty list includes all of them (pmAddProfile(3)).
    ///
    /// The first call for a domain excludes all its other instances.
    pub fn add(&mut self, indom: InDom, insts: &[Inst]) {
        self.change(indom, ProfileState::Include, insts);
    }

    /// Excludes instances of a domain; an empty list excludes all of them (pmDelProfile(3)).
    ///
    /// As in libpcp, the first call for a domain excludes all its instances, not only these. Call [`Profile::add`]
    /// without instances first to keep the others.
    pub fn remove(&mut self, indom: InDom, insts: &[Inst]) {
        self.change(indom, ProfileState::Exclude, insts);
    }

    fn change(&mut self, indom: InDom, to: ProfileState, insts: &[Inst]) {
        if insts.is_empty() {
            return self.set(indom, to, insts);
        }
        let (state, old) =
            self.find(indom).map_or((ProfileState::Exclude, &[][..]), |e| (e.state, &self.insts[e.start..e.end]));
        let old = old.iter().filter_map(|word| Inst::from_word(*word));
        let list: Vec<Inst> = if state == to {
            // The instances must not be in the list of exceptions.
            let insts: HashSet<Inst> = insts.iter().copied().collect();
            old.filter(|inst| !insts.contains(inst)).collect()
        } else {
            old.chain(insts.iter().copied()).collect()
        };
        self.set(indom, state, &list);
    }

    /// Returns the included instances of a domain. As in libpcp, the first of several entries for a domain applies.
    pub fn selection(&self, indom: InDom) -> Selection<'_> {
        match self.find(indom) {
            Some(e) => Selection { state: e.state, listed: &self.insts[e.start..e.end] },
            None => Selection { state: self.state, listed: &[] },
        }
    }

    /// Returns whether an instance is included (`__pmInProfile`).
    pub fn includes(&self, indom: InDom, inst: Inst) -> bool {
        self.selection(indom).includes(inst)
    }

    /// Appends a `PROFILE` PDU.
    ///
    /// # Errors
    /// `PM_ERR_TOOBIG` for a PDU over [`MAX_LEN`](crate::MAX_LEN) bytes.
    pub fn encode(&self, out: &mut Vec<u8>, from: i32, context: i32) -> Result {
        let mut w = Writer::new(out, PduType::PROFILE, from);
        let word = |state| u32::from(state == ProfileState::Exclude);
        w.i32(context).u32(word(self.state)).count(self.entries.len()).u32(0);
        for e in &self.entries {
            w.u32(e.indom).u32(word(e.state)).count(e.end - e.start).u32(0);
        }
        for e in &self.entries {
            for inst in &self.insts[e.start..e.end] {
                w.u32(*inst);
            }
        }
        w.finish()
    }
}

/// Frees most of a buffer's memory when little of it is used.
fn give_back<T>(buffer: &mut Vec<T>) {
    if buffer.capacity() > KEPT && buffer.len() < buffer.capacity() / 16 {
        buffer.shrink_to(KEPT);
    }
}

impl<'a> Selection<'a> {
    /// Selection of every instance.
    pub const ALL: Selection<'static> = Selection { state: ProfileState::Include, listed: &[] };

    /// Returns whether an instance is included.
    pub fn includes(self, inst: Inst) -> bool {
        let listed = match self.listed {
            [] => false,
            few if few.len() <= FEW => few.contains(&inst.word()),
            many => many.binary_search(&inst.word()).is_ok(),
        };
        listed == (self.state == ProfileState::Exclude)
    }

    /// Returns whether every instance is included.
    pub fn is_all(self) -> bool {
        self.state == ProfileState::Include && self.listed.is_empty()
    }

    /// Returns the included instances in ascending order if the client named them, so that a large domain need not be
    /// searched for a few instances. Some of them may not exist.
    pub fn named(self) -> Option<impl ExactSizeIterator<Item = Inst> + 'a> {
        // A listed `PM_IN_NULL` names nothing, and no agent has an instance `INST_NONE`.
        (self.state == ProfileState::Exclude)
            .then(|| self.listed.iter().map(|&word| Inst::from_word(word).unwrap_or(INST_NONE)))
    }
}

/// Stands for a listed `PM_IN_NULL`, which is no [`Inst`]. Agents do not use the largest number.
const INST_NONE: Inst = Inst::new(u32::MAX - 1);

#[cfg(test)]
mod tests {
    use super::*;
    use pmapi::{Domain, Serial};

    fn indom(serial: u32) -> InDom {
        InDom::new(Domain::new(253).unwrap(), Serial::new(serial))
    }

    #[test]
    fn selections() {
        let mut profile = Profile::default();
        assert!(profile.includes(indom(0), Inst::new(7)));
        profile.set(indom(0), ProfileState::Exclude, &[Inst::new(9), Inst::new(1)]);
        profile.set(indom(1), ProfileState::Include, &[Inst::new(1)]);
        assert!(profile.includes(indom(0), Inst::new(1)) && profile.includes(indom(0), Inst::new(9)));
        assert!(!profile.includes(indom(0), Inst::new(2)));
        assert!(!profile.includes(indom(1), Inst::new(1)) && profile.includes(indom(1), Inst::new(2)));
        assert!(profile.includes(indom(2), Inst::new(1)));
        let named: Vec<Inst> = profile.selection(indom(0)).named().unwrap().collect();
        assert_eq!(named, [Inst::new(1), Inst::new(9)]);
        assert!(profile.selection(indom(1)).named().is_none());
        assert!(!Profile::new(ProfileState::Exclude).includes(indom(0), Inst::new(1)));
        assert_eq!(Profile::new(ProfileState::Exclude).selection(indom(0)).named().unwrap().len(), 0);
    }

    /// Returns a profile that was received with these entries: a domain's serial and its one listed instance.
    fn received(entries: impl ExactSizeIterator<Item = (u32, u32)> + Clone) -> Profile {
        let mut bytes = Vec::new();
        let mut w = Writer::new(&mut bytes, PduType::PROFILE, 1);
        w.i32(1).u32(0).count(entries.len()).u32(0);
        entries.clone().for_each(|(serial, _)| _ = w.u32(indom(serial).word()).u32(1).u32(1).u32(0));
        entries.for_each(|(_, inst)| _ = w.u32(inst));
        w.finish().unwrap();
        let mut profile = Profile::default();
        profile.assign(&ProfilePdu::decode(&mut Reader::new(PduType::PROFILE, &bytes)).unwrap());
        profile
    }

    #[test]
    fn the_first_of_any_number_of_entries_for_a_domain_applies() {
        for count in [1, FEW, FEW + 1, 4000] {
            // Each domain has two entries, which are not sorted.
            let serial = |i: usize| (i as u32).wrapping_mul(2_654_435_761) % 4_000_000;
            let profile = received((0..2 * count).map(|i| (serial(i % count), i as u32)));
            // A linear search through thousands of entries for each metric would take milliseconds.
            assert_eq!(profile.index.len(), if count * 2 > FEW { count * 2 } else { 0 });
            for i in 0..count {
                let named: Vec<Inst> = profile.selection(indom(serial(i))).named().unwrap().collect();
                assert_eq!(named, [Inst::new(i as u32)], "{i} of {count}");
            }
            assert!(profile.selection(indom(4_000_001)).is_all());
        }
    }

    #[test]
    fn entries_that_are_changed_are_found() {
        let mut profile = received((0..100).map(|i| (i, 1)));
        profile.set(indom(50), ProfileState::Exclude, &[Inst::new(2)]);
        profile.set(indom(200), ProfileState::Include, &[]);
        assert_eq!(
            [49, 50].map(|serial| profile.selection(indom(serial)).named().map(|all| all.collect::<Vec<_>>())),
            [1, 2].map(|inst| Some(vec![Inst::new(inst)]))
        );
        assert!(profile.selection(indom(200)).is_all());
    }

    #[test]
    fn memory_of_a_large_profile_is_given_back() {
        let mut profile = received((0..100_000).map(|i| (i, i)));
        let mut bytes = Vec::new();
        Profile::default().encode(&mut bytes, 1, 1).unwrap();
        profile.assign(&ProfilePdu::decode(&mut Reader::new(PduType::PROFILE, &bytes)).unwrap());
        let kept = [profile.entries.capacity(), profile.insts.capacity(), profile.index.capacity()];
        assert!(kept.into_iter().all(|kept| kept <= KEPT), "{kept:?}");
    }

    #[test]
    fn long_lists_behave_as_short_ones() {
        let mut profile = Profile::default();
        let listed: Vec<Inst> = (0..100).map(|i| Inst::new(3 * i)).collect();
        profile.set(indom(0), ProfileState::Exclude, &listed);
        for i in 0..300 {
            assert_eq!(profile.includes(indom(0), Inst::new(i)), i % 3 == 0);
        }
    }
}
