//! Single values: types, conversions and texts.

mod convert;
mod text;

pub use convert::Converted;

use crate::{Error, Result, Type};

/// Value of a metric (`pmAtomValue` with its type), borrowed from a PDU or from an agent.
///
/// `Display` gives the text of pmAtomStr(3), meant for diagnostics. `Print` of crate `pcp-pdu` formats as PCP's tools
/// do.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Atom<'a> {
    /// Value of [`Type::I32`].
    I32(i32),
    /// Value of [`Type::U32`].
    U32(u32),
    /// Value of [`Type::I64`].
    I64(i64),
    /// Value of [`Type::U64`].
    U64(u64),
    /// Value of [`Type::Float`].
    Float(f32),
    /// Value of [`Type::Double`].
    Double(f64),
    /// Value of [`Type::String`], without the terminating NUL of the wire encoding. PCP promises no character encoding.
    String(&'a [u8]),
    /// Value of [`Type::Aggregate`] or [`Type::AggregateStatic`].
    Aggregate(&'a [u8]),
    /// Packed event records of [`Type::Event`].
    Event(&'a [u8]),
    /// Packed event records of [`Type::HighResEvent`].
    HighResEvent(&'a [u8]),
}

impl Atom<'_> {
    /// Returns the type of the value; `Aggregate` stands for [`Type::AggregateStatic`] too.
    pub const fn ty(&self) -> Type {
        match self {
            Atom::I32(_) => Type::I32,
            Atom::U32(_) => Type::U32,
            Atom::I64(_) => Type::I64,
            Atom::U64(_) => Type::U64,
            Atom::Float(_) => Type::Float,
            Atom::Double(_) => Type::Double,
            Atom::String(_) => Type::String,
            Atom::Aggregate(_) => Type::Aggregate,
            Atom::Event(_) => Type::Event,
            Atom::HighResEvent(_) => Type::HighResEvent,
        }
    }
}

macro_rules! from {
    ($($from:ty => $variant:ident),*) => {$(
        impl From<$from> for Atom<'_> {
            fn from(v: $from) -> Self {
                Atom::$variant(v.into())
            }
        }
    )*};
}
from!(i8 => I32, i16 => I32, i32 => I32, u8 => U32, u16 => U32, u32 => U32, i64 => I64, u64 => U64,
      f32 => Float, f64 => Double, bool => U32);

macro_rules! try_from {
    ($($to:ty => $variant:ident),*) => {$(
        /// Fails with `PM_ERR_CONV` for a value of another type.
        impl TryFrom<Atom<'_>> for $to {
            type Error = Error;

            fn try_from(atom: Atom<'_>) -> Result<Self> {
                match atom {
                    Atom::$variant(v) => Ok(v),
                    _ => Err(Error::CONV),
                }
            }
        }
    )*};
}
try_from!(i32 => I32, u32 => U32, i64 => I64, u64 => U64, f32 => Float, f64 => Double);

/// Fails with `PM_ERR_CONV` for a value that is not a string, and for text that is not UTF-8.
impl<'a> TryFrom<Atom<'a>> for &'a str {
    type Error = Error;

    fn try_from(atom: Atom<'a>) -> Result<Self> {
        match atom {
            Atom::String(text) => std::str::from_utf8(text).map_err(|_| Error::CONV),
            _ => Err(Error::CONV),
        }
    }
}

/// Converts a count, such as the length of a list.
impl From<usize> for Atom<'_> {
    fn from(v: usize) -> Self {
        Atom::U64(v as u64)
    }
}

impl<'a> From<&'a str> for Atom<'a> {
    fn from(v: &'a str) -> Self {
        Atom::String(v.as_bytes())
    }
}

impl<'a> From<&'a String> for Atom<'a> {
    fn from(v: &'a String) -> Self {
        Atom::String(v.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_their_own_type_only() {
        assert_eq!(u32::try_from(Atom::U32(7)), Ok(7));
        assert_eq!(f64::try_from(Atom::Double(0.5)), Ok(0.5));
        assert_eq!(<&str>::try_from(Atom::String(b"seven")), Ok("seven"));
        // Conversion is strict even if the number fits: a stored value already has the metric's type.
        assert_eq!(u64::try_from(Atom::U32(7)), Err(Error::CONV));
        assert_eq!(i32::try_from(Atom::String(b"7")), Err(Error::CONV));
        assert_eq!(<&str>::try_from(Atom::String(b"\xff")), Err(Error::CONV));
        assert_eq!(<&str>::try_from(Atom::Aggregate(b"seven")), Err(Error::CONV));
    }
}
