//! Texts and conversions against answers of libpcp: 9,900 of version 7.2.1 in a file, and new ones of the installed
//! library. `data/text_cases.c` makes both, and its head explains the columns.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::Read as _;
use std::process::Command;

use flate2::read::GzDecoder;
use pcp_pdu::result::RawValue;
use pmapi::{Atom, Converted, Error, Type, Units};
use testkit::{Pcp, Version};

/// Compares a line with our answer. Returns `None` for a line that does not apply to a library of this version.
fn check(line: &str, judge: Version) -> Option<Result<(), String>> {
    let fields: Vec<&str> = line.split('\t').collect();
    let (ours, theirs) = match fields[..] {
        ["units", word, text] => {
            // Before 7.2 the low byte had no meaning.
            let word = hex(word) & if judge < Version(7, 2, 0) { !0xff } else { !0 };
            (Units::from_word(word).to_string(), text.to_owned())
        }
        ["parse", text, status, word, factor, message] => {
            let (ours, ours_message) = parse(text);
            // The program prints messages only for its list of hand-made texts.
            let message = if message.is_empty() { String::new() } else { format!(" {message}") };
            let ours_message = if message.is_empty() { String::new() } else { ours_message };
            (ours + &ours_message, format!("{status} {word} {factor}{message}"))
        }
        ["conv", ty, value, from, to, "FPE", ""] => return Some(check_overflow(ty, value, from, to)),
        ["conv", ty, value, from, to, status, result] => {
            let (from, to) = (Units::from_word(hex(from)), Units::from_word(hex(to)));
            (shown(from.convert(to, atom(ty, value))), format!("{status} {result}"))
        }
        // Before 7.0 libpcp did not convert numbers to strings.
        ["extract", _, _, _, "6", _, _] if judge < Version(7, 0, 0) => return None,
        ["extract", format, ty, value, to, status, result] => {
            let (value, from) = (atom(ty, value), type_of(ty));
            let bytes = value_bytes(value);
            let raw = match (format, value) {
                ("0", Atom::I32(v)) => RawValue::InSitu(v as u32),
                ("0", Atom::U32(v)) => RawValue::InSitu(v),
                _ => RawValue::Block(from.code() as u8, &bytes),
            };
            let ours = match raw.extract(from, type_of(to)) {
                Ok(Converted::Text(text)) => format!("0 {text}"),
                Ok(Converted::Atom(atom)) => shown(Ok(atom)),
                Err(e) => shown(Err(e)),
            };
            (ours, format!("{status} {result}"))
        }
        ["atom", ty, value, text] => (atom(ty, value).to_string(), text.to_owned()),
        ["err", code, text] => {
            let code: i32 = code.parse().unwrap();
            if judge < Version(6, 1, 0) && SINCE_6_1.contains(&code) {
                return None;
            }
            // A code of 0 is no error.
            let ours = Error::from_code(code).map_or(text.to_owned(), |e| e.to_string());
            (ours, text.to_owned())
        }
        _ => panic!("unknown case {line:?}"),
    };
    Some(if ours == theirs { Ok(()) } else { Err(format!("{line:?}: {ours:?}")) })
}

/// Codes whose text is different before 6.1: eight texts say "archive log", and one code is new.
const SINCE_6_1: [i32; 9] = [-12354, -12370, -12372, -12373, -12375, -12378, -12379, -12380, -12415];

fn parse(text: &str) -> (String, String) {
    match Units::parse(text) {
        Ok((units, factor)) => (format!("0 {:08x} {}", units.word(), shortest(factor, 17)), String::new()),
        Err(e) => (format!("{} 00000000 0", Error::from(e).code()), format!(" {e}")),
    }
}

/// Compares with the result without overflow, where libpcp divides by 0. The library rounds half up and then towards 0,
/// so that negative integers are up to 1.5 too large.
fn check_overflow(ty: &str, value: &str, from: &str, to: &str) -> Result<(), String> {
    let (value, from, to) = (atom(ty, value), Units::from_word(hex(from)), Units::from_word(hex(to)));
    let ours = from.convert(to, value);
    let ratio = exponents(from).into_iter().zip(exponents(to)).map(|(a, b)| a - b);
    let ratio: f64 = ratio.zip([2_f64, 3.0, 5.0]).map(|(power, prime)| prime.powi(power)).product();
    let number = |atom: Atom<'_>| match atom {
        Atom::I32(v) => f64::from(v),
        Atom::U32(v) => f64::from(v),
        Atom::I64(v) => v as f64,
        Atom::U64(v) => v as f64,
        Atom::Float(v) => f64::from(v),
        Atom::Double(v) => v,
        _ => panic!("no number"),
    };
    let expected = number(value) * ratio;
    let agrees = match ours {
        Ok(Atom::Float(v)) => (f64::from(v) - expected).abs() <= expected.abs() * 1e-6 + 1e-37,
        Ok(Atom::Double(v)) => (v - expected).abs() <= expected.abs() * 1e-14,
        Ok(atom) => (number(atom) - expected).abs() <= expected.abs() * 1e-14 + 1.5,
        Err(Error::TRUNC) => expected.abs() >= 2_147_483_647.0,
        Err(_) => false,
    };
    if agrees { Ok(()) } else { Err(format!("{value:?} {from:?} -> {to:?}: {ours:?}, not {expected}")) }
}

