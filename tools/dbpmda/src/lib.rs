//! dbpmda(1): sends an agent the requests of pmcd, from a prompt or a script.
//!
//! The command language and the output are those of PCP's dbpmda; the help texts are not. A [`Session`] reads commands
//! from a [`Source`] and writes to a [`Console`]. It uses the channels of the collector's side ([`pcp_collector`]), but
//! keeps an agent connected whatever its answers are.

mod agent;
mod attribute;
pub mod check;
mod console;
mod fetch;
mod grammar;
mod help;
mod names;
mod number;
mod profile;
mod requests;
mod scanner;
mod session;
mod show;
mod source;
mod state;
mod status;
mod terminal;
#[cfg(test)]
mod tests;
mod token;
mod trace_answers;
mod usage;

pub use console::Console;
pub use names::NoNames;
pub use session::Session;
pub use source::{Input, Source};
pub use state::Options;
pub use terminal::Terminal;
pub use usage::USAGE;

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
