//! POSIX extended regular expressions (regcomp(3)), translated for the `regex` crate: the dialect of all patterns that
//! users of Performance Co-Pilot write.
//!
//! ```
//! let pattern = pcp_ere::translate("^cpu[[:digit:]]+$")?;
//! assert!(regex::Regex::new(&pattern)?.is_match("cpu12"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The only use is to test whether a text matches, so neither the longest match nor sub-expressions matter. Errors have
//! the texts of regerror(3). Back references, a GNU extension, are refused.
//!
//! Patterns mean what they mean to glibc in the locale `C.UTF-8`: they match characters in UTF-8, classes such as
//! `[:alpha:]` have the characters of glibc 2.36 (Unicode 15), and ranges are those of code points. There are two
//! differences:
//! * Characters beyond ASCII may be in ranges, and in `[[=é=]]` and `[[.é.]]`. glibc refuses them in this locale.
//! * The bounds of words (`\b`, `\B`, `\<`, `\>`) are those of crate `regex`, which needs its feature `unicode-perl` for them.
//!   To it, combining marks and some punctuation are parts of words.

mod class;

use std::fmt;

const BAD_PATTERN: &str = "Invalid regular expression";
const BAD_REPEAT: &str = "Invalid preceding regular expression";
/// Text of regerror(3) for an expression that takes too much memory.
pub const TOO_BIG: &str = "Regular expression too big";
const BRACKET: &str = "Unmatched [, [^, [:, [., or [=";
const BAD_CLASS: &str = "Invalid character class name";
const BAD_COLLATION: &str = "Invalid collation character";
const BAD_RANGE: &str = "Invalid range end";
const TRAILING: &str = "Trailing backslash";
const BACK_REFERENCE: &str = "Invalid back reference";
const PARENTHESIS: &str = "Unmatched ( or \\(";
const BRACE: &str = "Unmatched \\{";
const BAD_INTERVAL: &str = "Invalid content of \\{\\}";

const MAX_REPEAT: u32 = 0x7fff;
/// Largest translation, in bytes. A class of characters has up to 12 KiB.
const LARGEST: usize = 1 << 20;
/// Largest nesting of intervals that directly follow one another.
const MAX_NESTED: usize = 50;

/// Error in a pattern, with the text that regerror(3) returns for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Error(pub &'static str);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Error {}

type Result<T = ()> = std::result::Result<T, Error>;

/// Translates a pattern to the syntax of the `regex` crate.
///
/// The translation has up to 1 MiB. The caller bounds the size of the compiled expression.
///
/// ```
/// assert_eq!(pcp_ere::translate("^a<b>$"), Ok("(?s)^a<b>$".to_owned()));
/// assert_eq!(pcp_ere::translate("a)+?"), Ok("(?s)a\\)*".to_owned()));
/// assert_eq!(pcp_ere::translate("(a").unwrap_err().to_string(), "Unmatched ( or \\(");
/// ```
///
/// # Errors
/// For an invalid pattern, a back reference, a repetition of more than 32,767 times, or one whose translation is too long.
pub fn translate(pattern: &str) -> Result<String> {
    Translation { rest: pattern, ..Translation::default() }.run()
}

/// Translates a pattern as [`translate`] does, but with ASCII characters only in its classes and words. A compiled class of
/// Unicode needs some 50 KiB, which may be too much for a pattern that a stranger has written.
///
/// # Errors
/// Errors of [`translate`].
pub fn translate_ascii(pattern: &str) -> Result<String> {
    Translation { rest: pattern, ascii: true, ..Translation::default() }.run()
}

#[derive(Default)]
struct Translation<'a> {
    rest: &'a str,
    /// Whether classes have ASCII characters only.
    ascii: bool,
    out: String,
    /// Index in the output where each open group begins.
    groups: Vec<usize>,
    last: Last,
}

