//! Hexadecimal dump of a file.

use std::fs::File;
use std::io::{self, BufReader, Read};

use crate::out::{Out, put};

/// Reads bytes until `to` is full or the file ends, and returns their number.
fn fill(file: &mut impl Read, to: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while let Some(rest) = to.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match file.read(rest)? {
            0 => break,
            read => done += read,
        }
    }
    Ok(done)
}

/// Writes the records of a file.
pub(crate) fn dump(out: &mut Out, file: File) -> io::Result<()> {
    let mut file = BufReader::new(file);
    let (mut offset, mut word) = (0_u64, [0; 4]);
    while fill(&mut file, &mut word)? == 4 {
        let len = i32::from_be_bytes(word);
        put!(out.text, "Dump ... record len: {len} @ offset: {offset}");
        out.pass()?;
        let body = u64::try_from(len.wrapping_sub(8)).unwrap_or(0);
        offset += 4;
        for at in 0..body {
            let mut byte = [0];
            if fill(&mut file, &mut byte)? == 0 {
                put!(out.text, "Unexpected EOF\n");
                break;
            }
            offset += 1;
            if at % 32 == 0 {
                out.text.push(b'\n');
            }
            if at % 4 == 0 {
                out.text.push(b' ');
            }
            put!(out.text, "{:02x}", byte[0]);
            out.pass()?;
        }
        out.text.push(b'\n');
        match fill(&mut file, &mut word)? {
            4 => offset += 4,
            0 => {
                put!(out.text, "Unexpected EOF\n");
                break;
            }
            _ => break,
        }
        let check = i32::from_be_bytes(word);
        if check != len {
            put!(out.text, "Trailer botch: {check} != {len}\n");
            break;
        }
    }
    out.flush()
}
