//! Tests of `mmv` under loom: updates while values move to another file, in every order of accesses with up to three
//! preemptions. The code is the crate's own, with loom's locks and atomics; only the mapped pages are replaced
//! (`mmv/src/map/cells.rs`).
//!
//! Run with `RUSTFLAGS="--cfg mmv_loom" cargo test -p mmv-loom --target-dir target/loom`; without the option this crate
//! is empty. It is a crate of its own so that few dependencies are compiled with the option.

#[cfg(all(test, mmv_loom))]
mod tests;
