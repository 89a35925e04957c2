//! Tests of tracing over TCP and shared memory. Tests that need a process of their own are programs of their own.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../common/mod.rs"]
mod common;

mod agents;
mod c_agent;
mod c_api;
mod damaged;
mod format;
mod full;
mod layer;
mod ways;
