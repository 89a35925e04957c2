//! Labels of a file.

use libc::{E2BIG, EINVAL};
use mmv::format::PAYLOAD_LEN;
use pmapi::{LabelError, LabelSet};

/// Flag of a label that does not identify its subject (`PM_LABEL_OPTIONAL`).
pub(crate) const OPTIONAL: u32 = 1 << 7;

/// Kind of subject of a label in a file (`PM_LABEL_CLUSTER` and others).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Level {
    Cluster = 1 << 3,
    Indom = 1 << 2,
    Item = 1 << 4,
    Instances = 1 << 5,
}

/// A label as the file contains it (`mmv_disk_label_t`).
#[derive(Clone, Debug)]
pub(crate) struct Label {
    pub flags: u32,
    pub identity: u32,
    pub internal: i32,
    pub payload: Box<[u8]>,
}

/// Returns the JSON text of a label, or the code of an error.
///
/// `ty` is the code of the value's kind (`mmv_value_type_t`).
pub(crate) fn payload(name: &[u8], value: &[u8], ty: i32) -> Result<Box<[u8]>, i32> {
    // Five bytes are added: {"":}.
    if name.len() + value.len() + 5 > PAYLOAD_LEN {
        return Err(E2BIG);
    }
    if !is_name(name) {
        return Err(EINVAL);
    }
    let enclosed = |first, last| value.len() >= 2 && value.first() == Some(&first) && value.last() == Some(&last);
    let (value, valid) = match ty {
        1 => (value, enclosed(b'"', b'"')),
        2 => (value, is_number(value)),
        3 => (value, value == b"true" || value == b"false"),
        4 => (&b"null"[..], true),
        5 => (value, enclosed(b'[', b']')),
        6 => (value, enclosed(b'{', b'}')),
        _ => (value, false),
    };
    if !valid {
        return Err(EINVAL);
    }
    let text = [&b"{\""[..], name, b"\":", value, b"}"].concat();
    // C's library would truncate the text here.
    if text.len() >= PAYLOAD_LEN {
        return Err(E2BIG);
    }
    match LabelSet::parse(&String::from_utf8_lossy(&text)) {
        // Agents leave out the members of an object that have invalid names.
        Ok(_) | Err(LabelError::Name(_) | LabelError::NameTooLong(_)) => Ok(text.into()),
        Err(_) => Err(EINVAL),
    }
}

/// Returns whether a text is the name of a label: letters, digits and underscores.
fn is_name(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_')
}

/// Returns whether a text may be a number. C's library calls strtod(3), whose result depends on the locale. Numbers
/// that are not valid JSON are refused later.
fn is_number(text: &[u8]) -> bool {
    let number = text.trim_ascii_start();
    std::str::from_utf8(number).is_ok_and(|number| number.parse::<f64>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds() {
        let text =
            |value: &str, ty| payload(b"n", value.as_bytes(), ty).map(|text| String::from_utf8(text.into()).unwrap());
        assert_eq!(text("\"x\"", 1).as_deref(), Ok("{\"n\":\"x\"}"));
        assert_eq!(text(" -12.5e3", 2).as_deref(), Ok("{\"n\": -12.5e3}"));
        assert_eq!(text("true", 3).as_deref(), Ok("{\"n\":true}"));
        assert_eq!(text("anything", 4).as_deref(), Ok("{\"n\":null}"));
        assert_eq!(text("[1,2]", 5).as_deref(), Ok("{\"n\":[1,2]}"));
        assert_eq!(text("{\"a\":1}", 6).as_deref(), Ok("{\"n\":{\"a\":1}}"));
        for (bad, ty) in
            [("x", 1), ("\"", 1), ("1x", 2), ("inf", 2), (".5", 2), ("yes", 3), ("[1", 5), ("{", 6), ("1", 7)]
        {
            assert_eq!(text(bad, ty), Err(EINVAL), "{bad}");
        }
        assert_eq!(text(&format!("\"{}\"", "x".repeat(235)), 1).map(|text| text.len()), Ok(243));
        assert_eq!(text(&format!("\"{}\"", "x".repeat(236)), 1), Err(E2BIG));
        for name in ["_block_size_resolved", "9"] {
            let json = format!("{{\"{name}\":1}}");
            assert_eq!(payload(name.as_bytes(), b"1", 2).as_deref(), Ok(json.as_bytes()));
        }
        for name in ["a-b", "", "a b", "a.b"] {
            assert_eq!(payload(name.as_bytes(), b"1", 2), Err(EINVAL));
        }
        assert_eq!(text("{\"a-b\":1}", 6).as_deref(), Ok("{\"n\":{\"a-b\":1}}"));
    }
}
