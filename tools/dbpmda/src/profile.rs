//! Profile: selection of instances.

use std::fmt::Write as _;

use pcp_pdu::PduType;
use pcp_pdu::codec::Writer;
use pcp_pdu::profile::State;
use pmapi::{Error, InDom, OptionWord as _, OrNull, Result};

use crate::command::Change;

/// Profile with its entries and instances in the order of the commands.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Profile {
    state: State,
    entries: Vec<Entry>,
}

/// Entry of an instance domain. `Include` selects all but the listed instances, `Exclude` selects only these.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Entry {
    indom: InDom,
    state: State,
    listed: Vec<i32>,
}

impl Profile {
    /// Changes the entry of a domain (pmAddProfile(3), pmDelProfile(3)); without a domain, the whole profile.
    pub(crate) fn change(&mut self, indom: Option<InDom>, change: Change) -> Result {
        let Some(indom) = indom else {
            let state = match change {
                Change::All => State::Include,
                Change::None => State::Exclude,
                Change::Add(_) | Change::Delete(_) => return Err(Error::PROFILESPEC),
            };
            *self = Profile { state, entries: Vec::new() };
            return Ok(());
        };
        let at = self.entries.iter().position(|entry| entry.indom == indom).unwrap_or(self.entries.len());
        if at == self.entries.len() {
            // A new entry excludes all instances, even if the first change deletes one.
            self.entries.push(Entry { indom, state: State::Exclude, listed: Vec::new() });
        }
        let Some(entry) = self.entries.get_mut(at) else { return Ok(()) };
        match (change, entry.state) {
            (Change::All, _) => (entry.state, entry.listed) = (State::Include, Vec::new()),
            (Change::None, _) => (entry.state, entry.listed) = (State::Exclude, Vec::new()),
            (Change::Add(inst), State::Include) | (Change::Delete(inst), State::Exclude) => {
                entry.listed.retain(|other| *other != inst);
            }
            (Change::Add(inst) | Change::Delete(inst), _) => {
                if !entry.listed.contains(&inst) {
                    entry.listed.push(inst);
                }
            }
        }
        Ok(())
    }

    /// Appends a PROFILE PDU, with the instances in their order.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) -> Result {
        let word = |state| u32::from(state == State::Exclude);
        let mut w = Writer::new(out, PduType::PROFILE, 0);
        w.u32(0).u32(word(self.state)).count(self.entries.len()).u32(0);
        for entry in &self.entries {
            w.u32(entry.indom.word()).u32(word(entry.state)).count(entry.listed.len()).u32(0);
        }
        for inst in self.entries.iter().flat_map(|entry| &entry.listed) {
            w.i32(*inst);
        }
        w.finish()
    }

    /// Returns the output of `__pmDumpProfile`, for the whole profile or for one domain.
    pub(crate) fn dump(&self, of: Option<InDom>) -> String {
        let name = |state| if state == State::Include { "INCLUDE" } else { "EXCLUDE" };
        let mut text = format!("Dump Instance Profile state={}, {} profiles", name(self.state), self.entries.len());
        // Writing to memory does not fail.
        if let Some(indom) = of {
            let number = Some(indom).word() as i32;
            let _ = write!(text, ", dump restricted to indom={number} [{indom}]");
        }
        text.push('\n');
        for (at, Entry { indom, state, listed }) in self.entries.iter().enumerate() {
            if of.is_some_and(|of| of != *indom) {
                continue;
            }
            let (number, state, count) = (indom.word() as i32, name(*state), listed.len());
            let indom = OrNull(Some(*indom));
            let _ = writeln!(text, "\tProfile [{at}] indom={number} [{indom}] state={state} {count} instances");
            if !listed.is_empty() {
                text.push_str("\t\tInstances:");
                for inst in listed {
                    let _ = write!(text, " [{inst}]");
                }
                text.push('\n');
            }
        }
        text
    }
}
