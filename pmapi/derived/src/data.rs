//! Storage of columns: numbers and byte strings.

use pmapi::{Atom, Type};

#[derive(Clone, Debug)]
pub(crate) enum Data {
    I32(Vec<i32>),
    U32(Vec<u32>),
    I64(Vec<i64>),
    U64(Vec<u64>),
    Float(Vec<f32>),
    Double(Vec<f64>),
    /// Strings, aggregates and event records.
    Bytes(Bytes),
}

/// Byte strings, one after the other in a single allocation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bytes {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Bytes {
    fn get(&self, at: usize) -> &[u8] {
        let start = at.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        let end = self.ends.get(at).copied().unwrap_or(start);
        self.bytes.get(start..end).unwrap_or_default()
    }

    /// Adds a value if it consists of bytes; otherwise returns `false`.
    pub(crate) fn push_atom(&mut self, value: Atom<'_>) -> bool {
        match value {
            Atom::String(v) | Atom::Aggregate(v) | Atom::Event(v) | Atom::HighResEvent(v) => self.push(v),
            _ => return false,
        }
        true
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.ends.push(self.bytes.len());
    }
}

/// Expands the same code for each type of column.
macro_rules! each {
    ($data:expr, $column:ident => $number:expr, $bytes:ident => $other:expr) => {
        match $data {
            Data::I32($column) => $number,
            Data::U32($column) => $number,
            Data::I64($column) => $number,
            Data::U64($column) => $number,
            Data::Float($column) => $number,
            Data::Double($column) => $number,
            Data::Bytes($bytes) => $other,
        }
    };
}

impl Data {
    pub(crate) fn new(ty: Type) -> Data {
        match ty {
            Type::I32 => Data::I32(Vec::new()),
            Type::U32 => Data::U32(Vec::new()),
            Type::I64 => Data::I64(Vec::new()),
            Type::U64 => Data::U64(Vec::new()),
            Type::Float => Data::Float(Vec::new()),
            Type::Double => Data::Double(Vec::new()),
            _ => Data::Bytes(Bytes::default()),
        }
    }

    pub(crate) fn clear(&mut self) {
        each!(self, column => column.clear(), bytes => {
            bytes.bytes.clear();
            bytes.ends.clear();
        });
    }

    pub(crate) fn len(&self) -> usize {
        each!(self, column => column.len(), bytes => bytes.ends.len())
    }

    /// Adds a value if it has the column's type; otherwise returns `false`.
    #[inline]
    pub(crate) fn push(&mut self, value: Atom<'_>) -> bool {
        match (self, value) {
            (Data::I32(column), Atom::I32(v)) => column.push(v),
            (Data::U32(column), Atom::U32(v)) => column.push(v),
            (Data::I64(column), Atom::I64(v)) => column.push(v),
            (Data::U64(column), Atom::U64(v)) => column.push(v),
            (Data::Float(column), Atom::Float(v)) => column.push(v),
            (Data::Double(column), Atom::Double(v)) => column.push(v),
            (Data::Bytes(column), value) => return column.push_atom(value),
            _ => return false,
        }
        true
    }

    /// Returns a value. `ty` distinguishes the types that are stored as bytes.
    pub(crate) fn atom(&self, at: usize, ty: Type) -> Atom<'_> {
        match self {
            Data::I32(column) => Atom::I32(column.get(at).copied().unwrap_or_default()),
            Data::U32(column) => Atom::U32(column.get(at).copied().unwrap_or_default()),
            Data::I64(column) => Atom::I64(column.get(at).copied().unwrap_or_default()),
            Data::U64(column) => Atom::U64(column.get(at).copied().unwrap_or_default()),
            Data::Float(column) => Atom::Float(column.get(at).copied().unwrap_or_default()),
            Data::Double(column) => Atom::Double(column.get(at).copied().unwrap_or_default()),
            Data::Bytes(bytes) => match ty {
                Type::String => Atom::String(bytes.get(at)),
                Type::Event => Atom::Event(bytes.get(at)),
                Type::HighResEvent => Atom::HighResEvent(bytes.get(at)),
                _ => Atom::Aggregate(bytes.get(at)),
            },
        }
    }

    /// Appends one value of another column of the same type.
    pub(crate) fn push_from(&mut self, from: &Data, at: usize) {
        macro_rules! numbers {
            ($($kind:ident)*) => {
                match (self, from) {
                    $((Data::$kind(to), Data::$kind(from)) => to.extend(from.get(at)),)*
                    (Data::Bytes(to), Data::Bytes(from)) => to.push(from.get(at)),
                    _ => {}
                }
            };
        }
        numbers!(I32 U32 I64 U64 Float Double);
    }

    /// Replaces the values with those of another column of the same type, or with those at some of its positions.
    pub(crate) fn copy_from(&mut self, from: &Data, places: Option<&[u32]>) {
        macro_rules! numbers {
            ($($kind:ident)*) => {
                match (self, from, places) {
                    $((Data::$kind(to), Data::$kind(from), None) => {
                        to.clear();
                        to.extend_from_slice(from);
                    }
                    (Data::$kind(to), Data::$kind(from), Some(places)) => {
                        to.clear();
                        to.extend(places.iter().filter_map(|at| from.get(*at as usize)));
                    })*
                    (Data::Bytes(to), Data::Bytes(from), None) => {
                        to.bytes.clone_from(&from.bytes);
                        to.ends.clone_from(&from.ends);
                    }
                    (Data::Bytes(to), Data::Bytes(from), Some(places)) => {
                        to.bytes.clear();
                        to.ends.clear();
                        places.iter().for_each(|at| to.push(from.get(*at as usize)));
                    }
                    _ => {}
                }
            };
        }
        numbers!(I32 U32 I64 U64 Float Double);
    }
}

