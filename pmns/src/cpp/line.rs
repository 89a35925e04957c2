//! Lines of text during preprocessing, with the columns that their bytes have in the file.

use crate::error::{Pass, Place, Problem};
use std::sync::Arc;

/// A line of preprocessed text and its position in a file.
#[derive(Debug)]
pub(crate) struct Line {
    file: Arc<str>,
    pub(super) number: u32,
    /// Text of the line, without its newline.
    pub(crate) text: Vec<u8>,
    /// Parts of the text whose column in the file differs from their offset here. Ascending by `start`.
    origins: Vec<Origin>,
    /// The text before substitution. Kept so that its allocation is reused.
    before: Vec<u8>,
}

/// The part of a line's text from `start` up to the next origin, and its column in the file.
#[derive(Clone, Copy, Debug)]
struct Origin {
    start: usize,
    column: usize,
    /// The part is the value of a macro whose name begins at `column`.
    is_value: bool,
}

impl Line {
    pub(crate) fn new() -> Line {
        Line { file: "".into(), number: 0, text: Vec::new(), origins: Vec::new(), before: Vec::new() }
    }

    pub(super) fn reset(&mut self, file: &Arc<str>, number: u32, text: &[u8]) {
        if !Arc::ptr_eq(&self.file, file) {
            self.file = file.clone();
        }
        self.number = number;
        self.text.clear();
        self.text.extend_from_slice(text);
        self.origins.clear();
    }

    /// Returns the position in the file of the byte at offset `at` of the text.
    pub(crate) fn place(&self, at: usize) -> Place {
        let origin = self.origins.partition_point(|origin| origin.start <= at).checked_sub(1);
        let column = match origin.and_then(|origin| self.origins.get(origin)) {
            None => at,
            Some(Origin { column, is_value: true, .. }) => *column,
            Some(Origin { start, column, .. }) => column + (at - start),
        };
        let column = u32::try_from(column).map_or(u32::MAX, |column| column.saturating_add(1));
        Place { file: self.file.clone(), line: self.number, column }
    }

    /// Creates a problem that the preprocessor reports, at offset `at`.
    pub(super) fn problem(&self, at: usize, reason: impl Into<String>) -> Problem {
        let text = String::from_utf8_lossy(&self.text).into_owned();
        Problem { place: self.place(at), reason: reason.into(), pass: Pass::Preprocess(Some(text)) }
    }

    /// Creates a problem that the scanner or parser reports, for the token at offset `at`.
    pub(crate) fn parse_problem(&self, at: usize, reason: impl Into<String>) -> Problem {
        let line = String::from_utf8_lossy(&self.text).into_owned();
        Problem { place: self.place(at), reason: reason.into(), pass: Pass::Parse { line, token: at } }
    }

    /// Replaces the words `[A-Za-z_][A-Za-z0-9_]*` that have a value.
    ///
    /// Stops when the text is longer than `max`, because the values of a few words can be large.
    pub(super) fn replace_words<'v>(&mut self, max: usize, value: impl Fn(&[u8]) -> Option<&'v [u8]>) {
        std::mem::swap(&mut self.text, &mut self.before);
        self.text.clear();
        let mut at = 0;
        while let Some(rest) = self.before.get(at..).filter(|rest| !rest.is_empty() && self.text.len() <= max) {
            // A word does not begin with a digit: digits before a letter belong to the gap.
            let gap = rest.iter().position(|b| starts_word(*b)).unwrap_or(rest.len());
            let (gap, rest) = rest.split_at(gap);
            let word = rest.iter().position(|b| !starts_word(*b) && !b.is_ascii_digit()).unwrap_or(rest.len());
            let word = rest.get(..word).unwrap_or_default();
            self.text.extend_from_slice(gap);
            at += gap.len();
            match value(word) {
                Some(value) => {
                    self.origins.push(Origin { start: self.text.len(), column: at, is_value: true });
                    self.text.extend_from_slice(value);
                    at += word.len();
                    self.origins.push(Origin { start: self.text.len(), column: at, is_value: false });
                }
                None => {
                    self.text.extend_from_slice(word);
                    at += word.len();
                }
            }
        }
    }
}

pub(super) const fn starts_word(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_'
}
