//! Output: standard output through a buffer.

use std::io::{self, Write};

use pcp_base::escape::Output;
use pmapi::{Domain, PmId};

/// Bytes after which the buffer is written.
pub(crate) const FULL: usize = 1 << 16;

/// Buffered standard output.
pub(crate) struct Out {
    /// Text to append to.
    pub(crate) text: Vec<u8>,
    to: Output<io::StdoutLock<'static>>,
}

impl Out {
    pub(crate) fn new() -> Out {
        Out { text: Vec::with_capacity(2 * FULL), to: Output::to(io::stdout().lock()) }
    }

    /// Writes the buffer when it is full. Called at least once a value, as names of instances may be long.
    #[inline]
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

/// Appends a decimal number; several times as fast as `write!`.
#[inline]
pub(crate) fn integer(out: &mut Vec<u8>, number: impl itoa::Integer) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Appends the identifier of a metric: `253.0.1`.
pub(crate) fn identifier(out: &mut Vec<u8>, pmid: PmId) {
    if pmid.domain() == Domain::DYNAMIC {
        // Has another form for some metrics.
        return put!(*out, "{pmid}");
    }
    integer(out, pmid.domain().get());
    for part in [pmid.item().cluster(), pmid.item().item()] {
        out.push(b'.');
        integer(out, part);
    }
}

/// Appends a decimal number with at least `width` digits, at most 9.
pub(crate) fn padded(out: &mut Vec<u8>, number: u32, width: usize) {
    let mut buffer = itoa::Buffer::new();
    let text = buffer.format(number).as_bytes();
    out.extend_from_slice(b"000000000".get(..width.saturating_sub(text.len())).unwrap_or_default());
    out.extend_from_slice(text);
}

/// Appends formatted text to a vector, which does not fail.
macro_rules! put {
    ($out:expr, $($arg:tt)*) => {
        _ = std::io::Write::write_fmt(&mut $out, format_args!($($arg)*))
    };
}
pub(crate) use put;
