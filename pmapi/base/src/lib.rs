//! What the crates of this repository share, and what is not PCP: files among strangers, threads, pauses, and texts for
//! logs and terminals.
//!
//! * [`file`](mod@file): files in directories that other users may change at the same time
//! * [`thread`]: threads that can also be started in a forked child; [`stderr`]: a line that never blocks an application
//! * [`backoff`]: growing pauses between attempts that fail
//! * [`escape`]: foreign text for logs and terminals
//! * [`secure`]: whether the caller may be trusted; [`build`]: the version that a program prints
//!
//! The crate is for this repository: its interface may change at any release, and has types of `nix`.

pub mod backoff;
pub mod build;
pub mod escape;
pub mod file;
pub mod secure;
pub mod stderr;
pub mod thread;
