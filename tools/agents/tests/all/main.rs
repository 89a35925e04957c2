//! The tests of pcp-agents, but for those that need a process of their own.

mod benchmarks;
mod common;
mod dependencies;
mod findings;
mod functions;
mod modules;
mod operands;
mod options;
mod output;
mod packages;
mod plain;
mod pminfo;
mod readme;
mod record;
mod terminal;
mod verbatim;
