//! Position of the mark below an error, and the place where parsing continues.

use super::parse;
use crate::grammar::{Arg, Command};
use crate::token::Word;

/// Returns a command without arguments.
fn bare(word: Word) -> Option<Command> {
    Some(Some((word, Vec::new())))
}

/// Returns whether a command begins with a keyword.
fn is(command: &Option<Command>, expected: Word) -> bool {
    matches!(command, Some(Some((word, _))) if *word == expected)
}

/// Returns the output for an input, without the line that ends every error.
fn shown(input: &str) -> String {
    parse(input.as_bytes()).1.replace("Type 'help' for a list of commands.\n", "")
}

#[test]
fn the_mark_is_behind_the_word() {
    // The width of the prompt counts. A character that was read beyond a word counts as part of the word.
    assert_eq!(shown("desc x\n"), "             ^ at or near here\nError: Unknown metric name\n");
    assert_eq!(shown("desc x y\n"), "              ^ at or near here\nError: Unknown metric name\n");
    assert_eq!(shown("desc\tx y\n"), "           \t  ^ at or near here\nError: Unknown metric name\n");
    assert_eq!(shown("blah blah\n"), "            ^ at or near here\nError: Unrecognized command\n");
    assert_eq!(shown("desc a.b a.b\n"), "                   ^ at or near here\nError: syntax error\n");
    assert_eq!(shown("desc %\na.b\n"), "             ^ at or near here\nError: Illegal character\n");
    assert_eq!(shown("attr 99\n"), "              ^ at or near here\nError: Attribute (99) is not recognised\n");
}

#[test]
fn strings_end_with_the_line() {
    let expected = "                   ^ at or near here\nError: Expected \"\n";
    let after = "       ^ at or near here\nError: syntax error\n";
    assert_eq!(shown("store a.b \"x\n\n"), [expected, after].concat());
    assert!(shown("store a.b 'x\n").contains("Error: Expected '\n"));
}

#[test]
fn the_rest_of_a_line_is_skipped() {
    let (commands, _, _) = parse(b"blah status\nstatus\n");
    assert_eq!(commands, [None, bare(Word::Status), Some(None)]);
    // The next command gets the character that was read beyond the word.
    let (commands, _, _) = parse(b"blah,status\nstatus\n");
    assert_eq!(commands, [None, None, bare(Word::Status), Some(None)]);
    // Invalid text is skipped within a command, which continues in the next line.
    let (commands, _, _) = parse(b"desc % x\na.b\n");
    assert_eq!(commands.len(), 2);
    assert!(matches!(&commands[0], Some(Some((Word::Desc, args))) if matches!(args[..], [Arg::Metric(Some(_))])));
}

#[test]
fn what_opens_an_agent_needs_no_line_of_its_own() {
    let (commands, _, _) = parse(b"open socket /a status\nquit\n");
    assert!(is(&commands[0], Word::Open));
    assert_eq!(commands[1..], [bare(Word::Status), bare(Word::Quit), Some(None)]);
}

#[test]
fn a_path_is_expected_until_there_is_one() {
    // A name is not a path, so the word with the comma becomes one.
    let (commands, _, _) = parse(b"watch x\nfetch a.b,a.c\nfetch a.b,a.c\n");
    assert!(is(&commands[0], Word::Watch) && commands[1].is_none());
    assert!(commands[2] == Some(None) && is(&commands[3], Word::Fetch) && commands[4] == Some(None));
    assert_eq!(commands.len(), 5);
}

#[test]
fn the_last_line_needs_its_end() {
    for input in ["blah", "add"] {
        assert_eq!(parse(input.as_bytes()).0, [Some(None)], "{input}");
    }
    for input in ["status", "desc a.b", "fetch a.b,"] {
        assert_eq!(parse(input.as_bytes()).0, [None], "{input}");
    }
    assert!(matches!(&parse(b"open socket /a").0[..], [command] if is(command, Word::Open)));
    assert!(matches!(&parse(b"open pipe /a b").0[..], [command] if is(command, Word::Open)));
    assert_eq!(parse(b"status\n\0quit\n").0, [bare(Word::Status), Some(None)]);
}

#[test]
fn warnings() {
    let (commands, shown, _) = parse(b"desc 9.9.9\n");
    assert_eq!(shown, "Warning: PMID (9.9.9) is not defined in the PMNS\n");
    assert!(is(&commands[0], Word::Desc));
    let long = "x".repeat(100);
    let (_, shown, _) = parse(format!("attr \"{long}\"\n").as_bytes());
    assert!(shown.contains(&format!("Error: Attribute ({}\n", "x".repeat(68))), "{shown}");
}
