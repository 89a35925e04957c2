//! A framework for Performance Co-Pilot agents (PMDAs): the counterpart of `libpcp_pmda` in C.
//!
//! An agent implements [`Agent`]: it declares metrics, instance domains, help and labels in [`Agent::new`], and puts
//! values into the answer in [`Agent::fetch`]. The `main` of its binary calls [`main::<A>()`](main), which handles the
//! options, the transports, the version exchange, the log and the change of user. `--write-pmda` makes it write the
//! files that PCP needs beside the binary.
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
//!     fn new(setup: &mut Setup) -> Start<Self> {
//!         let up = setup.metric("uptime.agent", Item::new(0, 0), Type::Double).counter().units(Units::SECONDS);
//!         up.help("Time since the agent started", "In seconds.");
//!         Ok(Uptime(std::time::Instant::now()))
//!     }
//!
//!     fn fetch(&mut self, _: Item, out: &mut Values<'_>) -> Result {
//!         out.put(self.0.elapsed().as_secs_f64())
//!     }
//! }
//!
//! # if false {
//! pmda::main::<Uptime>(); // the daemon
//! # }
//! let mut uptime = pcp_collector::Local::<Uptime>::collector()?; // the same agent, in a test
//! let up = uptime.metric("uptime.agent")?;
//! assert!(matches!(uptime.value(up)?, Atom::Double(seconds) if seconds < 60.0));
//! # Ok::<(), pmda::Failure>(())
//! ```
//!
//! [`c_api`] maps each name of C's `pmda.h` to its counterpart here, and [`log`] describes log lines and debug options.
//! Crate `pcp-collector` is the other side of the connection: it sends the requests that dbpmda(1) and pmcd(1) send to
//! an agent.

mod access;
pub mod agent;
pub mod background;
#[doc = include_str!("c_api.md")]
pub mod c_api {}
pub mod cache;
pub mod catalog;
pub mod client;
mod daemon;
#[cfg(all(target_endian = "little", target_pointer_width = "64"))]
pub mod dso;
pub mod dynamic;
pub mod engine;
pub mod event;
mod files;
mod hangups;
pub mod indom;
pub mod limits;
pub mod log;
mod log_file;
mod options;
mod peer;
pub mod poll;
pub mod schema;
pub mod session;
mod setup;
mod start;
mod transport;
mod unserved;
pub mod user;
pub mod values;
pub mod watch;

pub use clap;
pub use pmapi;

pub use agent::{Agent, Failure, Labelled, Request, Start};
pub use background::Background;
pub use cache::Cache;
pub use catalog::Catalog;
pub use client::{Client, ClientAttribute, Clients};
pub use daemon::{main, run};
pub use dynamic::Dynamic;
pub use engine::{Engine, Reply};
pub use event::{Event, EventQueue};
pub use hangups::Hangups;
pub use indom::Instances;
pub use poll::{PollSet, Wake};
pub use schema::{Indom, Metric, Schema};
pub use setup::Setup;
pub use transport::{Address, inet_port};
pub use values::Values;
pub use watch::Watch;

/// The names that the source file of an agent needs.
pub mod prelude {
    pub use crate::agent::{Agent, Labelled, Request, Start};
    pub use crate::background::Background;
    pub use crate::cache::Cache;
    pub use crate::catalog::Catalog;
    pub use crate::client::{Client, ClientAttribute, Clients};
    pub use crate::dynamic::Dynamic;
    pub use crate::event::{Event, EventQueue};
    pub use crate::indom::Instances;
    pub use crate::poll::{PollSet, Wake};
    pub use crate::schema::{Indom, Metric};
    pub use crate::setup::Setup;
    pub use crate::values::Values;
    pub use crate::watch::Watch;
    pub use pcp_pdu::event::{EventFlags, Stamp};
    pub use pcp_pdu::handshake::Flags;
    pub use pcp_pdu::metadata::{Subject, TextKind};
    pub use pcp_pdu::result::Changes;
    pub use pmapi::label::LabelSet;
    pub use pmapi::{Atom, Error, Inst, Item, Result, Serial, Type, Units};
    pub use serde_json::json;
}
