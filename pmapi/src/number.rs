//! Numbers in a fixed width.

use std::fmt;

/// Number displayed in seven characters, the last one its magnitude: blank, K, M, G or T (pmNumberStr(3)).
///
/// ```
/// use pmapi::number::Number;
/// assert_eq!(Number(1234.5).to_string(), "  1.23K");
/// ```
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug)]
pub struct Number(pub f64);

/// Divisors and letters of the magnitudes.
const MAGNITUDES: [(f64, char); 5] = [(1e12, 'T'), (1e9, 'G'), (1e6, 'M'), (1e3, 'K'), (1.0, ' ')];

/// Smallest number that is not displayed as 0, since there are two decimals.
const SMALLEST: f64 = 0.005;

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.0;
        // Three digits before the point, or a sign and two digits.
        let (limit, infinite) = if value >= 0.0 { (999.995, " inf?  ") } else { (99.995, "-inf?  ") };
        let (scaled, letter) = if value.abs() >= limit * 1e12 {
            return f.pad(infinite);
        } else if value.abs() >= SMALLEST {
            let (divisor, letter) = MAGNITUDES
                .iter()
                .find(|(divisor, _)| value.abs() >= limit * divisor / 1e3 || *divisor == 1.0)
                .copied()
                .unwrap_or((1.0, ' '));
            (value / divisor, letter)
        } else {
            (0.0, ' ')
        };
        f.pad(&format!("{scaled:6.2}{letter}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        let text = |value: f64| Number(value).to_string();
        assert_eq!(text(0.0), "  0.00 ");
        assert_eq!(text(-0.004), "  0.00 ");
        assert_eq!(text(f64::NAN), "  0.00 ");
        assert_eq!(text(999.994), "999.99 ");
        assert_eq!(text(999.995), "  1.00K");
        assert_eq!(text(-99.995), " -0.10K");
        assert_eq!(text(-99_994_999.0), "-99.99M");
        assert_eq!(text(1e15), " inf?  ");
        assert_eq!(text(f64::NEG_INFINITY), "-inf?  ");
        assert_eq!(text(123_456_789_012.0), "123.46G");
    }
}
