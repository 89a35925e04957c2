//! Control lines: those that begin with `#`.

use super::line::starts_word;
use super::{Condition, Input, Line, MAX_DEPTH, MAX_INCLUDES, Preprocessor, is_blank, is_space};
use crate::error::Problem;
use crate::files::LONGEST;
use std::path::Path;

/// Read position in a control line.
struct Cursor<'l> {
    line: &'l Line,
    at: usize,
}

impl<'l> Cursor<'l> {
    fn rest(&self) -> &'l [u8] {
        self.line.text.get(self.at..).unwrap_or_default()
    }

    /// Consumes and returns the bytes up to the first one that is not `wanted`.
    fn take_while(&mut self, wanted: impl Fn(u8) -> bool) -> &'l [u8] {
        let rest = self.rest();
        let len = rest.iter().position(|b| !wanted(*b)).unwrap_or(rest.len());
        self.at += len;
        rest.get(..len).unwrap_or_default()
    }

    /// Consumes and returns the text between quotes. `None` when the opening quote is missing, `Err` with the closing
    /// quote when that is missing.
    fn quoted(&mut self, quotes: &[(u8, u8)]) -> Option<Result<&'l [u8], u8>> {
        let (_, close) = quotes.iter().find(|(open, _)| self.rest().first() == Some(open))?;
        self.at += 1;
        let value = self.take_while(|b| b != *close);
        if self.rest().is_empty() {
            return Some(Err(*close));
        }
        self.at += 1;
        Some(Ok(value))
    }

    fn problem(&self, reason: impl Into<String>) -> Problem {
        self.line.problem(self.at, reason)
    }
}

