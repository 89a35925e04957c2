//! The tests of pcp-pdu, but for those that need a process of their own.

mod pdus;
mod properties;
mod text_cases;
