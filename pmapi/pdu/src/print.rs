//! Text of values in PCP's tools (pmPrintValue(3)).

use std::fmt;
use std::io::Write as _;
use std::sync::LazyLock;

use pmapi::zone::Zone;
use pmapi::{
    Atom, Converted, Type,
    cnum::{append_general, general, is_space},
};

use crate::event::{EventFlags, Layout, Stamp, records};
use crate::result::RawValue;

/// Whether `$PCP_SQUASH_NEWLINES` is set, which replaces white space in strings by blanks.
static SQUASHED: LazyLock<bool> = LazyLock::new(|| std::env::var_os("PCP_SQUASH_NEWLINES").is_some());

/// Value, formatted as in PCP's tools (pmPrintValue(3)).
///
/// `Display` replaces bytes that are not UTF-8 by U+FFFD; [`Print::to_bytes`] keeps them.
#[derive(Clone, Copy, Debug)]
#[must_use = "it prints nothing until it is displayed"]
pub struct Print<'a> {
    value: Shown<'a>,
    width: usize,
    squashed: bool,
}

#[derive(Clone, Copy, Debug)]
enum Shown<'a> {
    Atom(Atom<'a>),
    /// Value of an unknown type, or of a type other than its metric's.
    Unknown(RawValue<'a>),
    LoggerControl(u32),
}

impl<'a> RawValue<'a> {
    /// Formats the value of a metric of type `ty` as PCP's tools do, at least `width` bytes wide (pmPrintValue(3)).
    ///
    /// A value of an unknown type, or not of this type, is shown in every way that its size allows.
    pub fn print(self, ty: Option<Type>, width: usize) -> Print<'a> {
        let value = match (self, ty) {
            (RawValue::InSitu(word), Some(Type::Event | Type::HighResEvent)) => Shown::LoggerControl(word),
            (RawValue::Block(_, payload), Some(Type::Event)) => Shown::Atom(Atom::Event(payload)),
            (RawValue::Block(_, payload), Some(Type::HighResEvent)) => Shown::Atom(Atom::HighResEvent(payload)),
            _ => match ty.map(|ty| self.extract(ty, ty)) {
                Some(Ok(Converted::Atom(atom))) => Shown::Atom(atom),
                _ => Shown::Unknown(self),
            },
        };
        Print { value, width, squashed: *SQUASHED }
    }
}

impl<'a> Print<'a> {
    /// Formats a value as PCP's tools do, at least `width` bytes wide (pmPrintValue(3)).
    #[inline]
    pub fn new(atom: Atom<'a>, width: usize) -> Self {
        Print { value: Shown::Atom(atom), width, squashed: *SQUASHED }
    }

    /// Replaces white space in strings by blanks, regardless of `$PCP_SQUASH_NEWLINES`.
    pub fn squashed(self) -> Self {
        Print { squashed: true, ..self }
    }

    /// Keeps white space in strings, regardless of `$PCP_SQUASH_NEWLINES`.
    pub fn verbatim(self) -> Self {
        Print { squashed: false, ..self }
    }

    /// Returns the text, in which strings keep their bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.append_to(&mut out);
        out
    }

    /// Appends the text, in which strings keep their bytes.
    #[inline]
    pub fn append_to(&self, out: &mut Vec<u8>) {
        match self.value {
            // The quotes are as wide.
            Shown::Atom(Atom::String(text)) if self.width <= 2 && !self.squashed => quote(text, out),
            _ => self.append_other(out),
        }
    }

    fn append_other(&self, out: &mut Vec<u8>) {
        let start = out.len();
        match self.value {
            Shown::Atom(Atom::Float(v)) => append_general(out, v.into(), 8),
            Shown::Atom(Atom::Double(v)) => append_general(out, v, 16),
            Shown::Atom(Atom::String(text)) => self.quote(text, out),
            Shown::Atom(Atom::Aggregate(bytes)) => return out.extend(self.unknown_block(bytes)),
            Shown::Atom(Atom::Event(payload)) => return out.extend(events(payload, Layout::Micro)),
            Shown::Atom(Atom::HighResEvent(payload)) => return out.extend(events(payload, Layout::Nano)),
            // Only integers are left. Writing to a vector does not fail.
            Shown::Atom(atom) => _ = write!(out, "{atom}"),
            Shown::Unknown(RawValue::InSitu(word)) => return out.extend(self.unknown_word(word).bytes()),
            Shown::Unknown(RawValue::Block(code, payload)) => {
                return out.extend(self.unknown_block(&host_order(code, payload)));
            }
            Shown::LoggerControl(word) => return out.extend(logger_control(word).bytes()),
        }
        let missing = self.width.saturating_sub(out.len() - start);
        if missing > 0 {
            out.splice(start..start, std::iter::repeat_n(b' ', missing));
        }
    }

    fn quote(&self, text: &[u8], out: &mut Vec<u8>) {
        if !self.squashed {
            return quote(text, out);
        }
        out.push(b'"');
        out.extend(text.iter().map(|&b| if is_space(b) { b' ' } else { b }));
        out.push(b'"');
    }

    fn unknown_word(&self, word: u32) -> String {
        let width = self.width;
        let mut text = format!("{word:>width$}");
        let float = f32::from_bits(word);
        if !float.is_nan() {
            text.push_str(&format!(" {:>width$}", general(float.into(), 8)));
        }
        let width = if width > 2 { width - 2 } else { width };
        text.push_str(&format!(" 0x{word:>width$x}"));
        text
    }

    fn unknown_block(&self, bytes: &[u8]) -> Vec<u8> {
        let width = self.width;
        let mut numbers = Vec::new();
        if let Ok(eight) = <[u8; 8]>::try_from(bytes) {
            numbers.push(u64::from_ne_bytes(eight).to_string());
            numbers.push(general(f64::from_ne_bytes(eight), 16));
        } else if let Ok(four) = <[u8; 4]>::try_from(bytes) {
            numbers.push(general(f32::from_ne_bytes(four).into(), 8));
        }
        numbers.retain(|n| !n.ends_with("nan"));
        let numbers: Vec<_> = numbers.iter().map(|n| format!("{n:>width$}")).collect();
        let mut out = numbers.join(" ").into_bytes();
        if bytes.iter().all(|b| matches!(b, b' '..=b'~')) {
            separate(&mut out);
            out.extend(blanks(bytes.len() + 2, width));
            self.quote(bytes, &mut out);
        }
        let done = !out.is_empty();
        out.extend(blanks(2 * bytes.len() + 2, width));
        if done {
            out.push(b' ');
        }
        let digit = |half: u8| char::from_digit(half.into(), 16).unwrap_or_default() as u8;
        out.push(b'[');
        out.extend(bytes.iter().flat_map(|b| [digit(b >> 4), digit(b & 15)]));
        out.push(b']');
        out
    }
}

