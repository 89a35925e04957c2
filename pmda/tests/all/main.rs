//! Tests of agents over each host, and under the real pmcd. Tests that need a process of their own are programs of their
//! own.

#![allow(clippy::unwrap_used, clippy::panic, unsafe_code)]

#[path = "../stage/mod.rs"]
mod stage;
// The example, with its tests.
#[allow(dead_code)]
#[path = "../../examples/spool.rs"]
mod spool;
#[path = "../zoo/mod.rs"]
mod zoo;

mod c_api;
mod conformance;
mod getters;
mod hostile;
mod live;
mod mistakes;
mod nul;
mod pcp;
mod requests;
mod restricted;
mod sources;
mod unsupported;
mod written;
