//! The values of a metric, which an agent puts directly into the answer.

use pcp_pdu::event::Layout;
use pcp_pdu::profile::Selection;
use pcp_pdu::result_writer::ResultWriter;
use pmapi::{Atom, Desc, Error, Inst, Item, PmId, Result, Type};

use crate::cache::Cache;
use crate::client::Client;
use crate::event::EventQueue;
use crate::misfit::Misfit;
use crate::unserved::Unserved;
use crate::value::Value;

/// The values of one metric in an answer. Values that the client does not request are dropped.
///
/// A value must have the metric's type, or a type that converts to it without loss: a `u32` goes into a metric of type
/// [`Type::U64`], and the `u64` 7 into one of type [`Type::U32`]. An `f64` also goes into a metric of type
/// [`Type::Float`], rounded. [`Value`] lists the Rust types; an [`Option`] may have no value.
#[derive(Debug)]
pub struct Values<'a> {
    out: &'a mut ResultWriter,
    unserved: &'a mut Unserved,
    desc: &'a Desc,
    selection: Selection<'a>,
    client: &'a Client,
    /// Error of the last instance without a value. It is sent when no instance has a value.
    missing: Result,
}

impl<'a> Values<'a> {
    pub(crate) fn new(
        out: &'a mut ResultWriter,
        unserved: &'a mut Unserved,
        desc: &'a Desc,
        selection: Selection<'a>,
        client: &'a Client,
    ) -> Self {
        Values { out, unserved, desc, selection, client, missing: Ok(()) }
    }

    pub(crate) fn missing(&self) -> Result {
        self.missing
    }

    /// Puts the value of a singular metric, which has only one.
    ///
    /// # Errors
    /// `PM_ERR_INST` for a metric with an instance domain. `PM_ERR_TYPE`, `PM_ERR_SIGN` or `PM_ERR_TRUNC` when the
    /// value does not convert to the metric's type without loss. `PM_ERR_CONV` for a text with a NUL byte, at which
    /// clients would end it. `PM_ERR_TOOBIG` for more than 16 MiB.
    #[inline]
    pub fn put(&mut self, value: impl Value) -> Result {
        if self.desc.indom.is_some() {
            return Err(Error::INST);
        }
        value.give(self.desc, |value| self.push(None, value))
    }

    /// Puts the value of an instance, if the client requests it. Instances are sent in the order in which they are put.
    /// An `Err` in place of the value is that of the instance alone ([`Values::fail_inst`]). A metric with several values of the same instance fails with `PM_ERR_INST` at the end of
    /// [`Agent::fetch`](crate::Agent::fetch).
    ///
    /// # Errors
    /// `PM_ERR_INST` for a singular metric. `PM_ERR_TYPE`, `PM_ERR_SIGN` or `PM_ERR_TRUNC` when the value does not
    /// convert to the metric's type without loss. `PM_ERR_CONV` for a text with a NUL byte. `PM_ERR_TOOBIG` for more
    /// than 16 MiB.
    #[inline]
    pub fn put_inst(&mut self, inst: Inst, value: impl Value) -> Result {
        if self.desc.indom.is_none() {
            return Err(Error::INST);
        }
        if !self.selection.includes(inst) {
            return Ok(());
        }
        self.push_inst(inst, value)
    }

    /// Puts the values of a cache's active instances that the client requests, in the order of their numbers. If the
    /// client names only a few instances of a large domain, no others are visited.
    ///
    /// # Errors
    /// The errors of [`Values::put_inst`].
    pub fn put_each<'v, T, V: Value>(&mut self, cache: &'v Cache<T>, value: impl Fn(&'v T) -> V) -> Result {
        if self.desc.indom.is_none() {
            return Err(Error::INST);
        }
        let selection = self.selection;
        let mut push = |inst, of| self.push_inst(inst, value(of));
        if let Some(named) = named_up_to(selection, cache.len()) {
            return named.filter_map(|inst| Some((inst, cache.get(inst)?))).try_for_each(|(inst, of)| push(inst, of));
        }
        cache.values().filter(|(inst, _)| selection.includes(*inst)).try_for_each(|(inst, of)| push(inst, of))
    }

    /// Puts the value of a requested instance, or records why it has none.
    #[inline]
    fn push_inst(&mut self, inst: Inst, value: impl Value) -> Result {
        let mut is_given = false;
        let done = value.give(self.desc, |value| {
            is_given = true;
            self.push(Some(inst), value)
        });
        match done {
            Err(e) if !is_given => {
                self.fail_inst(inst, e);
                Ok(())
            }
            done => done,
        }
    }

