//! Memory mapped values (mmv(5)): an application exports metrics to Performance Co-Pilot at the cost of one store per
//! update.
//!
//! ```no_run
//! # fn main() -> Result<(), mmv::Error> {
//! let registry = mmv::Registry::new("shop")?;
//! let sales = registry.counter("sales").help("Things sold").register()?;
//! let open = registry.gauge("carts").help("Carts that are being filled").register()?;
//! registry.start();
//!
//! sales.inc();
//! open.set(3.0);
//! # Ok(())
//! # }
//! ```
//!
//! `pminfo -f mmv.shop` then shows the values. Without PCP on the machine, the application runs as usual.
//!
//! * [`Registry`]: metrics, instance domains and labels, registered before or after the start
//! * [`Handle`]: updates a value, from any thread; [`CounterWriter`], [`GaugeWriter`] and [`Interval`] from one owner
//! * [`c_api`]: the names of C's `mmv_stats.h`, and their counterparts
//! * [`mod@format`]: the records of a file; crate `pcp-mmv-reader` reads the files of any application
//!
//! Features: `metrics` adds a recorder for the `metrics` facade, `tracing-layer` a layer for `tracing-subscriber`. With
//! either, a program that is already instrumented exports to PCP.
//!
//! Types of [`pmapi`] are in the interface, so this crate is re-exported; with the features, also traits of `metrics`
//! and `tracing-subscriber`. Registries and handles are `Send` and `Sync`.

#[doc = include_str!("c_api.md")]
pub mod c_api {}
pub mod format;

mod directory;
mod error;
mod handle;
mod home;
mod ids;
mod layout;
mod model;
mod names;
mod notice;
mod os;
mod registry;
mod sync;

#[cfg(feature = "tracing-layer")]
pub mod layer;
#[cfg(feature = "metrics")]
pub mod recorder;

/// The `metrics` facade, in the version of the [`recorder`]: what a program records through another version is not exported.
#[cfg(feature = "metrics")]
pub use metrics;

pub use pmapi;

pub use error::Error;
pub use handle::{
    Buckets, Counter, CounterWriter, Gauge, GaugeWriter, Handle, Interval, Number, Quantiles, Running, ShardedCounter,
    Text, Timer,
};
pub use pmapi::{Semantics, Units};
pub use registry::{
    Batch, Family, HistogramBuilder, InstanceDomain, InstanceDomainBuilder, MetricBuilder, Registry, RegistryBuilder,
};

/// Checks that threads may share these types, as documented.
const _: () = {
    const fn is_shared<T: Send + Sync>() {}
    is_shared::<Registry>();
    is_shared::<Counter>();
    is_shared::<Gauge>();
    is_shared::<Quantiles>();
    is_shared::<ShardedCounter>();
    is_shared::<Text>();
    is_shared::<Timer>();
};

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
