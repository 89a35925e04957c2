//! Instances as of a time. The domains of the last request are cached.

use hashbrown::HashMap;
use pcp_pdu::event::Stamp;
use pmapi::{Error, InDom, Result};

use super::Metadata;
use super::indom::{Entry, InDomRecord, Instance, is_short_match};

/// Instance domains as of a time (pmGetInDom(3), pmNameInDom(3), pmLookupInDom(3)).
///
/// The domains of the last request are kept, so that requests in the order of time are fast.
#[derive(Clone, Debug)]
pub struct InstanceNames<'a> {
    meta: &'a Metadata,
    kept: HashMap<InDom, Kept>,
}

#[derive(Clone, Debug, Default)]
struct Kept {
    nth: Option<usize>,
    /// Time until which the record is the latest one.
    until: Option<Stamp>,
    from: Option<Stamp>,
    entries: Vec<Entry>,
    /// Place after the last instance that was found. Values are usually in the order of instances.
    next: usize,
}

impl Metadata {
    /// Returns a view of the instance domains as of any time.
    pub fn instance_names(&self) -> InstanceNames<'_> {
        InstanceNames { meta: self, kept: HashMap::new() }
    }
}

impl<'a> InstanceNames<'a> {
    fn kept(&mut self, indom: InDom, time: Stamp) -> Result<&mut Kept> {
        let kept = self.kept.entry(indom).or_default();
        let is_known = kept.from.is_some_and(|from| from <= time) && kept.until.is_none_or(|until| time < until);
        if !is_known {
            let nth = self.meta.indom_at(indom, time)?;
            kept.show(self.meta, indom, nth);
            let mut times = self.meta.indom_records(indom)?.skip(nth).map(|record| record.time);
            (kept.from, kept.until) = (times.next(), times.next());
        }
        Ok(kept)
    }

    /// Returns the instances of a domain as of a time, in the order of their identifiers (pmGetInDom(3)).
    ///
    /// # Errors
    /// `PM_ERR_INDOM_LOG` for a domain that the archive does not have, or not yet at that time.
    pub fn instances(&mut self, indom: InDom, time: Stamp) -> Result<Vec<Instance<'a>>> {
        let meta = self.meta;
        Ok(self.kept(indom, time)?.entries.iter().map(|entry| meta.instance(*entry)).collect())
    }

    /// Returns the instances of a domain from a record on.
    pub fn instances_of(&mut self, indom: InDom, record: InDomRecord) -> Vec<Instance<'a>> {
        let meta = self.meta;
        let kept = self.kept.entry(indom).or_default();
        kept.show(meta, indom, record.nth);
        kept.from = None;
        kept.entries.iter().map(|entry| meta.instance(*entry)).collect()
    }

    /// Returns the name of an instance as of a time (pmNameInDom(3)).
    ///
    /// # Errors
    /// `PM_ERR_INDOM_LOG` for a domain that the archive does not have, or not yet at that time; `PM_ERR_INST_LOG` for
    /// an unknown instance.
    pub fn name(&mut self, indom: InDom, inst: u32, time: Stamp) -> Result<&'a [u8]> {
        let meta = self.meta;
        let Kept { entries, next, .. } = self.kept(indom, time)?;
        let is_next = entries.get(*next).is_some_and(|entry| entry.inst == inst);
        // Of several entries of an instance, the first one counts.
        let is_first = next.checked_sub(1).and_then(|at| entries.get(at)).is_none_or(|entry| entry.inst != inst);
        let at = if is_next && is_first { *next } else { entries.partition_point(|entry| entry.inst < inst) };
        let found = entries.get(at).filter(|entry| entry.inst == inst).ok_or(Error::INST_LOG)?;
        *next = at + 1;
        Ok(meta.instance(*found).name)
    }

    /// Returns the instance with a name as of a time (pmLookupInDom(3)). The part of an instance's name before the
    /// first space is enough.
    ///
    /// # Errors
    /// `PM_ERR_INDOM_LOG` for a domain that the archive does not have, or not yet at that time; `PM_ERR_INST_LOG` for
    /// an unknown name.
    pub fn lookup(&mut self, indom: InDom, name: &[u8], time: Stamp) -> Result<u32> {
        let meta = self.meta;
        let entries = &self.kept(indom, time)?.entries;
        let find = |is_match: &dyn Fn(&[u8]) -> bool| entries.iter().find(|e| is_match(meta.instance(**e).name));
        let found = find(&|known| known == name).or_else(|| find(&|known| is_short_match(known, name)));
        found.map(|entry| entry.inst).ok_or(Error::INST_LOG)
    }
}

impl Kept {
    fn show(&mut self, meta: &Metadata, indom: InDom, nth: usize) {
        if self.nth != Some(nth) {
            meta.indom_entries(indom, self.nth, nth, &mut self.entries);
            self.nth = Some(nth);
        }
    }
}
