//! Conversion of values to other types (pmExtractValue(3)).

use super::Atom;
use crate::cnum::general;
use crate::{Error, Type};

/// Result of a conversion, which may borrow from the original value.
#[derive(Clone, PartialEq, Debug)]
pub enum Converted<'a> {
    /// Number, or borrowed string or aggregate.
    Atom(Atom<'a>),
    /// Text of a number.
    Text(String),
}

impl Converted<'_> {
    /// Returns the value, borrowed.
    pub fn as_atom(&self) -> Atom<'_> {
        match self {
            Converted::Atom(atom) => *atom,
            Converted::Text(text) => text.into(),
        }
    }
}

impl<'a> Atom<'a> {
    /// Converts the value to type `to`, by the table in pmExtractValue(3).
    ///
    /// As in libpcp, fractions are cut off, and a negative 64-bit integer keeps only its lower half in [`Type::I32`].
    /// The text of a floating point number is at most 21 characters long, too short for "-1.234567890123457e+18".
    ///
    /// # Errors
    /// `PM_ERR_TRUNC` when the value is too large, `PM_ERR_SIGN` when a negative value would become unsigned,
    /// `PM_ERR_CONV` when there is no conversion between the types. A NaN has no conversion to an integer
    /// (`PM_ERR_CONV`); in C the result is undefined.
    pub fn convert(self, to: Type) -> Result<Converted<'a>, Error> {
        if to == Type::String && self.ty().is_numeric() {
            return self.number_text().map(Converted::Text);
        }
        let atom = match (self, to) {
            (Atom::I32(v), _) => integer(v.into(), to),
            (Atom::U32(v), _) => integer(v.into(), to),
            (Atom::I64(v), Type::I32) if v < 0 => Ok(Atom::I32(v as i32)),
            (Atom::I64(v), _) => integer(v.into(), to),
            (Atom::U64(v), _) => integer(v.into(), to),
            (Atom::Float(v), Type::Float) => Ok(Atom::Float(v)),
            (Atom::Float(v), _) => real(v.into(), to, f64::from(i32::MAX as f32), f64::from(u32::MAX as f32)),
            (Atom::Double(v), _) => real(v, to, i32::MAX.into(), u32::MAX.into()),
            (Atom::String(_), Type::String) | (Atom::Aggregate(_), Type::Aggregate) => Ok(self),
            _ => Err(Error::CONV),
        };
        atom.map(Converted::Atom)
    }

    /// Converts a number to type `to`, if nothing is lost.
    ///
    /// # Errors
    /// `PM_ERR_TYPE` for a value that is not a number, and for a fraction that would become an integer or a
    /// [`Type::Float`]. `PM_ERR_SIGN` or `PM_ERR_TRUNC` when the number does not fit.
    pub fn exactly(self, to: Type) -> Result<Atom<'a>, Error> {
        let whole = match self {
            Atom::I32(v) => i128::from(v),
            Atom::U32(v) => i128::from(v),
            Atom::I64(v) => i128::from(v),
            Atom::U64(v) => i128::from(v),
            Atom::Float(v) if to == Type::Double => return Ok(Atom::Double(v.into())),
            _ => return Err(Error::TYPE),
        };
        let error = if whole < 0 { Error::SIGN } else { Error::TRUNC };
        Ok(match to {
            Type::I32 => Atom::I32(whole.try_into().map_err(|_| Error::TRUNC)?),
            Type::U32 => Atom::U32(whole.try_into().map_err(|_| error)?),
            Type::I64 => Atom::I64(whole.try_into().map_err(|_| Error::TRUNC)?),
            Type::U64 => Atom::U64(whole.try_into().map_err(|_| error)?),
            Type::Float if (whole as f32) as i128 == whole => Atom::Float(whole as f32),
            Type::Double if (whole as f64) as i128 == whole => Atom::Double(whole as f64),
            Type::Float | Type::Double => return Err(Error::TRUNC),
            _ => return Err(Error::TYPE),
        })
    }

    fn number_text(self) -> Result<String, Error> {
        Ok(match self {
            Atom::I32(v) => v.to_string(),
            Atom::U32(v) => v.to_string(),
            Atom::I64(v) => v.to_string(),
            Atom::U64(v) => v.to_string(),
            Atom::Float(v) => real_text(v.into()),
            Atom::Double(v) => real_text(v),
            _ => return Err(Error::CONV),
        })
    }
}

/// Longest text of a floating point number: the size of libpcp's buffer, which cuts off the last digit of a long
/// exponent.
const REAL_TEXT_MAX: usize = 21;

