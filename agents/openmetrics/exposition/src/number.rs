//! Numbers, in the spellings that PCP's agent accepts: those of Python's `float` and `int`.
//!
//! These include all spellings of the two formats, and `_` between digits.

/// Parses a floating point number. Returns `None` for any other text.
#[inline]
pub fn float(text: &str) -> Option<f64> {
    match text.parse() {
        Ok(number) => Some(number),
        Err(_) => without_underscores(text)?.parse().ok(),
    }
}

/// Removes each `_` between two digits. Returns `None` if there is no `_`, or if a `_` is not between two digits.
#[cold]
fn without_underscores(text: &str) -> Option<String> {
    let is_digit = |at: Option<usize>| at.and_then(|at| text.as_bytes().get(at)).is_some_and(u8::is_ascii_digit);
    let mut places = memchr::memchr_iter(b'_', text.as_bytes()).peekable();
    places.peek()?;
    places.all(|at| is_digit(at.checked_sub(1)) && is_digit(at.checked_add(1))).then(|| text.replace('_', ""))
}

/// An integer of any size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Integer {
    /// The lowest 64 bits, in two's complement.
    pub low: u64,
    /// The number, if it fits into an `i64`.
    pub exact: Option<i64>,
}

/// Parses an integer. Returns `None` for any other text.
pub fn integer(text: &str) -> Option<Integer> {
    if let Ok(number) = text.parse::<i64>() {
        return Some(Integer { low: number as u64, exact: Some(number) });
    }
    let joined = without_underscores(text);
    let text = joined.as_deref().unwrap_or(text);
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let low = digits.bytes().fold(0u64, |low, byte| low.wrapping_mul(10).wrapping_add(u64::from(byte - b'0')));
    let low = if text.starts_with('-') { low.wrapping_neg() } else { low };
    Some(Integer { low, exact: text.parse().ok() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats() {
        for (text, number) in [
            ("1027", 1027.0),
            ("+5", 5.0),
            (".5", 0.5),
            ("5.", 5.0),
            ("1E3", 1000.0),
            ("1_000.5", 1000.5),
            ("+Inf", f64::INFINITY),
            ("-inf", f64::NEG_INFINITY),
            ("Infinity", f64::INFINITY),
            ("1e400", f64::INFINITY),
            ("1e-400", 0.0),
        ] {
            assert_eq!(float(text), Some(number), "{text}");
        }
        assert!(float("NaN").is_some_and(f64::is_nan));
        for text in ["", "abc", "0x10", "1,5", "_1", "1_", "1__0", "1_e5", "\"1\""] {
            assert_eq!(float(text), None, "{text}");
        }
    }

    #[test]
    fn integers() {
        let exact = |n: i64| Some(Integer { low: n.cast_unsigned(), exact: Some(n) });
        assert_eq!((integer("12"), integer("+1_0"), integer("-1")), (exact(12), exact(10), exact(-1)));
        assert_eq!(integer("18446744073709551615"), Some(Integer { low: u64::MAX, exact: None }));
        assert_eq!(integer("18446744073709551617"), Some(Integer { low: 1, exact: None }));
        assert_eq!(integer("-9223372036854775809"), Some(Integer { low: i64::MAX as u64, exact: None }));
        for text in ["", "+", "1.0", "1e3", "abc", "0x1F", "_1", "--1"] {
            assert_eq!(integer(text), None, "{text}");
        }
    }
}
