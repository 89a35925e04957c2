//! Values, and interpolation between two of them.

use std::sync::Arc;

use pcp_pdu::result::RawValue;
use pmapi::{Semantics, Type};

use super::{Interpolation, Rule, Wrap};

/// Value of an instance: the bytes of its wire encoding.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Datum {
    InSitu(u32),
    Four([u8; 4]),
    Eight([u8; 8]),
    /// Payload of a block with its type code.
    Block(u8, Arc<[u8]>),
}

impl Datum {
    /// Copies a value; `None` for an encoding that the type does not have.
    pub(super) fn copy(raw: RawValue<'_>, ty: Type) -> Option<Datum> {
        match (raw, ty) {
            (RawValue::InSitu(word), Type::I32 | Type::U32 | Type::Float) => Some(Datum::InSitu(word)),
            (RawValue::InSitu(_), _) | (RawValue::Block(..), Type::I32 | Type::U32) => None,
            (RawValue::Block(_, payload), Type::Float) => payload.first_chunk().copied().map(Datum::Four),
            (RawValue::Block(_, payload), Type::I64 | Type::U64 | Type::Double) => {
                payload.first_chunk().copied().map(Datum::Eight)
            }
            (RawValue::Block(code, payload), _) => Some(Datum::Block(code, payload.into())),
        }
    }

    /// Returns the value of a metric of type `ty`.
    pub(super) fn raw(&self, ty: Type) -> RawValue<'_> {
        match self {
            Datum::InSitu(word) => RawValue::InSitu(*word),
            Datum::Four(bytes) => RawValue::Block(ty.code() as u8, bytes),
            Datum::Eight(bytes) => RawValue::Block(ty.code() as u8, bytes),
            Datum::Block(code, bytes) => RawValue::Block(*code, bytes),
        }
    }

    fn word(&self) -> u32 {
        match self {
            Datum::InSitu(word) => *word,
            Datum::Four(bytes) => u32::from_be_bytes(*bytes),
            Datum::Eight(_) | Datum::Block(..) => 0,
        }
    }

    fn long(&self) -> u64 {
        if let Datum::Eight(bytes) = self { u64::from_be_bytes(*bytes) } else { 0 }
    }
}

/// Kind of interpolation for the values of a metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// The value persists until the next one.
    Discrete,
    /// There is a value only between two records.
    Instant,
    /// Linear interpolation. `None` stands for unknown semantics, which libpcp treats like those of a counter, except
    /// at `<mark>`s.
    Line(Option<Semantics>),
}

impl Kind {
    pub(super) fn new(semantics: i32) -> Kind {
        match Semantics::from_code(semantics) {
            Ok(Semantics::Discrete) => Kind::Discrete,
            Ok(Semantics::Instant) => Kind::Instant,
            Ok(Semantics::Counter) => Kind::Line(Some(Semantics::Counter)),
            Err(_) => Kind::Line(None),
        }
    }

    pub(super) fn is_counter(self) -> bool {
        self == Kind::Line(Some(Semantics::Counter))
    }
}

pub(super) fn is_number(ty: Type) -> bool {
    matches!(ty, Type::I32 | Type::U32 | Type::I64 | Type::U64 | Type::Float | Type::Double)
}

/// Value with its time in seconds.
pub(super) type Timed<'a> = (f64, &'a Datum);

/// Computes the value at a time from the last value at or before it and the first value at or after it.
pub(super) fn between(
    time: f64,
    prior: Timed<'_>,
    next: Option<Timed<'_>>,
    (ty, kind): (Type, Kind),
    rules: &Interpolation,
) -> Option<Datum> {
    if prior.0 == time || !is_number(ty) {
        return (kind == Kind::Discrete || prior.0 == time || next.is_some()).then(|| prior.1.clone());
    }
    let Some(next) = next else { return (kind == Kind::Discrete).then(|| prior.1.clone()) };
    if next.0 == time {
        return Some(next.1.clone());
    }
    match kind {
        Kind::Discrete | Kind::Instant => {
            let is_prior = rules.rule == Rule::Before632 || time <= (prior.0 + next.0) / 2.0;
            Some(if is_prior { prior.1 } else { next.1 }.clone())
        }
        Kind::Line(_) => line(time, prior, next, ty, rules.wrap),
    }
}

