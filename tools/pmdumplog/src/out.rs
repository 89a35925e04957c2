//! Output: standard output through a buffer.

use std::io::{self, Write};

use pmapi::escape::Output;

/// Bytes after which the buffer is written.
const FULL: usize = 1 << 16;

/// Buffered standard output.
pub(crate) struct Out {
    pub(crate) text: Vec<u8>,
    to: Output<io::StdoutLock<'static>>,
}

impl Out {
    pub(crate) fn new() -> Out {
        Out { text: Vec::with_capacity(2 * FULL), to: Output::to(io::stdout().lock()) }
    }

    /// Writes the buffer when it is full.
    pub(crate) fn pass(&mut self) -> io::Result<()> {
        if self.text.len() >= FULL { self.flush() } else { Ok(()) }
    }

    /// Writes the buffer.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.to.write_all(&self.text)?;
        self.text.clear();
        self.to.flush()
    }
}

/// Appends formatted text to a vector, which does not fail.
macro_rules! put {
    ($out:expr, $($arg:tt)*) => {
        _ = std::io::Write::write_fmt(&mut $out, format_args!($($arg)*))
    };
}
pub(crate) use put;
