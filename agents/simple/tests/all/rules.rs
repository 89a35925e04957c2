//! The agent breaks no rule of `dbpmda check`.

#![allow(clippy::unwrap_used)]

#[test]
fn no_rule_is_broken() {
    let subject = crate::common::Subject {
        binary: env!("CARGO_BIN_EXE_pmdasimple"),
        object: Some(("pmda_simple", "simple_init")),
    };
    subject.breaks_no_rule(|_| ((), Vec::new()));
}