    /// Puts the events that the client has not read yet, for a metric of type [`Type::Event`] or [`Type::HighResEvent`]
    /// (pmdaEventQueueRecords(3)). Without events there is no value. The client has then read them in all metrics of
    /// this type.
    ///
    /// # Errors
    /// `PM_ERR_INST` for a metric with an instance domain, `PM_ERR_TYPE` for a metric of another type.
    /// `PM_ERR_PERMISSION` for a client without access to the queue.
    pub fn put_events(&mut self, queue: &EventQueue) -> Result {
        if self.desc.indom.is_some() {
            return Err(Error::INST);
        }
        self.push_events(None, queue)
    }

    /// Puts the events that the client has not read yet, for an instance. If the client does not request the instance,
    /// the events stay unread.
    ///
    /// # Errors
    /// `PM_ERR_INST` for a singular metric, `PM_ERR_TYPE` for a metric that does not have an event type.
    /// `PM_ERR_PERMISSION` for a client without access to the queue.
    pub fn put_inst_events(&mut self, inst: Inst, queue: &EventQueue) -> Result {
        if self.desc.indom.is_none() {
            return Err(Error::INST);
        }
        if self.wants(inst) { self.push_events(Some(inst), queue) } else { Ok(()) }
    }

    fn push_events(&mut self, inst: Option<Inst>, queue: &EventQueue) -> Result {
        let layout = match self.desc.ty {
            Type::Event => Layout::Micro,
            Type::HighResEvent => Layout::Nano,
            _ => return Err(Error::TYPE),
        };
        queue.read(*self.client, layout, |events| self.out.push(inst, self.desc.ty, events))
    }

    /// Records that `inst` has no value because of `error`. Other instances keep their values. Clients see the error
    /// only when no instance has a value.
    pub fn fail_inst(&mut self, inst: Inst, error: Error) {
        if self.selection.includes(inst) {
            self.unserved.add(self.desc.pmid, Some(inst), error);
            self.missing = Err(error);
        }
    }

    /// Returns whether the client requests an instance, so that an expensive value can be skipped.
    #[inline]
    pub fn wants(&self, inst: Inst) -> bool {
        self.selection.includes(inst)
    }

    /// Returns the instances that the client requests. [`Selection::named`] finds a few instances of a large domain
    /// without visiting all.
    pub fn selection(&self) -> Selection<'a> {
        self.selection
    }

    /// Returns the client that gets the values.
    pub fn client(&self) -> Client {
        *self.client
    }

    /// Returns the PMID of another metric of the agent, for a parameter in an
    /// [`EventArray`](pcp_pdu::event::EventArray).
    pub fn pmid(&self, item: Item) -> PmId {
        PmId::new(self.desc.pmid.domain(), item)
    }

    /// Returns the metric's descriptor.
    pub fn desc(&self) -> &'a Desc {
        self.desc
    }

    // Always inlined, so that a caller whose values all have one type gets code for that type alone.
    #[inline(always)]
    fn push(&mut self, inst: Option<Inst>, value: Atom<'_>) -> Result {
        match self.out.push(inst, self.desc.ty, value) {
            Err(Error::TYPE) => self.push_converted(inst, value),
            Err(Error::CONV) => {
                self.unserved.set_misfit(self.desc.pmid, Misfit::new(inst, value, self.desc.ty));
                Err(Error::CONV)
            }
            done => done,
        }
    }

    #[cold]
    fn push_converted(&mut self, inst: Option<Inst>, value: Atom<'_>) -> Result {
        let pushed = converted(value, self.desc.ty).and_then(|value| self.out.push(inst, self.desc.ty, value));
        if matches!(pushed, Err(Error::TYPE | Error::SIGN | Error::TRUNC)) {
            self.unserved.set_misfit(self.desc.pmid, Misfit::new(inst, value, self.desc.ty));
        }
        pushed
    }
}

