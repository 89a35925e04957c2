//! Evaluation of the steps in one sample.

use std::sync::Arc;
use std::time::Duration;

use super::data::{Buffers, Data, Number, Places};
use super::expr::BinaryOp;
use super::program::{Aggregate, Binary, Factor, Instance, Op, Pattern, Side, Slot, Step, Ternary};
use super::select;
use super::values::{Column, InstIds};
use super::{Presence, Source};
use pmapi::{Atom, Error, InDom, Inst, Units};
use regex_automata::nfa::thompson::pikevm::Cache;

/// Memory that all steps share.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    buffers: Buffers,
    instances: Vec<Inst>,
    list: Vec<u32>,
}

impl Scratch {
    /// Returns memory for the instances of an operand.
    pub(crate) fn list(&mut self) -> &mut Vec<u32> {
        &mut self.list
    }
}

pub(crate) struct Run<'a> {
    pub(crate) slots: &'a mut [Column],
    pub(crate) scratch: &'a mut Scratch,
    pub(crate) stamp: Duration,
    pub(crate) source: &'a mut dyn Source,
}

impl Run<'_> {
    pub(crate) fn step(&mut self, step: &mut Step) {
        let presence = step.inputs().map(|slot| self.values(slot).presence).max().flatten();
        let Some(output) = self.slots.get_mut(step.output as usize) else { return };
        output.presence = presence;
        // Without an operand there is nothing to compute, and the history is left alone.
        if presence == Some(Presence::Absent) {
            return;
        }
        let mut output = std::mem::replace(output, Column::new(pmapi::Type::U32));
        self.compute(&mut step.op, &mut output);
        output.presence = presence;
        self.slots[step.output as usize] = output;
    }

    fn values(&self, slot: Slot) -> &Column {
        &self.slots[slot as usize]
    }

    fn compute(&mut self, op: &mut Op, output: &mut Column) {
        match op {
            Op::NoNumber => output.fail(Err(Error::TYPE)),
            Op::Repeat { value, indom, list } => self.repeat(value, *indom, list, output),
            Op::Binary(binary) => self.binary(binary, output),
            Op::Neg { of } => each_value(self.values(*of), output, negate),
            Op::Not { of } => each_value(self.values(*of), output, not),
            Op::Aggregate { function, of } => aggregate(*function, self.values(*of), output),
            Op::Delta { of, history } => history.delta(&self.slots[*of as usize], self.stamp, output),
            Op::Rate { of, rate, history } => history.rate(&self.slots[*of as usize], *rate, self.stamp, output),
            Op::Rescale { of, from, to, factor } => rescale(self.values(*of), (*from, *to), *factor, output),
            Op::Instance { of, instance } => self.instance(*of, instance, output),
            Op::Pattern { of, pattern } => self.pattern(*of, pattern, output),
            Op::Ternary(ternary) => self.ternary(ternary, output),
        }
    }

    fn repeat(&mut self, value: &Data, indom: InDom, list: &mut Vec<u32>, output: &mut Column) {
        self.scratch.instances.clear();
        if let Err(error) = self.source.instances(indom, &mut self.scratch.instances) {
            return output.fail(Err(error));
        }
        list.clear();
        list.extend(self.scratch.instances.iter().map(|inst| inst.word()));
        output.data.clear();
        list.iter().for_each(|_| output.data.push_from(value, 0));
        output.set_list(list);
    }

    fn binary(&mut self, binary: &mut Binary, output: &mut Column) {
        use pmapi::Type::*;
        let Binary { op, left, right, ty, join } = binary;
        let (l, r) = (&self.slots[left.slot as usize], &self.slots[right.slot as usize]);
        if let Err(status) = l.status.and(r.status) {
            return output.fail(Err(status));
        }
        if l.is_empty() || r.is_empty() {
            return output.fail(Ok(()));
        }
        let (mut places, mut ids) = ([Places::All, Places::All], &l.ids);
        match (left.singular, right.singular) {
            (true, true) => (places, ids) = ([Places::First; 2], InstIds::singular()),
            (true, false) => (places[0], ids) = (Places::First, &r.ids),
            (false, true) => places[1] = Places::First,
            (false, false) if join.update(&l.ids, &r.ids) => {}
            (false, false) => {
                places = [Places::List(&join.left_places), Places::List(&join.right_places)];
                ids = &join.ids;
            }
        }
        output.begin(ids);
        let operands = Operands { op: *op, values: [l, r], sides: [left, right], places };
        let buffers = &mut self.scratch.buffers;
        match ty {
            I32 => operands.compute::<i32>(buffers, output),
            U32 => operands.compute::<u32>(buffers, output),
            I64 => operands.compute::<i64>(buffers, output),
            U64 => operands.compute::<u64>(buffers, output),
            Float => operands.compute::<f32>(buffers, output),
            Double if *op == BinaryOp::Slash => operands.divide(buffers, output),
            _ => operands.compute::<f64>(buffers, output),
        }
    }

    fn instance(&mut self, of: Slot, instance: &mut Instance, output: &mut Column) {
        let values = &self.slots[of as usize];
        if values.status.is_err() || values.is_empty() {
            return output.fail(values.status);
        }
        if !Arc::ptr_eq(&instance.among, &values.ids) {
            instance.find(&values.ids, self.source);
        }
        match (instance.place, instance.id) {
            (Some(place), Some(id)) => {
                output.data.copy_from(&values.data, Some(&[place]));
                output.set_list(&[id]);
            }
            _ => output.fail(Ok(())),
        }
    }

    fn pattern(&mut self, of: Slot, pattern: &mut Pattern, output: &mut Column) {
        let values = &self.slots[of as usize];
        if values.status.is_err() || values.is_empty() {
            return output.fail(values.status);
        }
        if !Arc::ptr_eq(&pattern.among, &values.ids) || !pattern.complete {
            pattern.find(&values.ids, self.source);
        }
        output.data.copy_from(&values.data, Some(&pattern.places));
        output.set_ids(&pattern.chosen);
    }

    fn ternary(&mut self, ternary: &mut Ternary, output: &mut Column) {
        let Ternary { guard: (guard, guard_meta), left, right, select } = ternary;
        let guard = &self.slots[*guard as usize];
        let arm = |arm: &Option<(Slot, super::rules::Meta)>| match arm {
            Some((slot, meta)) => (Some(&self.slots[*slot as usize]), meta.indom.is_some()),
            None => (None, false),
        };
        let sides: [select::Side<'_>; 3] = [(Some(guard), guard_meta.indom.is_some()), arm(left), arm(right)];
        let missing = |status: fn(&Column) -> bool| sides.iter().filter_map(|side| side.0).find(|side| status(side));
        if let Some(without) = missing(|side| side.status.is_err()).or_else(|| missing(Column::is_empty)) {
            return output.fail(without.status);
        }
        if !output.ty.is_numeric() && output.ty != pmapi::Type::String {
            return output.fail(Err(Error::TYPE));
        }
        select.run(guard, sides, output);
    }
}

