//! Scanner: turns characters into tokens.

use std::collections::VecDeque;

use crate::source::Source;
use crate::token::{Token, Word};

/// Scanner that finds the longest possible token.
///
/// It reads no further than needed to find the end of a token. The characters that have been read determine the mark
/// below an error and the part of the line that an error skips.
#[derive(Debug, Default)]
pub(crate) struct Scanner {
    /// Characters that have been read and are not part of a token yet.
    pending: VecDeque<u8>,
    /// Whether any text without white space may be a path. A word that a path may follow sets this, and the next path
    /// clears it. A name does not clear it.
    path: bool,
    ended: bool,
}

/// Makes a token of its text.
type Make = fn(&[u8]) -> Token;

impl Scanner {
    /// Returns the next token. Invalid text is an error, after which the search continues in the next line.
    pub(crate) fn token(&mut self, source: &mut Source) -> Token {
        loop {
            let Some((len, make)) = self.longest(source) else { return Token::End };
            let text: Vec<u8> = self.pending.drain(..len).collect();
            match make(&text) {
                Token::Blank => {}
                Token::Invalid(message) => source.error(&message),
                token => {
                    match &token {
                        Token::Path(_) => self.path = false,
                        Token::Word(word) => self.path |= word.opens_path(),
                        _ => {}
                    }
                    return token;
                }
            }
        }
    }

    /// Returns the length of the longest token, and how to make it. A path must be longer than other tokens.
    fn longest(&mut self, source: &mut Source) -> Option<(usize, Make)> {
        let first = self.peek(0, source)?;
        let token = self.rule(first, source);
        let path = if self.path { self.run(0, |c| !matches!(c, b' ' | b'\t' | b'\n'), source) } else { 0 };
        if path > token.map_or(0, |(len, _)| len) {
            return Some((path, |text| Token::Path(text.to_owned())));
        }
        token.or(Some((1, |_| Token::Invalid("Illegal character".to_owned()))))
    }

    /// Finds the token, other than a path, that begins with a character.
    fn rule(&mut self, first: u8, source: &mut Source) -> Option<(usize, Make)> {
        let second = if matches!(first, b'-' | b'$') { self.peek(1, source) } else { None };
        let is_letter = second.is_some_and(|c| c.is_ascii_alphabetic());
        Some(match first {
            b'a'..=b'z' | b'A'..=b'Z' => (self.run(1, is_name, source), |text| {
                let name = string(text);
                Word::parse(&name).map_or(Token::Name(name), Token::Word)
            }),
            b'-' if is_letter => (self.run(2, is_name, source), |text| Token::MinusName(string(text))),
            b'-' => match self.run(1, |c| c.is_ascii_digit(), source) {
                1 => return None,
                len => (len, |text| Token::Negative(number(text, 10))),
            },
            b'$' if is_letter => {
                (self.run(2, |c| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'-'), source), |_| Token::Macro)
            }
            b'0'..=b'9' => self.numbers(first, source),
            b'"' | b'\'' => return self.quoted(first, source),
            b'#' => {
                let len = self.run(1, |c| c != b'\n', source);
                self.peek(len, source)?;
                (len + 1, |_| Token::Eol)
            }
            b' ' | b'\t' | b'\r' => (self.run(1, |c| matches!(c, b' ' | b'\t' | b'\r'), source), |_| Token::Blank),
            b'\n' => (1, |_| Token::Eol),
            b'?' => (1, |_| Token::Word(Word::Help)),
            b',' => (1, |_| Token::Comma),
            b'=' | b'+' => (1, |_| Token::Operator),
            _ => return None,
        })
    }

    /// Finds a hexadecimal number, or up to three decimal numbers separated by dots.
    fn numbers(&mut self, first: u8, source: &mut Source) -> (usize, Make) {
        let is_digit = |c: u8| c.is_ascii_digit();
        if first == b'0' && matches!(self.peek(1, source), Some(b'x' | b'X')) {
            let len = self.run(2, is_digit, source);
            if len > 2 {
                return (len, |text| Token::Number(number(text.get(2..).unwrap_or_default(), 16)));
            }
        }
        let (mut len, mut count) = (self.run(1, is_digit, source), 1);
        while count < 3 && self.peek(len, source) == Some(b'.') {
            match self.run(len + 1, is_digit, source) {
                end if end == len + 1 => break,
                end => len = end,
            }
            count += 1;
        }
        let make: Make = match count {
            1 => |text| Token::Number(number(text, 10)),
            2 => |text| Token::Number2(parts(text)),
            _ => |text| Token::Number3(parts(text)),
        };
        (len, make)
    }

    /// Finds a text in quotes, which is not empty and ends with the line at the latest.
    fn quoted(&mut self, quote: u8, source: &mut Source) -> Option<(usize, Make)> {
        if matches!(self.peek(1, source), Some(c) if c == quote || c == b'\n') {
            return None;
        }
        let len = self.run(1, |c| c != quote && c != b'\n', source);
        Some(match self.peek(len, source)? {
            b'\n' => (len + 1, |text| Token::Invalid(format!("Expected {}", char::from(text[0])))),
            _ => (len + 1, |text| Token::Quoted(text.get(1..text.len() - 1).unwrap_or_default().to_owned())),
        })
    }

    /// Returns the end of the characters from `start` that belong to a token.
    fn run(&mut self, start: usize, belongs: impl Fn(u8) -> bool, source: &mut Source) -> usize {
        let mut end = start;
        while self.peek(end, source).is_some_and(&belongs) {
            end += 1;
        }
        end
    }

    fn peek(&mut self, at: usize, source: &mut Source) -> Option<u8> {
        if at >= self.pending.len() && !self.ended {
            let next = source.next();
            self.ended = next.is_none();
            self.pending.extend(next);
        }
        self.pending.get(at).copied()
    }
}

fn is_name(c: u8) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, b'_' | b'.' | b'/' | b':' | b'-')
}

fn string(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}

fn parts<const N: usize>(text: &[u8]) -> [i32; N] {
    let mut parts = text.split(|&c| c == b'.');
    std::array::from_fn(|_| parts.next().map_or(0, |part| number(part, 10)))
}

/// Converts digits as atoi(3) does: the lower 32 bits of the result of strtol(3), which saturates at 64 bits.
fn number(digits: &[u8], base: u32) -> i32 {
    let limit = if digits.starts_with(b"-") { i64::MIN } else { i64::MAX };
    i64::from_str_radix(&string(digits), base).unwrap_or(limit) as i32
}