/// Converts a value to the type of its metric. Only a double may be rounded, because floats are approximations anyway.
fn converted(value: Atom<'_>, to: Type) -> Result<Atom<'_>> {
    match value {
        Atom::Double(v) if to == Type::Float => {
            let rounded = v as f32;
            if v.is_finite() && rounded.is_infinite() { Err(Error::TRUNC) } else { Ok(Atom::Float(rounded)) }
        }
        _ => value.exactly(to),
    }
}

/// Returns the instances that the client has named, if there are at most `most`. It may name far more than the domain has,
/// for each of its metrics.
fn named_up_to(selection: Selection<'_>, most: usize) -> Option<impl ExactSizeIterator<Item = Inst>> {
    selection.named().filter(|named| named.len() <= most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pcp_pdu::profile::{Profile, ProfileState};
    use pcp_pdu::result::Changes;
    use pmapi::{Domain, InDom, Semantics, Serial, Units};

    fn answer(desc: &Desc, profile: &Profile, fill: impl FnOnce(&mut Values<'_>) -> Result) -> Result<Vec<u8>> {
        let mut out = ResultWriter::new();
        out.begin();
        out.begin_set(Some(desc.pmid));
        let selection = desc.indom.map_or(Selection::ALL, |indom| profile.selection(indom));
        fill(&mut Values::new(&mut out, &mut Unserved::default(), desc, selection, &Client::new(0)))?;
        out.end_set(Ok(()));
        let (head, blocks) = out.seal(0, Changes::default())?;
        Ok([head, blocks].concat())
    }

    #[test]
    fn a_double_is_rounded_to_a_float() {
        let mut desc = Desc {
            pmid: PmId::new(Domain::new(400).unwrap(), Item::new(0, 0)),
            ty: Type::Float,
            indom: None,
            semantics: Semantics::Instant,
            units: Units::NONE,
        };
        let put = |desc: &Desc, value: Atom<'_>| answer(desc, &Profile::default(), |out| out.put(value));
        for v in [0.1, -1.5, f64::NAN, f64::INFINITY, 3.4e38, 1e-300] {
            assert_eq!(put(&desc, Atom::Double(v)), put(&desc, Atom::Float(v as f32)), "{v}");
        }
        assert_eq!(put(&desc, Atom::Double(3.5e38)), Err(Error::TRUNC));
        desc.ty = Type::U32;
        assert_eq!(put(&desc, Atom::Double(1.0)), Err(Error::TYPE));
    }

    #[test]
    fn more_named_instances_than_there_are_are_not_looked_up() {
        let indom = InDom::new(Domain::new(400).unwrap(), Serial::new(0));
        let mut profile = Profile::default();
        assert!(named_up_to(profile.selection(indom), 9).is_none());
        profile.set(indom, ProfileState::Exclude, &[1, 5, 7].map(Inst::new));
        let named = |most| named_up_to(profile.selection(indom), most).map(|named| named.len());
        assert_eq!([named(2), named(3), named(4)], [None, Some(3), Some(3)]);
    }

    #[test]
    fn each_of_a_cache_is_what_one_by_one_is() {
        let domain = Domain::new(400).unwrap();
        let indom = InDom::new(domain, Serial::new(0));
        let mut cache = Cache::new(indom, &pmapi::Config::new(b"", []));
        let insts: Vec<Inst> = (0..20u64).map(|i| cache.store(&format!("i{i}"), i << 40).unwrap()).collect();
        insts.iter().step_by(7).for_each(|&inst| _ = cache.hide(inst));
        let mut desc = Desc {
            pmid: PmId::new(domain, Item::new(0, 0)),
            ty: Type::U64,
            indom: Some(indom),
            semantics: Semantics::Instant,
            units: Units::NONE,
        };
        let some = [19, 3, 7, 3, 1000].map(Inst::new);
        let mut profiles = vec![Profile::default(), Profile::new(ProfileState::Exclude)];
        for state in [ProfileState::Include, ProfileState::Exclude] {
            let mut profile = Profile::default();
            profile.set(indom, state, &some);
            profiles.push(profile);
        }
        for (profile, values) in profiles.iter().zip([17, 0, 15, 2]) {
            let each = answer(&desc, profile, |out| out.put_each(&cache, |v| *v)).unwrap();
            assert_eq!(
                each,
                answer(&desc, profile, |out| cache.active().try_for_each(|(inst, _, v)| out.put_inst(inst, *v)))
                    .unwrap()
            );
            assert_eq!(each.len(), 32 + usize::from(values > 0) * 4 + values * 20);
        }
        assert_eq!(answer(&desc, &profiles[0], |out| out.put_each(&cache, |_| "text")), Err(Error::TYPE));
        desc.indom = None;
        assert_eq!(answer(&desc, &profiles[0], |out| out.put_each(&cache, |v| *v)), Err(Error::INST));
    }
}
