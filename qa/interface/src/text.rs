//! Text of tokens, with the usual spaces.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::ToTokens;

/// Returns the text of a syntax tree, in one line.
pub(crate) fn of(tokens: &impl ToTokens) -> String {
    let mut words = Vec::new();
    split(tokens.to_token_stream(), &mut words);
    let mut text = String::new();
    for (at, word) in words.iter().enumerate() {
        let before = at.checked_sub(1).map(|at| words[at].as_str());
        if before.is_some_and(|before| is_spaced(before, word, at.checked_sub(2).map(|at| words[at].as_str()))) {
            text.push(' ');
        }
        text.push_str(word);
    }
    text
}

/// Returns the text of tokens in lines, which end at `;` and `}`.
pub(crate) fn lines(tokens: &impl ToTokens) -> Vec<String> {
    let text = of(tokens).replace("; ", ";\n").replace(" } ", " }\n");
    text.lines().map(str::to_owned).collect()
}

const OPERATORS: [&str; 8] = ["->", "=>", "::", "..", "==", "<=", "<<", "||"];

/// Splits tokens into words: identifiers, literals, operators and brackets.
fn split(tokens: TokenStream, words: &mut Vec<String>) {
    let mut joint = false;
    for token in tokens {
        match token {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::None => ("", ""),
                };
                words.extend([open.to_owned()].into_iter().filter(|word| !word.is_empty()));
                split(group.stream(), words);
                words.extend([close.to_owned()].into_iter().filter(|word| !word.is_empty()));
                joint = false;
            }
            TokenTree::Punct(punct) => {
                let last = words.last_mut().filter(|_| joint);
                match last {
                    Some(last) if OPERATORS.contains(&format!("{last}{}", punct.as_char()).as_str()) => {
                        last.push(punct.as_char());
                    }
                    _ => words.push(punct.to_string()),
                }
                joint = punct.spacing() == proc_macro2::Spacing::Joint;
            }
            TokenTree::Ident(ident) => {
                let is_lifetime = joint && words.last().is_some_and(|last| last == "'");
                match words.last_mut().filter(|_| is_lifetime) {
                    Some(last) => last.push_str(&ident.to_string()),
                    None => words.push(ident.to_string()),
                }
                joint = false;
            }
            TokenTree::Literal(literal) => {
                words.push(literal.to_string());
                joint = false;
            }
        }
    }
}

fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '"' | '\''))
}

/// Returns whether there is a space between two words.
fn is_spaced(before: &str, word: &str, before_that: Option<&str>) -> bool {
    match (before, word) {
        ("(" | "[" | "&" | "#" | "::" | "!" | "?" | "$", _) | (_, ")" | "]" | "," | ";" | "?" | "::") => false,
        ("{", "}") => false,
        ("<", _) | (_, ">") => false,
        ("*", "const" | "mut") => false,
        ("-" | "*", _) if !before_that.is_some_and(is_word) => false,
        ("," | ";" | ":" | "=" | "->" | "=>" | "+" | "|" | "<<" | "==", _) => true,
        (_, ":" | "." | "..") => false,
        ("." | "..", _) => false,
        (_, "<") => !is_word(before),
        (_, "!") => !is_word(before),
        (">", "(") => false,
        (_, "(") => !is_word(before) || matches!(before, "in" | "for" | "where" | "mut" | "const"),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spaces_are_where_people_write_them() {
        for text in [
            "pub fn find<'a, T: Into<Option<&'a str>>>(&'a self, at: &[u8]) -> Result<(), Error>",
            "fn each<'a>(&'a self, f: &mut dyn FnMut(Inst, &'a str))",
            "pub const LONG: u32 = 1 << 31",
            "pub(crate) struct Word(u32)",
            "impl<T> fmt::Display for Escaped<T>",
            "#[derive(Clone, Copy)]",
            "pub const MAGIC: [u8; 4] = *b\"MMV\\0\"",
            "unsafe extern \"C\" fn(*const c_char, *mut Ext) -> c_int",
        ] {
            let tokens: TokenStream = text.parse().unwrap();
            assert_eq!(of(&tokens), text);
        }
    }
}
