//! The shared object in PCP's dbpmda.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::fmt::Write as _;
use std::fs;

use pmda::Agent as _;
use pmda::host::Schema;
use pmda_showcase::Showcase;
use testkit::{Pcp, built};

/// The caller can free values of every kind: events, strings, aggregates, values in place, and errors.
#[test]
#[ignore = "needs PCP"]
// Slow: it runs under valgrind.
fn valgrind_sees_all_values_freed() {
    let pcp = Pcp::required();
    let schema = Schema::of::<Showcase>().unwrap();
    let domain = Showcase::DOMAIN;
    let mut session = format!("open dso {} showcase_init {domain}\n", built("pmda_showcase").display());
    for _ in 0..5 {
        for metric in schema.metrics() {
            writeln!(session, "fetch {}", metric.desc(schema.domain()).pmid).unwrap();
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    fs::write(&root, format!("root {{\n  showcase {domain}:*:*\n}}\n")).unwrap();
    let mut valgrind = pcp.valgrind(pcp.path("PCP_BIN_DIR").join("dbpmda"));
    valgrind.arg("-n").arg(&root).current_dir(dir.path());
    let output = pcp.run_command(valgrind, &format!("{session}quit\n"));
    let said = &output.text[output.text.len().saturating_sub(4000)..];
    assert!(output.status.success(), "{said}");
    let shown =
        |metric: &pmda::MetricDef| output.text.matches(&format!("{}", metric.desc(schema.domain()).pmid)).count() >= 5;
    assert!(schema.metrics().iter().all(shown), "{said}");
    assert!(output.text.contains("numval: 1 valfmt: 1"), "{said}");
}
