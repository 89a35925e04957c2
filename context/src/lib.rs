//! One interface over the sources of metrics (PMAPI(3)): a live pmcd, and archives.
//!
//! A [`Context`] has names, descriptors, instances, texts, labels and values, whatever its source is. Of an archive,
//! a [`Mode`] says which records or times fetches return, and metadata is as of the last fetch. Derived metrics that
//! are added to a context stand beside the others. [`Zone`] and [`WindowOptions`] answer to the options of PCP's
//! commands that name times.
//!
//! ```no_run
//! use pcp_context::{Context, Mode, WindowOptions, Zone};
//!
//! let mut context = Context::open_archive("/var/log/pcp/pmlogger/host/20260101")?;
//! context.add_derived("disk.rate", "rate(disk.all.total)")?;
//! let (start, end) = context.bounds()?;
//! let options = WindowOptions { start: Some("-1hour"), align: Some("1min"), ..WindowOptions::default() };
//! let window = options.parse(start, end, &context.zone()?)?;
//! context.set_mode(Mode::Interpolated { step: 60_000_000_000 }, Some(window.origin))?;
//! let pmid = context.lookup_name("disk.rate")?;
//! let desc = context.lookup_desc(pmid)?;
//! for _ in 0..60 {
//!     for (_, value) in context.fetch(&[pmid])?.set(0).into_iter().flat_map(|set| set.values()) {
//!         println!("{}", value.atom(desc.ty)?);
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Differences from libpcp
//!
//! * In mode [`Mode::Interpolated`], metadata is as of the time of the last fetch. In libpcp it is as of the next one.
//! * A local context (`PM_CONTEXT_LOCAL`) and fetch groups (pmFetchGroup(3)) are not there.
//! * Derived metrics are bound when they are first needed after a definition has been added, and begin anew then.
//!
//! Types of other crates in the interface: those of [`pmapi`], [`pcp_pdu`], [`pcp_archive`], [`pcp_client`] and
//! [`pcp_derive`].

mod assemble;
mod base;
mod context;
mod derived;
mod error;
mod labels;
mod lookup;
mod recorded;
mod when;
mod window;
mod zone;

pub use context::Context;
pub use error::ContextError;
pub use recorded::Mode;
pub use window::{TimeWindow, WindowOptions};
pub use zone::{LocalTime, Zone};

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
