//! The descriptor of a metric: type, instance domain, semantics, units.

use crate::{Error, InDom, PmId, Units};

/// The data type of a metric's values (`PM_TYPE_*`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
#[repr(i32)]
pub enum Type {
    /// Known but not available here; has no values.
    NoSupport = -1,
    /// Signed, 32 bits.
    I32 = 0,
    /// Unsigned, 32 bits.
    U32 = 1,
    /// Signed, 64 bits.
    I64 = 2,
    /// Unsigned, 64 bits.
    U64 = 3,
    /// Floating point, 32 bits.
    Float = 4,
    /// Floating point, 64 bits.
    Double = 5,
    /// Text.
    String = 6,
    /// Opaque bytes.
    Aggregate = 7,
    /// Opaque bytes; in C, a static buffer.
    AggregateStatic = 8,
    /// Event records with microseconds.
    Event = 9,
    /// Event records with nanoseconds.
    HighResEvent = 10,
}

impl Type {
    /// The code as it travels.
    pub const fn code(self) -> i32 {
        self as i32
    }

    /// The type of a code; `PM_ERR_TYPE` for one that no metric can have.
    pub const fn from_code(code: i32) -> Result<Type, Error> {
        Ok(match code {
            -1 => Type::NoSupport,
            0 => Type::I32,
            1 => Type::U32,
            2 => Type::I64,
            3 => Type::U64,
            4 => Type::Float,
            5 => Type::Double,
            6 => Type::String,
            7 => Type::Aggregate,
            8 => Type::AggregateStatic,
            9 => Type::Event,
            10 => Type::HighResEvent,
            _ => return Err(Error::TYPE),
        })
    }

    /// Whether values are integers or floating point numbers.
    pub const fn is_numeric(self) -> bool {
        matches!(self as i32, 0..=5)
    }
}

/// How values relate to time (`PM_SEM_*`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
#[repr(i32)]
pub enum Semantics {
    /// Cumulative, never decreasing; tools show its rate.
    Counter = 1,
    /// A value at an instant of something continuous.
    Instant = 3,
    /// A value at an instant of something that changes seldom or in steps.
    Discrete = 4,
}

impl Semantics {
    /// The code as it travels.
    pub const fn code(self) -> i32 {
        self as i32
    }

    /// The semantics of a code; `PM_ERR_CONV` for an unknown one.
    pub const fn from_code(code: i32) -> Result<Semantics, Error> {
        Ok(match code {
            1 => Semantics::Counter,
            3 => Semantics::Instant,
            4 => Semantics::Discrete,
            _ => return Err(Error::CONV),
        })
    }
}

/// A metric's descriptor (`pmDesc`, pmLookupDesc(3)).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Desc {
    /// The metric.
    pub pmid: PmId,
    /// Type of its values.
    pub ty: Type,
    /// Instance domain of its values; `None` for a singular metric.
    pub indom: Option<InDom>,
    /// Semantics of its values.
    pub semantics: Semantics,
    /// Dimension and scale of its values.
    pub units: Units,
}
