//! The tests of pmda-trivial, but for those that need a process of their own.

#![allow(clippy::unwrap_used)]

#[path = "../../../../tools/agents/tests/all/common/rules.rs"]
mod common;
mod dbpmda;
mod rules;
