//! Rules for names: registration refuses names that agent mmv, or PCP's agent, would leave out.

use crate::Error;
use crate::format::{Flags, MAX_COMPONENTS, STRING_LEN};

/// Longest metric or instance name, and longest help text, in bytes.
pub(crate) const MAX_TEXT: usize = STRING_LEN - 1;
const TOO_MANY_PARTS: &str = "must have at most 24 parts between dots";
const _: () = assert!(MAX_COMPONENTS == 24, "TOO_MANY_PARTS contains the number");

/// Checks a metric's name: components of letters, digits and underscores that begin with a letter, separated by dots
/// (pmns(5)). Their number is limited.
pub(crate) fn check_metric(name: &str) -> Result<(), Error> {
    check_length("metric", name)?;
    check_components("metric", name)?;
    // A shorter name has fewer components.
    if name.len() >= 2 * MAX_COMPONENTS && name.split('.').count() > MAX_COMPONENTS {
        return Err(Error::Name { what: "metric", name: name.to_owned(), reason: TOO_MANY_PARTS });
    }
    Ok(())
}

/// Checks the name of a file with these flags. It becomes part of the metrics' names unless they have no prefix.
pub(crate) fn check_file(name: &str, flags: Flags) -> Result<(), Error> {
    let refuse = |reason| Err(Error::Name { what: "file", name: name.to_owned(), reason });
    if name.is_empty() || name.starts_with('.') || name.contains(['/', '\0']) {
        return refuse("must be a file name that does not begin with a dot");
    }
    if name == "control" || name.starts_with("control.") {
        return refuse("is reserved for the agent");
    }
    check_length("file", name)?;
    if flags.contains(Flags::NO_PREFIX) { Ok(()) } else { check_components("file", name) }
}

/// Checks an instance's name: any characters but control characters, and no space at the start, since PCP matches a
/// name up to its first space.
pub(crate) fn check_instance(name: &str) -> Result<(), Error> {
    check_length("instance", name)?;
    if name.starts_with(' ') || name.is_empty() || name.chars().any(char::is_control) {
        let reason = "must not be empty, begin with a space or have control characters";
        return Err(Error::Name { what: "instance", name: name.to_owned(), reason });
    }
    Ok(())
}

/// Checks a help text.
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

/// State of a parser within a component of a name.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    Start,
    Inside,
    Wrong,
}

/// The next state for each byte, by the present state.
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

/// Returns a valid metric name that resembles `name`.
#[cfg(feature = "metrics")]
pub(crate) fn sanitize(name: &str) -> String {
    let parts: Vec<String> = name.split('.').filter(|c| !c.is_empty()).map(sanitize_component).collect();
    // The metrics of a histogram have one more component.
    let (first, rest) = parts.split_at(parts.len().min(MAX_COMPONENTS - 2));
    let name = match (first, rest) {
        ([], _) => "m".to_owned(),
        (first, []) => first.join("."),
        (first, rest) => [first.join("."), rest.join("_")].join("."),
    };
    // Leaves room for an ending.
    truncated(&name, MAX_TEXT - 32).trim_end_matches('.').to_owned()
}

#[cfg(feature = "metrics")]
fn sanitize_component(component: &str) -> String {
    let word = component.replace(|c: char| !c.is_ascii_alphanumeric(), "_");
    if word.starts_with(|c: char| c.is_ascii_alphabetic()) { word } else { format!("m{word}") }
}

/// Returns a valid instance name that resembles `name`, and needs no quotes in PCP's tools.
#[cfg(any(feature = "metrics", feature = "tracing-layer"))]
pub(crate) fn sanitize_instance(name: &str) -> String {
    let name: String =
        name.chars().map(|c| if c.is_control() || c.is_whitespace() || c == ',' { '_' } else { c }).collect();
    truncated(if name.is_empty() { "_" } else { &name }, MAX_TEXT).to_owned()
}

/// Returns the longest beginning of a text that fits into `max` bytes.
pub(crate) fn truncated(text: &str, max: usize) -> &str {
    let end = (0..=max.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
    text.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics() {
        let parts = |count| vec!["n"; count].join(".");
        for good in ["a", "requests.total", "a.B_9", &"n".repeat(255), &parts(24)] {
            assert!(check_metric(good).is_ok(), "{good}");
        }
        for bad in ["", ".", "a.", ".a", "a..b", "9a", "a.9", "_a", "a-b", "a b", "ä", &"n".repeat(256), &parts(25)] {
            assert!(check_metric(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn files() {
        for good in ["acme", "acme.web", "a_1"] {
            assert!(check_file(good, Flags::PROCESS).is_ok(), "{good}");
        }
        for bad in ["", ".hidden", "a/b", "client-123", "control", "control.x", "1"] {
            assert!(check_file(bad, Flags::PROCESS).is_err(), "{bad}");
        }
        assert!(check_file("client-123", Flags::NO_PREFIX).is_ok());
        assert!(check_file("a/b", Flags::NO_PREFIX).is_err());
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
        let many = sanitize(&"é.".repeat(300));
        assert!(check_metric(&format!("{many}.p99")).is_ok() && many.contains(".m__m__m_"), "{many}");
    }
}
