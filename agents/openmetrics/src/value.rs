//! Converts the texts of samples to values, by the type of their metric.

use exposition::number;
use nix::errno::Errno;
use pmapi::{Atom, Error, Type};

/// The value of an instance in a document.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) enum Value {
    /// The document does not have the instance.
    #[default]
    Absent,
    /// The document has a text that is not a value of the metric's type.
    Bad(Error),
    I32(i32),
    U32(u32),
    I64(i64),
    U64(u64),
    Float(f32),
    Double(f64),
    Text(Box<Text>),
}

/// A text. Boxed twice, because texts are rare and must not make other values longer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Text(Box<str>);

impl Value {
    /// Converts the text of a sample. As in PCP's agent, unsigned integers keep their low bits, and signed ones that
    /// are out of range have no value.
    #[inline]
    pub(crate) fn parse(text: &str, ty: Type) -> Value {
        match ty {
            Type::Double => number::float(text).map_or(Value::Bad(Error::AGAIN), Value::Double),
            Type::Float => number::float(text).map_or(Value::Bad(Error::AGAIN), |number| Value::Float(number as f32)),
            Type::String => Value::Text(Box::new(Text(text.into()))),
            Type::I32 | Type::U32 | Type::I64 | Type::U64 => integer(text, ty),
            _ => Value::Bad(Error::from_errno(Errno::EOPNOTSUPP as i32)),
        }
    }

    /// Returns the value for the reply to a fetch. `None` for an inactive instance.
    #[inline]
    pub(crate) fn atom(&self) -> Option<Result<Atom<'_>, Error>> {
        Some(Ok(match self {
            Value::Absent => return None,
            Value::Bad(e) => return Some(Err(*e)),
            Value::I32(number) => Atom::I32(*number),
            Value::U32(number) => Atom::U32(*number),
            Value::I64(number) => Atom::I64(*number),
            Value::U64(number) => Atom::U64(*number),
            Value::Float(number) => Atom::Float(*number),
            Value::Double(number) => Atom::Double(*number),
            Value::Text(text) => Atom::from(&*text.0),
        }))
    }
}

fn integer(text: &str, ty: Type) -> Value {
    let Some(number) = number::integer(text) else { return Value::Bad(Error::AGAIN) };
    let exact = match ty {
        Type::U32 => return Value::U32(number.low as u32),
        Type::U64 => return Value::U64(number.low),
        Type::I32 => number.exact.and_then(|exact| i32::try_from(exact).ok()).map(Value::I32),
        _ => number.exact.map(Value::I64),
    };
    exact.unwrap_or(Value::Bad(Error::from_errno(Errno::EINVAL as i32)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn very_many_values_are_short() {
        assert_eq!(size_of::<Value>(), 16);
    }

    #[test]
    fn texts_by_type() {
        let again = Value::Bad(Error::AGAIN);
        let invalid = Value::Bad(Error::from_errno(Errno::EINVAL as i32));
        for (text, ty, value) in [
            ("1.5", Type::Double, Value::Double(1.5)),
            ("abc", Type::Double, again.clone()),
            ("1e39", Type::Float, Value::Float(f32::INFINITY)),
            ("-1", Type::U32, Value::U32(u32::MAX)),
            ("4294967296", Type::U32, Value::U32(0)),
            ("2147483648", Type::I32, invalid.clone()),
            ("-2147483648", Type::I32, Value::I32(i32::MIN)),
            ("9223372036854775808", Type::I64, invalid),
            ("18446744073709551615", Type::U64, Value::U64(u64::MAX)),
            ("1.0", Type::U64, again),
            ("abc", Type::String, Value::Text(Box::new(Text("abc".into())))),
            ("1", Type::Aggregate, Value::Bad(Error::from_errno(95))),
        ] {
            assert_eq!(Value::parse(text, ty), value, "{text} {ty:?}");
        }
    }
}