/// Returns the scale of units as powers of 2, 3 and 5.
fn exponents(units: Units) -> [i32; 3] {
    let count = i32::from(units.scale_count());
    let (dim_space, dim_time) = (i32::from(units.dim_space()), i32::from(units.dim_time()));
    let dim_count = i32::from(units.dim_count());
    let space = 10 * i32::from(units.scale_space());
    let time = [[-9, 0, -9], [-6, 0, -6], [-3, 0, -3], [0, 0, 0], [2, 1, 1], [4, 2, 2]];
    let time = time[usize::from(units.scale_time())];
    [
        dim_space * space + dim_time * time[0] + dim_count * count,
        dim_time * time[1],
        dim_time * time[2] + dim_count * count,
    ]
}

fn hex(word: &str) -> u32 {
    u32::from_str_radix(word, 16).unwrap()
}

fn type_of(code: &str) -> Type {
    Type::from_code(code.parse().unwrap()).unwrap()
}

fn atom<'a>(ty: &str, value: &str) -> Atom<'a> {
    match type_of(ty) {
        Type::I32 => Atom::I32(value.parse().unwrap()),
        Type::U32 => Atom::U32(value.parse().unwrap()),
        Type::I64 => Atom::I64(value.parse().unwrap()),
        Type::U64 => Atom::U64(value.parse().unwrap()),
        Type::Float => Atom::Float(value.parse().unwrap()),
        Type::Double => Atom::Double(value.parse().unwrap()),
        ty => panic!("{ty} in a case"),
    }
}

fn value_bytes(value: Atom<'_>) -> Vec<u8> {
    match value {
        Atom::I32(v) => v.to_be_bytes().to_vec(),
        Atom::U32(v) => v.to_be_bytes().to_vec(),
        Atom::I64(v) => v.to_be_bytes().to_vec(),
        Atom::U64(v) => v.to_be_bytes().to_vec(),
        Atom::Float(v) => v.to_be_bytes().to_vec(),
        Atom::Double(v) => v.to_be_bytes().to_vec(),
        _ => Vec::new(),
    }
}

/// Formats status and value as the program prints them.
fn shown(result: Result<Atom<'_>, Error>) -> String {
    match result {
        Ok(Atom::Float(v)) => format!("0 {}", shortest(v.into(), 9)),
        Ok(Atom::Double(v)) => format!("0 {}", shortest(v, 17)),
        Ok(atom) => format!("0 {atom}"),
        Err(e) => format!("{} ", e.code()),
    }
}

/// Formats as C's `%.{digits}g`, independently of the library's code.
fn shortest(value: f64, digits: usize) -> String {
    if !value.is_finite() {
        return value.to_string().to_lowercase();
    }
    let text = format!("{value:.*e}", digits - 1);
    let (mantissa, exponent) = text.split_once('e').unwrap();
    let exponent: i32 = exponent.parse().unwrap();
    let trim = |text: &str| {
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text.to_owned() }
    };
    if (-4..digits as i32).contains(&exponent) {
        return trim(&format!("{value:.*}", (digits as i32 - 1 - exponent) as usize));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trim(mantissa), exponent.abs())
}

fn check_all(cases: &str, judge: Version) -> usize {
    let checked: Vec<_> = cases.lines().filter_map(|line| check(line, judge)).collect();
    let wrong: Vec<_> = checked.iter().filter_map(|c| c.as_ref().err()).collect();
    assert!(wrong.is_empty(), "{} of {} differ: {:#?}", wrong.len(), checked.len(), &wrong[..wrong.len().min(20)]);
    checked.len()
}

#[test]
fn libpcp_7_2_1() {
    let mut cases = String::new();
    GzDecoder::new(&include_bytes!("../data/cases-7.2.1.tsv.gz")[..]).read_to_string(&mut cases).unwrap();
    assert_eq!(check_all(&cases, Version(7, 2, 1)), 9935);
}

#[test]
#[ignore = "needs PCP"]
fn installed_libpcp_on_other_seeds() {
    let judge = Pcp::required().version();
    let dir = tempfile::tempdir().unwrap();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/text_cases.c");
    let program = testkit::compile(source, dir.path(), &["-lpcp"]);
    for seed in 2..12 {
        let output = Command::new(&program).arg(seed.to_string()).output().unwrap();
        assert!(output.status.success(), "seed {seed}");
        assert!(check_all(&String::from_utf8(output.stdout).unwrap(), judge) > 9000);
    }
}
