//! The preprocessor, pmcpp(1): comments, macros without parameters, `#include`, `#shell`, `#ifdef`.

mod directive;
mod line;

pub(crate) use line::Line;

use crate::error::{Pass, Place, Problem};
use crate::load::Files;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

/// Inputs that are open at a time: the file and what it includes, directly or not.
const MAX_DEPTH: usize = 5;
/// Inputs that one file can include, directly or not; bounds the work that few lines can ask for.
const MAX_INCLUDES: usize = 1_000;
/// Bytes of a line after substitution; bounds what few bytes can grow to. libpcp takes 254.
const MAX_LINE: usize = 4_096;

/// Yields the lines of a text that are not for the preprocessor.
pub(crate) struct Preprocessor<'a> {
    files: &'a dyn Files,
    /// Where includes are looked for after the name itself.
    dirs: Vec<PathBuf>,
    /// The last is read; none at the end.
    inputs: Vec<Input>,
    included: usize,
    macros: HashMap<Box<[u8]>, Box<[u8]>>,
    /// Where a comment began that has not ended.
    comment: Option<Place>,
    condition: Option<Condition>,
}

struct Input {
    name: Arc<str>,
    text: Vec<u8>,
    /// Where the next line begins.
    at: usize,
    /// The number of the line before.
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
            macros: HashMap::new(),
            comment: None,
            condition: None,
        }
    }

    /// The file that is read.
    pub(crate) fn file(&self) -> Arc<str> {
        self.inputs.last().map_or_else(|| "".into(), |input| input.name.clone())
    }

    /// Puts the next line into `line`; false at the end.
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

    /// What follows the last line comes from line `number` of the file `name`.
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

    /// Blanks comments out. A line that had one loses the white space at its end.
    fn strip_comments(&mut self, line: &mut Line) {
        if self.comment.is_none() && find(&line.text, b"/*").is_none() {
            return;
        }
        let mut at = 0;
        while at < line.text.len() {
            // Where the inside of the comment begins; one that goes on begins with the line.
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

    /// Replaces every word that is the name of a macro by its value, which is not looked at again.
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

/// Whether C's `isspace` holds in the C locale.
pub(crate) const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// Whether C's `isblank` holds in the C locale.
const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}
