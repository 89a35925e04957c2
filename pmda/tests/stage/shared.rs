//! The agent `stage` as a shared object, for the tests of that host.

#[path = "mod.rs"]
mod stage;

pmda::dso!(stage_init, stage::Stage);
