//! The agent breaks no rule of `dbpmda check`.

#[path = "../../../../tools/agents/tests/all/common/rules.rs"]
mod common;

#[test]
fn no_rule_is_broken() {
    let subject = common::Subject { binary: env!("CARGO_BIN_EXE_pmdaopenmetrics"), object: None };
    subject.breaks_no_rule(|dir| {
        let sources = dir.join("pmdas/openmetrics/config.d");
        std::fs::create_dir_all(&sources).unwrap();
        let document = "# HELP a Help\n# TYPE a counter\na_total{x=\"1\"} 2\na_total{x=\"2\"} 3\n# HELP b Help\nb 4\n";
        std::fs::write(dir.join("document"), document).unwrap();
        std::fs::write(sources.join("one.url"), format!("file://{}\n", dir.join("document").display())).unwrap();
        ((), vec!["--any-owner"])
    });
}
