//! PCP's dbpmda and this one give the same output for the same input and the same agents.

#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

mod agents;
mod check;
mod connections;
mod derived;
mod failures;
mod language;
mod modes;
mod name_spaces;
mod random;
mod sample;
mod sessions;
mod shared;
mod stores;
mod terminal;
mod traces;
