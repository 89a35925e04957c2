//! Tests against the installed PCP.
//!
//! The kit serves tests that compare with PCP. [`Pcp`] finds the installation, and [`CAgent`] is the C implementation
//! of an agent. [`Pmcd`] is a private collector with its own configuration, name space, port, socket and logs in a
//! temporary directory. Any number of them run side by side, and the machine's pmcd is not affected. [`Output`] is the
//! output of a tool.
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
//! Some parts need no PCP: [`Child`] is a forked process, [`Taken`] are files of a program at descriptors of libraries, and [`logged`] returns what code under test logs.
//!
//! A failure is a panic with the tool's output or the log, because the callers are tests.

#![allow(clippy::panic, clippy::expect_used, clippy::unwrap_used)]

mod agent;
mod attacker;
mod c_agent;
pub mod c_api;
mod child;
mod descriptors;
mod input;
mod log;
mod name_space;
mod output;
mod pcp;
mod pmcd;
mod program;
mod words;

pub use agent::{Agent, free_port};
pub use attacker::Attacker;
pub use c_agent::{CAgent, built};
pub use child::Child;
#[cfg(target_os = "linux")]
pub use child::as_process_1;
pub use descriptors::Taken;
pub use input::ended_input;
pub use log::logged;
pub use name_space::NameSpace;
pub use output::{Output, normalise, with_sorted_metadata, without_usage_words};
pub use pcp::{Missing, Pcp, Version, agents_with};
pub use pmcd::{Builder, Pmcd, wait_for};
pub use program::{answers, compile, copy_executable, executable, on_terminal};
pub use words::one_word;