#[inline]
fn quote(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    out.extend_from_slice(text);
    out.push(b'"');
}

/// Returns the payload of a value block in the host's byte order. A number in it is big-endian on the wire.
fn host_order(code: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = payload.to_vec();
    let numeric = Type::from_code(code.into()).is_ok_and(|ty| ty.is_numeric() && !matches!(ty, Type::I32 | Type::U32));
    if numeric && cfg!(target_endian = "little") {
        bytes.reverse();
    }
    bytes
}

fn blanks(len: usize, width: usize) -> Vec<u8> {
    vec![b' '; width.saturating_sub(len)]
}

fn separate(out: &mut Vec<u8>) {
    if !out.is_empty() {
        out.push(b' ');
    }
}

/// Returns the text of the state that pmlc(1) passes in place of an event's value.
fn logger_control(word: u32) -> String {
    let choose = |bit: u32, set, unset| if word & bit != 0 { set } else { unset };
    let kind = choose(2, "mand ", "adv ");
    let state = choose(1, "on ", "off ");
    let available = choose(8, choose(4, " ", "na "), "nl ");
    format!("[pmlc control {kind}{state}{available}{}]", word >> 4)
}

/// Returns a text with the number of records, and the times of the first and the last one.
fn events(payload: &[u8], layout: Layout) -> Vec<u8> {
    let mut out = Vec::new();
    let Ok(records) = records(payload, layout).map(Iterator::collect::<Vec<_>>) else {
        // Damaged records have no times: only the claimed number of records is shown.
        return Atom::Event(payload).to_string().into();
    };
    // libpcp does not advance past a record of missed events. It counts that record repeatedly until the end, and shows
    // its time as that of the last one.
    let (mut at, mut missed) = (0, 0_i32);
    for _ in 1..records.len() {
        match records.get(at) {
            Some(record) if record.flags.contains(EventFlags::MISSED) => {
                missed = missed.wrapping_add(record.missed as i32);
            }
            _ => at += 1,
        }
    }
    let plural = if records.len() == 1 { "" } else { "s" };
    let mut text = format!("[{} event record{plural}", records.len());
    if missed > 0 {
        text.push_str(&format!(" ({missed} missed)"));
    }
    if let Some((first, last)) = records.first().zip(records.get(at)) {
        let zone = Zone::system();
        text.push_str(&format!(" timestamp{plural} {}", clock(first.time, layout, &zone)));
        if records.len() > 1 {
            text.push_str(&format!("...{}", clock(last.time, layout, &zone)));
        }
    }
    // Writing to a vector does not fail.
    let _ = write!(out, "{text}]");
    out
}

fn clock(time: Stamp, layout: Layout, zone: &Zone) -> String {
    let clock = zone.local(time.seconds).clock();
    match layout {
        Layout::Micro => format!("{clock}.{:03}", time.nanoseconds / 1_000_000),
        Layout::Nano => format!("{clock}.{:09}", time.nanoseconds),
    }
}

impl fmt::Display for Print<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&String::from_utf8_lossy(&self.to_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn squashed() {
        let print = Print::new(Atom::String(b"a\nb\x0bc"), 8);
        assert_eq!(print.squashed().to_string(), " \"a b c\"");
        assert_eq!(print.verbatim().to_bytes(), b" \"a\nb\x0bc\"");
        let unknown = RawValue::Block(6, b"a b").print(None, 0);
        assert_eq!(unknown.squashed().to_string(), "\"a b\" [612062]");
    }

    #[test]
    fn damaged_events() {
        assert_eq!(RawValue::Block(9, &[0, 0, 0, 2, 1]).print(Some(Type::Event), 0).to_string(), "[2 event records]");
        assert_eq!(RawValue::InSitu(0x153).print(Some(Type::Event), 0).to_string(), "[pmlc control mand on nl 21]");
    }
}
