//! Files of archives: their names, and their bytes, compressed or not.

mod command;
mod compress;
pub(crate) mod find;
mod lzw;
mod source;
#[cfg(feature = "xz")]
mod xz;

pub(crate) use source::{Source, Stream};
