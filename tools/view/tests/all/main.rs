//! The tests of pcp-view, but for those that need a process of their own.

mod host;
mod replay;
