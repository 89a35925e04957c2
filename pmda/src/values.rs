//! The values of metrics: what an agent gives, and the functions at the metrics' declarations that give it.
//!
//! A value passes two things on its way into the reply: [`Value`] makes an [`Atom`] of it, and [`Values`] puts the atom
//! into the [`ResultWriter`], if the client requests it.

use std::any::{Any, type_name};
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use pcp_pdu::event::Layout;
use pcp_pdu::profile::Selection;
use pcp_pdu::result_writer::ResultWriter;
use pmapi::{Atom, Desc, Error, Inst, Item, PmId, Result, Serial, Type, Units};

use crate::cache::Cache;
use crate::client::Client;
use crate::event::EventQueue;
use crate::indom::Instances;
use crate::unserved::{Misfit, Unserved};

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
    /// The last value that does not convert to the metric's type.
    misfit: Option<Misfit>,
}

impl<'a> Values<'a> {
    pub(crate) fn new(
        out: &'a mut ResultWriter,
        unserved: &'a mut Unserved,
        desc: &'a Desc,
        selection: Selection<'a>,
        client: &'a Client,
    ) -> Self {
        Values { out, unserved, desc, selection, client, missing: Ok(()), misfit: None }
    }

    /// Ends the values of the metric, and records why it has none if `done` is an error. Returns the error of the last
    /// instance without a value.
    #[inline]
    pub(crate) fn finish(self, done: Result) -> Result {
        match (done, self.misfit) {
            (Ok(()), _) => {}
            (Err(e @ (Error::TYPE | Error::SIGN | Error::TRUNC | Error::CONV)), Some(misfit)) => {
                self.unserved.add_misfit(misfit, e);
            }
            (Err(e), _) => self.unserved.add(self.desc.pmid, None, e),
        }
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
                self.misfit = Some(Misfit::new(inst, value, self.desc.ty));
                Err(Error::CONV)
            }
            done => done,
        }
    }

    #[cold]
    fn push_converted(&mut self, inst: Option<Inst>, value: Atom<'_>) -> Result {
        let pushed = converted(value, self.desc.ty).and_then(|value| self.out.push(inst, self.desc.ty, value));
        if matches!(pushed, Err(Error::TYPE | Error::SIGN | Error::TRUNC)) {
            self.misfit = Some(Misfit::new(inst, value, self.desc.ty));
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

/// A value of a metric, or none: what [`Values::put`](crate::Values::put) and getters accept.
///
/// | Rust | metric |
/// |---|---|
/// | integers, `bool`, `f32`, `f64` | the number; a `u128` must fit into 64 bits |
/// | `&str`, `String`, `Cow<str>`, `Arc<str>` | the text |
/// | [`Duration`] | the time in the metric's unit; an integer metric gets the whole units, without rest |
/// | [`Option`] | no value for `None`, which is no error |
/// | [`Result`](std::result::Result) | for an error, no value and the error; other instances keep their values |
/// | [`Atom`] | the value |
///
/// An agent's own type implements the trait by giving a value of another one:
///
/// ```
/// use pmda::Value;
/// use pmda::pmapi::{Atom, Desc, Result};
///
/// struct Percent(u8);
///
/// impl Value for Percent {
///     fn give(self, of: &Desc, to: impl FnOnce(Atom<'_>) -> Result) -> Result {
///         self.0.min(100).give(of, to)
///     }
/// }
/// ```
pub trait Value {
    /// Passes the value for a metric to `to`. Without a value, `to` is not called.
    ///
    /// # Errors
    /// The error of `to`, or the reason why there is no value.
    fn give(self, of: &Desc, to: impl FnOnce(Atom<'_>) -> Result) -> Result;
}

/// A value whose Rust type determines the type of its metric, when a getter returns it.
///
/// | Rust | type of the metric |
/// |---|---|
/// | `i8`, `i16`, `i32` | [`Type::I32`] |
/// | `u8`, `u16`, `u32`, `bool` | [`Type::U32`] |
/// | `i64`, `isize` | [`Type::I64`] |
/// | `u64`, `usize`, `u128` | [`Type::U64`] |
/// | `f32` | [`Type::Float`] |
/// | `f64`, [`Duration`] | [`Type::Double`] |
/// | texts | [`Type::String`] |
/// | `Option<V>`, `Result<V, E>` | that of `V` |
pub trait TypedValue: Value {
    /// Type of a metric that has such values.
    const TYPE: Type;
}

macro_rules! numbers {
    ($($number:ty => $type:ident as $atom:ty),* $(,)?) => {$(
        impl Value for $number {
            #[inline]
            fn give(self, _: &Desc, to: impl FnOnce(Atom<'_>) -> Result) -> Result {
                to(Atom::$type(self as $atom))
            }
        }

        impl Value for &$number {
            #[inline]
            fn give(self, of: &Desc, to: impl FnOnce(Atom<'_>) -> Result) -> Result {
                (*self).give(of, to)
            }
        }

        impl TypedValue for $number {
            const TYPE: Type = Type::$type;
        }
    )*};
}
// Every conversion is to a type that has all values of the number.
numbers!(i8 => I32 as i32, i16 => I32 as i32, i32 => I32 as i32, i64 => I64 as i64, isize => I64 as i64,
         u8 => U32 as u32, u16 => U32 as u32, u32 => U32 as u32, u64 => U64 as u64, usize => U64 as u64,
         bool => U32 as u32, f32 => Float as f32, f64 => Double as f64);

impl Value for u128 {
    fn give(self, of: &Desc, to: impl FnOnce(Atom<'_>) -> Result) -> Result {
        u64::try_from(self).map_err(|_| Error::TRUNC)?.give(of, to)
    }
}

impl TypedValue for u128 {
    const TYPE: Type = Type::U64;
}

macro_rules! texts {
    ($($text:ty),*) => {$(
        impl Value for $text {
            #[inline]
            fn give(self, _: &Desc, to: impl FnOnce(Atom<'_>) -> Result) -> Result {
                to(Atom::String(self.as_bytes()))
            }
        }

        impl TypedValue for $text {
            const TYPE: Type = Type::String;
        }
    )*};
}
texts!(&str, String, &String, Cow<'_, str>, &Cow<'_, str>, Arc<str>, &Arc<str>);

impl Value for Duration {
    fn give(self, of: &Desc, to: impl FnOnce(Atom<'_>) -> Result) -> Result {
        to(scaled(self, of.units, of.ty)?)
    }
}

impl TypedValue for Duration {
    const TYPE: Type = Type::Double;
}

impl Value for Atom<'_> {
    #[inline]
    fn give(self, _: &Desc, to: impl FnOnce(Atom<'_>) -> Result) -> Result {
        to(self)
    }
}

impl<V: Value> Value for Option<V> {
    #[inline]
    fn give(self, of: &Desc, to: impl FnOnce(Atom<'_>) -> Result) -> Result {
        self.map_or(Ok(()), |value| value.give(of, to))
    }
}

impl<V: TypedValue> TypedValue for Option<V> {
    const TYPE: Type = V::TYPE;
}

impl<V: Value, E: Into<Error>> Value for std::result::Result<V, E> {
    #[inline]
    fn give(self, of: &Desc, to: impl FnOnce(Atom<'_>) -> Result) -> Result {
        self.map_err(Into::into)?.give(of, to)
    }
}

impl<V: TypedValue, E: Into<Error>> TypedValue for std::result::Result<V, E> {
    const TYPE: Type = V::TYPE;
}

/// The units of time, with their nanoseconds.
const TIMES: [(Units, u64); 6] = [
    (Units::NANOSECONDS, 1),
    (Units::MICROSECONDS, 1_000),
    (Units::MILLISECONDS, 1_000_000),
    (Units::SECONDS, 1_000_000_000),
    (Units::MINUTES, 60_000_000_000),
    (Units::HOURS, 3_600_000_000_000),
];

/// Returns a time in the unit of a metric. `PM_ERR_CONV` if the unit is not one of time.
fn scaled(time: Duration, units: Units, ty: Type) -> Result<Atom<'static>> {
    let (_, unit) = TIMES.into_iter().find(|(of_time, _)| *of_time == units).ok_or(Error::CONV)?;
    match ty {
        Type::Float | Type::Double => Ok(Atom::Double(time.as_nanos() as f64 / unit as f64)),
        _ => u64::try_from(time.as_nanos() / u128::from(unit)).map(Atom::U64).map_err(|_| Error::TRUNC),
    }
}

/// A function that puts the values of a metric of agent `A`.
type Put<A> = dyn Fn(&A, &mut Values<'_>) -> Result + Send + Sync;

/// A function that finds the instances of a domain in agent `A`.
type Find<A> = dyn Fn(&A) -> &(dyn Instances + 'static) + Send + Sync;

/// A function of an agent, in a declaration that does not name the agent's type.
#[derive(Clone)]
pub(crate) struct Erased {
    /// Name of the agent's type.
    agent: &'static str,
    /// An `Arc<Put<A>>` or `Arc<Find<A>>`.
    function: Arc<dyn Any + Send + Sync>,
}

impl Erased {
    pub(crate) fn put<A: 'static>(put: impl Fn(&A, &mut Values<'_>) -> Result + Send + Sync + 'static) -> Erased {
        let put: Arc<Put<A>> = Arc::new(put);
        Erased { agent: type_name::<A>(), function: Arc::new(put) }
    }

    pub(crate) fn find<A: 'static>(find: impl Fn(&A) -> &(dyn Instances + 'static) + Send + Sync + 'static) -> Erased {
        let find: Arc<Find<A>> = Arc::new(find);
        Erased { agent: type_name::<A>(), function: Arc::new(find) }
    }
}

impl fmt::Debug for Erased {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a function of {}", self.agent)
    }
}

/// A getter of another type than that of the agent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WrongAgent {
    /// Name of the type that the getter has.
    pub(crate) getter: &'static str,
    /// Name of the agent's type.
    pub(crate) agent: &'static str,
}

/// The getters of an agent. A call needs no conversion and no allocation.
pub(crate) struct Getters<A> {
    values: Vec<Arc<Put<A>>>,
    instances: Vec<(Serial, Arc<Find<A>>)>,
}

impl<A: 'static> Getters<A> {
    pub(crate) fn new() -> Getters<A> {
        Getters { values: Vec::new(), instances: Vec::new() }
    }

    /// Adds the getter of a metric. It gets the next number.
    pub(crate) fn add(&mut self, getter: &Erased) -> std::result::Result<(), WrongAgent> {
        self.values.push(function::<A, Put<A>>(getter)?);
        Ok(())
    }

    /// Adds the function that finds the instances of a domain.
    pub(crate) fn add_instances(&mut self, of: Serial, find: &Erased) -> std::result::Result<(), WrongAgent> {
        self.instances.push((of, function::<A, Find<A>>(find)?));
        Ok(())
    }

    /// Returns a getter by its number.
    #[inline]
    pub(crate) fn value(&self, number: u32) -> Option<&Put<A>> {
        self.values.get(number as usize).map(|put| &**put)
    }

    /// Returns the instances of a domain, if the domain belongs to a table.
    pub(crate) fn instances<'a>(&self, agent: &'a A, of: Serial) -> Option<&'a dyn Instances> {
        self.instances.iter().find(|(serial, _)| *serial == of).map(|(_, find)| find(agent))
    }
}

impl<A> fmt::Debug for Getters<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} getters of {}", self.values.len(), type_name::<A>())
    }
}

