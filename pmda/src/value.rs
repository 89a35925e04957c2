//! Values that an agent gives for its metrics.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use pmapi::{Atom, Desc, Error, Result, Type, Units};

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

#[cfg(test)]
mod tests {
    use pmapi::{Domain, Item, PmId, Semantics};

    use super::*;

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
