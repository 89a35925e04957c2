//! Checks that the table in `c_api.md` has all names of C's `pmda.h`, and no others.

use std::collections::BTreeSet;
use std::fs;

use testkit::Pcp;
use testkit::c_api::{self, words};

const TABLE: &str = include_str!("../../src/c_api.md");

/// Returns the names of the fields in a structure's body: the last word before each end, without arguments.
fn fields(body: &str) -> Vec<String> {
    let field = |statement: &str| {
        let statement = statement.split_once("(*").map_or(statement, |(_, name)| name.split(')').next().unwrap());
        let names = statement.split(',').map(|name| name.split([':', '[']).next().unwrap());
        names.filter_map(|name| words(name).last().map(str::to_owned)).collect::<Vec<_>>()
    };
    body.split([';', '{', '}']).filter(|statement| !statement.trim().is_empty()).flat_map(field).collect()
}

/// Returns the names that a header declares: functions, types, macros, and the fields of structures.
fn declared(header: &str) -> BTreeSet<String> {
    let text = c_api::without_comments(header).replace("\\\n", " ");
    let ours = |word: &&str| {
        let word = word.trim_start_matches('_');
        word.starts_with("pmda") || word.starts_with("PMDA") || word == "pmDSO"
    };
    // These are macros for conditional compilation, and a word in a text.
    let guards = ["PMDA_H", "PMDA_INTERNAL", "PMDA"];
    let mut names: BTreeSet<String> =
        words(&text).filter(ours).filter(|word| !guards.contains(word)).map(str::to_owned).collect();
    let mut rest = text.as_str();
    while let Some((_, from)) = rest.split_once("typedef struct ") {
        rest = from;
        let Some((name, body)) = from.split_once('{') else { break };
        if name.contains(';') {
            continue;
        }
        let name = name.trim();
        let body = body.split(&format!("\n}} {name};")).next().unwrap();
        names.extend(fields(body));
    }
    names.retain(|name| !["struct", "union"].contains(&name.as_str()));
    names
}

#[test]
#[ignore = "needs PCP"]
fn everything_of_the_header_is_explained() {
    let header = Pcp::required().path("PCP_INC_DIR").join("pmda.h");
    let declared = declared(&fs::read_to_string(header).unwrap());
    assert!(declared.len() > 250, "{declared:?}");
    let newer = ["PMDA_CACHE_WRITE", "PMDA_UNITS", "PMDA_EXTRAUNITS", "pmdaSortInstances"];
    let newer = |name: &str| newer.contains(&name) || (name.starts_with("pmda") && name.contains("Result"));
    c_api::compare(&declared, &c_api::explained::<2>(TABLE), newer);
}

#[test]
fn every_row_says_what_stands_for_it() {
    let rows = c_api::rows::<2>(TABLE);
    assert!(rows.len() > 80, "{}", rows.len());
}
