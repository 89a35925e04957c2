//! Stands in for libfuzzer-sys, so that a stable compiler checks the fuzz targets. This crate does not run them:
//! cargo-fuzz compiles them in separate workspaces.

/// Checks the types of a fuzz target.
#[macro_export]
macro_rules! fuzz_target {
    (|$data:ident: $ty:ty| $body:expr) => {
        const _: fn($ty) = |$data: $ty| $body;
    };
}
