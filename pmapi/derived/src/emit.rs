//! Generation of the steps of a checked expression.

use std::sync::Arc;

use super::check::{Checked, Resolved};
use super::data::{Data, Scale};
use super::expr::{Expr, Function, Kind, NodeId};
use super::filter::Filter;
use super::history::Rate;
use super::program::{Aggregate, Binary, Factor, Instance, Op, Pattern, Root, Side, Slot, Step, Ternary};
use super::rules::{self, Meta};
use super::values::{Column, InstIds};
use super::{Evaluator, eval};
use pmapi::{Atom, Type, Units};

/// Adds the steps that compute an expression, each after the steps whose values it uses.
pub(crate) fn emit(evaluator: &mut Evaluator, expr: &Expr, names: &[Option<Resolved>], checked: &Checked) -> Emitted {
    let (operands, definitions) = (Vec::new(), Vec::new());
    let mut emitter =
        Emitter { evaluator, expr, names, checked, slots: vec![0; expr.nodes.len()], operands, definitions };
    let needed = emitter.needed();
    for id in (0..expr.nodes.len()).filter(|id| needed[*id]) {
        emitter.slots[id] = emitter.node(id as NodeId);
    }
    let root = expr.root();
    let root = Root { slot: emitter.slots[root as usize], meta: checked.metas[root as usize] };
    let Emitter { mut operands, mut definitions, .. } = emitter;
    for list in [&mut operands, &mut definitions] {
        list.sort_unstable();
        list.dedup();
    }
    Emitted { root, operands, definitions }
}

/// Column of an expression's values, with the operands and definitions that it uses.
pub(crate) struct Emitted {
    pub(crate) root: Root,
    pub(crate) operands: Vec<u32>,
    pub(crate) definitions: Vec<u32>,
}

struct Emitter<'a> {
    evaluator: &'a mut Evaluator,
    expr: &'a Expr,
    names: &'a [Option<Resolved>],
    checked: &'a Checked,
    /// Column of each node.
    slots: Vec<Slot>,
    operands: Vec<u32>,
    definitions: Vec<u32>,
}

