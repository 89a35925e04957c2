//! Output of a session.

use std::cell::RefCell;
use std::fmt::Arguments;
use std::io::{self, Write};
use std::rc::Rc;

use pmapi::escape::Output;

/// Standard output and standard error, or other writers in tests.
///
/// Complete lines of both appear in the order in which they were written. Write errors are ignored: a session continues
/// after its output was closed.
#[derive(Clone)]
pub struct Console {
    out: Rc<RefCell<dyn Write>>,
    err: Rc<RefCell<dyn Write>>,
}

impl Console {
    /// Returns the console of this process. It escapes control characters, so that agents cannot control the terminal.
    pub fn standard() -> Self {
        Self::new(Output::to(io::stdout()), Output::to(io::stderr()))
    }

    /// Returns a console with other writers.
    pub fn new(out: impl Write + 'static, err: impl Write + 'static) -> Self {
        Console { out: Rc::new(RefCell::new(out)), err: Rc::new(RefCell::new(err)) }
    }

    /// Writes text to standard output.
    pub fn out(&self, text: Arguments<'_>) {
        let _ = self.out.borrow_mut().write_fmt(text);
    }

    /// Writes bytes to standard output.
    pub fn out_bytes(&self, bytes: &[u8]) {
        let _ = self.out.borrow_mut().write_all(bytes);
    }

    /// Writes buffered output, such as a line without its end.
    pub fn flush(&self) {
        let _ = self.out.borrow_mut().flush();
    }

    /// Writes text to standard error.
    pub fn err(&self, text: Arguments<'_>) {
        self.err_bytes(text.to_string().as_bytes());
    }

    /// Writes bytes to standard error.
    pub fn err_bytes(&self, bytes: &[u8]) {
        let _ = self.err.borrow_mut().write_all(bytes);
    }
}

/// `print!` to a [`Console`].
macro_rules! out {
    ($console:expr, $($text:tt)*) => { $console.out(format_args!($($text)*)) };
}

/// `eprint!` to a [`Console`].
macro_rules! err {
    ($console:expr, $($text:tt)*) => { $console.err(format_args!($($text)*)) };
}

pub(crate) use {err, out};
