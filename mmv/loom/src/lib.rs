//! Handles of `mmv` while their values move to another file, in every order of accesses that loom finds with
//! up to three preemptions. It is the crate's own code with loom's locks and atomics; only the mapped pages
//! are stood in for (`mmv/src/map/cells.rs`).
//!
//! `RUSTFLAGS="--cfg mmv_loom" cargo test -p mmv-loom --target-dir target/loom`; without the option there is
//! nothing here. A crate of its own, which needs little of what the others' tests need.

#[cfg(all(test, mmv_loom))]
mod tests;
