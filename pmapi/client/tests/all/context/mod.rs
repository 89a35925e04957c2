//! Client against libpcp and pmcd, and against peers that are not pmcd.

#![allow(clippy::unwrap_used, clippy::panic)]

mod answers;
mod calls;
mod cuts;
mod failures;
mod stage;
