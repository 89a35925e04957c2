//! Tests of the parser by its public functions.

#![allow(clippy::unwrap_used, clippy::panic)]

mod any;
mod lines;
