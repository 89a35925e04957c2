//! What definitions are bound to: columns of values, and the steps that fill them.

use std::ops::Range;
use std::sync::Arc;

use regex::bytes::Regex;

use super::BindError;
use super::data::{Data, Scale};
use super::expr::BinaryOp;
use super::history::History;
use super::join::Join;
use super::rules::Meta;
use super::select::Select;
use super::values::Ids;
use pmapi::{Desc, InDom, Type, Units};

/// A column's place in the evaluator.
pub(crate) type Slot = u32;

/// A metric that definitions refer to.
#[derive(Clone, PartialEq, Debug)]
pub struct Operand {
    /// Its name.
    pub name: Box<str>,
    /// Its descriptor when it was bound.
    pub desc: Desc,
}

/// A definition after binding.
#[derive(Debug)]
pub(crate) struct Bound {
    pub(crate) result: Result<Root, BindError>,
    pub(crate) steps: Range<usize>,
    /// The operands, by number.
    pub(crate) operands: Vec<u32>,
    /// The definitions that it refers to, all of them bound before it, by their number in the order of binding.
    pub(crate) definitions: Vec<u32>,
}

/// Where the values are, and what they are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Root {
    pub(crate) slot: Slot,
    pub(crate) meta: Meta,
}

#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) op: Op,
    pub(crate) output: Slot,
}

impl Step {
    pub(crate) fn has_history(&self) -> bool {
        matches!(self.op, Op::Delta { .. } | Op::Rate { .. })
    }

    /// Forgets the sample before.
    pub(crate) fn forget(&mut self) {
        if let Op::Delta { history, .. } | Op::Rate { history, .. } = &mut self.op {
            history.forget();
        }
    }
}

#[derive(Debug)]
pub(crate) enum Op {
    /// One number for each instance there is.
    Repeat {
        value: Data,
        indom: InDom,
        list: Vec<u32>,
    },
    /// A constant whose type no number has; a ternary of what is neither number nor text.
    NoNumber,
    Binary(Box<Binary>),
    Neg {
        of: Slot,
    },
    Not {
        of: Slot,
    },
    Aggregate {
        function: Aggregate,
        of: Slot,
    },
    Delta {
        of: Slot,
        history: Box<History>,
    },
    Rate {
        of: Slot,
        rate: Rate,
        history: Box<History>,
    },
    Rescale {
        of: Slot,
        from: Units,
        to: Units,
        factor: Option<Factor>,
    },
    Instance {
        of: Slot,
        instance: Box<Instance>,
    },
    Pattern {
        of: Slot,
        pattern: Box<Pattern>,
    },
    Ternary(Box<Ternary>),
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Aggregate {
    Avg,
    Count,
    Max,
    Min,
    Scalar,
    Sum,
}

#[derive(Debug)]
pub(crate) struct Binary {
    pub(crate) op: BinaryOp,
    pub(crate) left: Side,
    pub(crate) right: Side,
    /// The type in which is computed.
    pub(crate) ty: Type,
    pub(crate) join: Join,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Side {
    pub(crate) slot: Slot,
    /// Whether it has one value at most, which goes with all of the other side.
    pub(crate) singular: bool,
    pub(crate) scale: Scale,
}

/// A conversion of units that is nothing but a factor.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Factor {
    /// Of floating point numbers.
    Real(f64),
    /// Of integers smaller than the limit: one of the two is 1. Larger ones may overflow as in libpcp, which has both a
    /// multiplier and a divisor.
    Ratio { mul: u64, div: u64, limit: u64 },
}

/// How a difference becomes a rate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    /// Of a counter, what decreases has no rate.
    pub(crate) counter: bool,
    /// From the operand's time to seconds, for a utilization.
    pub(crate) time_scale: f64,
}

#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) name: Box<str>,
    pub(crate) indom: Option<InDom>,
    pub(crate) id: Option<u32>,
    /// Where it is among these instances.
    pub(crate) place: Option<u32>,
    pub(crate) among: Arc<Ids>,
}

#[derive(Debug)]
pub(crate) struct Pattern {
    pub(crate) regex: Regex,
    pub(crate) invert: bool,
    pub(crate) indom: Option<InDom>,
    /// Sorted: instances whose names have been compared.
    pub(crate) known: Vec<(u32, bool)>,
    /// Whether all of the names could be had.
    pub(crate) complete: bool,
    pub(crate) among: Arc<Ids>,
    pub(crate) places: Vec<u32>,
    pub(crate) chosen: Arc<Ids>,
    pub(crate) name: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Ternary {
    pub(crate) guard: (Slot, Meta),
    /// `None` for `novalue`.
    pub(crate) left: Option<(Slot, Meta)>,
    pub(crate) right: Option<(Slot, Meta)>,
    pub(crate) select: Select,
}
