//! The tests of pmda-simple, but for those that need a process of their own.

#![allow(clippy::unwrap_used)]

#[path = "../../../../tools/agents/tests/all/common/rules.rs"]
mod common;
mod dbpmda;
mod dso;
mod durable;
mod full;
mod options;
mod pmcd;
mod raw;
mod rules;
mod strangers;
