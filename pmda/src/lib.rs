//! A framework for Performance Co-Pilot agents (PMDAs): the counterpart of `libpcp_pmda` in C.
//!
//! An agent implements [`Agent`]: it declares metrics, instance domains, help and labels in [`Agent::new`], each metric
//! with the function that returns its value. Rows that come and go are a [`Table`]. Values that these do not cover are
//! put into the answer in [`Agent::fetch`]. Its binary has the line `pmda::main!(A);`. [`main`](fn@main) handles the
//! options, the transports, the version exchange, the log and the change of user. `--write-pmda` makes it write the
//! files that PCP needs beside the binary, and `--install` installs it into the PCP of the host.
//!
//! ```
//! use pmda::prelude::*;
//!
//! struct Uptime(std::time::Instant);
//!
//! impl Agent for Uptime {
//!     const NAME: &'static str = "uptime";
//!     const DOMAIN: u16 = 400;
//!
//!     fn new(setup: &mut Setup) -> Result<Self, BoxError> {
//!         let up = setup.counter("uptime.agent", Item::new(0, 0), |agent: &Self| agent.0.elapsed());
//!         up.units(Units::SECONDS).help("Time since the agent started", "In seconds.");
//!         Ok(Uptime(std::time::Instant::now()))
//!     }
//! }
//!
//! # if false {
//! pmda::main::<Uptime>(); // the daemon
//! # }
//! let mut uptime = pcp_collector::Local::<Uptime>::collector()?; // the same agent, in a test
//! let up = uptime.metric("uptime.agent")?;
//! assert!(matches!(uptime.value(up)?, Atom::Double(seconds) if seconds < 60.0));
//! # Ok::<(), pmda::BoxError>(())
//! ```
//!
//! A metric has the type of what its function returns ([`TypedValue`]). A value for a declared type is converted if
//! nothing is lost: a `u32` may be the value of a metric of type `U64`. A value that does not fit becomes an error of this metric, and a line of the log (see [`Values`]).
//!
//! `cargo pmda new NAME` creates the package of an agent: this code, its `Cargo.toml`, which also builds a shared object,
//! and a test. The command is in package `cargo-pmda`, with `cargo pmda run`, `check` and `install`.
//!
//! Every type has one path. Those that an agent uses are in the root of the crate; the [`prelude`] has the names that
//! most agents use. Modules have the rest by subject: [`limits`], [`log`], [`install`], [`dso`](mod@dso), and [`host`]
//! for programs that run agents themselves.
//!
//! An agent names types of these crates, which are therefore re-exported: [`clap`] for its own options, [`pmapi`] for
//! identifiers, values and errors, and [`pcp_pdu`] for PDUs in a host of the application. Labels are any `Serialize` of
//! crate `serde`, usually `json!` of `serde_json`.
//!
//! Feature `daemon`, a default, is the agent as a program: its command line, Install and Remove, [`Sighup`]. A shared
//! object, or a program that hosts agents within itself, does without, and compiles a quarter less.
//!
//! An agent runs on one thread and need not be [`Send`]. The handles that it gets from [`Setup`], [`Clients`] and
//! [`EventQueue`], are not `Send` either. Threads of the agent pass their data by a [`Background`]
//! or its [`Publisher`], and events by an [`EventSender`].
//!
//! The [`cookbook`] has recipes: changing instances, slow sources, rates, labels, options, tests and more.
//!
//! [`c_api`] maps each name of C's `pmda.h` to its counterpart here, and [`log`] describes log lines and debug options.
//! Crate `pcp-collector` is the other side of the connection: it sends the requests that dbpmda(1) and pmcd(1) send to
//! an agent.

#![cfg_attr(not(feature = "daemon"), allow(dead_code, reason = "what only a daemon calls"))]

mod access;
mod agent;
mod background;
#[doc = include_str!("c_api.md")]
pub mod c_api {}
mod cache;
mod catalog;
mod client;
#[cfg(feature = "daemon")]
mod command_line;
mod config_file;
#[doc = include_str!("cookbook.md")]
pub mod cookbook {}
#[cfg(feature = "daemon")]
mod daemon;
#[cfg(all(target_endian = "little", target_pointer_width = "64"))]
pub mod dso;
mod dynamic;
mod engine;
mod error;
mod event;
#[cfg(feature = "daemon")]
mod files;
mod fixed_limit;
pub mod host;
mod indom;
#[cfg(feature = "daemon")]
pub mod install;
pub mod limits;
pub mod log;
mod log_file;
#[cfg(feature = "daemon")]
mod options;
mod peer;
mod poll;
pub mod prelude;
mod program;
mod request;
mod schema;
mod session;
mod setup;
#[cfg(feature = "daemon")]
mod sighup;
mod table;
mod texts;
mod transport;
mod unserved;
mod user;
mod values;
mod work;

#[cfg(feature = "daemon")]
pub use clap;
pub use pcp_pdu;
pub use pmapi;
pub use tracing;
pub use tracing_subscriber;

pub use agent::Agent;
pub use background::{Background, Publisher};
pub use cache::{Cache, CacheError, CacheFileError, CacheInstance};
pub use catalog::{Catalog, LabelSubject, MetricInfo, Version};
pub use client::{Client, ClientAttribute, Clients};
#[cfg(feature = "daemon")]
pub use command_line::CommandLine;
pub use config_file::ConfigFile;
#[cfg(feature = "daemon")]
pub use daemon::main;
pub use dynamic::Dynamic;
pub use error::BoxError;
pub use event::{Event, EventQueue, EventSender};
pub use indom::Instances;
pub use pcp_pdu::event::{EventFlags, Stamp};
pub use pcp_pdu::handshake::Features;
pub use pcp_pdu::metadata::{Subject, TextKind};
pub use pcp_pdu::profile::Selection;
pub use pcp_pdu::result::Changes;
pub use poll::{PollSet, Wake};
pub use request::{Items, Request};
pub use schema::{ArgumentDef, InDomDef, MetricDef, Mistake};
pub use setup::Setup;
#[cfg(feature = "daemon")]
pub use sighup::Sighup;
pub use table::{Rows, Table, TableDef};
pub use values::{TypedValue, Value, Values};
/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
