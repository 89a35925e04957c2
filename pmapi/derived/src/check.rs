//! Semantic check of an expression: computes the descriptor of every node.

use super::Metadata;
use super::expr::{BinaryOp, Expr, Function, Kind, NodeId, Spec};
use super::filter::Filter;
use super::program::Slot;
use super::rules::{self, Meta, Scales, Side};
use pmapi::{Domain, InDom, Semantics, Serial, Type};

/// Meaning of a name in an expression.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Resolved {
    Metric {
        operand: u32,
        meta: Meta,
    },
    Definition {
        number: u32,
        slot: Slot,
        meta: Meta,
    },
    /// Unknown, where that is allowed.
    Unknown,
    /// Unknown, with `OPTION_NOVALUE` on.
    NoValue,
}

/// Semantic error of an expression at a node. `arms` means that it concerns the two arms of a ternary.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) node: NodeId,
    pub(crate) arms: bool,
    pub(crate) reason: &'static str,
}

/// Expression with the meaning of its nodes.
pub(crate) struct Checked {
    pub(crate) metas: Vec<Meta>,
    /// Scales of the operands of each binary operator.
    pub(crate) scales: Vec<Scales>,
    /// Truth of each node as a condition, if it is known without values.
    pub(crate) truth: Vec<Option<bool>>,
    /// Whether a node belongs to an arm that is never chosen.
    pub(crate) unused: Vec<bool>,
    /// Nodes with the names of unknown metrics, ascending.
    unknown: Vec<usize>,
}

/// Returns libpcp's descriptor of an unknown metric: all zeros.
fn unknown() -> Meta {
    let indom = InDom::from_word(0).unwrap_or(InDom::new(Domain::DYNAMIC, Serial::new(0)));
    Meta { indom: Some(indom), ..Meta::singular(Type::I32, Semantics::Instant) }
}

/// Checks all nodes. `names` has the meaning of each node that is a name.
pub(crate) fn check(expr: &Expr, names: &[Option<Resolved>], metadata: &dyn Metadata) -> Result<Checked, Fault> {
    let count = expr.nodes.len();
    let mut checked = Checked {
        metas: vec![Meta::singular(Type::I32, Semantics::Discrete); count],
        scales: Vec::new(),
        truth: vec![None; count],
        unused: vec![false; count],
        unknown: Vec::new(),
    };
    let guards = guards(expr);
    for id in 0..count {
        let leaf = matches!(expr.nodes[id].kind, Kind::Name(_) | Kind::Constant { .. } | Kind::NoValue { .. });
        if checked.unused[id] && !leaf {
            // As in libpcp, an unused node counts as one that has an instance domain.
            checked.metas[id] = unknown();
            continue;
        }
        let id = id as NodeId;
        checked.node(expr, names, metadata, id)?;
        // The arms of an unused ternary are unused. Without this, nested ternaries would take quadratic time.
        if checked.unused[id as usize] {
            continue;
        }
        if is_unknown(expr, names, id as usize) {
            checked.unknown.push(id as usize);
        }
        if let Some(Kind::Ternary { left, right, .. }) = guards[id as usize].map(|ternary| expr.node(ternary)) {
            let never = match checked.truth[id as usize] {
                Some(true) => right,
                Some(false) => left,
                None => continue,
            };
            checked.unused[expr.range(*never)].fill(true);
        }
    }
    Ok(checked)
}

/// Returns the ternary of each node that is a guard.
fn guards(expr: &Expr) -> Vec<Option<NodeId>> {
    let mut guards = vec![None; expr.nodes.len()];
    for (id, node) in expr.nodes.iter().enumerate() {
        if let Kind::Ternary { guard, .. } = node.kind {
            guards[guard as usize] = Some(id as NodeId);
        }
    }
    guards
}

impl Checked {
    fn meta(&self, id: NodeId) -> Meta {
        self.metas[id as usize]
    }

