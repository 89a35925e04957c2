//! What a Performance Co-Pilot client and an agent share: identifiers, units, values, errors and
//! the PDU codec. The names are those of PMAPI(3) in Rust's case; each item's documentation gives
//! the C function or macro that it answers to.

pub mod atom;
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
pub mod spec;
pub mod units;

pub use atom::Atom;
pub use config::Config;
pub use desc::{Desc, Semantics, Type};
pub use error::{Error, Result};
pub use id::{Domain, InDom, Inst, Item, PmId, Serial};
pub use id_text::{OrNull, ParseIdError};
pub use label::LabelSet;
pub use units::Units;
