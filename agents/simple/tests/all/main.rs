//! The tests of pmda-simple, but for those that need a process of their own.

mod dbpmda;
mod dso;
mod durable;
mod full;
mod options;
mod pmcd;
mod raw;
mod rules;
mod strangers;
