//! The `PROFILE` PDU and the profile that it contains: the instances that a client requests.

use std::collections::HashSet;

use super::PduType;
use super::codec::{Decoded, Reader, Writer, words};
use pmapi::{InDom, Inst, Result};

/// State of the instances that a list does not name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum State {
    /// Included (`PM_PROFILE_INCLUDE`).
    #[default]
    Include,
    /// Excluded (`PM_PROFILE_EXCLUDE`).
    Exclude,
}

impl State {
    fn decode(r: &mut Reader<'_>, field: &'static str) -> Decoded<State> {
        match r.i32(field)? {
            0 => Ok(State::Include),
            1 => Ok(State::Exclude),
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
    pub state: State,
    heads: &'a [u8],
    insts: &'a [u8],
}

impl<'a> ProfilePdu<'a> {
    const HEAD: usize = 16;

    pub(super) fn decode(r: &mut Reader<'a>) -> Decoded<Self> {
        let context = r.i32("context")?;
        let state = State::decode(r, "global state")?;
        let count = r.count("number of profiles")?;
        r.u32("padding")?;
        let mut checked = r.clone();
        let heads = r.records(count, Self::HEAD, "profiles")?;
        let mut total = 0usize;
        for _ in 0..count {
            checked.u32("instance domain")?;
            State::decode(&mut checked, "state")?;
            total = total.saturating_add(checked.count("number of instances")?);
            checked.u32("padding")?;
        }
        Ok(ProfilePdu { context, state, heads, insts: r.records(total, 4, "instances")? })
    }

    /// Iterates over the entries: instance domain, state and listed instances of each.
    pub fn entries(&self) -> impl Iterator<Item = (u32, State, impl Iterator<Item = u32> + Clone + use<'a>)> + use<'a> {
        let mut rest = self.insts;
        self.heads.chunks_exact(Self::HEAD).map(move |head| {
            let mut head = words(head);
            let indom = head.next().unwrap_or_default();
            let state = if head.next() == Some(0) { State::Include } else { State::Exclude };
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
    state: State,
    entries: Vec<Entry>,
    /// Listed instances of all entries, sorted within each.
    insts: Vec<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    indom: u32,
    state: State,
    start: usize,
    end: usize,
}

/// Instances of one domain that a client's fetches include.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selection<'a> {
    state: State,
    /// Listed instances in ascending order.
    listed: &'a [u32],
}

impl Profile {
    /// Creates a profile that includes all instances of all domains, or none.
    pub fn new(state: State) -> Self {
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
    }

    fn push(&mut self, indom: u32, state: State, insts: impl Iterator<Item = u32>) {
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
    pub fn set(&mut self, indom: InDom, state: State, listed: &[Inst]) {
        self.entries.retain(|e| e.indom != indom.word());
        self.push(indom.word(), state, listed.iter().map(|inst| inst.word()));
    }

    /// Includes instances of a domain; an empty list includes all of them (pmAddProfile(3)).
    ///
    /// The first call for a domain excludes all its other instances.
    pub fn add(&mut self, indom: InDom, insts: &[Inst]) {
        self.change(indom, State::Include, insts);
    }

    /// Excludes instances of a domain; an empty list excludes all of them (pmDelProfile(3)).
    ///
    /// As in libpcp, the first call for a domain excludes all its instances, not only these. Call [`Profile::add`]
    /// without instances first to keep the others.
    pub fn remove(&mut self, indom: InDom, insts: &[Inst]) {
        self.change(indom, State::Exclude, insts);
    }

    fn change(&mut self, indom: InDom, to: State, insts: &[Inst]) {
        if insts.is_empty() {
            return self.set(indom, to, insts);
        }
        let entry = self.entries.iter().find(|e| e.indom == indom.word());
        let (state, old) = entry.map_or((State::Exclude, &[][..]), |e| (e.state, &self.insts[e.start..e.end]));
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
        match self.entries.iter().find(|e| e.indom == indom.word()) {
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
    /// `PM_ERR_TOOBIG` for a PDU over [`MAX_LEN`](super::frame::MAX_LEN) bytes.
    pub fn encode(&self, out: &mut Vec<u8>, from: i32, context: i32) -> Result {
        let mut w = Writer::new(out, PduType::PROFILE, from);
        let word = |state| u32::from(state == State::Exclude);
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

impl<'a> Selection<'a> {
    /// Selection of every instance.
    pub const ALL: Selection<'static> = Selection { state: State::Include, listed: &[] };

    /// Returns whether an instance is included.
    pub fn includes(self, inst: Inst) -> bool {
        let listed = match self.listed {
            [] => false,
            few if few.len() <= 8 => few.contains(&inst.word()),
            many => many.binary_search(&inst.word()).is_ok(),
        };
        listed == (self.state == State::Exclude)
    }

    /// Returns whether every instance is included.
    pub fn is_all(self) -> bool {
        self.state == State::Include && self.listed.is_empty()
    }

    /// Returns the included instances in ascending order if the client named them, so that a large domain need not be
    /// walked for a few. Some of them may not exist.
    pub fn named(self) -> Option<impl ExactSizeIterator<Item = Inst> + 'a> {
        // A listed `PM_IN_NULL` names nothing, and no agent has an instance `INST_NONE`.
        (self.state == State::Exclude)
            .then(|| self.listed.iter().map(|&word| Inst::from_word(word).unwrap_or(INST_NONE)))
    }
}

/// Substitute for a listed `PM_IN_NULL`: the largest number, which agents do not use.
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
        profile.set(indom(0), State::Exclude, &[Inst::new(9), Inst::new(1)]);
        profile.set(indom(1), State::Include, &[Inst::new(1)]);
        assert!(profile.includes(indom(0), Inst::new(1)) && profile.includes(indom(0), Inst::new(9)));
        assert!(!profile.includes(indom(0), Inst::new(2)));
        assert!(!profile.includes(indom(1), Inst::new(1)) && profile.includes(indom(1), Inst::new(2)));
        assert!(profile.includes(indom(2), Inst::new(1)));
        let named: Vec<Inst> = profile.selection(indom(0)).named().unwrap().collect();
        assert_eq!(named, [Inst::new(1), Inst::new(9)]);
        assert!(profile.selection(indom(1)).named().is_none());
        assert!(!Profile::new(State::Exclude).includes(indom(0), Inst::new(1)));
        assert_eq!(Profile::new(State::Exclude).selection(indom(0)).named().unwrap().len(), 0);
    }

    #[test]
    fn long_lists_behave_as_short_ones() {
        let mut profile = Profile::default();
        let listed: Vec<Inst> = (0..100).map(|i| Inst::new(3 * i)).collect();
        profile.set(indom(0), State::Exclude, &listed);
        for i in 0..300 {
            assert_eq!(profile.includes(indom(0), Inst::new(i)), i % 3 == 0);
        }
    }
}
