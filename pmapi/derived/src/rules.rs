//! Rules for the descriptor of an operation, given those of its operands.

use super::data::Scale;
use super::expr::{BinaryOp, Function};
use pmapi::{Atom, InDom, Semantics, Type, Units};

/// Descriptor without a PMID.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Meta {
    pub(crate) ty: Type,
    pub(crate) indom: Option<InDom>,
    pub(crate) semantics: Semantics,
    /// Semantics by libpcp's rules. A definition is refused only if it is invalid with both semantics.
    pub(crate) nominal: Semantics,
    pub(crate) units: Units,
}

impl Meta {
    fn instant(self) -> Meta {
        Meta { semantics: Instant, nominal: Instant, ..self }
    }

    pub(crate) fn singular(ty: Type, semantics: Semantics) -> Meta {
        Meta { ty, indom: None, semantics, nominal: semantics, units: Units::NONE }
    }
}

/// Conversions of both operands to the scale of the result.
pub(crate) type Scales = (Scale, Scale);

pub(crate) type Reason = &'static str;

/// Operand of a binary operator.
#[derive(Clone, Copy)]
pub(crate) struct Side {
    pub(crate) meta: Meta,
    pub(crate) constant: bool,
}

use Semantics::{Counter, Discrete, Instant};

pub(crate) fn binary(
    op: BinaryOp,
    left: Side,
    right: Side,
    equivalent: impl Fn(InDom, InDom) -> bool,
) -> Result<(Meta, Scales), Reason> {
    let Side { meta: l, constant } = left;
    let r = right.meta;
    let (own, nominal) = ((l.semantics, r.semantics), (l.nominal, r.nominal));
    let (sides, refused) = match allowed(op, &l, &r, own) {
        Ok(()) => (own, Ok(())),
        Err(reason) => (nominal, allowed(op, &l, &r, nominal).map_err(|_| reason)),
    };
    refused?;

    let mut meta = if constant { r } else { l };
    meta.semantics = semantics(op, sides);
    meta.nominal = match nominal {
        (Counter, _) | (_, Counter) => meta.nominal,
        (Discrete, Discrete) => Discrete,
        _ => Instant,
    };
    meta.ty = match op {
        BinaryOp::Slash => Type::Double,
        _ if op.is_arithmetic() => promote(l.ty, r.ty),
        _ => Type::U32,
    };
    let mut scales = (Scale::NONE, Scale::NONE);
    if op.is_arithmetic() {
        (meta.units, scales) = units(op, meta.units, l.units, r.units);
        if scales != (Scale::NONE, Scale::NONE) {
            meta.ty = Type::Double;
        }
    } else {
        meta.units = Units::NONE;
    }
    meta.indom = match (l.indom, r.indom) {
        (Some(l), Some(r)) if l != r && !equivalent(l, r) => {
            return Err("Operands should have the same instance domain");
        }
        (None, None) => None,
        (Some(l), Some(r)) => Some(if constant { r } else { l }),
        (l, r) => l.or(r),
    };
    Ok((meta, scales))
}

/// Checks the operands of an operator. `semantics` are theirs.
fn allowed(op: BinaryOp, left: &Meta, right: &Meta, semantics: (Semantics, Semantics)) -> Result<(), Reason> {
    if op.is_arithmetic() {
        operator_allowed(op, semantics.0, semantics.1)?;
    }
    if !left.ty.is_numeric() {
        return Err("Non-arithmetic type for left operand");
    }
    if !right.ty.is_numeric() {
        return Err("Non-arithmetic type for right operand");
    }
    dimensions_allowed(op, left, right, semantics)?;
    extra_units_allowed(op, left.units, right.units)
}

fn operator_allowed(op: BinaryOp, left: Semantics, right: Semantics) -> Result<(), Reason> {
    use BinaryOp::{Minus, Plus, Slash, Star};
    match (left, right, op) {
        (Counter, Counter, Star | Slash) => Err("Illegal operator for counters"),
        (Counter, Instant | Discrete, Plus | Minus) => Err("Illegal operator for counter and non-counter"),
        (Instant | Discrete, Counter, Plus | Minus | Slash) => Err("Illegal operator for non-counter and counter"),
        _ => Ok(()),
    }
}

fn dims(units: Units) -> (i8, i8, i8, i8) {
    (units.dim_space(), units.dim_time(), units.dim_count(), units.extra_unit())
}

