//! Differences of time stamps, rounded as libpcp rounds them.

use pcp_pdu::event::Stamp;

/// Differences from this number of seconds on (272 years) would overflow the integers below.
const FAR: u64 = 1 << 33;

/// Returns the seconds from `start` to `time`.
///
/// libpcp adds in x87's extended precision and then rounds to a double, which differs from a plain division in the last
/// bit once in thousands of times. Whether a record is at the requested time, and the last digits of an interpolated
/// value, depend on that bit.
pub(super) fn seconds_between(start: Stamp, time: Stamp) -> f64 {
    const NANO: u128 = 1_000_000_000;
    let seconds = time.seconds.wrapping_sub(start.seconds);
    let nano = i64::from(time.nanoseconds) - i64::from(start.nanoseconds);
    if nano == 0 || seconds.unsigned_abs() >= FAR {
        return seconds as f64 + nano as f64 / NANO as f64;
    }
    let magnitude = u128::from(nano.unsigned_abs());
    // The quotient has 64 significant bits; `shift` of them are fractional.
    let mut shift = 94 - (u128::BITS - magnitude.leading_zeros());
    if (magnitude << shift) / NANO >= 1 << 64 {
        shift -= 1;
    }
    let (quotient, rest) = ((magnitude << shift) / NANO, (magnitude << shift) % NANO);
    let is_up = 2 * rest > NANO || (2 * rest == NANO && quotient % 2 == 1);
    let quotient = (quotient + u128::from(is_up)) as i128;
    let sum = (i128::from(seconds) << shift) + if nano < 0 { -quotient } else { quotient };
    let rounded = rounded(rounded(sum.unsigned_abs(), 64), f64::MANTISSA_DIGITS);
    let value = rounded as f64 * 0.5_f64.powi(shift as i32);
    if sum < 0 { -value } else { value }
}

/// Rounds to a number of significant bits, ties to even.
fn rounded(value: u128, bits: u32) -> u128 {
    let extra = (u128::BITS - value.leading_zeros()).saturating_sub(bits);
    if extra == 0 {
        return value;
    }
    let (kept, rest, half) = (value >> extra, value & ((1 << extra) - 1), 1 << (extra - 1));
    (kept + u128::from(rest > half || (rest == half && kept % 2 == 1))) << extra
}

#[cfg(test)]
mod tests {
    use super::*;

    fn between(seconds: i64, from: u32, to: u32) -> f64 {
        let start = Stamp { seconds: 100, nanoseconds: from };
        seconds_between(start, Stamp { seconds: 100 + seconds, nanoseconds: to })
    }

    #[test]
    fn seconds() {
        assert_eq!(between(0, 5, 5).to_bits(), 0);
        assert_eq!(between(7, 5, 5), 7.0);
        assert_eq!(between(1, 0, 500_000_000), 1.5);
        assert_eq!(between(1, 750_000_000, 250_000_000), 0.5);
        assert_eq!(between(-1, 0, 250_000_000), -0.75);
        assert_eq!(between(0, 0, 1), 1e-9);
        // Values of gcc's long double on x86.
        for (seconds, from, to) in [(3, 999_999_999, 0), (86_400, 123_456_789, 987_654_321), (1 << 40, 1, 3)] {
            let near = seconds as f64 + (f64::from(to) - f64::from(from)) / 1e9;
            assert!((between(seconds, from, to) - near).abs() <= near.abs() * f64::EPSILON);
        }
    }

    #[test]
    fn rounding() {
        assert_eq!(rounded(0b1011, 3), 0b1100);
        assert_eq!(rounded(0b1001, 3), 0b1000);
        assert_eq!(rounded(0b1_0111, 3), 0b1_1000);
        assert_eq!(rounded(0b101, 3), 0b101);
    }
}
