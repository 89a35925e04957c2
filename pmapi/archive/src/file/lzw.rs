//! Files of compress(1), with the suffix `.Z`.
//!
//! Each code means a string. Codes 0 to 255 mean single bytes. Each later code means the string of the previous code in
//! the file, and the first byte of the string that follows. Codes first have 9 bits, and become wider as the table
//! fills up. They come in groups of eight; the rest of a group is unused when the width changes.

use std::io::{self, BufRead};

const MAGIC: [u8; 2] = [0x1f, 0x9d];
/// Flag for files whose code 256 clears the table.
const CLEARS: u8 = 0x80;
/// Flags that no compress(1) writes.
const RESERVED: u8 = 0x60;
const CLEAR: u16 = 256;
const LEAST_BITS: u32 = 9;
const MOST_BITS: u32 = 16;

/// Decoder of a file of compress(1).
pub(super) struct Lzw<R> {
    from: R,
    most_bits: u32,
    clears: bool,
    /// Bits that have been read, the next one in the lowest place, and their number.
    bits: u64,
    have: u32,
    /// Width of a code, and the number of codes read with this width so far.
    width: u32,
    codes: u32,
    /// Table by code: the code of the string without its last byte, and the last byte.
    table: Vec<(u16, u8)>,
    /// Previous code, and the first byte of its string.
    before: Option<(u16, u8)>,
    /// Bytes of the last string that have not been returned yet, in reverse.
    pending: Vec<u8>,
}

