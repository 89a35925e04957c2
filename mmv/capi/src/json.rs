//! Accepts the JSON that libpcp's parser of labels accepts, byte by byte.
//!
//! That parser does not notice a text that ends early, and accepts strings without commas between them in a list.
//! Labels that C's library writes must be accepted here.

use std::collections::HashSet;

/// Number of levels of objects and lists down to which names are checked.
const CHECKED_LEVELS: usize = 64;

/// Returns whether libpcp accepts a text as a set of labels: names of letters, digits and underscores occur once in each
/// object. Agents leave labels with other names out.
pub(crate) fn is_label_set(text: &[u8]) -> bool {
    let mut parser = Parser::default();
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        match parser.take(byte) {
            Step::Next => rest = after,
            // The byte also ends a word or a number.
            Step::Again => {}
            Step::Wrong => return false,
        }
    }
    true
}

/// Returns whether a text is the name of a label: letters, digits and underscores.
pub(crate) fn is_name(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_')
}

enum Step {
    Next,
    Again,
    Wrong,
}

#[derive(Default)]
struct Parser {
    /// Objects and lists that are open at the current byte.
    open: Vec<Open>,
    token: Option<Token>,
    /// Whether a value may follow, other than a string.
    may_insert: bool,
    /// The next byte that is checked: `"`, `:` or `,`.
    expected: u8,
    /// The separator before the present token, `:` or `,`, if there is one.
    last: u8,
    started: bool,
}

/// An open object or list of the text.
struct Open {
    is_object: bool,
    /// Number of names and values so far.
    items: usize,
    names: HashSet<Vec<u8>>,
}

enum Token {
    Text { is_name: bool, escaped: bool, bytes: Vec<u8> },
    Word { word: &'static [u8], len: usize },
    Number(Number),
}

impl Parser {
    fn take(&mut self, byte: u8) -> Step {
        match &mut self.token {
            Some(Token::Text { escaped: escaped @ true, bytes, .. }) => {
                *escaped = false;
                bytes.push(byte);
                next_if(b"\"/\\bfnrtu".contains(&byte))
            }
            Some(Token::Text { escaped, bytes, .. }) => match byte {
                b'"' => self.end_text(),
                0..=0x13 => Step::Wrong,
                _ => {
                    *escaped = byte == b'\\';
                    bytes.push(byte);
                    Step::Next
                }
            },
            // C's parser checks for the start of a string before the end of a word or number.
            Some(Token::Word { .. } | Token::Number(_)) if byte == b'"' => Step::Wrong,
            Some(Token::Word { word, len }) if !is_end(byte) => {
                let right = word.get(*len) == Some(&byte);
                *len += 1;
                next_if(right)
            }
            Some(Token::Word { word, len }) => {
                let complete = *len == word.len();
                self.end_value(complete)
            }
            Some(Token::Number(number)) => match number.take(byte) {
                Some(true) => Step::Next,
                Some(false) => {
                    let complete = number.is_complete();
                    self.end_value(complete)
                }
                None => Step::Wrong,
            },
            None if is_space(byte) => Step::Next,
            None => self.structure(byte),
        }
    }

    /// Ends a word or number. Its last byte has yet to be consumed.
    fn end_value(&mut self, complete: bool) -> Step {
        (self.token, self.may_insert, self.expected, self.last) = (None, false, b',', 0);
        if complete { Step::Again } else { Step::Wrong }
    }

    fn end_text(&mut self) -> Step {
        self.may_insert = false;
        let depth = self.open.len();
        let Some(Token::Text { is_name: true, bytes, .. }) = self.token.take() else { return Step::Next };
        let new = self.open.last_mut().is_some_and(|open| open.names.insert(bytes.clone()));
        next_if(depth >= CHECKED_LEVELS || new || !is_name(&bytes))
    }

    fn structure(&mut self, byte: u8) -> Step {
        match byte {
            b'"' => self.begin_text(),
            b':' | b',' if self.expected != byte => Step::Wrong,
            b':' => {
                (self.last, self.may_insert, self.expected) = (byte, true, b'"');
                Step::Next
            }
            b',' => {
                self.may_insert |= self.open.last().is_none_or(|open| !open.is_object);
                (self.last, self.expected) = (byte, b'"');
                Step::Next
            }
            b'{' | b'[' => self.begin_container(byte == b'{'),
            b'}' | b']' => self.end_container(byte == b'}'),
            _ => self.begin_value(byte),
        }
    }

    fn begin_text(&mut self) -> Step {
        self.may_insert = false;
        let last = std::mem::take(&mut self.last);
        let Some(open) = self.open.last_mut() else { return Step::Wrong };
        let is_name = open.is_object && open.items % 2 == 0;
        let right = match (open.is_object, is_name) {
            (true, true) => self.expected == b'"',
            (true, false) => last == b':',
            (false, _) => true,
        };
        open.items += 1;
        self.expected = if is_name { b':' } else { b',' };
        self.token = Some(Token::Text { is_name, escaped: false, bytes: Vec::new() });
        next_if(right)
    }

