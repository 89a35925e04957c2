//! Tests of `mmv` under loom, in `tests/loom.rs`: updates while values move to another file, in every order of accesses
//! with up to three preemptions. The code is the crate's own, with loom's locks and atomics; only the mapped pages are
//! replaced (`mmv/src/map/cells.rs`).
//!
//! Run with `RUSTC_WORKSPACE_WRAPPER=$PWD/mmv/loom/rustc cargo test --workspace --test loom`; without that compiler the
//! tests are empty. They are a separate crate, so that few packages are compiled with it. With `--workspace`, the other
//! packages have the features of all builds and are not compiled again.
