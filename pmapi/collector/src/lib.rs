//! The collector's side of the connection: starts an agent as pmcd does, and sends it pmcd's requests.
//!
//! [`Launch`] starts an agent of any language over a pipe or connects to it over a socket, and performs the version
//! exchange. [`Collector`] is the connection, with a method for each request. It has pmcd's time-outs, rules for agents
//! that are not ready, and checks of answers. It uses the small trait [`Channel`], so that the same requests reach an
//! agent in this process. [`Supervisor`] keeps an agent running that may fail.
//!
//! ```no_run
//! use pmapi::{Atom, Domain, InDom, Item, PmId, Serial};
//! use pcp_collector::Launch;
//! use std::process::Command;
//!
//! let domain = Domain::new(253).unwrap();
//! let mut command = Command::new("/var/lib/pcp/pmdas/simple/pmdasimple");
//! command.args(["-d", "253"]);
//! let mut simple = Launch::pipe(command).start()?;
//!
//! let numfetch = PmId::new(domain, Item::new(0, 0));
//! assert_eq!(simple.desc(numfetch)?.ty, pmapi::Type::U32);
//! assert_eq!(simple.value(numfetch)?, Atom::U32(1));
//! for (inst, name) in simple.instances(InDom::new(domain, Serial::new(0)))? {
//!     println!("{inst} {name}");
//! }
//! simple.close();
//! # Ok::<(), pcp_collector::Error>(())
//! ```
//!
//! Types of [`pmapi`], [`pcp_pdu`] and [`pmda`] are in the interface, so these crates are re-exported.

mod channel;
#[cfg(all(target_endian = "little", target_pointer_width = "64"))]
mod dso;
mod error;
mod group;
mod guard;
mod isolate;
mod launch;
mod local;
mod process;
mod reply;
mod request;
mod session;
mod stderr;
mod stream;
mod supervisor;
#[cfg(test)]
mod tests;

pub use pcp_pdu;
pub use pmapi;
pub use pmda;

pub use channel::Channel;
#[cfg(all(target_endian = "little", target_pointer_width = "64"))]
pub use dso::{Answered, LoadError, SharedObject};
pub use error::{Error, Result};
pub use launch::{Launch, Starting};
pub use local::Local;
pub use pmda::host::Address;
pub use process::{End, Process};
pub use reply::{Fetched, LabelTarget, MetricValues};
pub use session::{AgentState, Collector};
pub use stream::Stream;
pub use supervisor::Supervisor;

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