impl Emitter<'_> {
    /// Returns the nodes whose values are needed. Omits names that are used only for their descriptor, and what is
    /// known at binding.
    fn needed(&self) -> Vec<bool> {
        let mut needed = vec![false; self.expr.nodes.len()];
        if let Some(root) = needed.last_mut() {
            *root = true;
        }
        for id in (0..needed.len()).rev().filter(|id| !self.checked.unused[*id]) {
            if !needed[id] {
                continue;
            }
            let mut need = |id: NodeId| needed[id as usize] = true;
            match &self.expr.nodes[id].kind {
                Kind::Binary(_, left, right) => [*left, *right].into_iter().for_each(need),
                Kind::Function(Function::Defined, _) => {}
                Kind::Neg(of) | Kind::Not(of) | Kind::Function(_, of) | Kind::Rescale(of, _) | Kind::Filter(_, of) => {
                    need(*of)
                }
                Kind::Ternary { guard, left, right } => match self.checked.truth[*guard as usize] {
                    Some(true) => need(*left),
                    Some(false) => need(*right),
                    None => [*guard, *left, *right].into_iter().for_each(need),
                },
                Kind::Name(_) | Kind::Constant { .. } | Kind::NoValue { .. } | Kind::Anon(_) => {}
            }
        }
        needed
    }

    fn meta(&self, id: NodeId) -> Meta {
        self.checked.metas[id as usize]
    }

    fn slot(&self, id: NodeId) -> Slot {
        self.slots[id as usize]
    }

    fn node(&mut self, id: NodeId) -> Slot {
        let meta = self.meta(id);
        let op = match self.expr.node(id) {
            Kind::Name(_) => match self.names[id as usize] {
                Some(Resolved::Metric { operand, .. }) => {
                    self.operands.push(operand);
                    return self.evaluator.operand_slots[operand as usize];
                }
                Some(Resolved::Definition { number, slot, .. }) => {
                    self.definitions.push(number);
                    return slot;
                }
                _ => return self.evaluator.add_slot(Column::new(meta.ty)),
            },
            Kind::NoValue { .. } | Kind::Anon(_) => return self.evaluator.add_slot(Column::new(meta.ty)),
            Kind::Constant { text, .. } => match (constant(text, meta.ty), meta.indom) {
                (Some(value), None) => return self.evaluator.add_constant(&meta, value),
                (Some(value), Some(indom)) => Op::Repeat { value, indom, list: Vec::new() },
                (None, _) => Op::NoNumber,
            },
            Kind::Binary(op, left, right) => {
                let scales = self.checked.scales.get(id as usize).copied().unwrap_or((Scale::NONE, Scale::NONE));
                let ty = if op.is_arithmetic() {
                    meta.ty
                } else {
                    rules::promote(self.meta(*left).ty, self.meta(*right).ty)
                };
                let side = |id, scale| Side { slot: self.slot(id), singular: self.meta(id).indom.is_none(), scale };
                let (left, right) = (side(*left, scales.0), side(*right, scales.1));
                Op::Binary(Box::new(Binary { op: *op, left, right, ty, join: Default::default() }))
            }
            Kind::Neg(of) => Op::Neg { of: self.slot(*of) },
            Kind::Not(of) => Op::Not { of: self.slot(*of) },
            Kind::Function(Function::Defined, _) => {
                let truth = self.checked.truth[id as usize].unwrap_or_default();
                return self.evaluator.add_constant(&meta, Data::U32(vec![truth.into()]));
            }
            Kind::Function(function, of) => match self.function(*function, *of) {
                Some(op) => op,
                None => return self.slot(*of),
            },
            Kind::Rescale(of, to) => {
                let from = self.meta(*of).units;
                Op::Rescale { of: self.slot(*of), from, to: *to, factor: factor(from, *to, meta.ty) }
            }
            Kind::Filter(filter, of) => self.filter(filter, *of),
            Kind::Ternary { guard, left, right } => match self.checked.truth[*guard as usize] {
                Some(_) if !meta.ty.is_numeric() && meta.ty != Type::String => Op::NoNumber,
                Some(true) => return self.slot(*left),
                Some(false) => return self.slot(*right),
                None => Op::Ternary(Box::new(self.ternary(*guard, *left, *right))),
            },
        };
        let output = self.evaluator.add_slot(Column::new(meta.ty));
        self.evaluator.steps.push(Step { op, output });
        output
    }

    /// Returns the operation of a function; `None` if the values are those of the operand.
    fn function(&self, function: Function, operand: NodeId) -> Option<Op> {
        let (of, meta) = (self.slot(operand), self.meta(operand));
        let aggregate = |function| Some(Op::Aggregate { function, of });
        match function {
            Function::Instant | Function::Defined => None,
            Function::Delta => Some(Op::Delta { of, history: Default::default() }),
            Function::Rate => {
                let counter = meta.semantics == pmapi::Semantics::Counter;
                let rate = Rate { counter, time_scale: to_seconds(meta.units) };
                Some(Op::Rate { of, rate, history: Default::default() })
            }
            Function::Avg => aggregate(Aggregate::Avg),
            Function::Count => aggregate(Aggregate::Count),
            Function::Max => aggregate(Aggregate::Max),
            Function::Min => aggregate(Aggregate::Min),
            Function::Scalar => aggregate(Aggregate::Scalar),
            Function::Sum => aggregate(Aggregate::Sum),
        }
    }

    fn filter(&self, filter: &Filter, operand: NodeId) -> Op {
        let (of, indom) = (self.slot(operand), self.meta(operand).indom);
        let none = || Arc::clone(InstIds::none());
        match filter {
            Filter::Instance(name) => {
                let name = name.clone();
                Op::Instance { of, instance: Box::new(Instance { name, indom, id: None, place: None, among: none() }) }
            }
            Filter::Pattern { regex, invert } => {
                let pattern = Pattern {
                    regex: Arc::clone(regex),
                    invert: *invert,
                    indom,
                    known: Vec::new(),
                    complete: true,
                    among: none(),
                    places: Vec::new(),
                    chosen: none(),
                    name: Vec::new(),
                };
                Op::Pattern { of, pattern: Box::new(pattern) }
            }
        }
    }

    fn ternary(&self, guard: NodeId, left: NodeId, right: NodeId) -> Ternary {
        let operand = |id| (self.slot(id), self.meta(id));
        let arm = |id: NodeId| {
            let novalue = matches!(self.expr.node(id), Kind::NoValue { .. })
                || matches!(self.names[id as usize], Some(Resolved::NoValue));
            (!novalue).then(|| operand(id))
        };
        Ternary { guard: operand(guard), left: arm(left), right: arm(right), select: Default::default() }
    }
}

