//! Definitions of our own, valid and invalid, written by hand.

/// Returns the name and the expression of each definition.
pub(crate) fn expressions() -> Vec<(String, String)> {
    let pair = |line: &str| {
        let (name, expr) = line.split_once(" = ").unwrap();
        (name.to_owned(), expr.to_owned())
    };
    include_str!("../../data/derive/expressions.txt").lines().map(pair).collect()
}
