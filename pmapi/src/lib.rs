//! Identifiers, units, values, errors and labels of Performance Co-Pilot, for its clients and agents.
//!
//! The names are those of PMAPI(3) in Rust's case. Each item's documentation names the C function or macro that it
//! answers to.

pub mod atom;
pub mod backoff;
pub mod cnum;
pub mod config;
pub mod debug;
pub mod desc;
pub mod error;
pub mod escape;
pub mod file;
pub mod id;
mod id_text;
pub mod interval;
pub mod label;
pub mod number;
mod secure;
pub mod spec;
pub mod types;
pub mod units;

pub use atom::Atom;
pub use config::Config;
pub use desc::Desc;
pub use error::{Error, Result};
pub use id::{Domain, InDom, Inst, Item, PmId, Serial};
pub use id_text::{OrNull, ParseIdError};
pub use label::LabelSet;
pub use types::{Semantics, Type};
pub use units::Units;
