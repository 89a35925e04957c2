//! Archives of Performance Co-Pilot (LOGARCHIVE(5)), which pmlogger(1) writes, read and written without libpcp.
//!
//! ```no_run
//! use pcp_archive::{Archive, Interpolation};
//! use pcp_pdu::profile::Profile;
//!
//! let archive = Archive::open("/var/log/pcp/pmlogger/host/20260101")?;
//! let load = archive.metadata().names().pmid(b"kernel.all.load")?;
//! let mut values = archive.interpolator(&[load], &Profile::default(), Interpolation::new());
//! values.seek(archive.label().start, 10_000_000_000); // every 10 seconds, from the start
//! while let Some(sample) = values.fetch()? {
//!     for (inst, value) in sample.sets().flat_map(|set| set.values()) {
//!         println!("{:?} {inst:?} {value:?}", sample.time);
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Archive`] opens an archive of version 2 or 3, or several as one, and has its label, its [`Metadata`] by time and
//! its end. A [`Cursor`] reads values: whole records forward and back (pmFetchArchive(3)), or chosen metrics
//! (pmFetch(3) in the modes `PM_MODE_FORW` and `PM_MODE_BACK`). An [`Interpolator`] computes values at any time
//! (`PM_MODE_INTERP`).
//!
//! A [`Writer`] writes an archive, as pmlogger(1) does, or continues one.
//!
//! Files are read through a buffer, never mapped, so an archive may grow or shrink meanwhile. Damaged files lead to an
//! [`ArchiveError`] with file, offset and reason. Of several archives, damage ends only the one that it is in:
//! [`Archive::take_skipped`] tells what is left out. Memory holds the metadata file, its tables, and the largest record. A
//! compressed metadata file or index is decompressed up to its first damaged record. Large compressed volumes are
//! decompressed into an unnamed temporary file.
//!
//! Differences from libpcp: descriptors and instance domains come in the order of their numbers, not in that of a hash
//! table. Value blocks must be in the order of their references, without gaps, as all known writers lay them out. A
//! name of more than 256 components is ignored.
//!
//! Types of [`pmapi`] and [`pcp_pdu`] are in the interface, so both crates are re-exported.

mod archive;
mod check;
mod cursor;
mod decode;
mod error;
mod fetch;
mod file;
mod interpolate;
mod log;
mod meta;
mod part;
mod scan;
mod skipped;
mod window;
mod write;

pub use pcp_pdu;
pub use pmapi;

pub use archive::{Archive, Options};
pub use check::{Check, Finding, Place, Weight};
pub use cursor::{Cursor, Direction};
pub use decode::Version;
pub use decode::index::IndexEntry;
pub use decode::label::Label;
pub use decode::record::Record;
pub use error::{ArchiveError, Result};
pub use fetch::{Fetched, FetchedSet};
pub use interpolate::{Interpolated, InterpolatedSet, Interpolation, Interpolator, Marks, Rule, Wrap};
pub use meta::{DiskInDom, InDomRecord, Instance, InstanceNames, LabelRecord, LabelSetView, Metadata, Names};
pub use part::Part;
pub use write::{Create, Writer};

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
