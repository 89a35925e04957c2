//! Reads memory mapped values files (mmv(5)) of any application, without trusting their contents.
//!
//! ```no_run
//! let file = mmv_reader::File::open("/var/tmp/mmv/shop")?;
//! for metric in file.metrics() {
//!     println!("{}", String::from_utf8_lossy(file.name(metric)));
//! }
//! # Ok::<(), mmv_reader::ReadError>(())
//! ```
//!
//! * [`File`]: the contents of one file
//! * [`dump`]: a file as text, as PCP's `mmvdump` prints it
//! * [`collection`]: all files of a directory, as PCP's agent exports them
//!
//! A file is copied, never mapped, so a process that truncates or replaces it meanwhile cannot harm the reader. Invalid
//! parts are left out, and listed as [`Problem`]s.
//!
//! Types of [`pmapi`] are in the interface, so this crate is re-exported. [`format`](mod@format) is that of `pcp-mmv`,
//! [`TextKind`] that of `pcp-pmda`.

pub mod collection;
pub mod dump;

mod reader;

pub use mmv::format;
pub use pmapi;
pub use pmda::TextKind;
pub use reader::{File, Indom, Instance, Label, MAX_LEN, MAX_TOCS, Metric, Problem, Problems, ReadError, ValueOf};

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
