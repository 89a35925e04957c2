//! Where commands come from: `.dbpmdarc`, standard input, a terminal.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use crate::console::{Console, err, out};
use crate::terminal::Terminal;

const RC: &str = ".dbpmdarc";

/// The characters of the commands, with their prompts and the place of errors.
pub struct Source {
    console: Console,
    input: Input,
    /// What comes after `.dbpmdarc`, while that is read.
    after: Option<After>,
    prompt: &'static str,
    /// Whether characters are echoed as they are read.
    echo: bool,
    /// Whether there is a prompt before each line.
    interactive: bool,
    /// The line so far.
    line: Vec<u8>,
    number: u32,
    /// The character read last: 0 after the end of the input.
    last: u8,
}

/// What characters are read from.
pub enum Input {
    /// Not a terminal.
    Stream(BufReader<Box<dyn Read>>),
    /// A terminal, with line editing.
    Terminal(Box<Terminal>),
}

struct After {
    input: Input,
    echo: bool,
    interactive: bool,
}

impl Input {
    /// Anything to read from.
    pub fn stream(input: impl Read + 'static) -> Self {
        Input::Stream(BufReader::new(Box::new(input)))
    }
}

impl Source {
    /// Commands from an input.
    pub fn new(console: Console, input: Input, echo: bool, interactive: bool) -> Self {
        Source {
            console,
            input,
            after: None,
            prompt: "dbpmda",
            echo,
            interactive,
            line: Vec::new(),
            number: 0,
            last: b'\n',
        }
    }

    /// Commands of the file `.dbpmdarc` first, if there is one, which are echoed behind prompts.
    pub fn with_rc(mut self) -> Self {
        if let Ok(file) = File::open(Path::new(RC)) {
            let input = std::mem::replace(&mut self.input, Input::stream(file));
            self.after = Some(After { input, echo: self.echo, interactive: self.interactive });
            (self.prompt, self.echo, self.interactive) = (RC, true, true);
        }
        self
    }

    /// The next character; `None` at the end of the input, and at a NUL.
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

    /// A character, 0 at the end of the input.
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

    /// Goes on after `.dbpmdarc`.
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

    /// Whether the input has ended.
    pub fn has_ended(&self) -> bool {
        self.last == 0
    }

    /// Whether the rest of the line is empty.
    pub(crate) fn is_line_read(&self) -> bool {
        self.last == b'\n'
    }

    /// Whether there is a prompt before each line.
    pub fn is_interactive(&self) -> bool {
        self.interactive
    }

    /// Reports an error at what has been read last, and skips the rest of the line.
    pub(crate) fn error(&mut self, message: &str) {
        let mark = self.line.len();
        while !matches!(self.last, 0 | b'\n') {
            self.next();
        }
        let blank = |c: &u8| if *c == b'\t' { '\t' } else { ' ' };
        let before = self.line.iter().take(mark).take_while(|c| **c != b'\n').map(blank);
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

    /// Reports what is odd.
    pub(crate) fn warn(&self, message: &str) {
        match self.after {
            None => err!(self.console, "Warning: {message}\n"),
            Some(_) => err!(self.console, "Warning [{RC}, line {}]\n{message}\n", self.number),
        }
    }
}
