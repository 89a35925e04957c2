//! The tests of pcp-pmlogderive.

#![allow(clippy::panic, clippy::unwrap_used)]

mod recorded;
