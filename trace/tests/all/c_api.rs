//! Checks that the table in `c_api.md` has all names of C's `trace.h`, and no others.

use std::collections::BTreeSet;

use testkit::{Pcp, c_api};

const TABLE: &str = include_str!("../../src/c_api.md");

/// Returns the words of a header, outside of comments, that have a prefix of its names.
fn declared(header: &str) -> BTreeSet<String> {
    let text = c_api::without_comments(header);
    let names = c_api::words(&text).filter(|word| word.starts_with("pmtrace") || word.starts_with("PMTRACE_"));
    // Names of functions for Fortran end with an underscore.
    names.filter(|name| *name != "PMTRACE_H" && !name.ends_with('_')).map(str::to_owned).collect()
}

#[test]
#[ignore = "needs PCP"]
fn everything_of_the_header_is_explained() {
    let header = Pcp::required().path("PCP_INC_DIR").join("trace.h");
    let declared = declared(&std::fs::read_to_string(header).unwrap());
    assert!(declared.len() > 25, "{declared:?}");
    c_api::compare(&declared, &c_api::explained::<2>(TABLE), |_| false);
}

#[test]
fn every_row_says_what_stands_for_it() {
    let rows = c_api::rows::<2>(TABLE);
    assert!(rows.len() > 12, "{}", rows.len());
}
