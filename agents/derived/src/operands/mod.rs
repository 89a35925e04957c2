//! Where the values of operands come from.

pub(crate) mod agents;
mod child;
mod keeper;
pub(crate) mod pmcd;
