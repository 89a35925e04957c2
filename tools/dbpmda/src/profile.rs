//! Profile: selection of instances.

use pcp_pdu::PduType;
use pcp_pdu::codec::Writer;
use pcp_pdu::profile::ProfileState;
use pmapi::{Error, InDom, OptionWord as _, Result};

/// Profile with its entries and instances in the order of the commands.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Profile {
    state: ProfileState,
    entries: Vec<Entry>,
}

/// Entry of an instance domain. `Include` selects all but the listed instances, `Exclude` selects only these.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Entry {
    indom: InDom,
    state: ProfileState,
    listed: Vec<i32>,
}

impl Profile {
    /// Changes the entry of a domain (pmAddProfile(3), pmDelProfile(3)); without a domain, the whole profile. Without
    /// an instance, the change is for all of them.
    pub(crate) fn change(&mut self, indom: Option<InDom>, to: ProfileState, inst: Option<i32>) -> Result {
        let Some(indom) = indom else {
            if inst.is_some() {
                return Err(Error::PROFILESPEC);
            }
            *self = Profile { state: to, entries: Vec::new() };
            return Ok(());
        };
        let at = self.entries.iter().position(|entry| entry.indom == indom).unwrap_or(self.entries.len());
        if at == self.entries.len() {
            // A new entry excludes all instances, even if the first change deletes one.
            self.entries.push(Entry { indom, state: ProfileState::Exclude, listed: Vec::new() });
        }
        let Some(entry) = self.entries.get_mut(at) else { return Ok(()) };
        match inst {
            None => (entry.state, entry.listed) = (to, Vec::new()),
            Some(inst) if entry.state == to => entry.listed.retain(|other| *other != inst),
            Some(inst) if !entry.listed.contains(&inst) => entry.listed.push(inst),
            Some(_) => {}
        }
        Ok(())
    }

    /// Appends a PROFILE PDU, with the instances in their order.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) -> Result {
        let word = |state| u32::from(state == ProfileState::Exclude);
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
        let name = |state| if state == ProfileState::Include { "INCLUDE" } else { "EXCLUDE" };
        let number = |indom| Some(indom).word() as i32;
        let only =
            of.map_or_else(String::new, |indom| format!(", dump restricted to indom={} [{indom}]", number(indom)));
        let count = self.entries.len();
        let mut text = format!("Dump Instance Profile state={}, {count} profiles{only}\n", name(self.state));
        for (at, Entry { indom, state, listed }) in self.entries.iter().enumerate() {
            if of.is_some_and(|of| of != *indom) {
                continue;
            }
            let (number, state, count) = (number(*indom), name(*state), listed.len());
            text += &format!("\tProfile [{at}] indom={number} [{indom}] state={state} {count} instances\n");
            if !listed.is_empty() {
                let insts: String = listed.iter().map(|inst| format!(" [{inst}]")).collect();
                text += &format!("\t\tInstances:{insts}\n");
            }
        }
        text
    }
}
