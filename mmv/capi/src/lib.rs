//! `libpcp_mmv.so.1` in Rust: the functions of `mmv_stats_init(3)`, `mmv_stats_registry(3)`, `mmv_inc_value(3)` and
//! their relatives, for programs that are linked with the C library. README.md describes its use and its differences
//! from C's library.
//!
//! * `abi`: the 32 functions, and their arguments
//! * `sys`: mapped memory, threads and forks
//! * all others: safe code in between, without pointers
//!
//! No function panics on purpose. A panic ends in the function that the program has called, which then reports an
//! error.

mod abi;
mod contents;
mod file;
mod handle;
mod label;
mod layout;
mod notice;
mod registry;
mod sys;
mod update;