impl Instance {
    /// Finds the instance by identifier, or by name if the identifier is absent.
    fn find(&mut self, ids: &Arc<InstIds>, source: &mut dyn Source) {
        let place = |id: Option<u32>| ids.list.iter().position(|other| Some(*other) == id).map(|place| place as u32);
        self.place = place(self.id);
        if self.place.is_none() {
            let found = self.indom.and_then(|indom| source.instance_id(indom, &self.name).ok());
            self.id = found.map(Inst::word);
            self.place = place(self.id);
            // The next sample must ask again, because the source may have the name then.
            if found.is_none() {
                self.among = Arc::clone(InstIds::none());
                return;
            }
        }
        self.among = Arc::clone(ids);
    }
}

impl Pattern {
    /// Finds the matching instances. Asks the source only for the names of new instances.
    fn find(&mut self, ids: &Arc<InstIds>, source: &mut dyn Source) {
        let known = std::mem::take(&mut self.known);
        let mut memory = None;
        self.complete = true;
        self.places.clear();
        for (place, id) in ids.list.iter().enumerate() {
            let before = known.binary_search_by_key(id, |entry| entry.0).ok().and_then(|at| known.get(at));
            let matches = match before {
                Some((_, matches)) => Some(*matches),
                None => self.compare(*id, source, &mut memory),
            };
            match matches {
                Some(matches) => self.known.push((*id, matches)),
                None => self.complete = false,
            }
            if matches == Some(true) {
                self.places.push(place as u32);
            }
        }
        self.known.sort_unstable();
        let list: Vec<u32> = self.places.iter().filter_map(|at| ids.list.get(*at as usize)).copied().collect();
        self.chosen = InstIds::new(list);
        self.among = Arc::clone(ids);
    }

