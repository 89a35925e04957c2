//! The tests of pcp-tools, but for those that need a process of their own.

mod arguments;
mod genmap;
mod help;
mod pmns;
mod terminal;
