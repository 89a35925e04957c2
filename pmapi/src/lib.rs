//! Identifiers, units, values, errors and labels of Performance Co-Pilot, for its clients and agents.
//!
//! The names are those of PMAPI(3) in Rust's case. Each item's documentation names the corresponding C function or
//! macro.
//!
//! Types of other crates in the interface: labels are created from any `Serialize` of `serde`, a [`LabelError`] may
//! contain an error of `serde_json`, and [`file`](mod@file), which is for this repository's own crates, accepts flags
//! of `nix`.

mod atom;
pub mod backoff;
pub mod build;
pub mod cnum;
mod config;
pub mod debug;
mod desc;
mod error;
pub mod escape;
pub mod file;
mod id;
mod id_text;
pub mod interval;
mod label;
pub mod names;
pub mod number;
mod secure;
pub mod spec;
pub mod stderr;
pub mod thread;
mod types;
mod units;
#[cfg(feature = "zone")]
pub mod zone;

pub use atom::{Atom, Converted};
pub use config::{Config, ConfigError, is_set_id};
pub use desc::Desc;
pub use error::{Error, Result};
pub use id::{Domain, InDom, Inst, Item, OptionWord, PmId, Serial};
pub use id_text::{OrNull, ParseIdError};
pub use label::{Label, LabelError, LabelFlags, LabelLevel, LabelSet, RawLabel};
pub use types::{Semantics, Type};
pub use units::{ExtraUnit, ParseUnitsError, Quantity, SpaceScale, TimeScale, Units};

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
