//! Texts of values for diagnostics (pmAtomStr(3)).

use std::fmt;

use super::Atom;
use crate::cnum::exponential;

impl fmt::Display for Atom<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&match self {
            Atom::I32(v) => v.to_string(),
            Atom::U32(v) => v.to_string(),
            Atom::I64(v) => v.to_string(),
            Atom::U64(v) => v.to_string(),
            Atom::Float(v) => exponential((*v).into(), 6),
            Atom::Double(v) => exponential(*v, 6),
            Atom::String(text) => quoted(text),
            Atom::Aggregate(bytes) => aggregate(self.ty().name(), bytes),
            Atom::Event(records) | Atom::HighResEvent(records) => events(records),
        })
    }
}

/// Quotes a text. A text longer than 37 bytes is truncated to its first 34.
fn quoted(text: &[u8]) -> String {
    match text.get(..34) {
        Some(start) if text.len() >= 38 => format!("\"{}...\"", String::from_utf8_lossy(start)),
        _ => format!("\"{}\"", String::from_utf8_lossy(text)),
    }
}

fn aggregate(name: &str, bytes: &[u8]) -> String {
    let mut text = format!("[type={name} len={}]", bytes.len());
    for word in bytes.chunks(4).take(3) {
        text.push(' ');
        text.extend(word.iter().map(|byte| format!("{byte:02x}")));
    }
    if bytes.len() > 12 {
        text.push_str(" ...");
    }
    text
}

fn events(records: &[u8]) -> String {
    match records.first_chunk().map_or(0, |count| i32::from_be_bytes(*count)) {
        1 => "[1 event record]".to_owned(),
        count => format!("[{count} event records]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        let long = "0123456789012345678901234567890123456789";
        assert_eq!(Atom::from(&long[..37]).to_string(), format!("\"{}\"", &long[..37]));
        assert_eq!(Atom::from(&long[..38]).to_string(), format!("\"{}...\"", &long[..34]));
        assert_eq!(Atom::Aggregate(b"").to_string(), "[type=AGGREGATE len=0]");
        assert_eq!(Atom::Aggregate(b"abcde").to_string(), "[type=AGGREGATE len=5] 61626364 65");
        assert_eq!(Atom::Aggregate(&[1; 13]).to_string(), "[type=AGGREGATE len=13] 01010101 01010101 01010101 ...");
        assert_eq!(Atom::Event(&[0, 0, 0, 1]).to_string(), "[1 event record]");
        assert_eq!(Atom::HighResEvent(&[]).to_string(), "[0 event records]");
        assert_eq!(Atom::Float(-0.1).to_string(), "-1.000000e-01");
    }
}
