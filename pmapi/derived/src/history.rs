//! History of `delta` and `rate`: an operand's values in the previous sample.

use std::sync::Arc;
use std::time::Duration;

use super::Presence;
use super::data::{Data, Number};
use super::join::Join;
use super::values::{Column, InstIds};
use pmapi::Error;

/// Success, or the error in place of values.
type Status = Result<(), Error>;

/// Conversion of a difference to a rate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    /// Whether the operand is a counter, which has no rate when it decreases.
    pub(crate) counter: bool,
    /// Factor from the operand's unit of time to seconds, for a utilization.
    pub(crate) time_scale: f64,
}

#[derive(Debug)]
pub(crate) struct History {
    /// Time of the previous sample; `None` if it had no values or does not exist.
    stamp: Option<Duration>,
    ids: Arc<InstIds>,
    data: Data,
    join: Join,
    /// Instances that have a rate.
    kept: Vec<u32>,
}

impl Default for History {
    fn default() -> History {
        let (ids, data) = (Arc::clone(InstIds::none()), Data::U32(Vec::new()));
        History { stamp: None, ids, data, join: Join::default(), kept: Vec::new() }
    }
}

/// Values of the instances that both samples have.
struct Pairs<'a> {
    now: &'a Data,
    before: &'a Data,
    /// Positions of the pairs; `None` if they are equal in both columns.
    join: Option<&'a Join>,
}

impl Pairs<'_> {
    #[inline]
    fn each<T: Number>(&self, mut use_pair: impl FnMut(T, T)) {
        let (Some(now), Some(before)) = (T::column(self.now), T::column(self.before)) else { return };
        match self.join {
            None => now.iter().zip(before).for_each(|(now, before)| use_pair(*now, *before)),
            Some(join) => {
                for (at, before_at) in join.left_places.iter().zip(&join.right_places) {
                    if let (Some(now), Some(before)) = (now.get(*at as usize), before.get(*before_at as usize)) {
                        use_pair(*now, *before);
                    }
                }
            }
        }
    }
}

impl History {
    /// Forgets the previous sample.
    pub(crate) fn forget(&mut self) {
        self.stamp = None;
    }

    /// Computes the difference of each instance that both samples have.
    pub(crate) fn delta(&mut self, of: &Column, stamp: Duration, output: &mut Column) {
        match self.pairs(of) {
            Ok((ids, pairs, _)) => {
                output.begin(ids);
                differences(&pairs, &mut output.data);
            }
            Err(status) => output.fail(status),
        }
        self.remember(of, stamp);
    }

    /// Computes the rate per second of each instance that both samples have.
    pub(crate) fn rate(&mut self, of: &Column, rate: Rate, stamp: Duration, output: &mut Column) {
        let mut kept = std::mem::take(&mut self.kept);
        match self.pairs(of) {
            // A rate needs time between the samples.
            Ok((_, _, before)) if stamp <= before => output.fail(Ok(())),
            Ok((ids, pairs, before)) => {
                output.data.clear();
                kept.clear();
                // Rounded once, as libpcp's is.
                let seconds = (stamp - before).as_nanos() as f64 / 1e9;
                if let Data::Double(rates) = &mut output.data {
                    let mut instances = ids.list.iter();
                    rates_of(&pairs, rate.counter, &mut |difference| {
                        let id = instances.next();
                        if let (Some(difference), Some(id)) = (difference, id) {
                            rates.push(difference / seconds * rate.time_scale);
                            kept.push(*id);
                        }
                    });
                }
                if kept.len() == ids.list.len() { output.set_ids(ids) } else { output.set_list(&kept) }
            }
            Err(status) => output.fail(status),
        }
        self.kept = kept;
        self.remember(of, stamp);
    }

    /// Returns the common instances, the values of both samples and the time of the earlier one. Returns the status in
    /// place of values if there is no common instance to compute.
    fn pairs<'a>(&'a mut self, of: &'a Column) -> Result<(&'a Arc<InstIds>, Pairs<'a>, Duration), Status> {
        of.status.map_err(Err)?;
        let before = self.stamp.filter(|_| !of.is_empty()).ok_or(Ok(()))?;
        let same = self.join.update(&of.ids, &self.ids);
        let (ids, join) = if same { (&of.ids, None) } else { (&self.join.ids, Some(&self.join)) };
        Ok((ids, Pairs { now: &of.data, before: &self.data, join }, before))
    }

    fn remember(&mut self, of: &Column, stamp: Duration) {
        // Values that are kept are those that the history has already, with the time of their sample.
        if of.presence == Some(Presence::Kept) {
            return;
        }
        self.stamp = (!of.is_empty()).then_some(stamp);
        if std::mem::discriminant(&self.data) != std::mem::discriminant(&of.data) {
            self.data = Data::new(of.ty);
        }
        self.data.copy_from(&of.data, None);
        if !Arc::ptr_eq(&self.ids, &of.ids) {
            self.ids = Arc::clone(&of.ids);
        }
    }
}

fn differences(pairs: &Pairs<'_>, output: &mut Data) {
    match (pairs.now, output) {
        (Data::I32(_), Data::I32(out)) => pairs.each(|now: i32, before| out.push(now.wrapping_sub(before))),
        (Data::U32(_), Data::I64(out)) => pairs.each(|now: u32, before| out.push(i64::from(now) - i64::from(before))),
        (Data::I64(_), Data::I64(out)) => pairs.each(|now: i64, before| out.push(now.wrapping_sub(before))),
        (Data::U64(_), Data::Double(out)) => pairs.each(|now: u64, before| out.push(now as f64 - before as f64)),
        (Data::Float(_), Data::Float(out)) => pairs.each(|now: f32, before| out.push(now - before)),
        (Data::Double(_), Data::Double(out)) => pairs.each(|now: f64, before| out.push(now - before)),
        _ => {}
    }
}

/// Passes the difference of each pair to `take`; `None` for a counter that decreases.
fn rates_of(pairs: &Pairs<'_>, counter: bool, take: &mut impl FnMut(Option<f64>)) {
    macro_rules! integers {
        ($ty:ident) => {
            pairs.each(|now: $ty, before| {
                let difference = before.abs_diff(now) as f64;
                let falls = now < before;
                take(if falls && counter { None } else { Some(if falls { -difference } else { difference }) })
            })
        };
    }
    macro_rules! reals {
        ($ty:ident) => {
            pairs.each(|now: $ty, before| {
                let decreased = now < before;
                take((!counter || !decreased).then_some(f64::from(now - before)))
            })
        };
    }
    match pairs.now {
        // A counter of this type may have 32 bits and have wrapped around; the difference is right if it wraps too.
        Data::I32(_) if counter => pairs.each(|now: i32, before| take(Some(now.wrapping_sub(before).into()))),
        Data::I32(_) => integers!(i32),
        Data::U32(_) => integers!(u32),
        Data::I64(_) => integers!(i64),
        Data::U64(_) => integers!(u64),
        Data::Float(_) => reals!(f32),
        Data::Double(_) => reals!(f64),
        Data::Bytes(_) => {}
    }
}
