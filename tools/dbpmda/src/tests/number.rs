//! Values as text.

use pmapi::{Atom, Error, Type};

use crate::number::{RANGE, parse};

fn parsed(text: &str, ty: Type) -> Result<(Atom<'_>, bool), Error> {
    parse(text.as_bytes(), ty).unwrap()
}

#[test]
fn integers() {
    assert_eq!(parsed(" -12", Type::I32), Ok((Atom::I32(-12), true)));
    assert_eq!(parsed("4294967297", Type::I32), Ok((Atom::I32(1), true)));
    assert_eq!(parsed("-1", Type::U32), Ok((Atom::U32(u32::MAX), true)));
    assert_eq!(parsed("57.3", Type::U64), Ok((Atom::U64(57), false)));
    assert_eq!(parsed("-9223372036854775808", Type::I64), Ok((Atom::I64(i64::MIN), true)));
    assert_eq!(parsed("9223372036854775808", Type::I64), Err(RANGE));
    assert_eq!(parsed("18446744073709551616", Type::U64), Err(RANGE));
    for text in ["", " ", "-", "x", "12 "] {
        assert!(!parsed(text, Type::I32).unwrap().1, "{text}");
    }
}

#[test]
fn reals() {
    assert_eq!(parsed("\x0b1.5e1", Type::Float), Ok((Atom::Float(15.0), true)));
    assert_eq!(parsed("0x10", Type::Double), Ok((Atom::Double(16.0), true)));
    assert_eq!(parsed("inf", Type::Float), Ok((Atom::Float(f32::INFINITY), true)));
    assert_eq!(parsed("1e39", Type::Float), Err(RANGE));
    assert_eq!(parsed("1e-46", Type::Float), Err(RANGE));
    assert_eq!(parsed("1e309", Type::Double), Err(RANGE));
    assert_eq!(parsed("1,5", Type::Double), Ok((Atom::Double(1.0), false)));
    assert!(!parsed("", Type::Double).unwrap().1);
}

#[test]
fn others() {
    assert_eq!(parsed("a b", Type::String), Ok((Atom::String(b"a b"), true)));
    assert!(parse(b"x", Type::Aggregate).is_none() && parse(b"1", Type::NoSupport).is_none());
}