/// Numeric type of a column.
pub(crate) trait Number: Copy + Default + PartialOrd + 'static {
    /// Returns the column if it has this type.
    fn column(data: &Data) -> Option<&Vec<Self>>;
    fn column_mut(data: &mut Data) -> Option<&mut Vec<Self>>;
    /// Converts values as C does, divides and multiplies them by `scale`, and stores them in `to`.
    fn convert(data: &Data, places: Places<'_>, scale: Scale, to: &mut Vec<Self>);
    /// Returns two buffers for converted operands.
    fn buffers(buffers: &mut Buffers) -> &mut [Vec<Self>; 2];
    fn plus(self, other: Self) -> Self;
    fn minus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
}

/// Positions of a column that an operation uses.
#[derive(Clone, Copy)]
pub(crate) enum Places<'a> {
    All,
    First,
    List(&'a [u32]),
}

/// Conversion of a scale: division by `div`, then multiplication by `mul`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Scale {
    pub(crate) div: f64,
    pub(crate) mul: f64,
}

impl Scale {
    pub(crate) const NONE: Scale = Scale { div: 1.0, mul: 1.0 };
}

/// Memory for converted operands.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    i32: [Vec<i32>; 2],
    u32: [Vec<u32>; 2],
    i64: [Vec<i64>; 2],
    u64: [Vec<u64>; 2],
    f32: [Vec<f32>; 2],
    f64: [Vec<f64>; 2],
}

macro_rules! number {
    ($($kind:ident $ty:ident: $plus:expr, $minus:expr, $times:expr, $scaled:expr;)*) => {$(
        impl Number for $ty {
            fn column(data: &Data) -> Option<&Vec<$ty>> {
                match data {
                    Data::$kind(column) => Some(column),
                    _ => None,
                }
            }

            fn column_mut(data: &mut Data) -> Option<&mut Vec<$ty>> {
                match data {
                    Data::$kind(column) => Some(column),
                    _ => None,
                }
            }

            fn convert(data: &Data, places: Places<'_>, scale: Scale, to: &mut Vec<$ty>) {
                to.clear();
                each!(data, from => {
                    let convert = |v: &_| *v as $ty;
                    match places {
                        Places::All => to.extend(from.iter().map(convert)),
                        Places::First => to.extend(from.first().map(convert)),
                        Places::List(list) => to.extend(list.iter().filter_map(|at| from.get(*at as usize)).map(convert)),
                    }
                    if scale != Scale::NONE {
                        to.iter_mut().for_each(|v| *v = $scaled(*v, scale));
                    }
                }, _bytes => {});
            }

            fn buffers(buffers: &mut Buffers) -> &mut [Vec<$ty>; 2] {
                &mut buffers.$ty
            }

            #[inline]
            fn plus(self, other: $ty) -> $ty {
                $plus(self, other)
            }

            #[inline]
            fn minus(self, other: $ty) -> $ty {
                $minus(self, other)
            }

            #[inline]
            fn times(self, other: $ty) -> $ty {
                $times(self, other)
            }
        }
    )*};
}

/// Returns the value unchanged: operations on integers and `FLOAT` have no scale, because operations with a scale are
/// computed as doubles.
fn unscaled<T>(value: T, _scale: Scale) -> T {
    value
}

fn scaled(value: f64, scale: Scale) -> f64 {
    value / scale.div * scale.mul
}

number! {
    I32 i32: i32::wrapping_add, i32::wrapping_sub, i32::wrapping_mul, unscaled;
    U32 u32: u32::wrapping_add, u32::wrapping_sub, u32::wrapping_mul, unscaled;
    I64 i64: i64::wrapping_add, i64::wrapping_sub, i64::wrapping_mul, unscaled;
    U64 u64: u64::wrapping_add, u64::wrapping_sub, u64::wrapping_mul, unscaled;
    Float f32: |a, b| a + b, |a, b| a - b, |a, b| a * b, unscaled;
    Double f64: |a, b| a + b, |a, b| a - b, |a, b| a * b, scaled;
}
