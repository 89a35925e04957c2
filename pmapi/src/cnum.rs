//! Floating point numbers in the formats of C's stdio and strtod(3), which libpcp's texts contain.

/// Formats as `%.{precision}e`.
pub fn exponential(value: f64, precision: usize) -> String {
    if let Some(text) = not_finite(value) {
        return text;
    }
    let (mantissa, exponent) = split(value, precision);
    with_exponent(&mantissa, exponent)
}

/// Formats as `%.{precision}g`; the precision is at least 1.
pub fn general(value: f64, precision: usize) -> String {
    let mut text = Vec::new();
    append_general(&mut text, value, precision);
    String::from_utf8(text).unwrap_or_default()
}

/// Appends a number in the format `%.{precision}g`; the precision is at least 1.
pub fn append_general(out: &mut Vec<u8>, value: f64, precision: usize) {
    match Decimal::of(value.abs(), precision) {
        Some(decimal) => {
            if value.is_sign_negative() {
                out.push(b'-');
            }
            decimal.append(out);
        }
        None => out.extend_from_slice(slow_general(value, precision).as_bytes()),
    }
}

fn slow_general(value: f64, precision: usize) -> String {
    if let Some(text) = not_finite(value) {
        return text;
    }
    let (mantissa, exponent) = split(value, precision.saturating_sub(1));
    match i64::try_from(precision).unwrap_or(i64::MAX) - 1 - i64::from(exponent) {
        decimals if exponent >= -4 && decimals >= 0 => {
            trim_zeros(&format!("{value:.*}", usize::try_from(decimals).unwrap_or(0))).to_owned()
        }
        _ => with_exponent(trim_zeros(&mantissa), exponent),
    }
}

/// Number `digits / 10^decimals`, without zeros at the end of its fraction.
struct Decimal {
    digits: u64,
    decimals: u32,
}

/// Bits of the mantissa of an `f64` without its leading 1, and the offset of its exponent.
const MANTISSA: u32 = 52;
const BIAS: u32 = 1075;
/// Largest number of fraction bits of the numbers that [`Decimal::of`] converts: numbers from about 0.001 on. With up
/// to 19 decimals, their fractions have at most 128 bits.
const FRACTION: u32 = 62;
/// Largest precision with which the digits of such a number fit into 64 bits.
const DIGITS: u32 = 17;

impl Decimal {
    /// Rounds a positive number to significant digits. Returns `None` for numbers that need a larger integer type or
    /// an exponent in their text.
    fn of(value: f64, precision: usize) -> Option<Decimal> {
        let precision = u32::try_from(precision).ok().filter(|precision| (1..=DIGITS).contains(precision))?;
        if value == 0.0 {
            return Some(Decimal { digits: 0, decimals: 0 });
        }
        let bits = value.to_bits();
        let shift = BIAS.checked_sub((bits >> MANTISSA) as u32).filter(|shift| *shift <= FRACTION)?;
        let mantissa = bits & ((1 << MANTISSA) - 1) | 1 << MANTISSA;
        let mask = (1_u64 << shift) - 1;
        let (whole, fraction) = (mantissa >> shift, mantissa & mask);
        let limit = 10_u64.pow(precision);
        if fraction == 0 && whole < limit {
            return Some(Decimal { digits: whole, decimals: 0 });
        }
        let mut decimals = match whole.checked_ilog10() {
            Some(log) => (precision - 1).checked_sub(log)?,
            None => precision + leading_zeros(fraction, shift)?,
        };
        let scaled = u128::from(fraction) * u128::from(10_u64.pow(decimals));
        let mut digits = whole * 10_u64.pow(decimals.min(DIGITS)) + (scaled >> shift) as u64;
        // Rounds to the nearest, and a tie to even, as glibc does.
        let (rest, half) = ((scaled as u64) & mask, (mask >> 1) + 1);
        if shift > 0 && (rest > half || (rest == half && digits & 1 == 1)) {
            digits += 1;
        }
        if digits >= limit && decimals == 0 {
            return None;
        }
        while decimals > 0 && digits % 10 == 0 {
            (digits, decimals) = (digits / 10, decimals - 1);
        }
        Some(Decimal { digits, decimals })
    }

    fn append(&self, out: &mut Vec<u8>) {
        // Point, the digit before it, and as many digits as a number has.
        let (mut text, mut at, mut rest, mut left) = ([b'0'; 24], 24, self.digits, self.decimals);
        let mut put = |byte| {
            at -= 1;
            if let Some(to) = text.get_mut(at) {
                *to = byte;
            }
        };
        loop {
            put(b'0' + (rest % 10) as u8);
            rest /= 10;
            if left == 1 {
                put(b'.');
            } else if left == 0 && rest == 0 {
                break;
            }
            left = left.saturating_sub(1);
        }
        out.extend_from_slice(text.get(at..).unwrap_or_default());
    }
}

