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
    /// Whether any text without white space may be a path. A word that a path may follow sets this until there is a
    /// path, so it stays set when a name comes instead.
    path: bool,
    ended: bool,
}

/// State of the characters of a token so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Start,
    Name,
    Minus,
    MinusName,
    Negative,
    Dollar,
    Macro,
    Zero,
    HexMark,
    Hex,
    Number,
    NumberDot,
    Number2,
    Number2Dot,
    Number3,
    Quote(u8),
    InQuotes(u8),
    Quoted,
    /// Text in quotes whose line ends before the closing quote.
    Unclosed(u8),
    Hash,
    Comment,
    Space,
    Eol,
    Question,
    Comma,
    Operator,
    /// Path of a file that is not another token.
    Path,
    /// Character that begins no token.
    Other,
    Dead,
}

impl State {
    fn next(self, c: u8) -> State {
        use State::*;
        match (self, c) {
            (Start, b'a'..=b'z' | b'A'..=b'Z') => Name,
            (Start, b'-') => Minus,
            (Start, b'$') => Dollar,
            (Start, b'0') => Zero,
            (Start, b'1'..=b'9') => Number,
            (Start, b'"' | b'\'') => Quote(c),
            (Start, b'#') => Hash,
            (Start | Space, b' ' | b'\t' | b'\r') => Space,
            (Start, b'\n') => Eol,
            (Start, b'?') => Question,
            (Start, b',') => Comma,
            (Start, b'=' | b'+') => Operator,
            (Start, _) => Other,
            (Name, _) if is_name(c) => Name,
            (Minus, b'a'..=b'z' | b'A'..=b'Z') => MinusName,
            (MinusName, _) if is_name(c) => MinusName,
            (Minus | Negative, b'0'..=b'9') => Negative,
            (Dollar, b'a'..=b'z' | b'A'..=b'Z') => Macro,
            (Macro, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-') => Macro,
            (Zero, b'x' | b'X') => HexMark,
            (HexMark | Hex, b'0'..=b'9') => Hex,
            (Zero | Number, b'0'..=b'9') => Number,
            (Zero | Number, b'.') => NumberDot,
            (NumberDot | Number2, b'0'..=b'9') => Number2,
            (Number2, b'.') => Number2Dot,
            (Number2Dot | Number3, b'0'..=b'9') => Number3,
            (Quote(quote), _) if c != quote && c != b'\n' => InQuotes(quote),
            (InQuotes(quote), _) if c == quote => Quoted,
            (InQuotes(quote), b'\n') => Unclosed(quote),
            (InQuotes(quote), _) => InQuotes(quote),
            (Hash, b'\n') => Comment,
            (Hash, _) => Hash,
            _ => Dead,
        }
    }

    /// Whether another character may belong to the token.
    fn goes_on(self) -> bool {
        use State::*;
        !matches!(self, Quoted | Unclosed(_) | Comment | Eol | Question | Comma | Operator | Other | Dead)
    }

    /// Whether the characters form a token with a rule of its own.
    fn is_token(self) -> bool {
        use State::*;
        !matches!(
            self,
            Start | Minus | Dollar | HexMark | NumberDot | Number2Dot | Quote(_) | InQuotes(_) | Hash | Other | Dead
        )
    }
}

fn is_name(c: u8) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, b'_' | b'.' | b'/' | b':' | b'-')
}

impl Scanner {
    /// Returns the next token. Invalid text is an error, after which the search continues in the next line.
    pub(crate) fn token(&mut self, source: &mut Source) -> Token {
        loop {
            let Some((kind, text)) = self.longest(source) else { return Token::End };
            if let Some(token) = self.make(kind, &text, source) {
                return token;
            }
        }
    }

    fn longest(&mut self, source: &mut Source) -> Option<(State, Vec<u8>)> {
        let (mut state, mut path) = (State::Start, self.path);
        let mut longest = None;
        let mut len = 0;
        while state.goes_on() || path {
            let Some(c) = self.peek(len, source) else { break };
            state = state.next(c);
            path = path && !matches!(c, b' ' | b'\t' | b'\n');
            len += 1;
            if state.is_token() {
                longest = Some((state, len));
            } else if path {
                longest = Some((State::Path, len));
            } else if len == 1 {
                longest = Some((State::Other, len));
            }
        }
        let (kind, len) = longest?;
        Some((kind, self.pending.drain(..len).collect()))
    }

    fn peek(&mut self, at: usize, source: &mut Source) -> Option<u8> {
        if at >= self.pending.len() && !self.ended {
            let next = source.next();
            self.ended = next.is_none();
            self.pending.extend(next);
        }
        self.pending.get(at).copied()
    }

    fn make(&mut self, kind: State, text: &[u8], source: &mut Source) -> Option<Token> {
        use State::*;
        let string = || String::from_utf8_lossy(text).into_owned();
        Some(match kind {
            Path => {
                self.path = false;
                Token::Path(text.to_owned())
            }
            Name => match Word::parse(&string()) {
                Some(word) => self.word(word),
                None => Token::Name(string()),
            },
            MinusName => Token::MinusName(string()),
            Macro => Token::Macro,
            Hex => Token::Number(number(text.get(2..).unwrap_or_default(), 16)),
            Zero | Number => Token::Number(number(text, 10)),
            Negative => Token::Negative(number(text, 10)),
            Number2 => Token::Number2(numbers(text)),
            Number3 => Token::Number3(numbers(text)),
            Quoted => Token::Quoted(text.get(1..text.len() - 1).unwrap_or_default().to_owned()),
            Comma => Token::Comma,
            Operator => Token::Operator,
            Question => self.word(Word::Help),
            Comment | Eol => Token::Eol,
            Unclosed(quote) => {
                source.error(&format!("Expected {}", char::from(quote)));
                return None;
            }
            Space => return None,
            _ => {
                source.error("Illegal character");
                return None;
            }
        })
    }

    fn word(&mut self, word: Word) -> Token {
        self.path |= word.opens_path();
        Token::Word(word)
    }
}

fn numbers<const N: usize>(text: &[u8]) -> [i32; N] {
    let mut parts = text.split(|&c| c == b'.');
    std::array::from_fn(|_| parts.next().map_or(0, |part| number(part, 10)))
}

/// Converts a number as atoi(3) does: the lower 32 bits of the result of strtol(3), which saturates at 64 bits.
fn number(text: &[u8], base: i64) -> i32 {
    let (minus, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    let value = digits.iter().fold(0_i64, |value, &c| {
        let digit = i64::from(c - b'0');
        if minus {
            value.saturating_mul(base).saturating_sub(digit)
        } else {
            value.saturating_mul(base).saturating_add(digit)
        }
    });
    value as i32
}
