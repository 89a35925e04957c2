//! The agent, its program and its configurations.

#![allow(clippy::unwrap_used, clippy::panic)]

mod agents;
mod archive;
mod check;
mod clock;
#[path = "../../../../tools/agents/tests/all/common/rules.rs"]
mod common;
mod dso;
mod failures;
mod groups;
mod libpcp;
mod linux;
mod place;
mod pmcd;
mod ready;
mod reload;
mod rules;
mod scene;