fn invalid(reason: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

impl<R: BufRead> Lzw<R> {
    /// Reads the head of a file.
    ///
    /// # Errors
    /// `InvalidData` for a head that compress(1) does not write.
    pub(super) fn new(mut from: R) -> io::Result<Lzw<R>> {
        let mut head = [0; 3];
        from.read_exact(&mut head)?;
        let [first, second, flags] = head;
        let most_bits = u32::from(flags & 0x1f);
        if [first, second] != MAGIC || flags & RESERVED != 0 || !(LEAST_BITS..=MOST_BITS).contains(&most_bits) {
            return Err(invalid("this is not a file of compress(1)".to_owned()));
        }
        let mut new = Lzw {
            from,
            most_bits,
            clears: flags & CLEARS != 0,
            bits: 0,
            have: 0,
            width: LEAST_BITS,
            codes: 0,
            table: (0..=u8::MAX).map(|byte| (0, byte)).collect(),
            before: None,
            pending: Vec::new(),
        };
        if new.clears {
            // Code 256 is no string.
            new.table.push((0, 0));
        }
        Ok(new)
    }

    /// Reads a number of `width` bits; `None` at the end.
    fn number(&mut self, width: u32) -> io::Result<Option<u16>> {
        while self.have < width {
            let Some(byte) = self.from.fill_buf()?.first().copied() else { return Ok(None) };
            self.from.consume(1);
            self.bits |= u64::from(byte) << self.have;
            self.have += 8;
        }
        let number = self.bits & ((1 << width) - 1);
        (self.bits, self.have) = (self.bits >> width, self.have - width);
        Ok(Some(number as u16))
    }

    /// Skips the rest of a group of codes, and continues with another width.
    fn set_width(&mut self, width: u32) -> io::Result<()> {
        let unused = self.codes.next_multiple_of(8) - self.codes;
        for _ in 0..unused {
            self.number(self.width)?;
        }
        (self.width, self.codes) = (width, 0);
        Ok(())
    }

    fn code(&mut self) -> io::Result<Option<u16>> {
        if self.table.len() > (1 << self.width) - 1 && self.width < self.most_bits {
            self.set_width(self.width + 1)?;
        }
        let code = self.number(self.width)?;
        self.codes = (self.codes + 1) % 8;
        Ok(code)
    }

    /// Decodes the next string; returns whether there is one.
    fn string(&mut self) -> io::Result<bool> {
        let mut code = loop {
            let Some(code) = self.code()? else { return Ok(false) };
            if !(self.clears && code == CLEAR) {
                break code;
            }
            self.set_width(LEAST_BITS)?;
            // The entry after the next code, which is number 256, is never used.
            self.table.truncate(CLEAR.into());
        };
        let read = code;
        let Some((before, first)) = self.before else {
            let byte = u8::try_from(code).map_err(|_| invalid(format!("the first code is {code}, not a byte")))?;
            self.pending.push(byte);
            self.before = Some((code, byte));
            return Ok(true);
        };
        let next = self.table.len();
        if usize::from(code) >= next {
            // The only missing code can be the one that this code adds.
            if usize::from(code) > next || next >= 1 << self.most_bits {
                return Err(invalid(format!("code {code}, but the table has {next}")));
            }
            self.pending.push(first);
            code = before;
        }
        let first = loop {
            let &(shorter, last) = self.table.get(usize::from(code)).unwrap_or(&(0, 0));
            self.pending.push(last);
            if code < CLEAR {
                break last;
            }
            code = shorter;
        };
        if next < 1 << self.most_bits {
            self.table.push((before, first));
        }
        self.before = Some((read, first));
        Ok(true)
    }
}

impl<R: BufRead> io::Read for Lzw<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while let Some(rest) = to.get_mut(done..).filter(|rest| !rest.is_empty()) {
            if self.pending.is_empty() && !self.string()? {
                break;
            }
            let count = rest.len().min(self.pending.len());
            let bytes = self.pending.drain(self.pending.len() - count..).rev();
            rest.iter_mut().zip(bytes).for_each(|(to, byte)| *to = byte);
            done += count;
        }
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::io::{Read as _, Write as _};
    use std::process::{Command, Stdio};

    use proptest::prelude::*;

    use super::*;

    struct Encoder {
        out: Vec<u8>,
        bits: u64,
        have: u32,
        width: u32,
        codes: u32,
    }

    impl Encoder {
        fn put(&mut self, code: u16) {
            self.bits |= u64::from(code) << self.have;
            self.have += self.width;
            self.codes += 1;
            self.drain(8);
        }

        fn drain(&mut self, least: u32) {
            while self.have >= least {
                self.out.push(self.bits as u8);
                (self.bits, self.have) = (self.bits >> 8, self.have.saturating_sub(8));
            }
        }

        fn set_width(&mut self, width: u32) {
            while self.codes % 8 != 0 {
                self.put(0);
            }
            (self.width, self.codes) = (width, 0);
        }
    }

    /// Compresses as compress(1) does, and clears the table whenever it has `clear` codes.
    fn compress(bytes: &[u8], most_bits: u32, clear: Option<usize>) -> Vec<u8> {
        let head = vec![0x1f, 0x9d, most_bits as u8 | if clear.is_some() { CLEARS } else { 0 }];
        let mut to = Encoder { out: head, bits: 0, have: 0, width: LEAST_BITS, codes: 0 };
        let mut table = HashMap::<(u16, u8), u16>::new();
        let first_free = if clear.is_some() { 257 } else { 256 };
        let (mut free, mut string) = (first_free, None::<u16>);
        for byte in bytes {
            let Some(known) = string else {
                string = Some((*byte).into());
                continue;
            };
            if let Some(longer) = table.get(&(known, *byte)) {
                string = Some(*longer);
                continue;
            }
            to.put(known);
            string = Some((*byte).into());
            if free < 1 << most_bits {
                table.insert((known, *byte), free as u16);
                free += 1;
            }
            // The decoder adds its entries one code later.
            if free > 1 << to.width && to.width < most_bits {
                to.set_width(to.width + 1);
            }
            if clear.is_some_and(|clear| free >= clear) {
                to.put(CLEAR);
                to.set_width(LEAST_BITS);
                table.clear();
                free = first_free;
            }
        }
        string.into_iter().for_each(|code| to.put(code));
        to.drain(1);
        to.out
    }

    fn decompress(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        Lzw::new(bytes)?.read_to_end(&mut out).map(|_| out)
    }

    /// Returns `count` numbers as text, in which strings repeat.
    fn text(count: u32) -> Vec<u8> {
        let words = (0..count).map(|nth| nth.wrapping_mul(nth) % 1013);
        words.flat_map(|number| format!("{number} ").into_bytes()).collect()
    }

    /// The decoded files equal those of gzip(1), which cannot read long files of `compress -b 9`.
    #[test]
    fn as_gzip_reads_it() {
        for (most_bits, clear) in [(16, None), (16, Some(30_000)), (12, Some(4096)), (10, None), (9, Some(300))] {
            for bytes in [vec![], b"a".to_vec(), vec![7; 3000], text(100), text(60_000)] {
                let compressed = compress(&bytes, most_bits, clear);
                let what = format!("{most_bits} bits, {clear:?}, {} bytes", bytes.len());
                assert!(decompress(&compressed).unwrap() == bytes, "{what}");
                let mut gzip =
                    Command::new("gzip").arg("-dc").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
                let mut stdin = gzip.stdin.take().unwrap();
                let writer = std::thread::spawn(move || _ = stdin.write_all(&compressed));
                let output = gzip.wait_with_output().unwrap();
                writer.join().unwrap();
                assert!(bytes.is_empty() || output.stdout == bytes, "{what}: gzip has {} bytes", output.stdout.len());
            }
        }
    }

    #[test]
    fn damage() {
        let mut bytes = compress(b"abababab", 16, None);
        assert_eq!(decompress(&bytes[..2]).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        // The second code is 511.
        bytes[4..6].copy_from_slice(&[0xfe, 3]);
        assert_eq!(decompress(&bytes).unwrap_err().to_string(), "code 511, but the table has 256");
        bytes[4] = 1;
        assert_eq!(decompress(&bytes).unwrap_err().to_string(), "the first code is 353, not a byte");
        bytes[2] = 17;
        assert_eq!(decompress(&bytes).unwrap_err().to_string(), "this is not a file of compress(1)");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn random(bytes in prop::collection::vec(0..4_u8, 0..3000), most_bits in 9..17_u32, clear in prop::option::of(258..700_usize)) {
            let clear = clear.map(|clear| clear.min(1 << most_bits));
            prop_assert_eq!(decompress(&compress(&bytes, most_bits, clear)).unwrap(), bytes);
        }

        /// A panic or an endless loop fails the test.
        #[test]
        fn mutations(flags in 9..17_u8, clears: bool, bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
            let head = vec![0x1f, 0x9d, flags | if clears { CLEARS } else { 0 }];
            _ = decompress(&[head, bytes].concat());
        }
    }
}
