//! The tests of pcp-help, but for those that need a process of their own.

mod help;
mod pcp;
