//! The client against libpcp and pmcd, and against peers that are no pmcd.

#![allow(clippy::unwrap_used, clippy::panic)]

mod answers;
mod calls;
mod cuts;
mod failures;
mod stage;
