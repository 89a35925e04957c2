//! The names that the source file of most agents needs: `use pmda::prelude::*`.
//!
//! [`Result`] shadows that of the standard library. It is the same type, with defaults: `Result` means
//! `Result<(), Error>`, and `Result<T, E>` is valid too.

pub use crate::agent::Agent;
pub use crate::background::Background;
pub use crate::cache::Cache;
pub use crate::catalog::Catalog;
pub use crate::client::{Client, Clients};
pub use crate::config_file::ConfigFile;
pub use crate::dynamic::Dynamic;
pub use crate::error::BoxError;
pub use crate::indom::Instances;
pub use crate::request::Request;
pub use crate::schema::{ArgumentDef, InDomDef, MetricDef};
pub use crate::setup::Setup;
pub use crate::table::Table;
pub use crate::values::Values;
pub use pmapi::{Atom, Error, Inst, Item, LabelSet, Result, Serial, Type, Units};
pub use serde_json::json;
