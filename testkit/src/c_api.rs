//! The tables of counterparts for the names of a C header.

use std::collections::BTreeSet;

/// Returns the rows of a table in Markdown whose head begins with `C`, each with its cells.
///
/// # Panics
/// If the number of a row's cells is not `N`, or a cell is empty.
pub fn rows<const N: usize>(table: &str) -> Vec<[&str; N]> {
    let rows = table.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| C |"));
    rows.map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        assert!(cells.iter().all(|cell| !cell.is_empty()), "{row}");
        cells.try_into().unwrap_or_else(|cells| panic!("not {N} cells: {cells:?}"))
    })
    .collect()
}

/// Returns the texts between back quotes.
pub fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// Returns all names between back quotes in the first column of a table.
///
/// # Panics
/// In the cases of [`rows`].
pub fn explained<const N: usize>(table: &str) -> BTreeSet<String> {
    rows::<N>(table).iter().flat_map(|cells| quoted(cells[0])).map(str::to_owned).collect()
}

/// Returns a header without its comments.
///
/// # Panics
/// If a comment has no end.
pub fn without_comments(header: &str) -> String {
    let mut parts = header.split("/*");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once("*/").unwrap().1)
}

/// Returns the words of a text. Words may contain digits and underscores.
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// Compares the names that a header declares with those that a table explains.
///
/// # Panics
/// If the table lacks a name, or has a name that neither the header nor a newer version declares.
pub fn compare(declared: &BTreeSet<String>, explained: &BTreeSet<String>, newer: impl Fn(&str) -> bool) {
    let missing: Vec<_> = declared.difference(explained).collect();
    assert!(missing.is_empty(), "{missing:?}");
    let unknown: Vec<_> = explained.difference(declared).filter(|name| !newer(name)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}
