//! The end of Install or Remove.

use std::io::{self, Write as _};

use super::task::Task;
use super::text;

/// Why Install or Remove ends before it is complete.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Stop {
    /// The message; empty if it has been printed.
    pub(crate) text: String,
    pub(crate) code: u8,
    /// Print the usage, too.
    pub(crate) usage: bool,
}

/// The result of a step of Install or Remove.
pub(crate) type Outcome<T> = Result<T, Stop>;

impl Stop {
    pub(crate) fn new(text: impl Into<String>) -> Stop {
        Stop { text: text.into(), code: 1, usage: false }
    }

    /// The reason has been printed.
    pub(crate) fn silent() -> Stop {
        Stop::new("")
    }

    /// Puts a message before the reason.
    pub(crate) fn or(self, text: impl Into<String>) -> Stop {
        let text = text.into();
        let text = if self.text.is_empty() { format!("{text}.") } else { format!("{text}: {}", self.text) };
        Stop { text, ..self }
    }

    pub(crate) fn print(&self, task: Task) {
        if !self.text.is_empty() {
            text::say(task, &self.text);
        }
        if self.usage {
            let _ = io::stderr().write_all(task.usage().as_bytes());
        }
    }
}

impl From<io::Error> for Stop {
    fn from(e: io::Error) -> Stop {
        Stop::new(e.to_string())
    }
}
