//! Parsed form of an expression.

use std::fmt;

use super::filter::Filter;
use pmapi::{InDom, Semantics, Type, Units};

/// Index of a node in [`Expr`].
pub(crate) type NodeId = u32;

/// Expression as a list of nodes. Operands come before the nodes that use them, and the last node is the whole
/// expression. So no pass over the nodes recurses, however deeply they are nested.
#[derive(Clone, Debug, Default)]
pub(crate) struct Expr {
    pub(crate) nodes: Vec<Node>,
}

/// Node with the index of the first node of its subtree. The subtree ends with the node itself.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) start: NodeId,
    pub(crate) kind: Kind,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// Name of a metric.
    Name(Box<str>),
    /// Number, as written.
    Constant {
        text: Box<str>,
        float: bool,
        spec: Spec,
        meta: Option<NodeId>,
    },
    NoValue {
        spec: Spec,
        meta: Option<NodeId>,
    },
    Binary(BinaryOp, NodeId, NodeId),
    Neg(NodeId),
    Not(NodeId),
    Function(Function, NodeId),
    Rescale(NodeId, Units),
    Filter(Filter, NodeId),
    Ternary {
        guard: NodeId,
        left: NodeId,
        right: NodeId,
    },
    /// Metric without values, such as those of event records.
    Anon(Type),
}

/// Parts of the descriptor that `mkconst` or `novalue` gives.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Spec {
    pub(crate) ty: Option<Type>,
    pub(crate) semantics: Option<Semantics>,
    pub(crate) units: Option<Units>,
    pub(crate) indom: Option<Option<InDom>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BinaryOp {
    Plus,
    Minus,
    Star,
    Slash,
    Lt,
    Leq,
    Eq,
    Geq,
    Gt,
    Neq,
    And,
    Or,
}

impl BinaryOp {
    /// Returns the name that syntax errors use.
    pub(crate) fn name(self) -> &'static str {
        match self {
            BinaryOp::Plus => "PLUS",
            BinaryOp::Minus => "MINUS",
            BinaryOp::Star => "STAR",
            BinaryOp::Slash => "SLASH",
            BinaryOp::Lt => "LT",
            BinaryOp::Leq => "LEQ",
            BinaryOp::Eq => "EQ",
            BinaryOp::Geq => "GEQ",
            BinaryOp::Gt => "GT",
            BinaryOp::Neq => "NEQ",
            BinaryOp::And => "AND",
            BinaryOp::Or => "OR",
        }
    }

    pub(crate) fn symbol(self) -> &'static str {
        match self {
            BinaryOp::Plus => "+",
            BinaryOp::Minus => "-",
            BinaryOp::Star => "*",
            BinaryOp::Slash => "/",
            BinaryOp::Lt => "<",
            BinaryOp::Leq => "<=",
            BinaryOp::Eq => "==",
            BinaryOp::Geq => ">=",
            BinaryOp::Gt => ">",
            BinaryOp::Neq => "!=",
            BinaryOp::And => "&&",
            BinaryOp::Or => "||",
        }
    }

    pub(crate) fn is_logical(self) -> bool {
        matches!(self, BinaryOp::And | BinaryOp::Or)
    }

    pub(crate) fn is_relation(self) -> bool {
        !self.is_logical() && !self.is_arithmetic()
    }

    pub(crate) fn is_arithmetic(self) -> bool {
        matches!(self, BinaryOp::Plus | BinaryOp::Minus | BinaryOp::Star | BinaryOp::Slash)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Function {
    Avg,
    Count,
    Defined,
    Delta,
    Instant,
    Max,
    Min,
    Rate,
    Scalar,
    Sum,
}

impl Function {
    /// Returns the name as written in expressions.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Function::Avg => "avg",
            Function::Count => "count",
            Function::Defined => "defined",
            Function::Delta => "delta",
            Function::Instant => "instant",
            Function::Max => "max",
            Function::Min => "min",
            Function::Rate => "rate",
            Function::Scalar => "scalar",
            Function::Sum => "sum",
        }
    }

    /// Returns whether the operand must be the name of a metric.
    pub(crate) fn takes_name(self) -> bool {
        !matches!(self, Function::Delta | Function::Instant | Function::Rate | Function::Scalar)
    }
}

impl Expr {
    pub(crate) fn root(&self) -> NodeId {
        (self.nodes.len() - 1) as NodeId
    }

    pub(crate) fn node(&self, id: NodeId) -> &Kind {
        &self.nodes[id as usize].kind
    }

    /// Returns the nodes of a subtree.
    pub(crate) fn range(&self, id: NodeId) -> std::ops::Range<usize> {
        self.nodes[id as usize].start as usize..id as usize + 1
    }

    /// Adds a node. Its subtree begins with that of its first operand, or with the node itself.
    pub(crate) fn push(&mut self, kind: Kind, first: Option<NodeId>) -> NodeId {
        let id = self.nodes.len() as NodeId;
        let start = first.map_or(id, |first| self.nodes[first as usize].start);
        self.nodes.push(Node { start, kind });
        id
    }

    /// Returns every metric name in the order of the text, including those of `meta=`.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.nodes.iter().filter_map(|node| match &node.kind {
            Kind::Name(name) => Some(&**name),
            _ => None,
        })
    }

    /// Returns a node as semantic errors show it when it is an operand.
    fn operand(&self, id: NodeId) -> &str {
        match self.node(id) {
            Kind::Name(text) | Kind::Constant { text, .. } => text,
            _ => "<expr>",
        }
    }

    /// Returns a node as semantic errors show it.
    pub(crate) fn context(&self, id: NodeId) -> Excerpt<'_> {
        Excerpt { expr: self, id, arms: false }
    }

    /// Returns the arms of a ternary as semantic errors show them.
    pub(crate) fn arms_context(&self, id: NodeId) -> Excerpt<'_> {
        Excerpt { expr: self, id, arms: true }
    }
}

/// Part of an expression that a semantic error shows.
pub(crate) struct Excerpt<'a> {
    expr: &'a Expr,
    id: NodeId,
    arms: bool,
}

impl fmt::Display for Excerpt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operand = |id| self.expr.operand(id);
        match self.expr.node(self.id) {
            Kind::Name(name) => write!(f, "operand {name}"),
            Kind::Binary(op, left, right) => write!(f, "{} {} {}", operand(*left), op.symbol(), operand(*right)),
            Kind::Neg(of) => write!(f, "- {}", operand(*of)),
            Kind::Not(of) => write!(f, "! {}", operand(*of)),
            Kind::Function(function, of) => {
                let value = match self.expr.node(*of) {
                    Kind::Name(text) | Kind::Constant { text, .. } => text,
                    Kind::Function(Function::Defined, name) => operand(*name),
                    // As printf(3) of the C library shows a null pointer.
                    _ => "(null)",
                };
                write!(f, "{}({value})", function.word().to_uppercase())
            }
            Kind::Rescale(of, units) if *units == Units::NONE => write!(f, "{} RESCALE none", operand(*of)),
            Kind::Rescale(of, units) => write!(f, "{} RESCALE {units}", operand(*of)),
            Kind::Ternary { guard, left, right } => {
                if !self.arms {
                    write!(f, "{} ? ", operand(*guard))?;
                }
                write!(f, "{} : {}", operand(*left), operand(*right))
            }
            Kind::Filter(..) => f.write_str("FILTERINST "),
            Kind::NoValue { .. } => f.write_str("NOVALUE "),
            Kind::Constant { text, .. } => f.write_str(text),
            Kind::Anon(_) => f.write_str("ANON"),
        }
    }
}