/// Returns the number of zeros after the point of a fraction `fraction / 2^shift` below 1; `None` for more than 2.
fn leading_zeros(fraction: u64, shift: u32) -> Option<u32> {
    let one = 1_u128 << shift;
    (0..3).find(|zeros| u128::from(fraction) * u128::from(10_u64.pow(zeros + 1)) >= one)
}

fn not_finite(value: f64) -> Option<String> {
    let text = match value {
        _ if value.is_nan() => "nan",
        _ if value.is_infinite() => "inf",
        _ => return None,
    };
    Some(if value.is_sign_negative() { format!("-{text}") } else { text.to_owned() })
}

fn split(value: f64, precision: usize) -> (String, i32) {
    let text = format!("{value:.precision$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    (mantissa.to_owned(), exponent.parse().unwrap_or(0))
}

fn with_exponent(mantissa: &str, exponent: i32) -> String {
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

fn trim_zeros(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

/// Number parsed from the start of a text.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Scanned {
    /// Value of the number, which may be infinite or NaN.
    pub value: f64,
    /// Length of the number's text in bytes.
    pub len: usize,
    /// Whether strtod(3) sets `ERANGE`.
    pub out_of_range: bool,
}

/// Parses the number at the start of `text`, as strtod(3) does after white space; `None` if there is none.
pub fn scan(text: &str) -> Option<Scanned> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let sign_len = text.len() - unsigned.len();
    let number = scan_word(unsigned).or_else(|| scan_hex(unsigned)).or_else(|| scan_decimal(unsigned))?;
    let value = if text.starts_with('-') { -number.value } else { number.value };
    Some(Scanned { value, len: number.len + sign_len, ..number })
}

fn scan_word(text: &str) -> Option<Scanned> {
    let is = |word: &str| text.get(..word.len()).is_some_and(|t| t.eq_ignore_ascii_case(word));
    let (value, len) = if is("infinity") {
        (f64::INFINITY, 8)
    } else if is("inf") {
        (f64::INFINITY, 3)
    } else if is("nan") {
        let rest = text.get(4..).filter(|_| text.get(3..4) == Some("("));
        let payload = rest.and_then(|r| r.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').zip(Some(r)));
        let closed = payload.filter(|(end, r)| r.get(*end..end + 1) == Some(")"));
        (f64::NAN, closed.map_or(3, |(end, _)| end + 5))
    } else {
        return None;
    };
    Some(Scanned { value, len, out_of_range: false })
}

fn scan_decimal(text: &str) -> Option<Scanned> {
    let mantissa = mantissa_len(text, |b| b.is_ascii_digit())?;
    let len = mantissa + exponent_len(text, mantissa, b'e');
    let value: f64 = text.get(..len)?.parse().ok()?;
    let is_zero = text.bytes().take(mantissa).all(|b| matches!(b, b'0' | b'.'));
    let out_of_range = value.is_infinite() || (!is_zero && value < f64::MIN_POSITIVE);
    Some(Scanned { value, len, out_of_range })
}

fn scan_hex(text: &str) -> Option<Scanned> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"))?;
    let mantissa = mantissa_len(digits, |b| b.is_ascii_hexdigit())?;
    let len = mantissa + exponent_len(digits, mantissa, b'p');
    let exponent = digits.get(mantissa..len).and_then(|e| e.get(1..)).unwrap_or_default();
    // Larger exponents are out of range with any mantissa.
    let mut exponent = match exponent.parse::<i64>() {
        Ok(exponent) => exponent.clamp(-1 << 40, 1 << 40),
        Err(_) if exponent.is_empty() => 0,
        Err(_) if exponent.starts_with('-') => -1 << 40,
        Err(_) => 1 << 40,
    };
    let (mut bits, mut after_point) = (0_u64, false);
    for b in digits.bytes().take(mantissa) {
        let Some(digit) = char::from(b).to_digit(16) else {
            after_point = true;
            continue;
        };
        if bits >> 60 == 0 {
            bits = bits << 4 | u64::from(digit);
            exponent -= if after_point { 4 } else { 0 };
        } else {
            // Further digits matter only for rounding.
            bits |= u64::from(digit != 0);
            exponent += if after_point { 0 } else { 4 };
        }
    }
    let mut value = bits as f64;
    while exponent != 0 && value != 0.0 && value.is_finite() {
        let step = exponent.clamp(-1000, 1000);
        value *= 2_f64.powi(step as i32);
        exponent -= step;
    }
    Some(Scanned { value, len: len + 2, out_of_range: value.is_infinite() || (value == 0.0 && bits != 0) })
}

/// Returns the length of a mantissa: digits, at least one, and at most one point.
fn mantissa_len(text: &str, is_digit: impl Fn(u8) -> bool) -> Option<usize> {
    let (mut digits, mut points) = (0, 0);
    for b in text.bytes() {
        match b {
            b'.' if points == 0 => points = 1,
            _ if is_digit(b) => digits += 1,
            _ => break,
        }
    }
    (digits > 0).then_some(digits + points)
}

/// Returns the length of the exponent that follows the mantissa; 0 when it has no digit.
fn exponent_len(text: &str, mantissa: usize, mark: u8) -> usize {
    let rest = text.as_bytes().get(mantissa..).unwrap_or_default();
    let (Some(first), sign) = (rest.first(), rest.get(1)) else { return 0 };
    if !first.eq_ignore_ascii_case(&mark) {
        return 0;
    }
    let head = if matches!(sign, Some(b'-' | b'+')) { 2 } else { 1 };
    match rest.iter().skip(head).take_while(|b| b.is_ascii_digit()).count() {
        0 => 0,
        digits => head + digits,
    }
}

/// Returns whether C's isspace(3) accepts a byte in the C locale.
pub const fn is_space(b: u8) -> bool {
    matches!(b, b' ' | b'\t'..=b'\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written() {
        assert_eq!(exponential(123_456.789, 6), "1.234568e+05");
        assert_eq!(exponential(-1e-300, 6), "-1.000000e-300");
        assert_eq!(exponential(0.0, 6), "0.000000e+00");
        assert_eq!(exponential(f64::NAN.copysign(-1.0), 6), "-nan");
        assert_eq!(general(100_000.0, 8), "100000");
        assert_eq!(general(123_456_789.0, 8), "1.2345679e+08");
        assert_eq!(general(0.0001, 8), "0.0001");
        assert_eq!(general(0.00001, 8), "1e-05");
        assert_eq!(general(-0.0, 8), "-0");
        assert_eq!(general(f64::NEG_INFINITY, 8), "-inf");
        assert_eq!(general(99_999_999.6, 8), "1e+08");
        assert_eq!(general(2.5, 1), "2");
        assert_eq!(general(-0.001, 16), "-0.001");
        assert_eq!(general(9.95, 16), "9.949999999999999");
        assert_eq!(general(0.099_999_999_999_999_99, 16), "0.09999999999999999");
        assert_eq!(general(0.3, 17), "0.29999999999999999");
        assert_eq!(general(999.999_999_99, 8), "1000");
        assert_eq!(general(0.125, 2), "0.12");
    }

    /// Conversion with 128 bits equals that of the standard library.
    #[test]
    // Slow: 200,000 numbers, each in six precisions.
    fn written_fast() {
        let mut fast = 0;
        let mut state = 1_u64;
        for _ in 0..200_000 {
            // A generator of random numbers (xorshift).
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            // Numbers of 2^-12 to 2^56, with few or many digits, and ties.
            let exponent = (BIAS - 12 - MANTISSA) as u64 + state % 68;
            let kept = (state >> 8) % 53;
            let mantissa = (state >> 12) & ((1 << MANTISSA) - 1) & !((1 << kept) - 1);
            let binary = f64::from_bits(exponent << MANTISSA | mantissa);
            for value in [binary, (binary * 1000.0).round() / 1000.0, -binary.round() / 8.0] {
                for precision in [1, 6, 8, 15, 16, 17] {
                    assert_eq!(general(value, precision), slow_general(value, precision), "{value:e} {precision}");
                    fast += u32::from(Decimal::of(value.abs(), precision).is_some());
                }
            }
        }
        assert!(fast > 1_000_000, "{fast}");
    }

    #[test]
    fn read() {
        let value = |text: &str| scan(text).map(|s| (s.value, s.len));
        assert_eq!(value("12.5e1x"), Some((125.0, 6)));
        assert_eq!(value("12.e"), Some((12.0, 3)));
        assert_eq!(value("-.5"), Some((-0.5, 3)));
        assert_eq!(value("1e+"), Some((1.0, 1)));
        assert_eq!(value("0x10 "), Some((16.0, 4)));
        assert_eq!(value("0x1.8p1"), Some((3.0, 7)));
        assert_eq!(value("0xg"), Some((0.0, 1)));
        assert_eq!(value("InfinityX"), Some((f64::INFINITY, 8)));
        assert_eq!(scan("nan(a_1)").unwrap().len, 8);
        assert_eq!(scan("nan(a-1)").unwrap().len, 3);
        assert_eq!(scan("nan(").unwrap().len, 3);
        for text in ["", ".", "-", "e5", "x", "+-1"] {
            assert_eq!(value(text), None, "{text}");
        }
        assert!(scan("1e999").unwrap().out_of_range && scan("1e-999").unwrap().out_of_range);
        assert!(!scan("0e-999").unwrap().out_of_range);
        assert!(scan("0x1p99999999999999999999").unwrap().out_of_range);
    }
}
