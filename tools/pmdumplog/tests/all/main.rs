//! The tests of pcp-pmdumplog, but for those that need a process of their own.

mod check;
mod labels;
mod memory;
mod raw;
mod same;
mod several;
mod terminal;
