//! Single values: types, conversions and texts.

mod convert;
mod text;

pub use convert::Converted;

use crate::Type;

/// Value of a metric (`pmAtomValue` with its type), borrowed from a PDU or from an agent.
///
/// `Display` gives the text of pmAtomStr(3), meant for diagnostics. `Print` of crate `pcp-pdu` formats as PCP's tools do.
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
