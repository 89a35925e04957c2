//! Rings of the shared-memory transport in every order of accesses. Without the compiler in `mmv/loom`, there is no test.
#![cfg(mmv_loom)]

#[test]
fn whatever_the_order_records_are_whole_or_missed() {
    pcp_trace::shared_memory::tried::records_are_whole_or_missed();
}
