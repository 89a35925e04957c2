//! The tests of pcp-client, but for those that need a process of their own.

mod context;
mod libpcp;
