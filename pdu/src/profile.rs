//! PROFILE, and the profile that it describes: which instances a client wants.

use std::collections::HashSet;

use super::PduType;
use super::codec::{Decoded, Reader, Writer, words};
use pmapi::{InDom, Inst, Result};

/// What holds for the instances that a list does not name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum State {
    /// Wanted (`PM_PROFILE_INCLUDE`).
    #[default]
    Include,
    /// Not wanted (`PM_PROFILE_EXCLUDE`).
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

/// PROFILE: see [`Profile`].
#[derive(Clone, Copy, Debug)]
pub struct ProfilePdu<'a> {
    /// The context that it belongs to.
    pub context: i32,
    /// For instance domains that are not listed.
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

    /// Domain, state and listed instances of each entry.
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

/// Which instances a client wants (pmAddProfile(3)). By default all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    state: State,
    entries: Vec<Entry>,
    /// The listed instances of all entries, sorted within each.
    insts: Vec<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    indom: u32,
    state: State,
    start: usize,
    end: usize,
}

/// Which instances of one domain a client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selection<'a> {
    state: State,
    /// Sorted.
    listed: &'a [u32],
}

impl Profile {
    /// All instances of all domains, or none.
    pub fn new(state: State) -> Self {
        Profile { state, ..Self::default() }
    }

    /// Takes over a received profile. Keeps its memory: a session that receives profiles of a
    /// steady size allocates nothing.
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
        // Without what is listed twice; only this entry's part is looked at.
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

    /// Replaces what holds for a domain: `Include` wants all instances but the listed ones,
    /// `Exclude` none but the listed ones.
    pub fn set(&mut self, indom: InDom, state: State, listed: &[Inst]) {
        self.entries.retain(|e| e.indom != indom.word());
        self.push(indom.word(), state, listed.iter().map(|inst| inst.word()));
    }

    /// Adds instances of a domain to those that are wanted (pmAddProfile(3)); without any, all of them.
    ///
    /// The first that is said of a domain makes all its other instances unwanted.
    pub fn add(&mut self, indom: InDom, insts: &[Inst]) {
        self.change(indom, State::Include, insts);
    }

    /// Removes instances of a domain from those that are wanted (pmDelProfile(3)); without any, all of them.
    ///
    /// The first that is said of a domain makes all its instances unwanted, the others too: that is how libpcp does
    /// it. [`Profile::add`] without instances goes before it, to keep them.
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
            // They must not be in the list of exceptions.
            let insts: HashSet<Inst> = insts.iter().copied().collect();
            old.filter(|inst| !insts.contains(inst)).collect()
        } else {
            old.chain(insts.iter().copied()).collect()
        };
        self.set(indom, state, &list);
    }

    /// What holds for a domain. When a profile names it twice, the first entry does, as in libpcp.
    pub fn selection(&self, indom: InDom) -> Selection<'_> {
        match self.entries.iter().find(|e| e.indom == indom.word()) {
            Some(e) => Selection { state: e.state, listed: &self.insts[e.start..e.end] },
            None => Selection { state: self.state, listed: &[] },
        }
    }

    /// Whether an instance is wanted (`__pmInProfile`).
    pub fn includes(&self, indom: InDom, inst: Inst) -> bool {
        self.selection(indom).includes(inst)
    }

    /// Appends a PROFILE PDU.
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
    /// Every instance.
    pub const ALL: Selection<'static> = Selection { state: State::Include, listed: &[] };

    /// Whether an instance is wanted.
    pub fn includes(self, inst: Inst) -> bool {
        let listed = match self.listed {
            [] => false,
            few if few.len() <= 8 => few.contains(&inst.word()),
            many => many.binary_search(&inst.word()).is_ok(),
        };
        listed == (self.state == State::Exclude)
    }

    /// Whether every instance is wanted.
    pub fn is_all(self) -> bool {
        self.state == State::Include && self.listed.is_empty()
    }

    /// The wanted instances, if the client named them: a large domain need not be walked for a few.
    /// In ascending order; some may not exist.
    pub fn named(self) -> Option<impl ExactSizeIterator<Item = Inst> + 'a> {
        // PM_IN_NULL in a list names nothing; INST_NONE never equals an instance of an agent.
        (self.state == State::Exclude)
            .then(|| self.listed.iter().map(|&word| Inst::from_word(word).unwrap_or(INST_NONE)))
    }
}

/// Stands for a listed PM_IN_NULL: the largest number, which agents do not give.
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
