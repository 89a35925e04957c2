//! Tests of the agent as a process, and of documents. Those that need a network or environment of their own are programs of
//! their own.

#![allow(clippy::unwrap_used, clippy::panic)]

mod agent;
mod answers;
mod both;
mod check;
mod compared;
mod files;
mod hostile;
mod many;
mod memory;
mod odd;
mod pmcd;
mod refused;
mod rules;
mod scene;
mod server;
mod servers;
#[cfg(feature = "tls")]
mod tls;
