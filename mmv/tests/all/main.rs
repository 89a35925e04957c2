//! Tests that need no process of their own.

mod c_api;
mod growth;
mod log;
mod registry;