    fn node(
        &mut self,
        expr: &Expr,
        names: &[Option<Resolved>],
        metadata: &dyn Metadata,
        id: NodeId,
    ) -> Result<(), Fault> {
        let fault = |reason| Fault { node: id, arms: false, reason };
        let at = id as usize;
        let meta = match expr.node(id) {
            Kind::Name(_) => match names[at] {
                Some(Resolved::Metric { meta, .. } | Resolved::Definition { meta, .. }) => meta,
                Some(Resolved::NoValue) => Meta::singular(Type::I32, Semantics::Discrete),
                _ => unknown(),
            },
            Kind::Constant { text, float, spec, meta } => {
                if !float {
                    self.truth[at] = Some(text.bytes().any(|b| b != b'0'));
                }
                let ty = if *float { Type::Double } else { Type::U32 };
                self.specified(Meta::singular(ty, Semantics::Discrete), spec, *meta)
            }
            Kind::NoValue { spec, meta } => self.specified(Meta::singular(Type::I32, Semantics::Discrete), spec, *meta),
            Kind::Binary(op, left, right) => {
                self.truth[at] = self.logical(*op, *left, *right);
                let side = |id| Side { meta: self.meta(id), constant: matches!(expr.node(id), Kind::Constant { .. }) };
                let (meta, scales) =
                    rules::binary(*op, side(*left), side(*right), |a, b| metadata.equivalent(a, b)).map_err(fault)?;
                self.scales.resize(at + 1, (super::data::Scale::NONE, super::data::Scale::NONE));
                self.scales[at] = scales;
                meta
            }
            Kind::Neg(of) => rules::neg(self.meta(*of)).map_err(fault)?,
            Kind::Not(of) => {
                self.truth[at] = self.truth[*of as usize].map(|truth| !truth);
                rules::not(self.meta(*of)).map_err(fault)?
            }
            Kind::Function(function, of) => {
                if *function == Function::Defined {
                    let known =
                        matches!(names[*of as usize], Some(Resolved::Metric { .. } | Resolved::Definition { .. }));
                    self.truth[at] = Some(known);
                }
                rules::function(*function, self.meta(*of)).map_err(fault)?
            }
            Kind::Rescale(of, units) => rules::rescale(self.meta(*of), *units).map_err(fault)?,
            Kind::Filter(Filter::Instance(_) | Filter::Pattern { .. }, of) => self.meta(*of),
            Kind::Ternary { guard, left, right } => self.ternary(expr, names, id, (*guard, *left, *right))?,
            Kind::Anon(ty) => Meta::singular(*ty, Semantics::Discrete),
        };
        self.metas[at] = meta;
        Ok(())
    }

    fn specified(&self, default: Meta, spec: &Spec, meta: Option<NodeId>) -> Meta {
        let base = meta.map_or(default, |id| self.meta(id));
        Meta {
            ty: spec.ty.unwrap_or(base.ty),
            indom: spec.indom.unwrap_or(base.indom),
            semantics: spec.semantics.unwrap_or(base.semantics),
            nominal: spec.semantics.unwrap_or(base.nominal),
            units: spec.units.unwrap_or(base.units),
        }
    }

    fn logical(&self, op: BinaryOp, left: NodeId, right: NodeId) -> Option<bool> {
        let (left, right) = (self.truth[left as usize], self.truth[right as usize]);
        match (op, left?) {
            (BinaryOp::And, true) | (BinaryOp::Or, false) => right,
            (BinaryOp::And | BinaryOp::Or, left) => Some(left),
            _ => None,
        }
    }

    fn ternary(
        &self,
        expr: &Expr,
        names: &[Option<Resolved>],
        id: NodeId,
        (guard, left, right): (NodeId, NodeId, NodeId),
    ) -> Result<Meta, Fault> {
        let chosen = self.truth[guard as usize];
        for (arm, never) in [(left, Some(false)), (right, Some(true))] {
            if chosen != never {
                self.all_known(expr, arm)?;
            }
        }
        let (l, r) = (self.meta(left), self.meta(right));
        let novalue = |id: NodeId| {
            matches!(expr.node(id), Kind::NoValue { .. }) || matches!(names[id as usize], Some(Resolved::NoValue))
        };
        let mut meta = match chosen {
            Some(true) => l,
            Some(false) => r,
            None => {
                let base = if novalue(left) { r } else { l };
                Meta { indom: l.indom.or(r.indom), ..base }
            }
        };
        if chosen.is_none() && !novalue(left) && !novalue(right) {
            rules::arms(&l, &r).map_err(|reason| Fault { node: id, arms: true, reason })?;
            if l.semantics != r.semantics {
                meta.semantics = l.nominal;
            }
        }
        let fault = |reason| Err(Fault { node: id, arms: false, reason });
        let guard = self.meta(guard);
        if !guard.ty.is_numeric() {
            return fault("Non-arithmetic operand for ternary guard");
        }
        // Two `novalue()` have no values to match with the instances of the guard.
        let is_scalar = l.indom.is_none() && r.indom.is_none() && !(novalue(left) && novalue(right));
        if guard.indom.is_some() && is_scalar {
            return fault("Non-scalar ternary guard with scalar expressions");
        }
        Ok(meta)
    }

    /// Checks that all metrics of an arm exist, except in inner arms that are never chosen.
    fn all_known(&self, expr: &Expr, arm: NodeId) -> Result<(), Fault> {
        let range = expr.range(arm);
        let from = self.unknown.partition_point(|at| *at < range.start);
        match self.unknown.get(from).filter(|at| **at < range.end) {
            Some(at) => {
                Err(Fault { node: *at as NodeId, arms: false, reason: "Unknown metric for ternary expression" })
            }
            None => Ok(()),
        }
    }
}

/// Returns whether a node is an unknown name, but not the operand of `defined`.
fn is_unknown(expr: &Expr, names: &[Option<Resolved>], at: usize) -> bool {
    let asked = matches!(expr.nodes.get(at + 1).map(|node| &node.kind), Some(Kind::Function(Function::Defined, _)));
    matches!(names[at], Some(Resolved::Unknown)) && !asked
}
