//! Error messages as libpcp and pmcpp(1) write them.

use crate::cpp::is_space;
use crate::error::{Error, Pass, Problem};

impl Error {
    /// Returns the text that libpcp and pmcpp(1) write to stderr for the same mistake.
    pub fn diagnostics(&self) -> String {
        match self {
            Error::Open { path, .. } => format!("Error Parsing ASCII PMNS: Cannot open \"{}\"\n", path.display()),
            Error::Problems(problems) => {
                let mut text = String::new();
                for (at, problem) in problems.iter().enumerate() {
                    text.push_str(&one(problem, at > 0));
                }
                text
            }
        }
    }
}

fn one(Problem { place, reason, pass }: &Problem, follows: bool) -> String {
    let (file, number) = (&place.file, place.line);
    match pass {
        Pass::Preprocess(line) => {
            let head = match line {
                Some(line) => format!("{file}[{number}]: {line}"),
                None => format!("{file}:"),
            };
            format!(
                "pmcpp: {head}\npmcpp: Error: {reason}\n\
                 Error Parsing ASCII PMNS: pmcpp returned non-zero exit status\n"
            )
        }
        Pass::Parse { line, token } => {
            let (line, caret) = squeeze(line, *token);
            // libpcp has already consumed the line when it reports a second problem in it.
            let line = if follows { &caret } else { &line };
            format!("[{file}:{number}] Error Parsing ASCII PMNS: {reason}\n    {line}\n    {caret}\n")
        }
        Pass::Duplicate => {
            format!("[{file}:{number}] Error Parsing ASCII PMNS: {reason}\n\n    {reason}\n    ^\n")
        }
        Pass::DuplicateId => format!("Error Parsing ASCII PMNS: {reason}\n\n"),
        Pass::Assemble => format!("Error Parsing ASCII PMNS: {reason}\n"),
    }
}

/// Returns `line` without white space at its beginning, beside colons and after other white space. The second string
/// has a caret below the byte `token`.
fn squeeze(line: &str, token: usize) -> (String, String) {
    let mut text = String::new();
    let mut caret = None;
    for (at, c) in line.char_indices() {
        if at >= token && caret.is_none() {
            caret = Some(text.len());
        }
        let space = |c: char| u8::try_from(c).is_ok_and(is_space);
        if space(c) {
            if !text.is_empty() && !text.ends_with(':') && !text.ends_with(space) {
                text.push(c);
            }
            continue;
        }
        if c == ':' {
            text.truncate(text.trim_end_matches(space).len());
        }
        text.push(c);
    }
    let before = text.get(..caret.unwrap_or(text.len())).unwrap_or_default();
    let blank: String = before.chars().map(|c| if c == '\t' { c } else { ' ' }).collect();
    (text, blank + "^")
}
