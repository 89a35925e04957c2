//! Valid and nearly valid tokens of the language, to build unforeseen expressions.

pub(crate) const OPERATORS: &[&str] =
    &["+", "-", "*", "/", "<", "<=", "==", ">=", ">", "!=", "&&", "||", "!", "?", ":", "(", ")", ",", "="];

/// Functions, each with its opening parenthesis.
pub(crate) const FUNCTIONS: &[&str] = &[
    "anon(",
    "avg(",
    "count(",
    "defined(",
    "delta(",
    "instant(",
    "matchinst(",
    "max(",
    "min(",
    "mkconst(",
    "novalue(",
    "rate(",
    "rescale(",
    "scalar(",
    "sum(",
];

const WORDS: &[&str] = &[
    "7",
    "1.5",
    "a.b",
    "sample.bin",
    "[x]",
    "\"s\"",
    "/x/",
    "!/x/",
    "type",
    "units",
    "meta",
    "indom",
    "semantics",
    "avg",
    "novalue()",
    "mkconst(1, type=u32)",
    "4294967295",
    "4294967296",
];

const SCRAPS: &[&str] =
    &["&", "|", "#", "$", "[", "]", "\"", ".", "a..b", "_a", "1.2.3", "5e3", "''", "\\", "é", "\u{b}"];

/// Returns all tokens.
pub(crate) fn all() -> Vec<&'static str> {
    [OPERATORS, FUNCTIONS, WORDS, SCRAPS].concat()
}

/// Splits an expression into tokens, each with the white space before it.
pub(crate) fn split(expr: &str) -> Vec<&str> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    let mut tokens = Vec::new();
    let mut rest = expr;
    while !rest.is_empty() {
        let start = rest.len() - rest.trim_start().len();
        let mut chars = rest[start..].char_indices();
        let len = match chars.next() {
            Some((_, c)) if is_word(c) => chars.find(|(_, c)| !is_word(*c)).map_or(rest.len() - start, |(at, _)| at),
            Some((_, c)) => c.len_utf8(),
            None => 0,
        };
        let (token, after) = rest.split_at(start + len);
        tokens.push(token);
        rest = after;
    }
    tokens
}
