//! The tests of pcp-pmns, but for those that need a process of their own.

mod libpcp;
mod load;
mod tree;
