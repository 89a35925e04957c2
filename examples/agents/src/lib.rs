//! Whole agents under a hundred lines each, to use and to begin with. Each file stands alone: copied into the package of
//! `cargo pmda new`, it is that package's agent.

pub mod cgroup2;
pub mod follow;
pub mod health;
pub mod script;
pub mod status;