impl Preprocessor<'_> {
    /// Executes a control line. Returns false when the line does not begin with a known keyword.
    pub(super) fn control_line(&mut self, line: &Line) -> Result<bool, Problem> {
        // As in pmcpp, a keyword need not end at a word boundary: `#endifs` is an `#endif` with extra text.
        type Obey<'a> = fn(&mut Preprocessor<'a>, &mut Cursor<'_>) -> Result<(), Problem>;
        let keywords: [(&[u8], Obey<'_>); 8] = [
            (b"#include", Self::include),
            (b"#shell", Self::shell),
            (b"#define", Self::define),
            (b"#undef", Self::undef),
            (b"#ifdef", |this, cursor| this.begin_if(cursor, true)),
            (b"#ifndef", |this, cursor| this.begin_if(cursor, false)),
            (b"#else", Self::else_),
            (b"#endif", Self::end_if),
        ];
        for (keyword, obey) in keywords {
            if line.text.starts_with(keyword) {
                let mut cursor = Cursor { line, at: keyword.len() };
                cursor.take_while(is_blank);
                return obey(self, &mut cursor).map(|()| true);
            }
        }
        Ok(false)
    }

    fn is_skipping(&self) -> bool {
        self.condition.as_ref().is_some_and(|condition| !condition.holds)
    }

    fn define(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Problem> {
        let name = name(cursor)?;
        let at = cursor.at;
        cursor.take_while(is_blank);
        let value = match cursor.quoted(&[(b'"', b'"'), (b'\'', b'\'')]) {
            Some(Ok(value)) => value,
            Some(Err(_)) => return Err(cursor.problem("Unterminated value string in #define")),
            None => cursor.take_while(|b| !is_space(b)),
        };
        end_of_line(cursor, "Unexpected extra text in a control line")?;
        if self.is_skipping() {
            return Ok(());
        }
        if self.macros.contains_key(name) {
            return Err(cursor.line.problem(at - name.len(), "Macro redefinition"));
        }
        self.macros.insert(name.into(), value.into());
        Ok(())
    }

    fn undef(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Problem> {
        let name = name(cursor)?;
        end_of_line(cursor, "Unexpected extra text in a control line")?;
        if !self.is_skipping() {
            self.macros.remove(name);
        }
        Ok(())
    }

    fn begin_if(&mut self, cursor: &mut Cursor<'_>, defined: bool) -> Result<(), Problem> {
        let name = name(cursor)?;
        end_of_line(cursor, "Unexpected extra text in a control line")?;
        if self.condition.is_some() {
            return Err(cursor.line.problem(0, "Nested #ifdef or #ifndef"));
        }
        let holds = self.macros.contains_key(name) == defined;
        self.condition = Some(Condition { holds, place: cursor.line.place(0) });
        Ok(())
    }

    fn else_(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Problem> {
        end_of_line(cursor, "Unexpected extra text in a control line")?;
        match &mut self.condition {
            Some(condition) => condition.holds = !condition.holds,
            None => return Err(cursor.line.problem(0, "No matching #ifdef or #ifndef for #else")),
        }
        Ok(())
    }

    fn end_if(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Problem> {
        end_of_line(cursor, "Unexpected extra text in a control line")?;
        match self.condition.take() {
            Some(_) => Ok(()),
            None => Err(cursor.line.problem(0, "No matching #ifdef or #ifndef for #endif")),
        }
    }

    fn include(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Problem> {
        if self.is_skipping() {
            return Ok(());
        }
        let at = cursor.at;
        let name = match cursor.quoted(&[(b'"', b'"'), (b'<', b'>')]) {
            Some(Ok(name)) => name,
            Some(Err(close)) => return Err(cursor.problem(format!("Expected {} after file name", close as char))),
            None => return Err(cursor.problem("Expected \" or < after #include")),
        };
        self.check_depth(cursor, "#include and/or #shell nesting too deep")?;
        end_of_line(cursor, "Unexpected extra text in #include line")?;
        let problem = || cursor.line.problem(at, "Cannot open file for #include");
        let name = Path::new(std::str::from_utf8(name).map_err(|_| problem())?);
        let own = if name.is_relative() { self.files.read_relative(name) } else { self.files.read(name) };
        let other = || {
            self.dirs.iter().find_map(|dir| {
                let path = dir.join(name);
                Some((self.files.read(&path).ok()?, path))
            })
        };
        let (text, path) = own.ok().map(|text| (text, name.to_owned())).or_else(other).ok_or_else(problem)?;
        self.push(cursor, &path.to_string_lossy(), text)
    }

    fn shell(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Problem> {
        if self.is_skipping() {
            return Ok(());
        }
        let at = cursor.at;
        let command = match cursor.quoted(&[(b'"', b'"'), (b'\'', b'\'')]) {
            Some(Ok(command)) => command,
            Some(Err(close)) => return Err(cursor.problem(format!("Expected {} after command", close as char))),
            None => return Err(cursor.problem("Expected \" or ' after #shell")),
        };
        self.check_depth(cursor, "#shell and/or #include nesting too deep")?;
        end_of_line(cursor, "Unexpected extra text in #shell line")?;
        let problem = |reason: String| cursor.line.problem(at, reason);
        let command = std::str::from_utf8(command).map_err(|e| problem(format!("#shell: {e}")))?;
        let text = self.files.shell(command).map_err(|e| problem(format!("#shell: {e}")))?;
        self.push(cursor, "<shell>", text)
    }

    fn check_depth(&self, cursor: &Cursor<'_>, reason: &str) -> Result<(), Problem> {
        if self.inputs.len() >= MAX_DEPTH { Err(cursor.line.problem(0, reason)) } else { Ok(()) }
    }

    fn push(&mut self, cursor: &Cursor<'_>, name: &str, text: Vec<u8>) -> Result<(), Problem> {
        if self.included >= MAX_INCLUDES {
            return Err(cursor.line.problem(0, format!("over {MAX_INCLUDES} files included")));
        }
        self.included += 1;
        self.room = self
            .room
            .checked_sub(text.len())
            .ok_or_else(|| cursor.line.problem(0, format!("over {} MiB of text", LONGEST >> 20)))?;
        self.inputs.push(Input { name: name.into(), text, at: 0, line: 0 });
        Ok(())
    }
}

/// Consumes and returns the name of a macro.
fn name<'l>(cursor: &mut Cursor<'l>) -> Result<&'l [u8], Problem> {
    if cursor.rest().is_empty() {
        return Err(cursor.problem("Missing macro name"));
    }
    if !cursor.rest().first().is_some_and(|b| starts_word(*b)) {
        return Err(cursor.problem("Illegal character in macro name"));
    }
    let name = cursor.take_while(|b| starts_word(b) || b.is_ascii_digit());
    if !cursor.rest().first().is_none_or(|b| is_space(*b)) {
        return Err(cursor.problem("Illegal character in macro name"));
    }
    Ok(name)
}

fn end_of_line(cursor: &mut Cursor<'_>, reason: &str) -> Result<(), Problem> {
    cursor.take_while(is_space);
    if cursor.rest().is_empty() { Ok(()) } else { Err(cursor.problem(reason)) }
}
