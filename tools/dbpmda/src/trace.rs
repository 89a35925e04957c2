//! Debug options and their output.

use std::cell::RefCell;
use std::fmt::Arguments;
use std::rc::Rc;

use chrono::Local;
use pcp_pdu::Header;
use pmapi::debug::Debug;

use crate::console::{Console, err};

/// Debug options that are set (pmSetDebug(3)), and the most recent PDUs. Clones share them.
#[derive(Clone)]
pub struct Trace {
    console: Console,
    state: Rc<RefCell<TraceState>>,
}

struct TraceState {
    options: Debug,
    recent: Vec<(usize, Recent)>,
    pdus: usize,
}

/// PDU that was sent or received.
#[derive(Clone, Copy)]
struct Recent {
    way: Way,
    fd: i32,
    header: Header,
}

/// Direction of a PDU.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Sent,
    Received,
}

/// Number of recent PDUs to keep.
const RECENT: usize = 8;

impl Trace {
    /// Returns a trace without options.
    pub fn new(console: Console) -> Self {
        let state = TraceState { options: Debug::NONE, recent: Vec::new(), pdus: 0 };
        Trace { console, state: Rc::new(RefCell::new(state)) }
    }

    /// Returns whether an option is set.
    pub(crate) fn has(&self, option: &str) -> bool {
        self.options().has(option)
    }

    /// Returns the options that are set.
    pub fn options(&self) -> Debug {
        self.state.borrow().options
    }

    /// Replaces the options.
    pub fn set_options(&self, options: Debug) {
        self.state.borrow_mut().options = options;
    }

    /// Writes a line in the format of pmNotifyErr(3).
    pub(crate) fn notify(&self, level: &str, message: Arguments<'_>) {
        let now = Local::now().format("%a %b %e %H:%M:%S");
        err!(self.console, "[{now}] dbpmda({}) {level}: {message}\n", std::process::id());
    }

    /// Reports the reason why the process ends, in the format of pmNotifyErr(3).
    pub fn critical(&self, message: &str) {
        self.notify("Critical", format_args!("{message}"));
    }

    /// Shows a PDU if the option `pdu` is set.
    pub(crate) fn show(&self, way: Way, fd: i32, header: Header, bytes: &[u8]) {
        if self.has("pdu") {
            self.console.err_bytes(dump(way, fd, header, bytes).as_bytes());
        }
    }

    /// Keeps a PDU as the most recent one.
    pub(crate) fn note(&self, way: Way, fd: i32, header: Header) {
        let mut state = self.state.borrow_mut();
        let number = state.pdus;
        state.pdus += 1;
        if state.recent.len() == RECENT {
            state.recent.remove(0);
        }
        state.recent.push((number, Recent { way, fd, header }));
    }

    /// Shows the most recent PDUs.
    pub(crate) fn show_recent(&self) {
        err!(self.console, "__pmDumpPDUTrace: recent PDUs ...\n");
        for (number, Recent { way, fd, header }) in &self.state.borrow().recent {
            let way = if *way == Way::Sent { "xmit" } else { "recv" };
            err!(self.console, "[{number}] {way} fd={fd} type={} len={}\n", header.pdu, header.len);
        }
    }

    /// Writes a line to standard error if an option is set.
    pub(crate) fn line(&self, option: &str, text: Arguments<'_>) {
        if self.has(option) {
            err!(self.console, "{text}\n");
        }
    }
}

/// Formats the words of a PDU: the header as numbers, the rest in the host's byte order.
fn dump(way: Way, fd: i32, header: Header, bytes: &[u8]) -> String {
    let pid = std::process::id();
    let Header { len, pdu, from } = header;
    let mut text = match way {
        Way::Sent => format!("[{pid}]pmXmitPDU: {pdu} fd={fd} len={len}"),
        Way::Received => format!("[{pid}]pmGetPDU: {pdu} fd={fd} len={len} from={from}"),
    };
    for (at, word) in bytes.chunks(4).enumerate() {
        if at % 8 == 0 {
            text.push_str(&format!("\n{at:03}: "));
        }
        let mut padded = [b'~'; 4];
        padded.iter_mut().zip(word).for_each(|(to, from)| *to = *from);
        let word = if at < 3 { u32::from_be_bytes(padded) } else { u32::from_ne_bytes(padded) };
        text.push_str(&format!("{word:8x} "));
    }
    text.push('\n');
    text
}
