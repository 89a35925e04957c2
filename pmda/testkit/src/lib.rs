//! Tests against the installed PCP.
//!
//! Everything here serves a test that has PCP as its judge: [`Pcp`] finds the installation, [`Pmcd`] is a collector of
//! the test's own (configuration, name space, port, socket and logs in a temporary directory, so that any number run
//! side by side and the machine's pmcd is left alone), [`CAgent`] is the C implementation of an agent, and [`Output`]
//! is what a tool said, to compare.
//!
//! ```no_run
//! use testkit::{Agent, Pcp};
//!
//! let pcp = Pcp::required();
//! let simple = pcp.c_agent("simple");
//! let pmcd = pcp.pmcd().pmdas_dir(simple.pmdas_dir()).agent(simple.agent().unix()).start();
//! assert!(pmcd.run("pminfo", ["-f", "simple.numfetch"]).ok().contains("value 1"));
//! ```
//!
//! A failure is a panic that carries the tool's output or the log: the callers are tests.

#![allow(clippy::panic, clippy::expect_used, clippy::unwrap_used)]

mod agent;
mod attacker;
mod c_agent;
mod name_space;
mod output;
mod pcp;
mod pmcd;

pub use agent::Agent;
pub use attacker::Attacker;
pub use c_agent::{CAgent, built};
pub use name_space::NameSpace;
pub use output::{Output, normalise};
pub use pcp::{Missing, Pcp};
pub use pmcd::{Builder, Pmcd};
