//! Identifiers, units, values, errors and labels of Performance Co-Pilot, for its clients and agents.
//!
//! ```
//! use pmapi::{Atom, Desc, Error, PmId, Semantics, Type, Units};
//!
//! let pmid: PmId = "60.0.24".parse()?;
//! let units = Units::KBYTES.per(Units::SECONDS);
//! let desc = Desc { pmid, ty: Type::U32, indom: None, semantics: Semantics::Instant, units };
//! assert_eq!(desc.units.to_string(), "Kbyte / sec");
//!
//! assert_eq!(Atom::U64(7).convert(desc.ty)?.as_atom(), Atom::U32(7));
//! assert_eq!(Atom::U64(5_000_000_000).convert(desc.ty), Err(Error::TRUNC));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! * [`PmId`], [`InDom`], [`Inst`]: numbers of metrics, instance domains and instances
//! * [`Desc`] with [`Type`], [`Semantics`] and [`Units`]: what a metric's values mean
//! * [`Atom`]: a value; [`LabelSet`]: labels; [`Error`]: the codes `PM_ERR_*`
//!
//! The names are those of PMAPI(3) in Rust's case. Each item's documentation names the corresponding C function or
//! macro. The modules have the texts of libpcp: intervals, metric specifications, numbers, debug options.
//!
//! Features: `serde` serializes these types, with numbers and units as PCP's tools print them; `zone` has time zones.
//!
//! Types of other crates in the interface: labels are created from any `Serialize` of `serde`, and a [`LabelError`] may
//! contain an error of `serde_json`.

mod atom;
pub mod cnum;
mod config;
pub mod debug;
mod desc;
mod error;
mod id;
mod id_text;
pub mod interval;
mod label;
pub mod names;
pub mod number;
#[cfg(feature = "serde")]
mod serialized;
pub mod spec;
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
