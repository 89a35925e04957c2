//! Processes that trace through shared memory: several at a time, killed, and hostile ones.

#![allow(clippy::unwrap_used, clippy::panic)]

mod counts;
mod harm;
mod limits;
mod records;
mod scene;
