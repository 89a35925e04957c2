//! Scope of definitions.

use std::fmt;

/// Contexts that definitions apply to. The scope determines their error messages and PMIDs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Scope {
    /// All contexts, as for pmRegisterDerived(3).
    Global,
    /// One context, as for pmAddDerived(3).
    Context,
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Scope::Global => "global",
            Scope::Context => "per-context",
        })
    }
}
