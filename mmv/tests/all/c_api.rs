//! Checks that the table in `c_api.md` has all names of C's `mmv_stats.h`, and no others.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeSet;

use testkit::{Pcp, c_api};

const TABLE: &str = include_str!("../../src/c_api.md");

/// Returns the words of a header, outside of comments, that have a prefix of its names.
fn declared(header: &str) -> BTreeSet<String> {
    let text = c_api::without_comments(header);
    let all: BTreeSet<&str> =
        c_api::words(&text).filter(|word| word.starts_with("mmv_") || word.starts_with("MMV_")).collect();
    // The name of a structure is that of its type without the suffix.
    let is_tag = |name: &&&str| all.contains(format!("{name}_t").as_str()) || **name == "MMV_STATS_H";
    all.iter().filter(|name| !is_tag(name)).map(|name| (*name).to_owned()).collect()
}

#[test]
#[ignore = "needs PCP"]
fn everything_of_the_header_is_explained() {
    let header = Pcp::required().path("PCP_INC_DIR").join("mmv_stats.h");
    let declared = declared(&std::fs::read_to_string(header).unwrap());
    assert!(declared.len() > 60, "{declared:?}");
    let newer = ["mmv_stats_reset", "MMV_EXTRAUNITS"];
    c_api::compare(&declared, &c_api::explained::<2>(TABLE), |name| newer.contains(&name));
}

#[test]
fn every_row_says_what_stands_for_it() {
    let rows = c_api::rows::<2>(TABLE);
    assert!(rows.len() > 20, "{}", rows.len());
}
