//! Output of a session, and the traces that debug options add to it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt::Arguments;
use std::io::{self, Write};
use std::rc::Rc;

use pcp_base::escape::{Output, TerminalWriter};
use pcp_pdu::Header;
use pmapi::debug::Debug;
use pmapi::zone::LocalTime;

/// `print!` to a [`Console`].
macro_rules! out {
    ($console:expr, $($text:tt)*) => { $console.out(format_args!($($text)*)) };
}

/// `eprint!` to a [`Console`].
macro_rules! err {
    ($console:expr, $($text:tt)*) => { $console.err(format_args!($($text)*)) };
}

pub(crate) use {err, out};

/// Standard output and standard error, or other writers in tests, with the debug options (pmSetDebug(3)). Clones share
/// all of them.
///
/// Complete lines of both appear in the order in which they were written. Write errors are ignored: a session continues
/// after its output was closed.
#[derive(Clone)]
pub struct Console {
    out: Rc<RefCell<dyn Write>>,
    err: Rc<RefCell<dyn Write>>,
    trace: Rc<RefCell<Trace>>,
}

/// Debug options that are set, and the number of PDUs so far with the lines that describe the most recent ones.
#[derive(Default)]
struct Trace {
    options: Debug,
    pdus: usize,
    recent: VecDeque<String>,
}

/// Number of recent PDUs to keep.
const RECENT: usize = 8;

/// Direction of a PDU.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Sent,
    Received,
}

impl Console {
    /// Returns the console of this process. It escapes control characters, so that agents cannot control the terminal.
    pub fn standard() -> Self {
        Self::new(Output::to(io::stdout()), TerminalWriter::new(io::stderr()))
    }

    /// Returns a console with other writers, without debug options.
    pub fn new(out: impl Write + 'static, err: impl Write + 'static) -> Self {
        Console { out: Rc::new(RefCell::new(out)), err: Rc::new(RefCell::new(err)), trace: Rc::default() }
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

    /// Writes a line to standard error in the format of pmNotifyErr(3).
    pub fn notify(&self, level: &str, message: Arguments<'_>) {
        let now = LocalTime::now().of_log();
        err!(self, "[{now}] dbpmda({}) {level}: {message}\n", std::process::id());
    }

    /// Returns the debug options that are set.
    pub fn options(&self) -> Debug {
        self.trace.borrow().options
    }

    /// Replaces the debug options.
    pub fn set_options(&self, options: Debug) {
        self.trace.borrow_mut().options = options;
    }

    /// Returns whether a debug option is set.
    pub(crate) fn has(&self, option: &str) -> bool {
        self.options().has(option)
    }

    /// Writes a line to standard error if a debug option is set.
    pub(crate) fn trace(&self, option: &str, text: Arguments<'_>) {
        if self.has(option) {
            err!(self, "{text}\n");
        }
    }

    /// Shows the words of a PDU if the option `pdu` is set: the header as numbers, the rest in the host's byte order.
    pub(crate) fn show_pdu(&self, way: Way, fd: i32, header: Header, bytes: &[u8]) {
        if !self.has("pdu") {
            return;
        }
        let (pid, Header { len, pdu, from }) = (std::process::id(), header);
        let mut text = match way {
            Way::Sent => format!("[{pid}]pmXmitPDU: {pdu} fd={fd} len={len}"),
            Way::Received => format!("[{pid}]pmGetPDU: {pdu} fd={fd} len={len} from={from}"),
        };
        for (at, word) in bytes.chunks(4).enumerate() {
            if at % 8 == 0 {
                text += &format!("\n{at:03}: ");
            }
            let mut padded = [b'~'; 4];
            padded.iter_mut().zip(word).for_each(|(to, from)| *to = *from);
            let word = if at < 3 { u32::from_be_bytes(padded) } else { u32::from_ne_bytes(padded) };
            text += &format!("{word:8x} ");
        }
        err!(self, "{text}\n");
    }

    /// Keeps a PDU as the most recent one.
    pub(crate) fn note_pdu(&self, way: Way, fd: i32, header: Header) {
        let Trace { pdus, recent, .. } = &mut *self.trace.borrow_mut();
        let way = if way == Way::Sent { "xmit" } else { "recv" };
        if recent.len() == RECENT {
            recent.pop_front();
        }
        recent.push_back(format!("[{pdus}] {way} fd={fd} type={} len={}\n", header.pdu, header.len));
        *pdus += 1;
    }

    /// Shows the most recent PDUs (`__pmDumpPDUTrace`).
    pub(crate) fn show_recent(&self) {
        let lines: String = self.trace.borrow().recent.iter().map(String::as_str).collect();
        err!(self, "__pmDumpPDUTrace: recent PDUs ...\n{lines}");
    }
}
