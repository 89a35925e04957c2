//! Derived metrics against libpcp: its recorded answers, and fresh ones of the installed library.

#![allow(clippy::unwrap_used, clippy::panic)]

mod answers;
mod config;
mod differences;
mod generated;
mod live;
mod recorded;
mod table;
