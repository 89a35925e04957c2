//! Classes of characters.

/// Code points of classes from which the others are made, as iswctype(3) of glibc 2.36 has them in the locale `C.UTF-8`:
/// a name with a colon, and hexadecimal numbers and ranges.
const TABLE: &str = include_str!("classes.txt");

/// Names of the classes.
pub(crate) const NAMES: [&str; 12] =
    ["alnum", "alpha", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper", "xdigit"];

/// Adds the characters of a class to a set in the syntax of the `regex` crate.
pub(crate) fn push(class: &str, set: &mut String) {
    let parts: &[&str] = match class {
        // Digits of other scripts are letters to glibc.
        "alnum" => &["alpha", "digit"],
        "graph" => &["alpha", "digit", "punct"],
        "print" => &["alpha", "digit", "punct", "blank"],
        class => &[class],
    };
    let mut words = TABLE.split_ascii_whitespace();
    let mut is_part = false;
    let character = |hex: &str| u32::from_str_radix(hex, 16).ok().and_then(char::from_u32);
    for word in &mut words {
        if let Some(name) = word.strip_suffix(':') {
            is_part = parts.contains(&name);
            continue;
        }
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        // A tab is blank, but not printable.
        if !is_part || (class == "print" && first == "9") {
            continue;
        }
        if let (Some(first), Some(last)) = (character(first), character(last)) {
            crate::push_literal(set, first);
            if first < last {
                set.push('-');
                crate::push_literal(set, last);
            }
        }
    }
}
