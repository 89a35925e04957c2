//! The tests of pmda-showcase, but for those that need a process of their own.

#![allow(clippy::unwrap_used, unsafe_code)]

#[path = "../../../../tools/agents/tests/all/common/rules.rs"]
mod common;
mod dso;
mod hosts;
mod peer;
mod pmcd;
mod rules;