fn real_text(v: f64) -> String {
    let mut text = general(v, 16);
    text.truncate(REAL_TEXT_MAX);
    text
}

/// Converts an integer of at most 64 bits.
fn integer<'a>(v: i128, to: Type) -> Result<Atom<'a>, Error> {
    let unsigned_error = if v < 0 { Error::SIGN } else { Error::TRUNC };
    Ok(match to {
        Type::I32 => Atom::I32(v.try_into().map_err(|_| Error::TRUNC)?),
        Type::U32 => Atom::U32(v.try_into().map_err(|_| unsigned_error)?),
        Type::I64 => Atom::I64(v.try_into().map_err(|_| Error::TRUNC)?),
        Type::U64 => Atom::U64(v.try_into().map_err(|_| unsigned_error)?),
        Type::Float => Atom::Float(v as f32),
        Type::Double => Atom::Double(v as f64),
        _ => return Err(Error::CONV),
    })
}

/// Converts a floating point number. For 32-bit types, values from the limit on are refused.
fn real<'a>(v: f64, to: Type, i32_limit: f64, u32_limit: f64) -> Result<Atom<'a>, Error> {
    let limit = match to {
        Type::I32 if v.abs() >= i32_limit => Err(Error::TRUNC),
        Type::U32 if v >= u32_limit => Err(Error::TRUNC),
        Type::I64 if v >= i64::MAX as f64 => Err(Error::TRUNC),
        Type::U64 if v >= u64::MAX as f64 => Err(Error::TRUNC),
        Type::U32 | Type::U64 if v < 0.0 => Err(Error::SIGN),
        Type::I32 | Type::U32 | Type::I64 | Type::U64 if v.is_nan() => Err(Error::CONV),
        _ => Ok(()),
    };
    limit?;
    Ok(match to {
        Type::I32 => Atom::I32(v as i32),
        Type::U32 => Atom::U32(v as u32),
        Type::I64 => Atom::I64(v as i64),
        Type::U64 => Atom::U64(v as u64),
        Type::Float => Atom::Float(v as f32),
        Type::Double => Atom::Double(v),
        _ => return Err(Error::CONV),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn convert(atom: Atom<'_>, to: Type) -> Result<String, Error> {
        atom.convert(to).map(|c| format!("{:?}", c.as_atom()))
    }

    #[test]
    fn numbers() {
        assert_eq!(convert(Atom::I64(-1 << 40), Type::I32), Ok("I32(0)".into()));
        assert_eq!(convert(Atom::I64(1 << 40), Type::I32), Err(Error::TRUNC));
        assert_eq!(convert(Atom::I32(-1), Type::U64), Err(Error::SIGN));
        assert_eq!(convert(Atom::Double(-0.5), Type::U32), Err(Error::SIGN));
        assert_eq!(convert(Atom::Double(2_147_483_647.0), Type::I32), Err(Error::TRUNC));
        assert_eq!(convert(Atom::Double(2_147_483_646.9), Type::I32), Ok("I32(2147483646)".into()));
        assert_eq!(convert(Atom::Double(f64::NAN), Type::U64), Err(Error::CONV));
        assert_eq!(convert(Atom::U32(7), Type::Aggregate), Err(Error::CONV));
        assert_eq!(Atom::Double(-9.3000003e18).convert(Type::String), Ok(Converted::Text("-9.3000003e+18".into())));
        assert_eq!(Atom::Float(-9.3e18).convert(Type::String), Ok(Converted::Text("-9.300000300729369e+1".into())));
        assert_eq!(Atom::Double(0.1).convert(Type::String), Ok(Converted::Text("0.1".into())));
    }

    #[test]
    fn exact_numbers() {
        assert_eq!(Atom::I32(7).exactly(Type::U64), Ok(Atom::U64(7)));
        assert_eq!(Atom::I32(-7).exactly(Type::U64), Err(Error::SIGN));
        assert_eq!(Atom::U64(1 << 32).exactly(Type::U32), Err(Error::TRUNC));
        assert_eq!(Atom::I64(1 << 53).exactly(Type::Double), Ok(Atom::Double((1u64 << 53) as f64)));
        assert_eq!(Atom::I64((1 << 53) + 1).exactly(Type::Double), Err(Error::TRUNC));
        assert_eq!(Atom::Float(0.5).exactly(Type::Double), Ok(Atom::Double(0.5)));
        assert_eq!(Atom::Double(0.5).exactly(Type::Float), Err(Error::TYPE));
        assert_eq!(Atom::String(b"7").exactly(Type::U32), Err(Error::TYPE));
    }
}
