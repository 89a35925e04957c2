//! Arbitrary input.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::parse;
use crate::token::Word;

/// Returns lines of words, some of which are commands.
fn lines() -> impl Strategy<Value = String> {
    let others = [
        "\n",
        "\n",
        "\n",
        " ",
        ",",
        "=",
        "+",
        "?",
        "#",
        "\"",
        "'",
        "\"a b\"",
        "''",
        "-",
        "-x",
        "$x",
        "$",
        "a.b",
        "x",
        "./x",
        "c:/x",
        "0",
        "7",
        "-7",
        "0x",
        "0x1f",
        "1.",
        "1.2",
        "1.2.",
        "1.2.3",
        "1.2.3.4",
        "99999999999999999999",
        "\r",
        "\t",
        "\0",
        "\u{e4}",
        "%",
        "9x",
        "-1.5",
    ];
    let words: Vec<&str> = Word::ALL.iter().copied().chain(others).collect();
    let separator = select(vec!["", " ", " ", " "]);
    vec((select(words), separator), 0..60).prop_map(|words| words.into_iter().flat_map(|(a, b)| [a, b]).collect())
}

/// Parses an input. Every command consumes at least one character, so parsing ends.
fn check(input: &[u8]) {
    let (commands, _, _) = parse(input);
    assert!(commands.len() <= input.len() + 1, "{} commands", commands.len());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn bytes(input in vec(any::<u8>(), 0..200)) {
        check(&input);
    }

    #[test]
    fn words(input in lines()) {
        check(input.as_bytes());
    }
}
