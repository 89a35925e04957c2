//! Sources of operands.

pub(crate) mod agents;
mod child;
mod keeper;
pub(crate) mod pmcd;
pub(crate) mod sizes;
