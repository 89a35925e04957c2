//! Lists the public interface of a crate: every item that another crate can name, with its signature, public fields
//! and implementations.
//!
//! The list comes from the source, so that it needs no nightly compiler and does not depend on the version of one. It
//! follows modules, `use` and `bitflags!`. For every other macro that declares items, the list has the macro's tokens.

mod crates;
mod item;
mod list;
mod source;
mod text;

pub use crates::{Crate, library_crates};
pub use list::interface;
pub use source::Error;
