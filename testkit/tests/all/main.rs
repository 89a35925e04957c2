//! The tests of pcp-testkit, but for those that need a process of their own.

mod pcp;
mod words;
