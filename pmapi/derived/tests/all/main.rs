//! The tests of pcp-derived, but for those that need a process of their own.

mod derive;
mod odd_samples;
