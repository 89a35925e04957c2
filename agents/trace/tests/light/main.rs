//! Processes that trace over the light transport: several at once, killed, and hostile ones.

#![allow(clippy::unwrap_used, clippy::panic)]

mod counts;
mod harm;
mod limits;
mod records;
mod scene;
