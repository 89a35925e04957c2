//! Traces an application for Performance Co-Pilot's trace agent: the counterpart of `libpcp_trace` (pmdatrace(3)).
//!
//! A *trace event* is a transaction, a point, an observation or a counter value. A [`Tag`] names it.
//!
//! ```no_run
//! use pcp_trace::{Tag, Trace};
//!
//! let trace = Trace::from_env()?;
//! let (order, refused, size) = (Tag::new("order")?, Tag::new("order refused")?, Tag::new("order size")?);
//!
//! let transaction = trace.begin(&order);
//! # fn take_order() -> Option<f64> { None }
//! match take_order() {
//!     Some(items) => {
//!         trace.observe(&size, items);
//!         transaction.end();
//!     }
//!     None => trace.point(&refused), // the transaction is dropped without an end, and not counted
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The agent exports counts, rates and times of all tags: `trace.transact.count`, `trace.point.rate`, …
//!
//! No call fails because the agent is not running. Trace events are [missed](Status::missed) meanwhile, and the library
//! reconnects after 5, 10, 20, 40 and then every 80 seconds. Environment variables set the agent's address and the
//! timeouts: see [`Options`].
//!
//! There are three transports:
//!
//! * **shared memory** (module [`shared_memory`]): a call writes into a mapped file, without a system call or a lock, and
//!   the agent on the same host reads it. Event records have [`Fields`] and parents with this
//!   transport only. It is the default if the agent on this host supports it, now or later: [`Options::transport`];
//! * **synchronous TCP**: a call returns when the agent has counted the trace event. The very first call waits for the
//!   connection, up to [`Options::connect_timeout`]. A call that the agent does not answer takes
//!   [`Options::request_timeout`];
//! * **asynchronous TCP** ([`State::ASYNC`]): a call queues the trace event, and a thread sends it some milliseconds
//!   later. While the queue is full (1 MiB), trace events are missed.
//!
//! A forked child opens its own connection or file. It uses neither the parent's socket nor its queue. Its
//! [`Status`] continues from the parent's.
//!
//! The feature `tracing-layer` adds the module `layer`, which traces spans and events of the crate `tracing`.
//!
//! [`c_api`] maps each name of C's `trace.h` to its counterpart here.
//!
//! Types of other crates in the interface: the traits of `bitflags` for [`State`]; with the feature `tracing-layer`,
//! traits of `tracing` and `tracing-subscriber`. A [`Trace`] is `Send` and `Sync`.

#[doc = include_str!("c_api.md")]
pub mod c_api {}
mod failure;
#[cfg(feature = "tracing-layer")]
pub mod layer;
mod link;
mod options;
pub mod protocol;
mod queue;
pub mod shared_memory;
mod status;
mod tag;
mod trace;
mod transaction;
mod ways;

pub use failure::Failure;
pub use options::{EnvError, Options, State, Transport, UnknownTransport};
pub use shared_memory::fields::Fields;
pub use status::{StateError, Status};
pub use tag::{Tag, TagError};
pub use trace::Trace;
pub use transaction::Transaction;

/// Checks that threads may share these types, as documented.
const _: () = {
    const fn is_shared<T: Send + Sync>() {}
    is_shared::<Trace>();
    is_shared::<Tag>();
};

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