    /// Returns whether the name of an instance matches; `None` if it has no name.
    fn compare(&mut self, id: u32, source: &mut dyn Source, memory: &mut Option<Cache>) -> Option<bool> {
        self.name.clear();
        source.instance_name(self.indom?, Inst::from_word(id)?, &mut self.name).ok()?;
        let name = self.name.split(|b| *b == b' ').next().unwrap_or_default();
        Some(self.regex.is_match(memory, name) != self.invert)
    }
}

/// Operands of a binary operator, both with values.
struct Operands<'a> {
    op: BinaryOp,
    values: [&'a Column; 2],
    sides: [&'a Side; 2],
    places: [Places<'a>; 2],
}

/// Values of one operand, in the type of the computation.
#[derive(Clone, Copy)]
enum Argument<'a, T> {
    One(T),
    Many(&'a [T]),
}

impl<'a> Operands<'a> {
    fn arguments<'b, T: Number>(&self, buffers: &'b mut Buffers) -> [Argument<'b, T>; 2]
    where
        'a: 'b,
    {
        let [first, second] = T::buffers(buffers);
        [self.argument(0, first), self.argument(1, second)]
    }

    fn argument<'b, T: Number>(&self, side: usize, buffer: &'b mut Vec<T>) -> Argument<'b, T>
    where
        'a: 'b,
    {
        let (data, scale, places) = (&self.values[side].data, self.sides[side].scale, self.places[side]);
        if let (Some(column), Places::All, super::data::Scale::NONE) = (T::column(data), places, scale) {
            return Argument::Many(column);
        }
        T::convert(data, places, scale, buffer);
        match places {
            Places::First => Argument::One(buffer.first().copied().unwrap_or_default()),
            _ => Argument::Many(buffer),
        }
    }

    fn compute<T: Number>(&self, buffers: &mut Buffers, output: &mut Column) {
        let arguments = self.arguments::<T>(buffers);
        if self.op.is_arithmetic() {
            let Some(column) = T::column_mut(&mut output.data) else { return };
            match self.op {
                BinaryOp::Plus => combine(arguments, column, T::plus),
                BinaryOp::Minus => combine(arguments, column, T::minus),
                _ => combine(arguments, column, T::times),
            }
            return;
        }
        let Data::U32(column) = &mut output.data else { return };
        let zero = T::default();
        match self.op {
            BinaryOp::Lt => combine(arguments, column, |a, b| (a < b).into()),
            BinaryOp::Leq => combine(arguments, column, |a, b| (a <= b).into()),
            BinaryOp::Eq => combine(arguments, column, |a, b| (a == b).into()),
            BinaryOp::Geq => combine(arguments, column, |a, b| (a >= b).into()),
            BinaryOp::Gt => combine(arguments, column, |a, b| (a > b).into()),
            BinaryOp::Neq => combine(arguments, column, |a, b| (a != b).into()),
            BinaryOp::And => combine(arguments, column, |a, b| (a != zero && b != zero).into()),
            _ => combine(arguments, column, |a, b| (a != zero || b != zero).into()),
        }
    }

    /// Divides. `0 / 0` is 0, as in libpcp.
    fn divide(&self, buffers: &mut Buffers, output: &mut Column) {
        if let Data::Double(column) = &mut output.data {
            combine(self.arguments(buffers), column, |a: f64, b| if a == 0.0 { 0.0 } else { a / b });
        }
    }
}

#[inline]
fn combine<T: Copy, U>([left, right]: [Argument<'_, T>; 2], output: &mut Vec<U>, op: impl Fn(T, T) -> U) {
    match (left, right) {
        (Argument::One(l), Argument::One(r)) => output.push(op(l, r)),
        (Argument::One(l), Argument::Many(r)) => output.extend(r.iter().map(|r| op(l, *r))),
        (Argument::Many(l), Argument::One(r)) => output.extend(l.iter().map(|l| op(*l, r))),
        (Argument::Many(l), Argument::Many(r)) => output.extend(l.iter().zip(r).map(|(l, r)| op(*l, *r))),
    }
}

/// Computes a result that has the instances of its operand.
fn each_value(of: &Column, output: &mut Column, compute: fn(&Data, &mut Data)) {
    if of.status.is_err() || of.is_empty() {
        return output.fail(of.status);
    }
    output.begin(&of.ids);
    compute(&of.data, &mut output.data);
}

fn negate(of: &Data, output: &mut Data) {
    match (of, output) {
        (Data::I32(of), Data::I32(out)) => out.extend(of.iter().map(|v| v.wrapping_neg())),
        (Data::U32(of), Data::I32(out)) => out.extend(of.iter().map(|v| v.wrapping_neg() as i32)),
        (Data::I64(of), Data::I64(out)) => out.extend(of.iter().map(|v| v.wrapping_neg())),
        (Data::U64(of), Data::I64(out)) => out.extend(of.iter().map(|v| v.wrapping_neg() as i64)),
        (Data::Float(of), Data::Float(out)) => out.extend(of.iter().map(|v| -v)),
        (Data::Double(of), Data::Double(out)) => out.extend(of.iter().map(|v| -v)),
        _ => {}
    }
}

fn not(of: &Data, output: &mut Data) {
    let Data::U32(out) = output else { return };
    match of {
        Data::I32(of) => out.extend(of.iter().map(|v| u32::from(*v == 0))),
        Data::U32(of) => out.extend(of.iter().map(|v| u32::from(*v == 0))),
        Data::I64(of) => out.extend(of.iter().map(|v| u32::from(*v == 0))),
        Data::U64(of) => out.extend(of.iter().map(|v| u32::from(*v == 0))),
        Data::Float(of) => out.extend(of.iter().map(|v| u32::from(*v == 0.0))),
        Data::Double(of) => out.extend(of.iter().map(|v| u32::from(*v == 0.0))),
        Data::Bytes(_) => {}
    }
}

fn aggregate(function: Aggregate, of: &Column, output: &mut Column) {
    if function == Aggregate::Count {
        let count = if of.status.is_ok() { of.len() } else { 0 };
        output.begin_singular();
        output.data.push(Atom::U32(count as u32));
        return;
    }
    let nothing = of.is_empty() && !matches!(function, Aggregate::Avg | Aggregate::Sum);
    if of.status.is_err() || nothing {
        return output.fail(of.status);
    }
    output.begin_singular();
    if function == Aggregate::Scalar {
        return output.data.push_from(&of.data, 0);
    }
    macro_rules! numbers {
        ($($kind:ident $ty:ident)*) => {
            match (&of.data, &mut output.data) {
                $((Data::$kind(values), Data::Float(out)) if function == Aggregate::Avg => {
                    let count = values.len() as f32;
                    out.push(values.iter().fold(0.0, |sum, v| sum + *v as f32 / count));
                }
                (Data::$kind(values), Data::$kind(out)) => out.extend(total(function, values)),)*
                _ => {}
            }
        };
    }
    numbers!(I32 i32 U32 u32 I64 i64 U64 u64 Float f32 Double f64);
}

fn total<T: Number>(function: Aggregate, values: &[T]) -> Option<T> {
    let values = values.iter().copied();
    match function {
        Aggregate::Sum => Some(values.fold(T::default(), T::plus)),
        Aggregate::Max => values.reduce(|max, v| if max < v { v } else { max }),
        _ => values.reduce(|min, v| if min > v { v } else { min }),
    }
}

fn rescale(of: &Column, (from, to): (Units, Units), factor: Option<Factor>, output: &mut Column) {
    if of.status.is_err() || of.is_empty() {
        return output.fail(of.status);
    }
    output.begin(&of.ids);
    if let Some(factor) = factor {
        return factor.apply_all((from, to), &of.data, &mut output.data);
    }
    let mut dropped = Vec::new();
    for (at, id) in of.ids.list.iter().enumerate() {
        match from.convert(to, of.data.atom(at, of.ty)) {
            Ok(value) if output.data.push(value) => {}
            _ => dropped.push(*id),
        }
    }
    if !dropped.is_empty() {
        let kept: Vec<u32> = of.ids.list.iter().copied().filter(|id| !dropped.contains(id)).collect();
        output.set_list(&kept);
    }
}

impl Factor {
    fn apply_all(self, (from, to): (Units, Units), of: &Data, output: &mut Data) {
        macro_rules! integers {
            ($kind:ident, $of:expr, $out:expr, $limit:expr, $small:expr) => {
                $out.extend($of.iter().map(|v| {
                    if i128::from(*v).unsigned_abs() < $limit.into() {
                        return $small(*v);
                    }
                    match from.convert(to, Atom::$kind(*v)) {
                        Ok(Atom::$kind(v)) => v,
                        _ => Default::default(),
                    }
                }))
            };
        }
        match (of, output, self) {
            (Data::Double(of), Data::Double(out), Factor::Real(factor)) => out.extend(of.iter().map(|v| v * factor)),
            (Data::Float(of), Data::Float(out), Factor::Real(factor)) => {
                out.extend(of.iter().map(|v| v * factor as f32));
            }
            (Data::I32(of), Data::I32(out), Factor::Ratio { mul, div, limit }) => {
                integers!(I32, of, out, limit, |v: i32| signed(v.into(), mul, div) as i32);
            }
            (Data::U32(of), Data::U32(out), Factor::Ratio { mul, div, limit }) => {
                integers!(U32, of, out, limit, |v: u32| signed(v.into(), mul, div) as u32);
            }
            (Data::I64(of), Data::I64(out), Factor::Ratio { mul, div, limit }) => {
                integers!(I64, of, out, limit, |v: i64| signed(v, mul, div));
            }
            (Data::U64(of), Data::U64(out), Factor::Ratio { mul, div, limit }) => {
                integers!(U64, of, out, limit, |v: u64| unsigned(v, mul, div));
            }
            _ => {}
        }
    }

    /// Converts one value.
    #[cfg(test)]
    pub(crate) fn apply(self, units: (Units, Units), value: Atom<'_>) -> Option<Atom<'static>> {
        let (mut of, mut output) = (Data::new(value.ty()), Data::new(value.ty()));
        of.push(value);
        self.apply_all(units, &of, &mut output);
        Some(match output {
            Data::I32(v) => Atom::I32(*v.first()?),
            Data::U32(v) => Atom::U32(*v.first()?),
            Data::I64(v) => Atom::I64(*v.first()?),
            Data::U64(v) => Atom::U64(*v.first()?),
            Data::Float(v) => Atom::Float(*v.first()?),
            Data::Double(v) => Atom::Double(*v.first()?),
            Data::Bytes(_) => return None,
        })
    }
}

/// Scales a signed integer. Rounds half up and wraps around on overflow, as pmConvScale(3) does.
pub(crate) fn signed(value: i64, mul: u64, div: u64) -> i64 {
    value.wrapping_mul(mul as i64).wrapping_add((div / 2) as i64).wrapping_div((div as i64).max(1))
}

/// Scales an unsigned integer. Rounds half up and wraps around on overflow, as pmConvScale(3) does.
pub(crate) fn unsigned(value: u64, mul: u64, div: u64) -> u64 {
    value.wrapping_mul(mul).wrapping_add(div / 2) / div.max(1)
}
