//! The same generated calls to C's library and to this one: results, errors and files are equal.
//!
//! `PROPTEST_CASES` sets the number of sequences.
#![allow(unsafe_code, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::undocumented_unsafe_blocks)]

mod common;
mod generated;

use std::ffi::c_int;
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use common::{Mmv, Pointer, clear_errno, errno, text};
use generated::{Plan, Update, Updates, plan, updates};
use proptest::prelude::*;
use testkit::{Pcp, Version};

/// C's library and this one.
static BOTH: LazyLock<[Mmv; 2]> = LazyLock::new(|| [Mmv::load(&common::c_path()), common::own()]);

/// Results and errors of a library, and the file.
#[derive(Debug, PartialEq)]
struct Done {
    results: Vec<(String, i64, i32)>,
    file: Option<Vec<u8>>,
    later: Option<Vec<u8>>,
}

/// Performs a plan with a library, with the file at `path`.
fn perform(mmv: &Mmv, plan: &Plan, updates: &[Update], path: &Path, is_c: bool) -> Done {
    let mut results = Vec::new();
    let name = text(path.to_str().unwrap());
    let mut note = |what: &str, result: i64, code: i32| results.push((what.to_owned(), result, code));
    clear_errno();
    let (handle, registry) = plan.start(mmv, name, is_c, &mut note);
    note("start", i64::from(handle.is_null()), if handle.is_null() { errno() } else { 0 });
    let mut file = None;
    if !handle.is_null() {
        for update in updates {
            let found = update.apply(mmv, handle);
            note("update", found, 0);
        }
        file = Some(masked(&fs::read(path).unwrap(), is_c));
    }
    stop(mmv, name, handle, registry);
    Done { results, file, later: fs::read(path).ok().map(|bytes| masked(&bytes, is_c)) }
}

fn stop(mmv: &Mmv, name: common::Text, handle: Pointer, registry: Option<Pointer>) {
    unsafe {
        match registry {
            Some(registry) => (mmv.mmv_stats_free)(registry),
            None if handle.is_null() => {}
            None => (mmv.mmv_stats_stop)(name, handle),
        }
    }
}

/// Returns a file without its generation numbers. C's library copies labels with the bytes that follow them in memory.
fn masked(bytes: &[u8], is_c: bool) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[8..24].fill(0);
    let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let labels =
        (0..word(24)).map(|toc| 40 + 16 * toc).find(|at| word(*at) == 6).map(|at| (word(at + 4), word(at + 8)));
    for label in labels.iter().flat_map(|(count, at)| (0..*count).map(move |i| at + 256 * i)) {
        let payload = &mut bytes[label + 12..label + 256];
        let end = payload.iter().position(|byte| *byte == 0).unwrap_or(payload.len());
        assert!(is_c || payload[end..].iter().all(|byte| *byte == 0), "bytes behind a label");
        payload[end..].fill(0);
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    #[ignore = "needs PCP"]
    // Slow: many sequences of calls, with both libraries.
    fn files_and_results_are_those_of_c(mut plan in plan(), updates in updates()) {
        let [c, own] = &*BOTH;
        if Pcp::required().version() >= Version(7, 0, 0) {
            plan.make_registry_serials_unique();
            plan.leave_out_maps();
        }
        let dir = tempfile::tempdir().unwrap();
        let Updates(updates) = updates;
        let expected = perform(c, &plan, &updates, &dir.path().join("c"), true);
        let done = perform(own, &plan, &updates, &dir.path().join("own"), false);
        prop_assert_eq!(&done.results, &expected.results);
        if done.file != expected.file {
            let at = done.file.iter().flatten().zip(expected.file.iter().flatten()).position(|(a, b)| a != b);
            let lengths = (done.file.as_ref().map(Vec::len), expected.file.as_ref().map(Vec::len));
            prop_assert!(false, "files differ at {:?}, lengths {:?}", at, lengths);
        }
        prop_assert_eq!(done.later, expected.later);
    }

    /// Runs without C's library, for valgrind. There is a file if there is a handle.
    #[test]
    // Slow: many sequences of calls.
    fn calls_of_this_library(plan in plan(), updates in updates()) {
        let (own, dir) = (common::own(), tempfile::tempdir().unwrap());
        let done = perform(&own, &plan, &updates.0, &dir.path().join("own"), false);
        let started = done.results.iter().any(|(what, is_null, _)| what == "start" && *is_null == 0);
        prop_assert_eq!(done.file.is_some(), started);
        prop_assert!(started || done.later.is_none());
    }

    /// Both libraries accept the same labels, but for values that are not JSON: these are errors here.
    #[test]
    #[ignore = "needs PCP"]
    fn labels_are_checked_as_in_c(name in generated::label_name(), value in generated::label_value(), ty in 0..8) {
        let [c, own] = &*BOTH;
        let add = |mmv: &Mmv| unsafe {
            let registry = (mmv.mmv_stats_registry)(text("unused"), 1, 0);
            clear_errno();
            let result: c_int = (mmv.mmv_stats_add_registry_label)(registry, text(name.clone()), text(value.clone()), ty, 0);
            let code = errno();
            (result, if result < 0 { code } else { 0 })
        };
        let shown = (String::from_utf8_lossy(&name), String::from_utf8_lossy(&value));
        let own = add(own);
        prop_assert!(own.0 < 0 || ty == 4 || generated::is_json(&value), "{:?} of type {}", shown, ty);
        if own.1 != libc::EINVAL || ty == 4 || generated::is_json(&value) {
            prop_assert_eq!(own, add(c), "{:?} of type {}", shown, ty);
        }
    }
}
