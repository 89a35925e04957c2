//! Tests of `trace` under loom, in `tests/trace.rs`: rings of events in every order of accesses. The code is the crate's
//! own, with loom's atomics.
//!
//! Run in `qa` with `RUSTFLAGS="--cfg trace_loom" cargo test -p pcp-loom --target-dir ../target/loom`; without the option the
//! tests are empty.
