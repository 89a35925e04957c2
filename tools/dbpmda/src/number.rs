//! Values, parsed as in C.

use pmapi::cnum::{is_space, scan};
use pmapi::{Atom, Error, Type};

/// Error of a value that is out of the range of its type.
pub(crate) const RANGE: Error = Error::from_errno(nix::errno::Errno::ERANGE as i32);

/// Parses a value and returns whether it extends over the whole text (strtol(3), strtod(3) and their relatives). The
/// error is `ERANGE` for a value out of range; `None` means that the type has no text form.
pub(crate) fn parse(text: &[u8], ty: Type) -> Option<Result<(Atom<'_>, bool), Error>> {
    Some(match ty {
        // As in C, integers of 32 bits are the lower half of 64 bits.
        Type::I32 => signed(text).map(|(value, whole)| (Atom::I32(value as i32), whole)),
        Type::U32 => unsigned(text).map(|(value, whole)| (Atom::U32(value as u32), whole)),
        Type::I64 => signed(text).map(|(value, whole)| (Atom::I64(value), whole)),
        Type::U64 => unsigned(text).map(|(value, whole)| (Atom::U64(value), whole)),
        Type::Float => real(text).and_then(|(value, whole)| {
            let narrow = value as f32;
            let small = value != 0.0 && narrow.abs() < f32::MIN_POSITIVE;
            if small || narrow.is_infinite() && value.is_finite() {
                Err(RANGE)
            } else {
                Ok((Atom::Float(narrow), whole))
            }
        }),
        Type::Double => real(text).map(|(value, whole)| (Atom::Double(value), whole)),
        Type::String => Ok((Atom::String(text), true)),
        _ => return None,
    })
}

/// Returns the number at the start of a text, and whether it is the whole text.
fn integer(text: &[u8]) -> (i128, bool) {
    let start = trim_start(text);
    let (sign, rest) = match start {
        [b'-', rest @ ..] => (-1, rest),
        [b'+', rest @ ..] => (1, rest),
        rest => (1, rest),
    };
    let digits = rest.iter().take_while(|c| c.is_ascii_digit());
    let value = digits.clone().fold(0_i128, |value, c| value.saturating_mul(10).saturating_add((c - b'0').into()));
    (sign * value, !rest.is_empty() && digits.count() == rest.len())
}

fn trim_start(text: &[u8]) -> &[u8] {
    let start = text.iter().position(|&c| !is_space(c)).unwrap_or(text.len());
    text.get(start..).unwrap_or_default()
}

fn signed(text: &[u8]) -> Result<(i64, bool), Error> {
    let (value, whole) = integer(text);
    Ok((value.try_into().map_err(|_| RANGE)?, whole))
}

fn unsigned(text: &[u8]) -> Result<(u64, bool), Error> {
    let (value, whole) = integer(text);
    let magnitude = u64::try_from(value.unsigned_abs()).map_err(|_| RANGE)?;
    Ok((if value < 0 { magnitude.wrapping_neg() } else { magnitude }, whole))
}

fn real(text: &[u8]) -> Result<(f64, bool), Error> {
    // A number is ASCII, so bytes that are not UTF-8 cannot be part of it.
    let text = String::from_utf8_lossy(trim_start(text));
    let Some(number) = scan(&text) else { return Ok((0.0, false)) };
    if number.out_of_range { Err(RANGE) } else { Ok((number.value, number.len == text.len())) }
}
