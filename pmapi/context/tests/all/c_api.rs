//! Checks that the tables in `c_api.md` have all functions of C's `pmapi.h` and of the guide, and that the items they
//! name exist.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use testkit::Pcp;
use testkit::c_api::{self, quoted, rows, words};

const TABLE: &str = include_str!("../../src/c_api.md");

/// Functions in the chapter on the PMAPI of the Programmer's Guide that PCP 6 no longer has.
const GUIDE: [&str; 15] = [
    "pmGetInDomText",
    "pmRecordSetup",
    "pmRecordAddHost",
    "pmRecordControl",
    "pmTimeConnect",
    "pmTimeDisconnect",
    "pmTimeGetPort",
    "pmTimeGetStatePixmap",
    "pmTimeRecv",
    "pmTimeSendAck",
    "pmTimeSendBounds",
    "pmTimeSendMode",
    "pmTimeSendPosition",
    "pmTimeSendTimezone",
    "pmTimeShowDialog",
];

/// Functions that the header of one version of PCP does not declare under this name, and that of another one does.
const OTHERS: [&str; 15] = [
    "pmAddDerivedText",
    "pmClearFetchGroup",
    "pmDebug",
    "pmExtendFetchGroup_timespec",
    "pmExtendFetchGroup_timestamp",
    "pmExtendFetchGroup_timeval",
    "pmGetDebug",
    "pmHighResFetch",
    "pmPrintStamp",
    "pmUnregisterDerived",
    "pmtimespecPrint",
    "pmtimespecPrintInterval",
    "pmtimespecTotimeval",
    "pmtimevalPrint",
    "pmtimevalTotimespec",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

/// Returns the names of functions that a header declares.
fn declared(header: &str) -> BTreeSet<String> {
    let statements = header.split("PCP_CALL extern").skip(1).filter_map(|text| text.split('(').next());
    let names = statements.filter_map(|text| words(text).last());
    // Since PCP 7, the functions of PMAPI_VERSION 2 have names of their own.
    let names = names.map(|name| name.strip_suffix("_v2").unwrap_or(name));
    names.filter(|name| name.starts_with("pm")).map(str::to_owned).collect()
}

#[test]
#[ignore = "needs PCP"]
fn every_function_is_explained() {
    let header = fs::read_to_string(Pcp::required().path("PCP_INC_DIR").join("pmapi.h")).unwrap();
    let mut wanted = declared(&header);
    assert!(wanted.len() > 150, "{wanted:?}");
    wanted.extend(GUIDE.map(str::to_owned));
    c_api::compare(&wanted, &c_api::explained::<3>(TABLE), |name| {
        // PCP 7 has macros for these.
        OTHERS.contains(&name) || name.contains("HighRes")
    });
}

/// Returns the text of all sources of the crates that the table links to.
fn sources() -> String {
    fn add(dir: &Path, text: &mut String) {
        for entry in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
            match entry.is_dir() {
                true => add(&entry, text),
                false if entry.extension().is_some_and(|ext| ext == "rs") => {
                    text.push_str(&fs::read_to_string(entry).unwrap());
                }
                false => (),
            }
        }
    }
    let mut text = String::new();
    for krate in ["pmapi", "pmapi/context", "pmapi/client", "pmapi/pdu", "pmapi/derived", "pmapi/archive", "pmns"] {
        add(&root().join(krate).join("src"), &mut text);
    }
    text
}

#[test]
fn every_item_exists() {
    let sources = sources();
    let words: BTreeSet<(&str, &str)> = sources
        .split(|c: char| c.is_whitespace())
        .zip(sources.split(|c: char| c.is_whitespace()).skip(1))
        .map(|(kind, name)| (kind, name.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default()))
        .collect();
    let mut items = 0;
    for [names, here, _] in rows::<3>(TABLE) {
        for item in quoted(here).filter(|item| item.contains("::")) {
            for part in item.split("::").filter(|part| !part.starts_with("pcp_") && !["pmapi", "pmns"].contains(part)) {
                let kinds = ["fn", "struct", "enum", "const", "mod", "trait"];
                assert!(kinds.iter().any(|kind| words.contains(&(*kind, part))), "{names}: no {item}");
            }
            items += 1;
        }
    }
    assert!(items > 60, "{items}");
}

#[test]
fn every_test_exists() {
    let mut tests = 0;
    for [names, here, test] in rows::<3>(TABLE) {
        let Some(named) = quoted(test).next() else {
            assert_eq!(test, "-", "{names}");
            let has_none =
                ["not ", "drop ", "for agents", "no counterpart"].iter().any(|start| here.starts_with(start));
            assert!(has_none, "{names}: there is no test");
            continue;
        };
        let (file, name) = named.split_once(": ").unwrap();
        let text = fs::read_to_string(root().join(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
        assert!(text.contains(&format!("fn {name}(")), "{file}: no test {name}");
        assert!(text.contains("#[test]"), "{file}");
        tests += 1;
    }
    assert!(tests > 50, "{tests}");
}
