//! Tests of the parser, and of sessions with any agent.

mod attribute;
mod errors;
mod forms;
mod hostile;
mod number;
mod random;

use std::cell::RefCell;
use std::io::{self, Cursor, Write};
use std::rc::Rc;

use pmapi::PmId;

use crate::console::Console;
use crate::grammar::{Command, Meaning, Parser};
use crate::scanner::Scanner;
use crate::source::{Input, Source};

/// Context with two names, in which one debug option is invalid.
#[derive(Default)]
struct Names {
    options: Vec<String>,
}

impl Meaning for Names {
    fn lookup(&mut self, name: &str) -> Result<Option<PmId>, String> {
        match name {
            "a.b" => Ok("1.2.3".parse().ok()),
            "a.c" => Ok("1.2.4".parse().ok()),
            _ => Err("Unknown metric name".to_owned()),
        }
    }

    fn is_named(&self, pmid: Option<PmId>) -> bool {
        pmid.is_some_and(|pmid| pmid.to_string() == "1.2.3")
    }

    fn debug(&mut self, option: &str) -> bool {
        self.options.push(option.to_owned());
        option != "bad"
    }
}

/// Output of a session.
#[derive(Clone, Default)]
struct Shown(Rc<RefCell<Vec<u8>>>);

impl Write for Shown {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the commands of an input, the output and the debug options. `None` is an error.
fn parse(input: &[u8]) -> (Vec<Option<Command>>, String, Vec<String>) {
    let shown = Shown::default();
    let console = Console::new(shown.clone(), shown.clone());
    let input = Input::stream(Cursor::new(input.to_owned()));
    let mut source = Source::new(console, input);
    let (mut scanner, mut meaning) = (Scanner::default(), Names::default());
    let mut commands = Vec::new();
    while !source.has_ended() {
        let parser = Parser { source: &mut source, scanner: &mut scanner, meaning: &mut meaning };
        commands.push(parser.command().ok());
    }
    let text = String::from_utf8_lossy(&shown.0.borrow()).into_owned();
    (commands, text, meaning.options)
}
