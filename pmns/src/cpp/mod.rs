//! The preprocessor of pmcpp(1): comments, macros without parameters, `#include`, `#shell`, `#ifdef`.

mod directive;
mod line;

pub(crate) use line::Line;

use crate::error::{Pass, Place, Problem};
use crate::files::{Files, LONGEST};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

/// Largest number of inputs open at a time: the first file, and the inputs that it includes directly or indirectly.
const MAX_DEPTH: usize = 5;
/// Largest total number of included inputs. A short text cannot cause more work than that.
const MAX_INCLUDES: usize = 1_000;
/// Longest line after substitution, in bytes. A short text cannot grow beyond that. libpcp's limit is 254.
const MAX_LINE: usize = 4_096;

/// Reads a text and yields its preprocessed lines, without control lines and skipped lines.
pub(crate) struct Preprocessor<'a> {
    files: &'a dyn Files,
    /// Directories to search for included files, after the path itself.
    dirs: Vec<PathBuf>,
    /// Open inputs, the innermost last; empty at the end of the text.
    inputs: Vec<Input>,
    included: usize,
    /// Bytes that may still be included. Without a limit, a few lines could use up the memory by including large files.
    room: usize,
    macros: HashMap<Box<[u8]>, Box<[u8]>>,
    /// Start of the comment that is still open.
    comment: Option<Place>,
    condition: Option<Condition>,
}

struct Input {
    name: Arc<str>,
    text: Vec<u8>,
    /// Offset of the next line.
    at: usize,
    /// Number of the last line read.
    line: u32,
}

/// An `#ifdef` or `#ifndef` that has not ended.
struct Condition {
    holds: bool,
    place: Place,
}

impl<'a> Preprocessor<'a> {
    pub(crate) fn new(files: &'a dyn Files, dirs: Vec<PathBuf>, name: &str, text: Vec<u8>) -> Self {
        Preprocessor {
            files,
            dirs,
            inputs: vec![Input { name: name.into(), text, at: 0, line: 0 }],
            included: 0,
            room: LONGEST,
            macros: HashMap::new(),
            comment: None,
            condition: None,
        }
    }

    /// Returns the name of the innermost input.
    pub(crate) fn file(&self) -> Arc<str> {
        self.inputs.last().map_or_else(|| "".into(), |input| input.name.clone())
    }

    /// Replaces `line` by the next line of the result. Returns false at the end of the text.
    pub(crate) fn next_line(&mut self, line: &mut Line) -> Result<bool, Problem> {
        while self.read_line(line)? {
            self.strip_comments(line);
            if line.text.first() == Some(&b'#') && self.control_line(line)? {
                continue;
            }
            if self.condition.as_ref().is_none_or(|condition| condition.holds) {
                self.substitute(line)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Sets the position of the next line: line `number` of the file `name`.
    pub(crate) fn set_position(&mut self, name: &str, number: u32) {
        if let Some(input) = self.inputs.last_mut() {
            input.name = name.into();
            input.line = number.saturating_sub(1);
        }
    }

    fn read_line(&mut self, line: &mut Line) -> Result<bool, Problem> {
        while let Some(input) = self.inputs.last_mut() {
            let rest = input.text.get(input.at..).unwrap_or_default();
            let len = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
            line.reset(&input.name, input.line, rest.get(..len).unwrap_or_default());
            if !rest.is_empty() {
                input.at += len + 1;
                input.line = input.line.saturating_add(1);
                line.number = input.line;
                return Ok(true);
            }
            self.inputs.pop();
            if self.inputs.is_empty() {
                self.end()?;
            }
        }
        Ok(false)
    }

    fn end(&self) -> Result<(), Problem> {
        let (place, reason) = match (&self.comment, &self.condition) {
            (Some(place), _) => (place, format!("Comment at line {} not terminated before end of file", place.line)),
            (None, Some(Condition { place, .. })) => {
                (place, format!("End of input and no matching #endif for #ifdef or #ifndef at line {}", place.line))
            }
            (None, None) => return Ok(()),
        };
        Err(Problem { place: place.clone(), reason, pass: Pass::Preprocess(None) })
    }

    /// Replaces comments by spaces. A line that had one loses the white space at its end.
    fn strip_comments(&mut self, line: &mut Line) {
        if self.comment.is_none() && find(&line.text, b"/*").is_none() {
            return;
        }
        let mut at = 0;
        while at < line.text.len() {
            // Length of the opening `/*`, which a comment that continues from an earlier line lacks.
            let rest = line.text.get(at..).unwrap_or_default();
            let inside = match self.comment {
                Some(_) => 0,
                None => match find(rest, b"/*") {
                    Some(start) => {
                        at += start;
                        self.comment = Some(line.place(at));
                        b"/*".len()
                    }
                    None => break,
                },
            };
            let end = match find(line.text.get(at + inside..).unwrap_or_default(), b"*/") {
                Some(len) => {
                    self.comment = None;
                    at + inside + len + b"*/".len()
                }
                None => line.text.len(),
            };
            line.text.get_mut(at..end).unwrap_or_default().fill(b' ');
            at = end;
        }
        let end = line.text.iter().rposition(|b| !is_space(*b)).map_or(0, |last| last + 1);
        line.text.truncate(end);
    }

    /// Replaces every word that is the name of a macro by its value. Values are not expanded again.
    fn substitute(&self, line: &mut Line) -> Result<(), Problem> {
        if !self.macros.is_empty() {
            line.replace_words(MAX_LINE, |word| self.macros.get(word).map(|value| &**value));
        }
        if line.text.len() > MAX_LINE {
            return Err(line.parse_problem(0, "Absurdly long line, cannot recover"));
        }
        Ok(())
    }
}

fn find(text: &[u8], what: &[u8; 2]) -> Option<usize> {
    memchr::memchr_iter(what[0], text).find(|at| text.get(at + 1) == Some(&what[1]))
}

pub(crate) use pmapi::cnum::is_space;

/// Returns whether C's `isblank` holds in the C locale.
const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}
