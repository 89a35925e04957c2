//! Types and semantics of metrics.

use std::fmt;
use std::str::FromStr;

use crate::Error;

/// Data type of a metric's values (`PM_TYPE_*`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
#[repr(i32)]
pub enum Type {
    /// Type of a metric that this host does not support, and that has no values (`PM_TYPE_NOSUPPORT`).
    NoSupport = -1,
    /// Signed 32-bit integer.
    I32 = 0,
    /// Unsigned 32-bit integer.
    U32 = 1,
    /// Signed 64-bit integer.
    I64 = 2,
    /// Unsigned 64-bit integer.
    U64 = 3,
    /// 32-bit floating point number.
    Float = 4,
    /// 64-bit floating point number.
    Double = 5,
    /// Text in any character encoding.
    String = 6,
    /// Opaque bytes, whose interpretation the metric defines.
    Aggregate = 7,
    /// Opaque bytes; in C agents, in a static buffer.
    AggregateStatic = 8,
    /// Event records with timestamps in microseconds.
    Event = 9,
    /// Event records with timestamps in nanoseconds.
    HighResEvent = 10,
}

impl Type {
    /// Returns the code of the wire encoding.
    pub const fn code(self) -> i32 {
        self as i32
    }

    /// Returns the type with a code.
    ///
    /// # Errors
    /// `PM_ERR_TYPE` for a code that no metric can have.
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

    /// Returns the name of a type's code, `???` for an unknown one (pmTypeStr(3)).
    pub const fn name_of(code: i32) -> &'static str {
        match Self::from_code(code) {
            Ok(ty) => ty.name(),
            Err(_) if code == UNKNOWN => "UNKNOWN",
            Err(_) => "???",
        }
    }

    /// Returns the name, for instance `U64` (pmTypeStr(3)).
    pub const fn name(self) -> &'static str {
        match self {
            Type::NoSupport => "NO_SUPPORT",
            Type::I32 => "32",
            Type::U32 => "U32",
            Type::I64 => "64",
            Type::U64 => "U64",
            Type::Float => "FLOAT",
            Type::Double => "DOUBLE",
            Type::String => "STRING",
            Type::Aggregate => "AGGREGATE",
            Type::AggregateStatic => "AGGREGATE_STATIC",
            Type::Event => "EVENT",
            Type::HighResEvent => "HIGHRES_EVENT",
        }
    }

    /// Returns the name for a sentence: [`Type::name`], but `I32` and `I64` where that is a number alone.
    pub const fn word(self) -> &'static str {
        match self {
            Type::I32 => "I32",
            Type::I64 => "I64",
            other => other.name(),
        }
    }

    /// Returns the description that pmPrintDesc(3) prints.
    pub const fn description(self) -> &'static str {
        match self {
            Type::NoSupport => "Not Supported",
            Type::I32 => "32-bit int",
            Type::U32 => "32-bit unsigned int",
            Type::I64 => "64-bit int",
            Type::U64 => "64-bit unsigned int",
            Type::Float => "float",
            Type::Double => "double",
            Type::String => "string",
            Type::Aggregate => "aggregate",
            Type::AggregateStatic => "static aggregate",
            Type::Event => "event record array",
            Type::HighResEvent => "highres event record array",
        }
    }

    /// Returns whether values are integers or floating point numbers.
    pub const fn is_numeric(self) -> bool {
        matches!(self as i32, 0..=5)
    }
}

/// Code of `PM_TYPE_UNKNOWN`, which value blocks may have but no metric.
const UNKNOWN: i32 = 255;

/// Name of the type (pmTypeStr(3)).
impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Parses the name that pmTypeStr(3) gives, in upper or lower case; fails with `PM_ERR_TYPE`.
impl FromStr for Type {
    type Err = Error;

    fn from_str(name: &str) -> Result<Type, Error> {
        (-1..=10)
            .filter_map(|code| Type::from_code(code).ok())
            .find(|ty| ty.name().eq_ignore_ascii_case(name))
            .ok_or(Error::TYPE)
    }
}

/// Relation of values to time (`PM_SEM_*`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
#[repr(i32)]
pub enum Semantics {
    /// Cumulative value that never decreases; tools show its rate.
    Counter = 1,
    /// Value at an instant of a quantity that changes continuously.
    Instant = 3,
    /// Value at an instant of a quantity that changes seldom or in steps.
    Discrete = 4,
}

impl Semantics {
    /// Returns the code of the wire encoding.
    pub const fn code(self) -> i32 {
        self as i32
    }

    /// Returns the semantics with a code.
    ///
    /// # Errors
    /// `PM_ERR_CONV` for an unknown code.
    pub const fn from_code(code: i32) -> Result<Semantics, Error> {
        Ok(match code {
            1 => Semantics::Counter,
            3 => Semantics::Instant,
            4 => Semantics::Discrete,
            _ => return Err(Error::CONV),
        })
    }

    /// Returns the name of a code, `???` for an unknown one (pmSemStr(3)).
    pub const fn name_of(code: i32) -> &'static str {
        match Self::from_code(code) {
            Ok(semantics) => semantics.name(),
            Err(_) => "???",
        }
    }

    /// Returns the name, for instance `counter` (pmSemStr(3)).
    pub const fn name(self) -> &'static str {
        match self {
            Semantics::Counter => "counter",
            Semantics::Instant => "instant",
            Semantics::Discrete => "discrete",
        }
    }
}

/// Name of the semantics (pmSemStr(3)).
impl fmt::Display for Semantics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Parses the name that pmSemStr(3) gives, in upper or lower case; fails with `PM_ERR_CONV`.
impl FromStr for Semantics {
    type Err = Error;

    fn from_str(name: &str) -> Result<Semantics, Error> {
        let all = [Semantics::Counter, Semantics::Instant, Semantics::Discrete];
        all.into_iter().find(|s| s.name().eq_ignore_ascii_case(name)).ok_or(Error::CONV)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for code in -1..=10 {
            let ty = Type::from_code(code).unwrap();
            assert_eq!(ty.to_string().to_lowercase().parse(), Ok(ty));
        }
        assert_eq!((Type::name_of(-2), Type::name_of(11), Type::name_of(255)), ("???", "???", "UNKNOWN"));
        assert_eq!("i32".parse::<Type>(), Err(Error::TYPE));
        assert_eq!((Semantics::name_of(1), Semantics::name_of(2)), ("counter", "???"));
        assert_eq!("Discrete".parse(), Ok(Semantics::Discrete));
    }
}