fn function<A, F: ?Sized + 'static>(erased: &Erased) -> std::result::Result<Arc<F>, WrongAgent>
where
    Arc<F>: Send + Sync,
{
    let wrong = WrongAgent { getter: erased.agent, agent: type_name::<A>() };
    erased.function.downcast_ref::<Arc<F>>().cloned().ok_or(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pcp_pdu::profile::{Profile, ProfileState};
    use pcp_pdu::result::Changes;
    use pmapi::{Domain, InDom, Semantics};

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

    /// Returns the text of the value that a metric would have, or that of the error; `None` for no value.
    fn given(value: impl Value, ty: Type, units: Units) -> Option<String> {
        let pmid = PmId::new(Domain::new(400).unwrap(), Item::new(0, 0));
        let desc = Desc { pmid, ty, indom: None, semantics: Semantics::Instant, units };
        let mut text = None;
        let done = value.give(&desc, |atom| {
            text = Some(format!("{atom:?}"));
            Ok(())
        });
        text.or(done.err().map(|e| e.to_string()))
    }

    #[test]
    fn a_duration_is_in_the_unit_of_its_metric() {
        let time = Duration::from_millis(8_100_500);
        for (units, whole, exact) in [
            (Units::NANOSECONDS, "U64(8100500000000)", "Double(8100500000000.0)"),
            (Units::MICROSECONDS, "U64(8100500000)", "Double(8100500000.0)"),
            (Units::MILLISECONDS, "U64(8100500)", "Double(8100500.0)"),
            (Units::SECONDS, "U64(8100)", "Double(8100.5)"),
            (Units::MINUTES, "U64(135)", "Double(135.00833333333333)"),
            (Units::HOURS, "U64(2)", "Double(2.250138888888889)"),
        ] {
            assert_eq!(given(time, Type::U32, units).unwrap(), whole);
            assert_eq!(given(time, Type::Double, units).unwrap(), exact);
        }
        for units in [Units::NONE, Units::BYTES, Units::BYTES.per(Units::SECONDS), Units::SECONDS.pow(2)] {
            assert_eq!(given(time, Type::U64, units), Some(Error::CONV.to_string()), "{units}");
        }
        assert_eq!(given(Duration::MAX, Type::U64, Units::NANOSECONDS), Some(Error::TRUNC.to_string()));
    }

    #[test]
    fn an_option_may_have_no_value_and_a_result_an_error() {
        let given = |value: Option<std::result::Result<u32, std::io::Error>>| given(value, Type::U32, Units::NONE);
        assert_eq!(given(None), None);
        assert_eq!(given(Some(Ok(7))).as_deref(), Some("U32(7)"));
        let e = std::io::Error::from_raw_os_error(2);
        assert_eq!(given(Some(Err(e))), Some(Error::from_errno(2).to_string()));
    }

    #[test]
    fn texts_and_numbers_of_all_kinds() {
        let text = format!("{:?}", Atom::from("seven"));
        let owned = String::from("seven");
        let cow = Cow::Borrowed("seven");
        assert_eq!(given("seven", Type::String, Units::NONE).as_ref(), Some(&text));
        assert_eq!(given(&owned, Type::String, Units::NONE).as_ref(), Some(&text));
        assert_eq!(given(&cow, Type::String, Units::NONE).as_ref(), Some(&text));
        assert_eq!(given(cow, Type::String, Units::NONE).as_ref(), Some(&text));
        assert_eq!(given(Arc::<str>::from("seven"), Type::String, Units::NONE).as_ref(), Some(&text));
        assert_eq!(given(owned, Type::String, Units::NONE).as_ref(), Some(&text));
        assert_eq!(given([7_i8].first(), Type::I32, Units::NONE).as_deref(), Some("I32(7)"));
        assert_eq!(given(true, Type::U32, Units::NONE).as_deref(), Some("U32(1)"));
        assert_eq!(given(-7_isize, Type::I64, Units::NONE).as_deref(), Some("I64(-7)"));
        assert_eq!(given(7_u128, Type::U64, Units::NONE).as_deref(), Some("U64(7)"));
        assert_eq!(given(u128::MAX, Type::U64, Units::NONE), Some(Error::TRUNC.to_string()));
    }
}
