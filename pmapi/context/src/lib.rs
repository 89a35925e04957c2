//! One interface over the sources of metrics (PMAPI(3)): a live pmcd, and archives.
//!
//! A [`Context`] provides names, descriptors, instances, texts, labels and values, whatever its source is. For an
//! archive, a [`Mode`] determines which records or times fetches return, and metadata is as of the last fetch. Derived
//! metrics can be added to a context. [`Zone`] and [`WindowOptions`] are the counterparts of the time options of PCP's
//! commands.
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
//! [`c_api`] maps each function of C's `pmapi.h` to its counterpart.
//!
//! # Differences from libpcp
//!
//! * In mode [`Mode::Interpolated`], metadata is as of the time of the last fetch. In libpcp it is as of the next one.
//! * A process has one local context (`PM_CONTEXT_LOCAL`) and its duplicates. Its agents get no attributes of the
//!   client.
//! * Derived metrics are bound when they are first needed after a definition has been added. Binding resets their
//!   history.
//!
//! Types of [`pmapi`], [`pcp_pdu`], [`pcp_archive`], [`pcp_client`] and [`pcp_derived`] are in the interface, so these
//! crates are re-exported: a program needs `pcp-context` alone.

mod assemble;
mod base;
mod context;
mod derived;
mod error;
mod events;
mod getdate;
mod group;
mod labels;
mod local;
mod lookup;
mod record;
mod recorded;
mod when;
mod window;

pub use pcp_archive;
pub use pcp_client;
pub use pcp_derived;
pub use pcp_pdu;
pub use pmapi;

pub use context::Context;
pub use error::ContextError;
pub use events::{EVENT_FLAGS, EVENT_MISSED, EventRecord, unpack_events};
pub use group::{
    CounterWrap, Discrete, EventField, EventHandle, FetchGroup, GroupError, InDomHandle, InstanceValue, ItemHandle,
    Value,
};
pub use local::{LocalAgent, LocalAgents, LocalError, LocalSpecError};
pub use pmapi::zone::{LocalTime, Zone};
pub use record::{HostRole, RecordError, RecordHost, RecordSetup, Recording, Replay};
pub use recorded::Mode;
pub use window::{TimeWindow, WindowOptions};

#[doc = include_str!("c_api.md")]
pub mod c_api {}

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