fn dimensions_allowed(
    op: BinaryOp,
    left: &Meta,
    right: &Meta,
    semantics: (Semantics, Semantics),
) -> Result<(), Reason> {
    const DIFFERENT: Reason = "Dimensions are not the same";
    const COUNT: (i8, i8, i8, i8) = (0, 0, 1, 0);
    const NONE: (i8, i8, i8, i8) = (0, 0, 0, 0);
    let (l, r) = (dims(left.units), dims(right.units));
    // libpcp means comparisons with a constant, but exempts all operands of this type.
    let exempt = op.is_relation() && (left.ty == Type::U32 || right.ty == Type::U32);
    if op.is_relation() || matches!(op, BinaryOp::Plus | BinaryOp::Minus) {
        let count = (l == COUNT && r == NONE) || (l == NONE && r == COUNT);
        if !exempt && l != r && !count {
            return Err(DIFFERENT);
        }
    }
    if op.is_logical() && (l != NONE || r != NONE) {
        return Err(DIFFERENT);
    }
    if op.is_relation() || matches!(op, BinaryOp::Star | BinaryOp::Slash) {
        let counters = (semantics.0 == Counter, semantics.1 == Counter);
        if counters == (true, false) && r != NONE {
            return Err("Non-counter and not dimensionless for right operand");
        }
        if counters == (false, true) && l != NONE {
            return Err("Non-counter and not dimensionless for left operand");
        }
    }
    Ok(())
}

fn extra_units_allowed(op: BinaryOp, left: Units, right: Units) -> Result<(), Reason> {
    if left.extra_unit() == 0 || right.extra_unit() == 0 {
        return Ok(());
    }
    let same = (left.extra_unit(), left.extra_scale()) == (right.extra_unit(), right.extra_scale());
    match op {
        BinaryOp::Star => Err("Extra units not allowed for both operands of *"),
        _ if same => Ok(()),
        BinaryOp::Slash => Err("Different extra units not allowed for both operands of /"),
        _ => Err("Operands have incompatible extra units or scale"),
    }
}

fn semantics(op: BinaryOp, sides: (Semantics, Semantics)) -> Semantics {
    match sides {
        (Counter, _) | (_, Counter) if op.is_arithmetic() => Counter,
        (Discrete, Discrete) => Discrete,
        _ => Instant,
    }
}

/// Returns the type in which two numbers are computed. The codes of the types ascend in the order of promotion.
pub(crate) fn promote(left: Type, right: Type) -> Type {
    left.max(right)
}

/// Dimension and scale of space, time or count.
#[derive(Clone, Copy)]
struct Part {
    dim: i32,
    scale: i32,
}

/// Returns the units of a result and the conversions of the operands. `base` is the units of one operand.
fn units(op: BinaryOp, base: Units, left: Units, right: Units) -> (Units, Scales) {
    let parts = |u: Units| {
        [
            Part { dim: u.dim_space().into(), scale: u.scale_space().into() },
            Part { dim: u.dim_time().into(), scale: u.scale_time().into() },
            Part { dim: u.dim_count().into(), scale: u.scale_count().into() },
        ]
    };
    let mut scales = (Scale::NONE, Scale::NONE);
    let mut result = parts(base);
    for (kind, (out, (l, r))) in result.iter_mut().zip(parts(left).into_iter().zip(parts(right))).enumerate() {
        if l.dim != 0 && r.dim != 0 {
            out.scale = l.scale.max(r.scale);
            // A larger unit makes the value smaller, or larger if the dimension is negative.
            for (scale, part) in [(&mut scales.0, l), (&mut scales.1, r)] {
                let factor = if part.dim > 0 { &mut scale.div } else { &mut scale.mul };
                *factor *= steps(kind, part.scale, out.scale);
            }
        }
        match op {
            BinaryOp::Star => out.dim = l.dim + r.dim,
            BinaryOp::Slash => out.dim = l.dim - r.dim,
            _ => {}
        }
        if out.dim != 0 && l.dim == 0 {
            out.scale = r.scale;
        }
        if out.dim == 0 {
            out.scale = 0;
        }
    }
    let extra = match (op, left.extra_unit(), right.extra_unit()) {
        (BinaryOp::Star, 0, e) if e != 0 => (e, right.extra_scale()),
        (BinaryOp::Slash, 0, e) if e != 0 => (-e, right.extra_scale()),
        (BinaryOp::Slash, l, r) if l != 0 && r != 0 => (0, 0),
        (BinaryOp::Star | BinaryOp::Slash, l, _) if l != 0 => (l, left.extra_scale()),
        _ => (base.extra_unit(), base.extra_scale()),
    };
    (pack(result, extra), scales)
}

/// Returns how many units of scale `from` make one of the larger scale `to`.
fn steps(kind: usize, from: i32, to: i32) -> f64 {
    (from..to)
        .map(|step| match (kind, step) {
            (0, _) => 1024.0,
            (1, 0..=2) => 1000.0,
            (1, 3..=4) => 60.0,
            (1, _) => 1.0,
            _ => 10.0,
        })
        .product()
}

