//! The tables of docs/benchmarks.md, and the figures of README.md, are those of the run that they name.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::Command;

/// Checks that a part of a page, which names a run in its first line, is what `bench/table` makes of that run.
fn check(page: &str, arguments: &[&str], end: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let text = std::fs::read_to_string(root.join(page)).unwrap();
    let start = "<!-- made by bench/table ";
    let (_, made) = text.split_once(start).unwrap();
    let run = made.split(' ').next().unwrap();
    let mut table = Command::new("bench/table");
    let output = table.arg(run).args(arguments).current_dir(root).output().unwrap();
    assert!(output.status.success(), "{run}: {}", String::from_utf8_lossy(&output.stderr));
    let made = format!("{start}{}{end}\n", made.split_once(end).unwrap().0);
    assert_eq!(made, String::from_utf8(output.stdout).unwrap(), "{page}: bench/run writes it");
}

#[test]
fn the_tables_are_those_of_their_run() {
    check("docs/benchmarks.md", &[], "<!-- end of the tables -->");
}

#[test]
fn the_figures_of_the_front_page_are_those_of_their_run() {
    check("README.md", &["sentence"], "<!-- end of the sentence -->");
}