/// Last part of the output, which a following operator repeats.
#[derive(Default)]
enum Last {
    /// Nothing that can be repeated.
    #[default]
    Nothing,
    /// Part of the output from an index on.
    Atom(usize),
    /// Repeated part, with its operator.
    Repeated { start: usize, operator: char },
    /// Part repeated by an interval (`{2,3}`), with the number of intervals that directly precede this one.
    Interval { start: usize, nested: usize },
}

impl Translation<'_> {
    fn run(mut self) -> Result<String> {
        self.out.push_str("(?s)");
        while let Some(c) = self.take() {
            if self.out.len() > LARGEST {
                return Err(Error(TOO_BIG));
            }
            match c {
                '*' | '+' | '?' => self.repeat(c)?,
                '{' => self.interval()?,
                '(' => {
                    self.groups.push(self.out.len());
                    self.out.push_str("(?:");
                    self.last = Last::Nothing;
                }
                ')' => match self.groups.pop() {
                    Some(start) => {
                        self.out.push(')');
                        self.last = Last::Atom(start);
                    }
                    None => self.literal(c),
                },
                '|' | '^' | '$' => {
                    self.out.push(c);
                    self.last = Last::Nothing;
                }
                '.' => self.atom("."),
                '[' => {
                    let set = self.bracket()?;
                    self.atom(&set);
                }
                '\\' => self.escape()?,
                c => self.literal(c),
            }
        }
        if self.groups.is_empty() { Ok(self.out) } else { Err(Error(PARENTHESIS)) }
    }

    fn take(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = &self.rest[c.len_utf8()..];
        Some(c)
    }

    fn atom(&mut self, text: &str) {
        self.last = Last::Atom(self.out.len());
        self.out.push_str(text);
    }

    /// Adds the characters of a class to a set.
    fn characters(&self, class: &str, set: &mut String) {
        if self.ascii {
            set.extend(["[:", class, ":]"]);
        } else {
            class::push(class, set);
        }
    }

    /// Adds a set of a class and further characters.
    fn class(&mut self, negation: &str, class: &str, more: &str) {
        let mut set = format!("[{negation}");
        self.characters(class, &mut set);
        self.atom(&(set + more + "]"));
    }

    fn literal(&mut self, c: char) {
        self.last = Last::Atom(self.out.len());
        push_literal(&mut self.out, c);
    }

    fn escape(&mut self) -> Result {
        match self.take().ok_or(Error(TRAILING))? {
            '1'..='9' => return Err(Error(BACK_REFERENCE)),
            'w' => self.class("", "alnum", "_"),
            'W' => self.class("^", "alnum", "_"),
            's' => self.class("", "space", ""),
            'S' => self.class("^", "space", ""),
            c @ ('b' | 'B' | '<' | '>' | '`' | '\'') => {
                match c {
                    '`' => self.out.push_str("\\A"),
                    '\'' => self.out.push_str("\\z"),
                    bound if self.ascii => self.out.extend(["(?-u:\\", bound.encode_utf8(&mut [0; 4]), ")"]),
                    bound => self.out.extend(['\\', bound]),
                }
                self.last = Last::Nothing;
            }
            c => self.literal(c),
        }
        Ok(())
    }

    /// Adds a repetition. Two operators in a row would mean something else to the `regex` crate.
    fn repeat(&mut self, operator: char) -> Result {
        let start = match self.last {
            Last::Nothing => return Err(Error(BAD_REPEAT)),
            Last::Atom(start) => start,
            Last::Repeated { start, operator: before } => {
                self.out.pop();
                let both = if before == operator { operator } else { '*' };
                self.out.push(both);
                self.last = Last::Repeated { start, operator: both };
                return Ok(());
            }
            Last::Interval { start, .. } => {
                self.group(start);
                start
            }
        };
        self.out.push(operator);
        self.last = Last::Repeated { start, operator };
        Ok(())
    }

    /// Groups the output from an index on.
    fn group(&mut self, start: usize) {
        self.out.insert_str(start, "(?:");
        self.out.push(')');
    }

    fn interval(&mut self) -> Result {
        let (start, nested) = match self.last {
            Last::Nothing => return Err(Error(BAD_REPEAT)),
            Last::Atom(start) => (start, 0),
            Last::Repeated { start, .. } => (start, 1),
            Last::Interval { start, nested } => (start, nested + 1),
        };
        let (content, rest) = self.rest.split_once('}').ok_or(Error(BRACE))?;
        self.rest = rest;
        let (min, max) = content.split_once(',').unwrap_or((content, content));
        let number = |text: &str| {
            if text.bytes().all(|b| b.is_ascii_digit()) {
                Ok(text.parse::<u32>().unwrap_or(MAX_REPEAT + 1))
            } else {
                Err(Error(BAD_INTERVAL))
            }
        };
        let (min, max) = match (min, max) {
            ("", "") if content.is_empty() => return Err(Error(BAD_INTERVAL)),
            ("", "") => (0, None),
            ("", max) => (0, Some(number(max)?)),
            (min, "") => (number(min)?, None),
            (min, max) => (number(min)?, Some(number(max)?)),
        };
        if max.is_some_and(|max| min > max) {
            return Err(Error(BAD_INTERVAL));
        }
        if max.unwrap_or(min) > MAX_REPEAT || nested > MAX_NESTED {
            return Err(Error(TOO_BIG));
        }
        if nested > 0 {
            self.group(start);
        }
        let max = max.map_or(String::new(), |max| max.to_string());
        self.out.push_str(&format!("{{{min},{max}}}"));
        self.last = Last::Interval { start, nested };
        Ok(())
    }

    /// Translates a set, from after its `[`.
    fn bracket(&mut self) -> Result<String> {
        let mut set = String::from("[");
        if let Some(rest) = self.rest.strip_prefix('^') {
            self.rest = rest;
            set.push('^');
        }
        if self.rest.is_empty() {
            return Err(Error(BAD_PATTERN));
        }
        let mut first = true;
        loop {
            if set.len() > LARGEST {
                return Err(Error(TOO_BIG));
            }
            match self.member(first)? {
                Member::End => break,
                Member::Class(class) => {
                    self.characters(class, &mut set);
                    self.no_range()?;
                }
                Member::Char(from) => self.range(from, &mut set)?,
            }
            first = false;
        }
        set.push(']');
        Ok(set)
    }

    /// Translates a character, or a range if `-` and its end follow.
    fn range(&mut self, from: char, set: &mut String) -> Result {
        push_literal(set, from);
        if self.no_range().is_ok() {
            return Ok(());
        }
        self.take();
        let Member::Char(to) = self.member(true)? else { return Err(Error(BAD_RANGE)) };
        if from > to {
            return Err(Error(BAD_RANGE));
        }
        set.push('-');
        push_literal(set, to);
        self.no_range()
    }

    /// Returns an error if `-` follows and is not the last character of the set.
    fn no_range(&self) -> Result {
        let dash = self.rest.strip_prefix('-').is_some_and(|rest| !rest.starts_with(']'));
        if dash { Err(Error(BAD_RANGE)) } else { Ok(()) }
    }

    fn member(&mut self, first: bool) -> Result<Member> {
        let c = self.take().ok_or(Error(BRACKET))?;
        let kind = self.rest.chars().next();
        match (c, kind) {
            (']', _) if !first => Ok(Member::End),
            ('[', Some(kind @ (':' | '.' | '='))) => {
                let end: String = [kind, ']'].iter().collect();
                let (name, rest) = self.rest[1..].split_once(&end).ok_or(Error(BRACKET))?;
                self.rest = rest;
                named(kind, name)
            }
            (c, _) => Ok(Member::Char(c)),
        }
    }
}

