//! The agent breaks no rule of `dbpmda check`.

use crate::common::Subject;

#[test]
fn no_rule_is_broken() {
    let subject = Subject { binary: env!("CARGO_BIN_EXE_pmdatrace"), object: Some(("pmda_trace", "trace_init")) };
    subject.breaks_no_rule(|_| ((), Vec::new()));
}