    /// Counts a value other than a string. Returns whether a value is allowed here.
    fn count_value(&mut self) -> bool {
        let allowed = self.may_insert || !self.started;
        self.started = true;
        let Some(open) = self.open.last_mut() else { return allowed };
        let named = !open.is_object || open.items % 2 == 1;
        open.items += 1;
        allowed && named
    }

    fn begin_container(&mut self, is_object: bool) -> Step {
        if !self.count_value() {
            return Step::Wrong;
        }
        self.open.push(Open { is_object, items: 0, names: HashSet::new() });
        (self.may_insert, self.last) = (true, 0);
        if is_object {
            self.expected = b'"';
        }
        Step::Next
    }

    fn end_container(&mut self, is_object: bool) -> Step {
        let trailing = self.last == b',';
        (self.may_insert, self.expected, self.last) = (false, b',', 0);
        let open = self.open.pop().filter(|open| open.is_object == is_object && !trailing);
        next_if(open.is_some_and(|open| !is_object || open.items % 2 == 0))
    }

    fn begin_value(&mut self, byte: u8) -> Step {
        let token = match byte {
            b't' => Token::Word { word: b"true", len: 1 },
            b'f' => Token::Word { word: b"false", len: 1 },
            b'n' => Token::Word { word: b"null", len: 1 },
            b'-' | b'0'..=b'9' => Token::Number(Number::new(byte)),
            _ => return Step::Wrong,
        };
        if !self.count_value() {
            return Step::Wrong;
        }
        self.token = Some(token);
        Step::Next
    }
}

/// A number, in which C's parser allows more than JSON.
struct Number {
    start: Start,
    fraction: bool,
    exponent: bool,
    /// Class of the last byte: `1` for a digit, `.`, `e`, or `-` for a sign.
    last: u8,
}

#[derive(Clone, Copy, PartialEq)]
enum Start {
    Dash,
    Zero,
    DashZero,
    Digits,
}

impl Number {
    fn new(byte: u8) -> Number {
        let start = match byte {
            b'-' => Start::Dash,
            b'0' => Start::Zero,
            _ => Start::Digits,
        };
        Number { start, fraction: false, exponent: false, last: if start == Start::Digits { b'1' } else { b'-' } }
    }

    /// Consumes a byte. Returns whether the number continues, or `None` if it is invalid.
    fn take(&mut self, byte: u8) -> Option<bool> {
        match self.start {
            Start::Dash => {
                self.start = if byte == b'0' { Start::DashZero } else { Start::Digits };
                return byte.is_ascii_digit().then_some(true);
            }
            Start::Zero if byte.is_ascii_digit() => return None,
            Start::Zero => self.start = Start::Digits,
            Start::DashZero | Start::Digits => {}
        }
        match byte {
            b'0'..=b'9' if self.start == Start::Digits && !self.fraction && !self.exponent => {}
            b'0'..=b'9' => self.last = b'1',
            b'.' if !self.fraction => (self.fraction, self.last) = (true, byte),
            b'e' | b'E' if !self.exponent => (self.exponent, self.last) = (true, b'e'),
            b'-' | b'+' if self.last == b'e' => self.last = b'-',
            _ => return is_end(byte).then_some(false),
        }
        Some(true)
    }

    fn is_complete(&self) -> bool {
        let plain = !self.fraction && !self.exponent;
        self.start != Start::Dash && (plain || self.last == b'1')
    }
}

fn next_if(right: bool) -> Step {
    if right { Step::Next } else { Step::Wrong }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b'\t' | b'\n' | b'\r' | b' ')
}

/// Returns whether a byte ends a word or a number.
fn is_end(byte: u8) -> bool {
    is_space(byte) || b"\",:[\\]{}".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets() {
        for good in [
            r#"{"a":1}"#,
            r#"{"a": -0.5e+3 }"#,
            r#"{"a":"b\"c"}"#,
            r#"{"a":[1,"x",{"b":null}]}"#,
            r#"{"a":[1 "x"]}"#,
            r#"{"a":{"b":true,"c":[]}}"#,
            r#"{"_a":{"1":true,"b c":1,"b c":2}}"#,
            r#"{"a":{}}"#,
            r#"{"a":"ends early}"#,
            r#"{"a":0}"#,
            r#"{"a":-01}"#,
        ] {
            assert!(is_label_set(good.as_bytes()), "{good}");
        }
        for bad in [
            r#"{"a":01}"#,
            r#"{"a":1.}"#,
            r#"{"a":1e}"#,
            r#"{"a":-}"#,
            r#"{"a":tru}"#,
            r#"{"a":truex}"#,
            r#"{"a":[1,]}"#,
            r#"{"a":[1 2]}"#,
            r#"{"a":[1"x"]}"#,
            r#"{"a":"b"c"}"#,
            r#"{"a":{"b":1,"b":2}}"#,
            r#"{"a":{"b"}}"#,
            "{\"a\":\"\t\"}",
            r#"{"a":"\x"}"#,
        ] {
            assert!(!is_label_set(bad.as_bytes()), "{bad}");
        }
    }
}
