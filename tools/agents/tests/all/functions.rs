//! No function has more than 60 lines, apart from tests, examples and benchmarks.

#![allow(clippy::unwrap_used)]

use crate::common;

use common::each_source;

/// Largest number of lines of a function, from its name to its closing brace.
const MOST: usize = 60;

/// Returns the functions of a file that are too long, each with its number of lines.
fn long_functions(text: &str) -> Vec<(String, usize)> {
    let text = text.split("\nmod tests {").next().unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let mut long = Vec::new();
    for (first, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let indent = &line[..line.len() - code.len()];
        let Some(name) = name(code) else { continue };
        let signature = lines[first..].iter().find(|line| line.ends_with(['{', ';', '}']));
        // Code is formatted: only the brace that closes the function has its indentation.
        let end = lines[first..].iter().position(|line| line.strip_prefix(indent) == Some("}"));
        if let (Some(true), Some(end)) = (signature.map(|line| line.ends_with('{')), end)
            && end + 1 > MOST
        {
            long.push((name.to_owned(), end + 1));
        }
    }
    long
}

/// Returns the name of the function that a line begins.
fn name(line: &str) -> Option<&str> {
    let mut words = line.split_inclusive(' ').map(str::trim_end);
    let function = words.by_ref().find(|word| !is_qualifier(word)).filter(|word| *word == "fn");
    function.and_then(|_| words.next()?.split(['(', '<']).next())
}

fn is_qualifier(word: &str) -> bool {
    ["pub", "const", "async", "unsafe", "extern", "\"C\""].contains(&word) || word.starts_with("pub(")
}

#[test]
fn functions_are_short() {
    let mut found = Vec::new();
    each_source(&[], &mut |path, text| {
        let name = path.display();
        let long = long_functions(text);
        found.extend(long.into_iter().map(|(function, lines)| format!("{name}: {function} has {lines} lines")));
    });
    assert!(found.is_empty(), "functions with more than {MOST} lines: {found:#?}");
}

#[test]
fn a_long_function_is_found() {
    let of = |lines: usize| format!("    pub(crate) const fn f<T>() {{\n{}    }}\n", "        x;\n".repeat(lines - 2));
    assert_eq!(long_functions(&of(60)), []);
    assert_eq!(long_functions(&of(61)), [("f".to_owned(), 61)]);
    assert_eq!(long_functions(&format!("trait T {{\n    fn g();\n{}}}\n", of(61))), [("f".to_owned(), 61)]);
    assert_eq!(long_functions(&format!("mod a;\nmod tests {{\n{}}}\n", of(61))), []);
}
