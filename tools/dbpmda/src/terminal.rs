//! Terminal with line editing and history.

use rustyline::error::ReadlineError;
use rustyline::history::MemHistory;
use rustyline::{Config, Editor};

/// Terminal with line editing. The history ends with the session.
pub struct Terminal {
    editor: Editor<(), MemHistory>,
    /// Current line with its end. `given` counts the characters that have been returned.
    line: Vec<u8>,
    given: usize,
}

impl Terminal {
    /// Returns the terminal of standard input and output; `None` if it cannot be used.
    pub fn new() -> Option<Self> {
        let editor = Editor::with_history(Config::default(), MemHistory::new()).ok()?;
        Some(Terminal { editor, line: Vec::new(), given: 0 })
    }

    /// Returns the next character; `None` at the end of the input.
    pub(crate) fn next(&mut self, prompt: &str) -> Option<u8> {
        loop {
            if let Some(&c) = self.line.get(self.given) {
                self.given += 1;
                if c != b'\r' {
                    return Some(c);
                }
                continue;
            }
            let line = match self.editor.readline(&format!("{prompt}> ")) {
                Ok(line) => line,
                Err(ReadlineError::Interrupted) => continue,
                Err(_) => return None,
            };
            self.given = 0;
            self.line = line.into_bytes();
            if !self.line.is_empty() {
                self.line.push(b'\n');
            }
        }
    }

    /// Adds a line to the history.
    pub(crate) fn remember(&mut self, line: &[u8]) {
        let line = String::from_utf8_lossy(line);
        let line = line.trim_end_matches('\n');
        if !line.is_empty() {
            // Only a history in a file can fail.
            let _ = self.editor.add_history_entry(line);
        }
    }
}
