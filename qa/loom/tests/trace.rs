//! Rings of the shared-memory transport in every order of accesses. See `src/lib.rs`.
#![cfg(trace_loom)]

#[test]
fn whatever_the_order_records_are_whole_or_missed() {
    trace::shared_memory::tried::records_are_whole_or_missed();
}
