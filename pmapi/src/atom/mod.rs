//! A single value: its types, conversions and texts.

mod convert;
mod text;

pub use convert::Converted;

use crate::Type;

/// One value of a metric (`pmAtomValue` with its type), borrowed from a PDU or from an agent.
///
/// `Display` gives the text of pmAtomStr(3), meant for diagnostics; `pcp_pdu::print` gives the form in tools.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Atom<'a> {
    /// [`Type::I32`].
    I32(i32),
    /// [`Type::U32`].
    U32(u32),
    /// [`Type::I64`].
    I64(i64),
    /// [`Type::U64`].
    U64(u64),
    /// [`Type::Float`].
    Float(f32),
    /// [`Type::Double`].
    Double(f64),
    /// [`Type::String`], without the terminating NUL of the wire. PCP promises no encoding.
    String(&'a [u8]),
    /// [`Type::Aggregate`] and [`Type::AggregateStatic`].
    Aggregate(&'a [u8]),
    /// [`Type::Event`]: the packed records.
    Event(&'a [u8]),
    /// [`Type::HighResEvent`]: the packed records.
    HighResEvent(&'a [u8]),
}

impl Atom<'_> {
    /// The type of the value.
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

/// Counts, such as the length of a list.
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
