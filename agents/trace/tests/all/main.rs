//! Tests of agent trace as a program of its own.

#![allow(clippy::unwrap_used, clippy::panic)]

mod clients;
#[path = "../../../../tools/agents/tests/all/common/rules.rs"]
mod common;
mod daemon;
mod events;
mod pmcd;
mod rules;
mod shared_memory;
