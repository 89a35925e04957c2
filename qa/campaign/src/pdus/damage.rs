//! Damage to PDUs. Their frames stay intact: the length is that of the PDU, and the type is one that a stream can have.

use pcp_pdu::Header;

use crate::rng::Rng;

const HEADER: usize = 12;
/// Number of PDU types from 0x7000. Agents do not know all of them.
const TYPES: usize = 0x1a;

/// Damages the PDU between `start` and the end of `out`.
pub(crate) fn damage(rng: &mut Rng, out: &mut Vec<u8>, start: usize) {
    for _ in 0..=rng.below(3) {
        let body = out.len().saturating_sub(start + HEADER);
        match rng.below(8) {
            0 => flip(rng, out, start, body),
            1..=3 => set_word(rng, out, start, body),
            4 => out.truncate(start + HEADER + rng.below(body + 1)),
            5 => (0..rng.below(40)).for_each(|_| out.push(rng.word() as u8)),
            6 => repeat(rng, out, start, body),
            _ => set_type(rng, out, start),
        }
    }
    let len = u32::try_from(out.len() - start).unwrap_or(u32::MAX);
    if let Some(head) = out.get_mut(start..start + 4) {
        head.copy_from_slice(&len.to_be_bytes());
    }
}

fn flip(rng: &mut Rng, out: &mut [u8], start: usize, body: usize) {
    for _ in 0..=rng.below(8) {
        let at = start + HEADER + rng.below(body);
        if let Some(byte) = out.get_mut(at) {
            *byte ^= 1 << rng.below(8);
        }
    }
}

/// Replaces a word, which may be a count, a length, an offset or an identifier, by a number that programs often handle
/// wrongly.
fn set_word(rng: &mut Rng, out: &mut [u8], start: usize, body: usize) {
    let at = start + HEADER + 4 * rng.below(body / 4);
    let word = match rng.below(3) {
        0 => (body / 4) as u32,
        _ => rng.odd_number() as u32,
    };
    if let Some(place) = out.get_mut(at..at + 4) {
        place.copy_from_slice(&word.to_be_bytes());
    }
}

fn repeat(rng: &mut Rng, out: &mut Vec<u8>, start: usize, body: usize) {
    let from = start + HEADER + rng.below(body);
    let piece = out.get(from..).unwrap_or_default().to_vec();
    (0..rng.below(4)).for_each(|_| out.extend_from_slice(&piece));
}

fn set_type(rng: &mut Rng, out: &mut [u8], start: usize) {
    let code = if rng.one_in(4) { rng.word() >> 1 } else { 0x7000 + rng.below(TYPES) as u32 };
    if let Some(place) = out.get_mut(start + 4..start + 8) {
        place.copy_from_slice(&code.to_be_bytes());
    }
}

/// Returns bytes after which the agent cannot find the next PDU.
pub(crate) fn broken_stream(rng: &mut Rng) -> Vec<u8> {
    let header = |len: u32, code: u32| [len.to_be_bytes(), code.to_be_bytes(), [0; 4]].concat();
    match rng.below(5) {
        0 => header(rng.below(12) as u32, 0x7003),
        1 => header(0x8000_0000 | rng.word(), 0x7003),
        2 => header(16, 0x8000_0000 | rng.word()),
        3 => vec![0; 12],
        _ => header(0x7fff_ffff - rng.below(1000) as u32, 0x7001),
    }
}

/// Returns whether a store contains one of these PMIDs.
pub(crate) fn mentions(pdu: &[u8], words: &[u32]) -> bool {
    let body = pdu.get(HEADER..).unwrap_or_default();
    body.as_chunks::<4>().0.iter().any(|chunk| words.contains(&u32::from_be_bytes(*chunk)))
}

/// Parses the header of a PDU.
pub(crate) fn header(pdu: &[u8]) -> Option<Header> {
    Header::parse(pdu).ok().flatten()
}

#[cfg(test)]
mod tests {
    use pcp_pdu::Header;

    use super::*;

    #[test]
    fn damaged_pdus_are_framed_and_broken_streams_are_not() {
        let mut rng = Rng::of(1, 0);
        let mut out = Vec::new();
        for _ in 0..10_000 {
            let start = out.len();
            out.extend_from_slice(&[0, 0, 0, 20, 0, 0, 0x70, 4, 0, 0, 0, 0, 0x3f, 0x40, 0, 1, 1, 2, 3, 4]);
            damage(&mut rng, &mut out, start);
            let header = Header::parse(&out[start..]).unwrap().unwrap();
            assert_eq!(header.len as usize, out.len() - start);
            let broken = broken_stream(&mut rng);
            // The last kind has a valid header, but most of the PDU never arrives.
            assert!(Header::parse(&broken).is_err() || broken[0] == 0x7f);
        }
    }
}