enum Member {
    End,
    Char(char),
    Class(&'static str),
}

fn named(kind: char, name: &str) -> Result<Member> {
    if kind == ':' {
        let class = class::NAMES.into_iter().find(|class| *class == name);
        return class.map(Member::Class).ok_or(Error(BAD_CLASS));
    }
    let mut chars = name.chars();
    match (chars.next(), chars.next()) {
        (Some(c), None) => Ok(Member::Char(c)),
        _ => Err(Error(BAD_COLLATION)),
    }
}

/// Adds a character that stands for itself. `<` and `>` get no backslash, which would make them bounds of a word.
fn push_literal(out: &mut String, c: char) {
    if c.is_ascii_punctuation() && !matches!(c, '<' | '>') {
        out.push('\\');
    }
    out.push(c);
}

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;

#[cfg(test)]
mod tests {
    use regex::bytes::Regex;

    use super::*;

    fn matches(pattern: &str, text: &str) -> bool {
        Regex::new(&translate(pattern).unwrap()).unwrap().is_match(text.as_bytes())
    }

    #[test]
    fn meanings_that_differ_from_the_crate() {
        assert!(matches("^a+?$", ""));
        assert!(matches("^a{2}{2}$", "aaaa") && !matches("^a{2}{2}$", "aaa"));
        assert!(matches("a)", "a)"));
        assert!(matches("^[]a-]+$", "]-a"));
        assert!(matches("^[^[:digit:]x]$", "y") && !matches("^[^[:digit:]x]$", "7"));
        assert!(matches(r"^\w\s$", "_ "));
        assert!(matches("^(|a)b$", "b"));
        assert!(matches("^a{,2}$", "aa"));
        assert!(matches("^[a\\]$", "\\"));
        assert!(matches("#&~ ", "#&~ "));
        assert!(matches("^a<b>$", "a<b>") && matches("^[1-<]$", ":") && matches("^\\<b", "b"));
    }

