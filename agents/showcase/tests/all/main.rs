//! The tests of pmda-showcase, but for those that need a process of their own.

mod dso;
mod hosts;
mod peer;
mod pmcd;
mod rules;
