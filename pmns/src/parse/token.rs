//! The scanner: turns a line into tokens.

use crate::cpp::{Line, is_space};
use crate::error::Problem;
use pmapi::PmId;
use std::borrow::Cow;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Token<'l> {
    Open,
    Close,
    /// A single component.
    Name(&'l str),
    /// Several components, separated by dots.
    Path(&'l str),
    Pmid(PmId),
    /// An invalid token. If it looks like a PMID, with libpcp's message.
    Bogus(Option<&'static str>),
}

/// Iterates over the tokens of a line. White space separates tokens, except beside a colon.
pub(super) struct Tokens<'l> {
    text: &'l [u8],
    at: usize,
}

impl<'l> Tokens<'l> {
    pub(super) fn new(line: &'l Line) -> Self {
        Tokens { text: &line.text, at: 0 }
    }

    /// Returns the next token and its offset in the line.
    pub(super) fn next(&mut self) -> Option<(usize, Token<'l>)> {
        self.skip_spaces();
        let start = self.at;
        let first = self.word();
        if first.is_empty() {
            return None;
        }
        let mut word = Cow::Borrowed(first);
        loop {
            let end = self.at;
            self.skip_spaces();
            let next = self.text.get(self.at);
            if next.is_none() || word.last() != Some(&b':') && next != Some(&b':') {
                self.at = end;
                break;
            }
            let more = self.word();
            word.to_mut().extend_from_slice(more);
        }
        let token = match word {
            Cow::Borrowed(word) => name(word).unwrap_or_else(|| pmid(word)),
            Cow::Owned(word) => pmid(&word),
        };
        Some((start, token))
    }

    fn skip_spaces(&mut self) {
        let rest = self.text.get(self.at..).unwrap_or_default();
        self.at += rest.iter().position(|b| !is_space(*b)).unwrap_or(rest.len());
    }

    fn word(&mut self) -> &'l [u8] {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let len = rest.iter().position(|b| is_space(*b)).unwrap_or(rest.len());
        self.at += len;
        rest.get(..len).unwrap_or_default()
    }
}

fn name(word: &[u8]) -> Option<Token<'_>> {
    let first = word.first()?;
    match word {
        b"{" => return Some(Token::Open),
        b"}" => return Some(Token::Close),
        _ => {}
    }
    if !first.is_ascii_alphabetic() || !word.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.')) {
        return None;
    }
    let name = std::str::from_utf8(word).ok()?;
    Some(if name.contains('.') { Token::Path(name) } else { Token::Name(name) })
}

/// Parses `DOMAIN:CLUSTER:ITEM` or `DOMAIN:*:*`. Like libpcp it also accepts `DOMAIN` for the latter.
fn pmid(word: &[u8]) -> Token<'static> {
    if !word.iter().all(|b| b.is_ascii_digit() || matches!(b, b':' | b'*')) {
        return Token::Bogus(None);
    }
    let mut parts = word.split(|b| *b == b':');
    let (domain, cluster, item) = match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(domain), Some(cluster), Some(item), None) => (domain, cluster, item),
        (Some(domain), None, ..) => (domain, &b"*"[..], &b"*"[..]),
        _ => return Token::Bogus(Some("Illegal PMID")),
    };
    let dynamic = (cluster, item) == (b"*", b"*");
    match (number(domain), number(cluster), number(item)) {
        (Some(511..), _, _) if dynamic => Token::Bogus(Some("Illegal domain field in dynamic PMID")),
        // A root of dynamic names has domain 511, and the agent's domain in place of the cluster.
        (Some(domain), _, _) if dynamic => word_of(511, domain, 0),
        (Some(511..), Some(_), Some(_)) => Token::Bogus(Some("Illegal domain field in PMID")),
        (Some(_), Some(4096..), Some(_)) => Token::Bogus(Some("Illegal cluster field in PMID")),
        (Some(_), Some(_), Some(1024..)) => Token::Bogus(Some("Illegal item field in PMID")),
        (Some(domain), Some(cluster), Some(item)) => word_of(domain, cluster, item),
        _ => Token::Bogus(Some("Illegal PMID")),
    }
}

fn word_of(domain: u32, cluster: u32, item: u32) -> Token<'static> {
    PmId::from_word(domain << 22 | cluster << 10 | item).map_or(Token::Bogus(None), Token::Pmid)
}

/// Parses a decimal number. One that needs more than 32 bits becomes `u32::MAX`, which is too large for every field.
fn number(digits: &[u8]) -> Option<u32> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u32, |value, b| {
        let digit = b.is_ascii_digit().then(|| u32::from(b - b'0'))?;
        Some(value.saturating_mul(10).saturating_add(digit))
    })
}

/// Returns whether [`line_control`] should parse the line.
pub(super) fn is_line_control(line: &Line) -> bool {
    line.text.iter().find(|b| !is_space(**b)) == Some(&b'#')
}

/// Parses a line `# NUMBER "FILE"`, as pmcpp(1) writes it, into number and file.
pub(super) fn line_control(line: &Line) -> Result<(u32, String), Problem> {
    let control = || {
        let text = std::str::from_utf8(&line.text).ok()?.trim_start().strip_prefix('#')?;
        let (number, name) = text.trim().split_once('"')?;
        Some((number.trim().parse().ok()?, name.strip_suffix('"')?.to_owned()))
    };
    control().ok_or_else(|| line.parse_problem(0, "Illegal line number control number"))
}
