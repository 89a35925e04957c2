//! The tests of pmda-mmv.

#![allow(clippy::unwrap_used, clippy::panic)]

mod agent;
mod applications;
#[path = "../../../../tools/agents/tests/all/common/rules.rs"]
mod common;
mod log;
mod pmcd;
#[path = "../../../../mmv/reader/tests/common/raw.rs"]
mod raw;
mod rules;
mod scene;
