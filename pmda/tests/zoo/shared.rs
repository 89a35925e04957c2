//! The agent `zoo` as a shared object, for the tests of that host.

#[path = "mod.rs"]
mod zoo;

pmda::dso!(zoo_init, zoo::Zoo);
