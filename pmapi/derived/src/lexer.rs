//! Lexer: splits an expression into tokens.

use super::expr::{BinaryOp, Function};

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Token<'a> {
    End,
    /// Invalid token, with the reason.
    Error(&'static str),
    Integer(&'a str),
    Double(&'a str),
    Name(&'a str),
    String(&'a str),
    /// `[instance]`, without brackets and escapes.
    Instance(String),
    /// `/pattern/`, without slashes and escapes.
    Pattern(String),
    Binary(BinaryOp),
    Not,
    Quest,
    Colon,
    OpenParen,
    CloseParen,
    Comma,
    Assign,
    /// Name of a function that is followed by `(`.
    Function(Function),
    Anon,
    MatchInst,
    MkConst,
    NoValue,
    Rescale,
    /// Word that only `mkconst` and `novalue` use.
    Keyword(Keyword),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Keyword {
    InDom,
    Meta,
    Semantics,
    Type,
    Units,
}

pub(crate) struct Lexer<'a> {
    text: &'a str,
    at: usize,
    /// Whether the lexer is between `matchinst(` and `)`, where a slash begins a pattern and does not divide.
    pub(crate) in_matchinst: bool,
}

const ILLEGAL: Token<'static> = Token::Error("Illegal character");

impl<'a> Lexer<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Lexer { text, at: 0, in_matchinst: false }
    }

    /// Returns the next token and its offset. The end of the text has the offset of the last character.
    pub(crate) fn next(&mut self) -> (usize, Token<'a>) {
        let bytes = self.text.as_bytes();
        self.skip(is_space);
        let start = self.at;
        let Some(&first) = bytes.get(start) else {
            return (start.saturating_sub(1), Token::End);
        };
        self.at += 1;
        let token = match first {
            b'0'..=b'9' => self.number(start),
            b'.' => {
                self.skip(|b| b.is_ascii_digit());
                Token::Double(self.since(start))
            }
            b'a'..=b'z' | b'A'..=b'Z' => self.word(start),
            b'"' => self.string(),
            b'[' => self.escaped(b']').map_or(Token::Error("unterminated instance name"), Token::Instance),
            b'/' if self.in_matchinst => {
                self.escaped(b'/').map_or(Token::Error("unterminated pattern"), Token::Pattern)
            }
            b'+' => Token::Binary(BinaryOp::Plus),
            b'-' => Token::Binary(BinaryOp::Minus),
            b'*' => Token::Binary(BinaryOp::Star),
            b'/' => Token::Binary(BinaryOp::Slash),
            b'<' if self.take(b'=') => Token::Binary(BinaryOp::Leq),
            b'<' => Token::Binary(BinaryOp::Lt),
            b'>' if self.take(b'=') => Token::Binary(BinaryOp::Geq),
            b'>' => Token::Binary(BinaryOp::Gt),
            b'=' if self.take(b'=') => Token::Binary(BinaryOp::Eq),
            b'=' => Token::Assign,
            b'!' if self.take(b'=') => Token::Binary(BinaryOp::Neq),
            b'!' => Token::Not,
            b'&' if self.take(b'&') => Token::Binary(BinaryOp::And),
            b'|' if self.take(b'|') => Token::Binary(BinaryOp::Or),
            b'?' => Token::Quest,
            b':' => Token::Colon,
            b'(' => Token::OpenParen,
            b')' => Token::CloseParen,
            b',' => Token::Comma,
            _ => ILLEGAL,
        };
        (start, token)
    }

    fn number(&mut self, start: usize) -> Token<'a> {
        self.skip(|b| b.is_ascii_digit());
        if self.take(b'.') {
            self.skip(|b| b.is_ascii_digit());
            return Token::Double(self.since(start));
        }
        let text = self.since(start);
        match text.parse::<u32>() {
            Ok(_) => Token::Integer(text),
            Err(_) => Token::Error("Constant value too large"),
        }
    }

    fn word(&mut self, start: usize) -> Token<'a> {
        self.skip(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'.');
        let word = self.since(start);
        let keyword = match word {
            "indom" => Keyword::InDom,
            "meta" => Keyword::Meta,
            "semantics" => Keyword::Semantics,
            "type" => Keyword::Type,
            "units" => Keyword::Units,
            _ if self.text.as_bytes().get(self.at) == Some(&b'(') => return self.function(word),
            _ => return Token::Name(word),
        };
        Token::Keyword(keyword)
    }

    fn function(&mut self, word: &'a str) -> Token<'a> {
        Token::Function(match word {
            "avg" => Function::Avg,
            "count" => Function::Count,
            "defined" => Function::Defined,
            "delta" => Function::Delta,
            "instant" => Function::Instant,
            "max" => Function::Max,
            "min" => Function::Min,
            "rate" => Function::Rate,
            "scalar" => Function::Scalar,
            "sum" => Function::Sum,
            "anon" => return Token::Anon,
            "matchinst" => {
                self.in_matchinst = true;
                return Token::MatchInst;
            }
            "mkconst" => return Token::MkConst,
            "novalue" => return Token::NoValue,
            "rescale" => return Token::Rescale,
            _ => return Token::Name(word),
        })
    }

    fn string(&mut self) -> Token<'a> {
        let start = self.at;
        self.skip(|b| b != b'"');
        let text = self.since(start);
        if self.take(b'"') { Token::String(text) } else { Token::Error("unterminated STRING") }
    }

    /// Reads up to the delimiter. Drops each backslash and keeps the character after it, which may be the delimiter.
    fn escaped(&mut self, delimiter: u8) -> Option<String> {
        let mut text = String::new();
        let mut chars = self.text.get(self.at..)?.char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => text.push(chars.next()?.1),
                c if c == char::from(delimiter) => {
                    self.at += at + 1;
                    return Some(text);
                }
                c => text.push(c),
            }
        }
        None
    }

    fn since(&self, start: usize) -> &'a str {
        self.text.get(start..self.at).unwrap_or_default()
    }

    fn skip(&mut self, wanted: impl Fn(u8) -> bool) {
        self.at += self.text.as_bytes()[self.at..].iter().take_while(|b| wanted(**b)).count();
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.text.as_bytes().get(self.at) == Some(&byte);
        self.at += usize::from(found);
        found
    }
}

pub(crate) use pmapi::cnum::is_space;
