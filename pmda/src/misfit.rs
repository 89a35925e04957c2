//! Values that do not convert to the type of their metric.

use std::fmt;

use pmapi::{Atom, Inst, Type};

/// A value that does not convert to the type of its metric, or a text with a NUL byte.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Misfit {
    inst: Option<Inst>,
    given: Type,
    /// The value, if it is a number.
    number: Option<Atom<'static>>,
    declared: Type,
}

impl Misfit {
    pub(crate) fn new(inst: Option<Inst>, value: Atom<'_>, declared: Type) -> Misfit {
        let number = match value {
            Atom::I32(v) => Some(Atom::I32(v)),
            Atom::U32(v) => Some(Atom::U32(v)),
            Atom::I64(v) => Some(Atom::I64(v)),
            Atom::U64(v) => Some(Atom::U64(v)),
            Atom::Float(v) => Some(Atom::Float(v)),
            Atom::Double(v) => Some(Atom::Double(v)),
            Atom::String(_) | Atom::Aggregate(_) | Atom::Event(_) | Atom::HighResEvent(_) => None,
        };
        Misfit { inst, given: value.ty(), number, declared }
    }
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.given == self.declared {
            // The value is a text.
            f.write_str("a text with a NUL byte")?;
            self.inst.map_or(Ok(()), |inst| write!(f, " for instance {inst}"))?;
            return f.write_str(", at which clients would end it");
        }
        write!(f, "a value of type {}", self.given.word())?;
        if let Some(number) = self.number {
            write!(f, " ({number})")?;
        }
        if let Some(inst) = self.inst {
            write!(f, " for instance {inst}")?;
        }
        write!(f, " does not convert to the declared type {}", self.declared.word())
    }
}
