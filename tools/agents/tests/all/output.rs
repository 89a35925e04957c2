//! Programs print with `pcp_base::escape`, or to an output of their own: `println!` and its kind print control characters
//! of other users to a terminal, and panic if the terminal has been closed.

#![allow(clippy::unwrap_used)]

use crate::common;

use common::each_source;

/// Returns the lines of a source, but not of its tests, that use one of the macros.
fn printing(text: &str) -> Vec<usize> {
    let text = text.split("\nmod tests {").next().unwrap();
    let code = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    let macros = ["print!(", "println!(", "eprint!(", "eprintln!("];
    let prints = |line: &str| {
        let begins = |at: usize| !line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        macros.iter().any(|name| line.match_indices(name).any(|(at, _)| begins(at)))
    };
    code.enumerate().filter(|(_, line)| prints(line)).map(|(number, _)| number + 1).collect()
}

#[test]
fn no_program_prints_with_macros() {
    // Templates are the user's programs. The others are not installed.
    let others = ["build.rs", "templates", "qa", "testkit", "packaging"];
    let mut found = Vec::new();
    each_source(&others, &mut |path, text| {
        found.extend(printing(text).iter().map(|line| format!("{}:{line}", path.display())));
    });
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn macros_are_found() {
    assert_eq!(printing("fn f() {\n    eprintln!(\"x\");\n}\nprint!(\"\")\n"), [2, 4]);
    assert_eq!(printing("// println!()\nescape::eprint(x);\nmy_print!(x);\nmod tests {\nprint!(x);\n"), [0; 0]);
}
