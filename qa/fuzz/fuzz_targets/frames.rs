//! A stream in pieces gives the same PDUs as the whole stream, with memory in proportion to the bytes that have
//! arrived.
//!
//! `./seed && cargo +nightly fuzz run --fuzz-dir . frames` in `qa/fuzz`. The first byte of an input is the size of the pieces.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pcp_pdu::{FrameError, Frames, Header};

fuzz_target!(|input: &[u8]| {
    let Some((&size, stream)) = input.split_first() else { return };
    let (pdus, end) = split(stream);
    let mut pdus = pdus.into_iter();
    let mut frames = Frames::new();
    let mut arrived = 0;
    for piece in stream.chunks(usize::from(size).max(1)) {
        let mut rest = piece;
        while !rest.is_empty() {
            let space = frames.space();
            let n = space.len().min(rest.len());
            assert!(n > 0 && space.len() <= 2 * (arrived + n) + (1 << 14), "{} after {arrived}", space.len());
            space[..n].copy_from_slice(&rest[..n]);
            frames.filled(n);
            rest = &rest[n..];
            arrived += n;
        }
        loop {
            match frames.next_pdu() {
                Ok(Some((header, bytes))) => {
                    assert_eq!((header.len as usize, Some(bytes)), (bytes.len(), pdus.next()));
                }
                Ok(None) => break,
                Err(e) => {
                    assert_eq!((pdus.next(), end), (None, Err(e)));
                    return;
                }
            }
        }
    }
    assert_eq!((pdus.next(), end), (None, Ok(frames.pending())));
});

/// Returns the PDUs of a whole stream, and the number of bytes after the last whole PDU.
fn split(mut stream: &[u8]) -> (Vec<&[u8]>, Result<usize, FrameError>) {
    let mut pdus = Vec::new();
    loop {
        let pdu = match Header::parse(stream) {
            Ok(header) => header.and_then(|header| stream.split_at_checked(header.len as usize)),
            Err(e) => return (pdus, Err(e)),
        };
        let Some((pdu, rest)) = pdu else { return (pdus, Ok(stream.len())) };
        pdus.push(pdu);
        stream = rest;
    }
}
