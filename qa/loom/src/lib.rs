//! Tests of `mmv` under loom, in `tests/loom.rs`: updates while values move to another file, in every order of accesses
//! with up to three preemptions. The code is the crate's own, with loom's locks and atomics; only the mapped pages are
//! replaced (`mmv/src/map/cells.rs`).
//!
//! Run in `qa` with `RUSTFLAGS="--cfg mmv_loom" cargo test -p pcp-loom --target-dir ../target/loom`; without the option the
//! tests are empty.