/// Converts a number to a type as C's atoi(3) and its relatives do; `None` for a type that is not numeric.
fn constant(text: &str, ty: Type) -> Option<Data> {
    let digits = text.split('.').next().unwrap_or_default();
    let unsigned = if digits.is_empty() { 0 } else { digits.parse::<u64>().unwrap_or(u64::MAX) };
    let signed = i64::try_from(unsigned).unwrap_or(i64::MAX);
    let real = || text.parse::<f64>().unwrap_or_default();
    Some(match ty {
        Type::I32 => Data::I32(vec![signed as i32]),
        Type::U32 => Data::U32(vec![signed as u32]),
        Type::I64 => Data::I64(vec![signed]),
        Type::U64 => Data::U64(vec![unsigned]),
        Type::Float => Data::Float(vec![real() as f32]),
        Type::Double => Data::Double(vec![real()]),
        _ => return None,
    })
}

/// Returns the factor that makes the rate of a time a utilization; 1 for other units.
fn to_seconds(units: Units) -> f64 {
    if units.dim_time() != 1 {
        return 1.0;
    }
    match units.scale_time() {
        scale @ 0..=3 => (scale..3).fold(1.0, |scale, _| scale / 1000.0),
        scale => (3..scale).fold(1.0, |scale, _| scale * 60.0),
    }
}

/// Returns the factor between units; `None` if the conversion is not a factor alone.
fn factor(from: Units, to: Units, ty: Type) -> Option<Factor> {
    if from.extra_unit() != 0 {
        return None;
    }
    let real = |from: Units, to: Units| match from.convert(to, Atom::Double(1.0)) {
        Ok(Atom::Double(factor)) => Some(factor),
        _ => None,
    };
    let whole = |factor: f64| ((1.0..1e15).contains(&factor) && factor.fract() == 0.0).then_some(factor as u64);
    match ty {
        Type::Double => real(from, to).map(Factor::Real),
        Type::Float => match from.convert(to, Atom::Float(1.0)) {
            Ok(Atom::Float(factor)) => Some(Factor::Real(factor.into())),
            _ => None,
        },
        _ => match (whole(real(from, to)?), whole(real(to, from)?)) {
            (Some(mul), _) => Some(ratio(from, to, mul, 1)),
            (None, Some(div)) => Some(ratio(from, to, 1, div)),
            _ => None,
        },
    }
}

fn ratio(from: Units, to: Units, mul: u64, div: u64) -> Factor {
    let limit = (0..63).map(|bit| 1 << bit).find(|&value: &u64| {
        let signed = Atom::I64(eval::signed(value as i64, mul, div));
        let unsigned = Atom::U64(eval::unsigned(value, mul, div));
        from.convert(to, Atom::I64(value as i64)) != Ok(signed) || from.convert(to, Atom::U64(value)) != Ok(unsigned)
    });
    Factor::Ratio { mul, div, limit: limit.unwrap_or(1 << 63) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The factors give the same results as [`Units::convert`].
    #[test]
    fn factors() {
        let units = ["byte", "Kbyte", "Gbyte", "millisec", "hour", "sec", "count", "Kbyte/sec", "byte/hour"];
        let units: Vec<Units> = units.iter().map(|text| Units::parse(text).unwrap().0).collect();
        let values = [0, 1, -1, 499, 500, 1023, -1536, i64::from(i32::MAX), i64::from(i32::MIN), i64::MAX, 1 << 40];
        let mut compared = 0;
        for (from, to) in units.iter().flat_map(|from| units.iter().map(move |to| (*from, *to))) {
            for value in values {
                for atom in [
                    Atom::I32(value as i32),
                    Atom::U32(value as u32),
                    Atom::I64(value),
                    Atom::U64(value as u64),
                    Atom::Float(value as f32),
                    Atom::Double(value as f64),
                ] {
                    let Ok(expected) = from.convert(to, atom) else { continue };
                    let Some(factor) = factor(from, to, atom.ty()) else { continue };
                    compared += 1;
                    assert_eq!(factor.apply((from, to), atom), Some(expected), "{atom:?} {from} to {to}");
                }
            }
        }
        assert!(compared > 1000, "{compared}");
    }
}
