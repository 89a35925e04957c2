//! The agent breaks no rule of `dbpmda check`.

use crate::common;

#[test]
fn no_rule_is_broken() {
    let subject = common::Subject { binary: env!("CARGO_BIN_EXE_pmdammv"), object: Some(("pmda_mmv", "mmv_init")) };
    subject.breaks_no_rule(|dir| {
        let registry = mmv::Registry::builder("app").directory(dir.join("tmp/mmv")).build().unwrap();
        let counter: mmv::Counter = registry.counter("requests").help("Requests").register().unwrap();
        registry.try_start().unwrap();
        ((registry, counter), Vec::new())
    });
}
