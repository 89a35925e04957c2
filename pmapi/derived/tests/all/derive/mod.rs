//! Derived metrics compared with libpcp: its recorded answers, and those of the installed library.

#![allow(clippy::unwrap_used, clippy::panic)]

mod allocations;
mod answers;
mod cases;
mod compare;
mod config;
mod differences;
mod edges;
mod generated;
mod generator;
mod large;
mod live;
mod local;
mod mutations;
mod plans;
mod properties;
mod reasons;
mod recorded;
mod set;
mod table;
mod testsuite;
mod tokens;