    #[test]
    fn classes_have_characters_of_unicode() {
        assert!(matches("^[[:alpha:]]+$", "été") && !matches("^[[:alpha:]]+$", "été!"));
        assert!(matches("^[^[:upper:]]$", "é") && !matches("^[^[:upper:]]$", "É"));
        assert!(matches("^[_[:lower:]-]+$", "straße-_") && matches(r"^\w\W$", "日\u{a0}"));
        assert!(matches("^[[:space:]]$", "\u{2003}") && !matches("^[[:digit:]]$", "٣"));
        assert!(matches(r"\<été\>", "l'été.") && !matches(r"\bt", "été"));
        assert!(matches("^[à-ü]$", "é") && matches("^[[=é=]]$", "é") && !matches("^[[=e=]]$", "é"));
        let ascii = Regex::new(&translate_ascii(r"^[[:alpha:]]\b").unwrap()).unwrap();
        assert!(ascii.is_match("eé".as_bytes()) && !ascii.is_match("é".as_bytes()));
    }

    #[test]
    fn errors() {
        for (pattern, why) in [
            ("*", BAD_REPEAT),
            ("^*", BAD_REPEAT),
            ("a|*", BAD_REPEAT),
            ("(", PARENTHESIS),
            ("[a", BRACKET),
            ("[[:foo:]]", BAD_CLASS),
            ("[b-a]", BAD_RANGE),
            ("a{2,1}", BAD_INTERVAL),
            ("a{99999}", TOO_BIG),
            ("a{1", BRACE),
            ("a{x}", BAD_INTERVAL),
            ("10[", BAD_PATTERN),
            ("1[^", BAD_PATTERN),
            ("[[:alpha:]-z]", BAD_RANGE),
            ("[a-a-z]", BAD_RANGE),
            ("\\", TRAILING),
            ("\\1", BACK_REFERENCE),
            (&"[[:alpha:]]".repeat(500), TOO_BIG),
            (&format!("[{}]", "[:alpha:]".repeat(500)), TOO_BIG),
        ] {
            assert_eq!(translate(pattern), Err(Error(why)), "{pattern}");
        }
    }
}
