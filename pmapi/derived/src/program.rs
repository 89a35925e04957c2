//! Program of bound definitions: columns of values, and the steps that fill them.

use std::ops::Range;
use std::sync::Arc;

use super::BindError;
use super::data::{Data, Scale};
use super::expr::BinaryOp;
use super::filter::Regex;
use super::history::{History, Rate};
use super::join::Join;
use super::rules::Meta;
use super::select::Select;
use super::values::InstIds;
use pmapi::{Desc, InDom, Type, Units};

/// Index of a column in `Evaluator::slots`.
pub(crate) type Slot = u32;

/// Metric that definitions refer to.
#[derive(Clone, PartialEq, Debug)]
pub struct Operand {
    /// Name of the metric.
    pub name: Box<str>,
    /// Descriptor of the metric at the time of binding.
    pub desc: Desc,
}

/// Definition after binding.
#[derive(Debug)]
pub(crate) struct Bound {
    pub(crate) result: Result<Root, BindError>,
    pub(crate) steps: Range<usize>,
    /// Numbers of its operands.
    pub(crate) operands: Vec<u32>,
    /// Indexes in `Evaluator::bound` of the definitions that it refers to. All of them are bound before it.
    pub(crate) definitions: Vec<u32>,
}

/// Column and descriptor of a definition's values.
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

    /// Returns the columns that the step reads.
    pub(crate) fn inputs(&self) -> impl Iterator<Item = Slot> + use<> {
        let inputs = match &self.op {
            Op::NoNumber | Op::Repeat { .. } => [None; 3],
            Op::Binary(binary) => [Some(binary.left.slot), Some(binary.right.slot), None],
            Op::Neg { of }
            | Op::Not { of }
            | Op::Aggregate { of, .. }
            | Op::Delta { of, .. }
            | Op::Rate { of, .. }
            | Op::Rescale { of, .. }
            | Op::Instance { of, .. }
            | Op::Pattern { of, .. } => [Some(*of), None, None],
            Op::Ternary(ternary) => {
                let arm = |arm: &Option<(Slot, Meta)>| arm.map(|(slot, _)| slot);
                [Some(ternary.guard.0), arm(&ternary.left), arm(&ternary.right)]
            }
        };
        inputs.into_iter().flatten()
    }

    /// Forgets the previous sample.
    pub(crate) fn forget(&mut self) {
        if let Op::Delta { history, .. } | Op::Rate { history, .. } = &mut self.op {
            history.forget();
        }
    }
}

#[derive(Debug)]
pub(crate) enum Op {
    /// Constant, repeated for each instance of a domain.
    Repeat {
        value: Data,
        indom: InDom,
        list: Vec<u32>,
    },
    /// `PM_ERR_TYPE`: a constant of a type that is not numeric, or a ternary of neither numbers nor strings.
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
    /// Type of the computation.
    pub(crate) ty: Type,
    pub(crate) join: Join,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Side {
    pub(crate) slot: Slot,
    /// Whether there is at most one value, which is combined with each value of the other side.
    pub(crate) singular: bool,
    pub(crate) scale: Scale,
}

/// Conversion of units by a factor alone.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Factor {
    /// Factor for floating-point numbers.
    Real(f64),
    /// Factor for integers below `limit`; `mul` or `div` is 1. Larger integers may overflow as in libpcp, which has
    /// both a multiplier and a divisor.
    Ratio { mul: u64, div: u64, limit: u64 },
}

#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) name: Box<str>,
    pub(crate) indom: Option<InDom>,
    pub(crate) id: Option<u32>,
    /// Index of the instance in `among`.
    pub(crate) place: Option<u32>,
    pub(crate) among: Arc<InstIds>,
}

#[derive(Debug)]
pub(crate) struct Pattern {
    pub(crate) regex: Arc<Regex>,
    pub(crate) invert: bool,
    pub(crate) indom: Option<InDom>,
    /// Whether each instance matches, sorted by instance, for those whose names have been compared.
    pub(crate) known: Vec<(u32, bool)>,
    /// Whether the source had the names of all instances.
    pub(crate) complete: bool,
    pub(crate) among: Arc<InstIds>,
    pub(crate) places: Vec<u32>,
    pub(crate) chosen: Arc<InstIds>,
    pub(crate) name: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Ternary {
    pub(crate) guard: (Slot, Meta),
    /// Column and descriptor of the left arm; `None` for `novalue()`.
    pub(crate) left: Option<(Slot, Meta)>,
    pub(crate) right: Option<(Slot, Meta)>,
    pub(crate) select: Select,
}
