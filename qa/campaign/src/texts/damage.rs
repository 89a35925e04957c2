//! Damage to texts.

use crate::rng::Rng;

/// Strings with a meaning for parsers, or invalid ones.
const PIECES: [&[u8]; 48] = [
    b"\n",
    b"\n\n",
    b" ",
    b"\t",
    b"\0",
    b"\xff\xfe",
    b"\x1b[2J",
    b"#",
    b"\"",
    b"'",
    b"\\",
    b"\\\n",
    b"(",
    b")",
    b"((((((((",
    b"{",
    b"}",
    b"{{{{",
    b"[",
    b"]",
    b"[[",
    b"=",
    b"==",
    b",",
    b":",
    b"::",
    b"*",
    b"?",
    b"/",
    b"%",
    b"~",
    b"rate(",
    b"delta(",
    b"instant(",
    b"match_inst(\"[a-z]*(((\", ",
    b"anon(string)",
    b"mkconst(1, type=\"double\")",
    b"count(",
    b"@ ",
    b"root {\n",
    b"#include \"x\"\n",
    b"#define a a\n",
    b"#shell x\n",
    b"#control ",
    b"99999999999999999999",
    b"-1",
    b"1e999",
    b"0x",
];

/// Damages a text by one to six random changes.
pub(crate) fn damage(rng: &mut Rng, text: &mut Vec<u8>) {
    for _ in 0..=rng.below(5) {
        let at = rng.below(text.len() + 1);
        let end = (at + rng.below(40)).min(text.len());
        match rng.below(9) {
            0 => text.truncate(at),
            1 => drop(text.drain(at..end)),
            2..=4 => {
                let piece = PIECES.get(rng.below(PIECES.len())).copied().unwrap_or_default();
                text.splice(at..at, piece.iter().copied());
            }
            5 => {
                let piece: Vec<u8> = text.get(at..end).unwrap_or_default().to_vec();
                let to = rng.below(text.len() + 1);
                text.splice(to..to, piece);
            }
            6 => {
                for byte in text.iter_mut().take(end).skip(at) {
                    *byte ^= 1 << rng.below(8);
                }
            }
            7 => {
                let number = rng.odd_number().to_string();
                text.splice(at..at, number.into_bytes());
            }
            _ => {
                let piece = PIECES.get(rng.below(PIECES.len())).copied().unwrap_or_default();
                let many = piece.repeat(1 << rng.below(11));
                text.splice(at..at, many);
            }
        }
    }
}

/// Appends one to four consecutive lines of `text` to `out`.
pub(crate) fn lines(rng: &mut Rng, text: &str, out: &mut Vec<u8>) {
    let count = text.lines().count();
    for line in text.lines().skip(rng.below(count)).take(1 + rng.below(4)) {
        out.extend_from_slice(line.as_bytes());
        out.push(b'\n');
    }
}
