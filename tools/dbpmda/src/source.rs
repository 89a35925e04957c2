//! Sources of commands: `.dbpmdarc`, standard input, a terminal.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use crate::console::{Console, err, out};
use crate::terminal::Terminal;

const RC: &str = ".dbpmdarc";

/// Source of commands. Shows prompts and marks the positions of errors.
pub struct Source {
    console: Console,
    input: Input,
    /// Input after `.dbpmdarc`, while that file is read.
    after: Option<After>,
    prompt: &'static str,
    /// Whether characters are echoed when they are read.
    echo: bool,
    /// Whether each line has a prompt.
    interactive: bool,
    /// Characters of the line that have been read.
    line: Vec<u8>,
    number: u32,
    /// Last character that was read; 0 after the end of the input.
    last: u8,
}

/// Input of characters.
pub enum Input {
    /// Stream that is not a terminal.
    Stream(BufReader<Box<dyn Read>>),
    /// Terminal with line editing.
    Terminal(Box<Terminal>),
}

struct After {
    input: Input,
    echo: bool,
    interactive: bool,
}

impl Input {
    /// Returns an input that reads from a stream.
    pub fn stream(input: impl Read + 'static) -> Self {
        Input::Stream(BufReader::new(Box::new(input)))
    }
}

impl Source {
    /// Returns a source of commands from `input`, without prompts and echo.
    pub fn new(console: Console, input: Input) -> Self {
        Source {
            console,
            input,
            after: None,
            prompt: "dbpmda",
            echo: false,
            interactive: false,
            line: Vec::new(),
            number: 0,
            last: b'\n',
        }
    }

    /// Shows the characters of a stream when they are read.
    pub fn with_echo(mut self) -> Self {
        self.echo = true;
        self
    }

    /// Shows a prompt before each line.
    pub fn with_prompts(mut self) -> Self {
        self.interactive = true;
        self
    }

    /// Makes the source read `.dbpmdarc` in the working directory first, if it exists, with prompts and echo.
    pub fn with_rc(mut self) -> Self {
        if let Ok(file) = File::open(Path::new(RC)) {
            let input = std::mem::replace(&mut self.input, Input::stream(file));
            self.after = Some(After { input, echo: self.echo, interactive: self.interactive });
            (self.prompt, self.echo, self.interactive) = (RC, true, true);
        }
        self
    }

    /// Returns the next character; `None` at the end of the input and at a NUL.
    pub(crate) fn next(&mut self) -> Option<u8> {
        if self.last == b'\n' {
            self.begin_line();
        }
        self.last = loop {
            match self.read() {
                0 if self.leave_rc() => {}
                c => break c,
            }
        };
        if self.last == 0 {
            return None;
        }
        self.line.push(self.last);
        Some(self.last)
    }

    fn begin_line(&mut self) {
        match &mut self.input {
            Input::Terminal(terminal) => terminal.remember(&self.line),
            Input::Stream(_) if self.interactive => self.show_prompt(),
            Input::Stream(_) => {}
        }
        self.number += 1;
        self.line.clear();
    }

    fn show_prompt(&self) {
        out!(self.console, "{}> ", self.prompt);
        self.console.flush();
    }

    /// Reads a character; 0 at the end of the input.
    fn read(&mut self) -> u8 {
        match &mut self.input {
            Input::Terminal(terminal) => terminal.next(self.prompt).unwrap_or(0),
            Input::Stream(stream) => {
                let read = stream.bytes().find(|c| !matches!(c, Ok(b'\r')));
                let Some(Ok(c)) = read else { return 0 };
                if self.echo {
                    self.console.out_bytes(&[c]);
                    self.console.flush();
                }
                c
            }
        }
    }

    /// Continues after `.dbpmdarc`; returns `false` if there is no further input.
    fn leave_rc(&mut self) -> bool {
        let Some(After { input, echo, interactive }) = self.after.take() else { return false };
        (self.input, self.echo, self.interactive) = (input, echo, interactive);
        self.prompt = "dbpmda";
        self.number = 1;
        if self.interactive {
            match self.input {
                Input::Terminal(_) => out!(self.console, "\n"),
                Input::Stream(_) => self.show_prompt(),
            }
            self.console.flush();
        }
        true
    }

    /// Returns whether the input has ended.
    pub fn has_ended(&self) -> bool {
        self.last == 0
    }

    /// Returns whether the line has been read completely.
    pub(crate) fn is_line_read(&self) -> bool {
        self.last == b'\n'
    }

    /// Returns whether each line has a prompt.
    pub fn is_interactive(&self) -> bool {
        self.interactive
    }

    /// Shows an error with a mark below the last character that was read, and skips the rest of the line.
    pub(crate) fn error(&mut self, message: &str) {
        let mark = self.line.len();
        while !matches!(self.last, 0 | b'\n') {
            self.next();
        }
        let before =
            self.line.iter().take(mark).take_while(|c| **c != b'\n').map(|c| if *c == b'\t' { '\t' } else { ' ' });
        let indent: String = self.prompt.chars().map(|_| ' ').chain([' ']).chain(before).collect();
        out!(self.console, "{indent}^ at or near here\n");
        match self.after {
            None => err!(self.console, "Error: {message}\nType 'help' for a list of commands.\n"),
            Some(_) => {
                let number = self.number;
                err!(self.console, "Error [{RC}, line {number}]: {message}\nType 'help' for a list of commands.\n");
            }
        }
    }

    /// Shows a warning.
    pub(crate) fn warn(&self, message: &str) {
        match self.after {
            None => err!(self.console, "Warning: {message}\n"),
            Some(_) => err!(self.console, "Warning [{RC}, line {}]\n{message}\n", self.number),
        }
    }
}