/// Interpolates linearly between two values. The order of operations is libpcp's, because the last digits depend on it.
fn line(time: f64, prior: Timed<'_>, next: Timed<'_>, ty: Type, wrap: Wrap) -> Option<Datum> {
    let (since, span) = (time - prior.0, next.0 - prior.0);
    let (from, to) = (prior.1, next.1);
    let is_wrapped = wrap == Wrap::Wraps;
    Some(match ty {
        Type::I32 => {
            let (from, to) = (from.word() as i32, to.word() as i32);
            Datum::InSitu(if to < from && is_wrapped {
                from.wrapping_add((0.5 + since * f64::from(to.wrapping_sub(from) as u32) / span) as i64 as i32)
            } else {
                (0.5 + f64::from(from) + since * (f64::from(to) - f64::from(from)) / span) as i32
            } as u32)
        }
        Type::U32 => {
            let (from, to) = (from.word(), to.word());
            Datum::InSitu(if to < from && is_wrapped {
                from.wrapping_add((0.5 + since * f64::from(to.wrapping_sub(from)) / span) as u32)
            } else {
                (0.5 + f64::from(from) + since * (f64::from(to) - f64::from(from)) / span) as u32
            })
        }
        Type::I64 => {
            let (from, to) = (from.long() as i64, to.long() as i64);
            let value = match to < from && is_wrapped {
                true => from.wrapping_add((0.5 + since * (to.wrapping_sub(from) as u64 as f64) / span) as u64 as i64),
                false => {
                    let difference =
                        to.checked_sub(from).map_or(to as f64 - from as f64, |difference| difference as f64);
                    (0.5 + from as f64 + since * difference / span) as i64
                }
            };
            Datum::Eight(value.to_be_bytes())
        }
        Type::U64 => {
            let (from, to) = (from.long(), to.long());
            let value = match to < from {
                true if is_wrapped => from.wrapping_add((0.5 + since * (to.wrapping_sub(from) as f64) / span) as u64),
                true => (0.5 + from as f64 - since * ((from - to) as f64) / span) as u64,
                false => (0.5 + from as f64 + since * ((to - from) as f64) / span) as u64,
            };
            Datum::Eight(value.to_be_bytes())
        }
        Type::Float => {
            let (from, to) = (f32::from_bits(from.word()), f32::from_bits(to.word()));
            let bits = ((f64::from(from) + since * f64::from(to - from) / span) as f32).to_bits();
            match prior.1 {
                Datum::InSitu(_) => Datum::InSitu(bits),
                _ => Datum::Four(bits.to_be_bytes()),
            }
        }
        Type::Double => {
            let (from, to) = (f64::from_bits(from.long()), f64::from_bits(to.long()));
            Datum::Eight((from + since * (to - from) / span).to_bits().to_be_bytes())
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(ty: Type, kind: Kind, from: u64, to: u64, rules: &Interpolation) -> u64 {
        let datum = |value: u64| match ty {
            Type::I32 | Type::U32 => Datum::InSitu(value as u32),
            _ => Datum::Eight(value.to_be_bytes()),
        };
        let (from, to) = (datum(from), datum(to));
        match between(12.0, (10.0, &from), Some((18.0, &to)), (ty, kind), rules) {
            Some(Datum::InSitu(word)) => word.into(),
            Some(Datum::Eight(bytes)) => u64::from_be_bytes(bytes),
            other => panic!("{other:?}"),
        }
    }

    const COUNTER: Kind = Kind::Line(Some(Semantics::Counter));

    #[test]
    fn counters() {
        let (plain, wraps) = (Interpolation::new(), Interpolation::new().wrap(Wrap::Wraps));
        for ty in [Type::I32, Type::U32, Type::I64, Type::U64] {
            assert_eq!(value(ty, COUNTER, 100, 180, &plain), 120, "{ty:?}");
            assert_eq!(value(ty, COUNTER, 180, 100, &plain), 160, "{ty:?}");
            let top = if matches!(ty, Type::I32 | Type::U32) { u64::from(u32::MAX) } else { u64::MAX };
            let (from, to) = (top - 3, 12);
            let wrapped = value(ty, COUNTER, from, to, &wraps);
            // A signed counter of -4 that is read as unsigned has not fallen.
            assert_eq!(wrapped, 0, "{ty:?}");
        }
        let big = u64::MAX - 80;
        assert!(value(Type::U64, COUNTER, big, u64::MAX, &plain) >= big);
        let low = i32::MIN as u32;
        assert_eq!(value(Type::I32, COUNTER, low.into(), i32::MAX as u64, &plain) as i32, -1_073_741_823);
        let double = |value: f64| value.to_bits();
        assert_eq!(value(Type::Double, COUNTER, double(1.0), double(2.0), &plain), double(1.25));
    }

    #[test]
    fn the_nearer_value_and_the_one_before() {
        let (new, old) = (Interpolation::new(), Interpolation::new().rule(Rule::Before632));
        let (from, to) = (Datum::InSitu(1), Datum::InSitu(2));
        let at = |time, options| between(time, (10.0, &from), Some((18.0, &to)), (Type::U32, Kind::Instant), options);
        assert_eq!(
            [10.0, 12.0, 14.0, 14.5, 18.0].map(|t| at(t, &new) == Some(to.clone())),
            [false, false, false, true, true]
        );
        assert_eq!([14.5, 17.9, 18.0].map(|t| at(t, &old) == Some(to.clone())), [false, false, true]);
        let kinds = [(Kind::Instant, None), (Kind::Discrete, Some(from.clone())), (COUNTER, None)];
        for (kind, expected) in kinds {
            assert_eq!(between(12.0, (10.0, &from), None, (Type::U32, kind), &new), expected);
        }
    }
}
