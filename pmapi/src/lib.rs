//! What a Performance Co-Pilot client and an agent share: identifiers, units, values, errors and
//! the PDU codec. The names are those of PMAPI(3) in Rust's case; each item's documentation gives
//! the C function or macro that it answers to.

pub mod atom;
pub mod config;
pub mod desc;
pub mod error;
pub mod id;
pub mod label;
pub mod pdu;
pub mod units;

pub use atom::Atom;
pub use config::Config;
pub use desc::{Desc, Semantics, Type};
pub use error::{Error, Result};
pub use id::{Domain, InDom, Inst, Item, PmId, Serial};
pub use label::LabelSet;
pub use units::Units;
