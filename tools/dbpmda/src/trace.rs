//! Debug options and their output.

use std::cell::RefCell;
use std::fmt::Arguments;
use std::rc::Rc;

use chrono::Local;
use pcp_pdu::Header;
use pmapi::debug::OPTIONS as DEBUG;

use crate::console::{Console, err};

/// Debug options that are set (pmSetDebug(3)), and the most recent PDUs. Clones share them.
#[derive(Clone)]
pub struct Trace {
    console: Console,
    state: Rc<RefCell<State>>,
}

struct State {
    options: [bool; DEBUG.len()],
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

/// The first `WITH_BITS` options have the bit of their index; this one has bit 30.
const DESPERATE: &str = "desperate";
const WITH_BITS: usize = 28;

fn bit(at: usize, name: &str) -> i32 {
    match at {
        0..WITH_BITS => 1 << at,
        _ if name == DESPERATE => 1 << 30,
        _ => 0,
    }
}

impl Trace {
    /// Returns a trace without options.
    pub fn new(console: Console) -> Self {
        let state = State { options: [false; DEBUG.len()], recent: Vec::new(), pdus: 0 };
        Trace { console, state: Rc::new(RefCell::new(state)) }
    }

    /// Returns whether an option is set.
    pub(crate) fn has(&self, option: &str) -> bool {
        DEBUG.iter().zip(self.state.borrow().options).any(|(name, set)| set && *name == option)
    }

    /// Returns the set options in the order of pmdbg(1); `None` if all are set.
    pub(crate) fn options(&self) -> Option<Vec<&'static str>> {
        let options = self.state.borrow().options;
        let set = DEBUG.iter().zip(options).filter(|(_, set)| *set).map(|(name, _)| *name);
        options.contains(&false).then(|| set.collect())
    }

    /// Sets or clears the options in a list with commas (pmSetDebug(3)): names, `all`, or sums of bits, -1 for all.
    /// Returns `false` and changes nothing if one of them is invalid.
    pub fn change(&self, spec: &str, to: bool) -> bool {
        if spec.is_empty() {
            return true;
        }
        let mut options = self.state.borrow().options;
        // A number includes the bits of the options before it in the list.
        let mut bits = 0;
        for word in spec.strip_suffix(',').unwrap_or(spec).split(',') {
            let number = leading_number(word);
            match number {
                Some((number, rest)) => {
                    bits = if number == -1 { i32::MAX } else { bits | number };
                    for (at, (name, option)) in DEBUG.iter().zip(&mut options).enumerate() {
                        if bits & bit(at, name) != 0 {
                            *option = to;
                        }
                    }
                    if !rest.is_empty() {
                        return false;
                    }
                }
                None if word.eq_ignore_ascii_case("all") => {
                    options.fill(to);
                    bits = i32::MAX;
                }
                None => {
                    let mut known = DEBUG.iter().zip(&mut options).enumerate();
                    let Some((at, (name, option))) = known.find(|(_, (name, _))| name.eq_ignore_ascii_case(word))
                    else {
                        return false;
                    };
                    *option = to;
                    bits |= bit(at, name);
                }
            }
        }
        self.state.borrow_mut().options = options;
        true
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

/// Returns the number at the start of a word, as strtol(3) reads it, and the rest of the word.
fn leading_number(word: &str) -> Option<(i32, &str)> {
    let text = word.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '\x0b');
    let (minus, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let rest = digits.trim_start_matches(|c: char| c.is_ascii_digit());
    let digits = digits.strip_suffix(rest).filter(|digits| !digits.is_empty())?;
    let value = digits.parse::<i64>().unwrap_or(i64::MAX);
    Some((if minus { value.wrapping_neg() } else { value } as i32, rest))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn trace() -> Trace {
        Trace::new(Console::new(std::io::sink(), std::io::sink()))
    }

    #[test]
    fn options() {
        let trace = trace();
        assert!(trace.change("1,Fetch", true) && trace.change("1073741824", true));
        assert_eq!(trace.options().unwrap(), ["pdu", "fetch", "desperate"]);
        assert!(trace.change("fetch", false) && trace.change("pdu,2", false));
        assert_eq!(trace.options().unwrap(), ["desperate"]);
        assert!(trace.change("all", true));
        assert_eq!(trace.options(), None);
        assert!(trace.change("all", false) && trace.has("pdu") == trace.has("tls"));
    }

    #[test]
    fn an_error_changes_nothing() {
        let trace = trace();
        for spec in ["pdu,nothing", "nothing", "1x", "pdu,2x", ","] {
            assert!(!trace.change(spec, true), "{spec}");
        }
        assert_eq!(trace.options().unwrap(), [""; 0]);
    }
}
