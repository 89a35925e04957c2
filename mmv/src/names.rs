//! Rules for names: what PCP's agent would skip without a word is refused.

use crate::Error;
use crate::format::{NAME_LEN, STRING_LEN};

/// Longest metric or instance name, and longest help text, in bytes.
pub(crate) const MAX_TEXT: usize = STRING_LEN - 1;
/// Longest name that version 1 holds.
pub(crate) const MAX_SHORT_NAME: usize = NAME_LEN - 1;

/// A metric's name: components of letters, digits and underscores that begin with a letter, with
/// dots between them (pmns(5)).
pub(crate) fn check_metric(name: &str) -> Result<(), Error> {
    check_length("metric", name)?;
    check_components("metric", name)
}

/// A file's name becomes part of the metrics' names, unless they go without prefix.
pub(crate) fn check_file(name: &str, prefixed: bool) -> Result<(), Error> {
    let refuse = |reason| Err(Error::Name { what: "file", name: name.to_owned(), reason });
    if name.is_empty() || name.starts_with('.') || name.contains(['/', '\0']) {
        return refuse("must be a file name that does not begin with a dot");
    }
    if name == "control" || name.starts_with("control.") {
        return refuse("is the agent's own");
    }
    check_length("file", name)?;
    if prefixed { check_components("file", name) } else { Ok(()) }
}

/// An instance's name: anything without control characters, but not only spaces. PCP matches a
/// name up to its first space.
pub(crate) fn check_instance(name: &str) -> Result<(), Error> {
    check_length("instance", name)?;
    if name.starts_with(' ') || name.is_empty() || name.chars().any(char::is_control) {
        let reason = "must not be empty, begin with a space or have control characters";
        return Err(Error::Name { what: "instance", name: name.to_owned(), reason });
    }
    Ok(())
}

/// Help text.
pub(crate) fn check_text(what: &'static str, text: &str) -> Result<(), Error> {
    if text.contains('\0') {
        return Err(Error::Name { what, name: text.to_owned(), reason: "has a NUL byte" });
    }
    check_length(what, text)
}

fn check_length(what: &'static str, text: &str) -> Result<(), Error> {
    if text.len() <= MAX_TEXT { Ok(()) } else { Err(Error::TooLong { what, text: text.to_owned(), max: MAX_TEXT }) }
}

fn check_components(what: &'static str, name: &str) -> Result<(), Error> {
    if name.bytes().fold(Part::Start, |part, b| PARTS[part as usize][usize::from(b)]) == Part::Inside {
        return Ok(());
    }
    let reason = "each part between dots must be a letter and then letters, digits or underscores";
    Err(Error::Name { what, name: name.to_owned(), reason })
}

/// Where in a part of a name one is.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    Start,
    Inside,
    Wrong,
}

/// What comes of each byte, at the start of a part, inside of one and after a wrong byte.
const PARTS: [[Part; 256]; 3] = {
    let mut parts = [[Part::Wrong; 256]; 3];
    let mut b = 0;
    while b < 128u8 {
        let [start, inside, _] = &mut parts;
        if b.is_ascii_alphabetic() {
            start[b as usize] = Part::Inside;
        }
        if b.is_ascii_alphanumeric() || b == b'_' {
            inside[b as usize] = Part::Inside;
        }
        b += 1;
    }
    parts[Part::Inside as usize][b'.' as usize] = Part::Start;
    parts
};

/// A valid metric name that looks like the given one.
#[cfg(feature = "metrics")]
pub(crate) fn sanitize(name: &str) -> String {
    let component = |c: &str| {
        let mut word: String = c.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        if !word.starts_with(|c: char| c.is_ascii_alphabetic()) {
            word.insert(0, 'm');
        }
        word
    };
    let parts: Vec<String> = name.split('.').filter(|c| !c.is_empty()).map(component).collect();
    let name = if parts.is_empty() { "m".to_owned() } else { parts.join(".") };
    // With room for an ending.
    truncated(&name, MAX_TEXT - 32).trim_end_matches('.').to_owned()
}

/// A valid instance name that looks like the given one and needs no quotes in PCP's tools.
#[cfg(any(feature = "metrics", feature = "tracing"))]
pub(crate) fn sanitize_instance(name: &str) -> String {
    let plain = |c: char| if c.is_control() || c.is_whitespace() || c == ',' { '_' } else { c };
    let name: String = name.chars().map(plain).collect();
    truncated(if name.is_empty() { "_" } else { &name }, MAX_TEXT).to_owned()
}

/// As much of a text as fits into so many bytes.
pub(crate) fn truncated(text: &str, max: usize) -> &str {
    let end = (0..=max.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
    text.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics() {
        for good in ["a", "requests.total", "a.B_9", &"n".repeat(255)] {
            assert!(check_metric(good).is_ok(), "{good}");
        }
        for bad in ["", ".", "a.", ".a", "a..b", "9a", "a.9", "_a", "a-b", "a b", "ä", &"n".repeat(256)] {
            assert!(check_metric(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn files() {
        for good in ["acme", "acme.web", "a_1"] {
            assert!(check_file(good, true).is_ok(), "{good}");
        }
        for bad in ["", ".hidden", "a/b", "client-123", "control", "control.x", "1"] {
            assert!(check_file(bad, true).is_err(), "{bad}");
        }
        assert!(check_file("client-123", false).is_ok());
        assert!(check_file("a/b", false).is_err());
    }

    #[test]
    fn instances() {
        for good in ["zero", "0", "a b", "käse", "<=10"] {
            assert!(check_instance(good).is_ok(), "{good}");
        }
        for bad in ["", " ", " a", "a\nb", "a\0", &"i".repeat(256)] {
            assert!(check_instance(bad).is_err(), "{bad}");
        }
    }

    #[cfg(feature = "metrics")]
    #[test]
    fn sanitized() {
        for (from, to) in
            [("http_requests", "http_requests"), ("a::b", "a__b"), ("9", "m9"), ("", "m"), ("a..b/c", "a.b_c")]
        {
            assert_eq!(sanitize(from), to);
            assert!(check_metric(&sanitize(from)).is_ok());
        }
        assert!(check_metric(&sanitize(&"é.".repeat(300))).is_ok());
    }
}