/// Packs units into a word. As in C, a dimension that does not fit into its field wraps around.
fn pack([space, time, count]: [Part; 3], (unit, scale): (i8, u8)) -> Units {
    let field = |value: i32, width: u32, at: u32| (value as u32 & ((1 << width) - 1)) << at;
    let dims = field(space.dim, 4, 28) | field(time.dim, 4, 24) | field(count.dim, 4, 20);
    let scales = field(space.scale, 4, 16) | field(time.scale, 4, 12) | field(count.scale, 4, 8);
    Units::from_word(dims | scales | field(unit.into(), 5, 3) | field(scale.into(), 3, 0))
}

pub(crate) fn function(function: Function, of: Meta) -> Result<Meta, Reason> {
    if !of.ty.is_numeric()
        && !matches!(function, Function::Count | Function::Defined | Function::Instant | Function::Scalar)
    {
        return Err("Non-arithmetic operand for function");
    }
    let mut meta = of;
    match function {
        Function::Defined => meta = Meta::singular(Type::U32, Discrete),
        Function::Count => meta = Meta { units: Units::COUNT, ..Meta::singular(Type::U32, Instant) },
        Function::Scalar => meta.indom = None,
        Function::Instant => (meta.semantics, meta.nominal) = (gauge(of.semantics), gauge(of.nominal)),
        Function::Sum => meta.indom = None,
        Function::Max | Function::Min => meta = Meta { indom: None, ..of.instant() },
        Function::Avg => meta = Meta { indom: None, ty: Type::Float, ..of.instant() },
        Function::Delta => {
            meta = of.instant();
            meta.ty = match of.ty {
                Type::U32 => Type::I64,
                Type::U64 => Type::Double,
                ty => ty,
            };
        }
        Function::Rate => meta = Meta { ty: Type::Double, units: per_second(of.units)?, ..of.instant() },
    }
    Ok(meta)
}

fn gauge(semantics: Semantics) -> Semantics {
    if semantics == Counter { Instant } else { semantics }
}

fn per_second(units: Units) -> Result<Units, Reason> {
    const TIME: u32 = 0xf << 24 | 0xf << 12;
    let time = match units.dim_time() {
        1 => 0,
        0 => Units::SECONDS.pow(-1).word(),
        _ => return Err("Incorrect time dimension for operand"),
    };
    Ok(Units::from_word(units.word() & !TIME | time))
}

pub(crate) fn neg(of: Meta) -> Result<Meta, Reason> {
    let ty = match of.ty {
        ty if !ty.is_numeric() => return Err("Non-arithmetic operand for unary negation"),
        Type::U32 => Type::I32,
        Type::U64 => Type::I64,
        ty => ty,
    };
    Ok(Meta { ty, ..of.instant() })
}

pub(crate) fn not(of: Meta) -> Result<Meta, Reason> {
    if !of.ty.is_numeric() {
        return Err("Non-arithmetic operand for function");
    }
    Ok(Meta { indom: of.indom, nominal: of.nominal, ..Meta::singular(Type::U32, gauge(of.semantics)) })
}

pub(crate) fn rescale(of: Meta, units: Units) -> Result<Meta, Reason> {
    if !of.ty.is_numeric() {
        return Err("Non-arithmetic operand for function");
    }
    of.units.convert(units, Atom::Double(1.0)).map_err(|_| "Incompatible dimensions")?;
    Ok(Meta { units, ..of })
}

/// Checks the arms of a ternary if neither is `novalue` and either may be chosen.
pub(crate) fn arms(left: &Meta, right: &Meta) -> Result<(), Reason> {
    let (l, r) = (left.units, right.units);
    let different = match () {
        _ if left.ty != right.ty => "Different types for ternary operands",
        _ if left.indom.is_some() && right.indom.is_some() && left.indom != right.indom => {
            "Different instance domains for ternary operands"
        }
        _ if left.semantics != right.semantics && left.nominal != right.nominal => {
            "Different semantics for ternary operands"
        }
        _ if (l.dim_space(), l.scale_space()) != (r.dim_space(), r.scale_space()) => {
            "Different units or scale (space) for ternary operands"
        }
        _ if (l.dim_time(), l.scale_time()) != (r.dim_time(), r.scale_time()) => {
            "Different units or scale (time) for ternary operands"
        }
        _ if (l.dim_count(), l.scale_count()) != (r.dim_count(), r.scale_count()) => {
            "Different units or scale (count) for ternary operands"
        }
        _ if (l.extra_unit(), l.extra_scale()) != (r.extra_unit(), r.extra_scale()) => {
            "Different units or scale (extra) for ternary operands"
        }
        _ => return Ok(()),
    };
    Err(different)
}
