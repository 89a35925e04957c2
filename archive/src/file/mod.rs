//! Files of archives: their names, and their bytes, compressed or not.

mod compress;
pub(crate) mod find;
mod source;

pub(crate) use source::{Source, whole};
