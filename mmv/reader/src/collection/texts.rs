//! Strings of values. A metric may have very many, so those that follow one another in a file are read together.

use std::fs;
use std::io;

use crate::format::STRING_LEN;
use crate::reader::read_at;

/// Largest number of bytes that are read together.
const MOST: usize = 64 << 10;

/// Adjacent strings of a file, as a fetch has read them.
#[derive(Debug, Default)]
pub(super) struct Texts {
    bytes: Vec<u8>,
    /// Offset of the bytes in the file.
    at: u64,
    /// Number of these strings that the fetch has asked for.
    used: usize,
    /// Index of the file in its group.
    source: Option<u32>,
}

impl Texts {
    /// Forgets all strings.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        (self.at, self.used, self.source) = (0, 0, None);
    }

    /// Prepares for the strings of a file of the group.
    pub(super) fn begin(&mut self, source: u32) {
        if self.source != Some(source) {
            self.clear();
            self.source = Some(source);
        }
    }

    /// Returns the string at an offset of a file of `len` bytes, up to its NUL. While strings are read in the order of
    /// the file, with a text of another kind after each at most, each read takes twice as many bytes as the one before.
    ///
    /// # Errors
    /// `UnexpectedEof` if the string is not in the file, and other errors of reading it.
    pub(super) fn read(&mut self, file: &fs::File, at: u64, len: u64) -> io::Result<&[u8]> {
        if self.find(at).is_none() {
            let gap = at.checked_sub(self.at + self.bytes.len() as u64);
            let follows =
                gap.is_some_and(|gap| gap <= STRING_LEN as u64) && self.used * 2 * STRING_LEN >= self.bytes.len();
            let wanted = if follows { (2 * self.bytes.len()).clamp(STRING_LEN, MOST) } else { STRING_LEN };
            let wanted = len.saturating_sub(at).min(wanted as u64) as usize;
            (self.at, self.used) = (at, 0);
            self.bytes.resize(wanted, 0);
            let read = read_at(file, &mut self.bytes, at);
            self.bytes.truncate(read.as_ref().map_or(0, |read| *read));
            read?;
        }
        self.used += 1;
        let text = self.find(at).ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok(text.split(|byte| *byte == 0).next().unwrap_or_default())
    }

    fn find(&self, at: u64) -> Option<&[u8]> {
        let start = usize::try_from(at.checked_sub(self.at)?).ok()?;
        self.bytes.get(start..start.checked_add(STRING_LEN)?)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn strings_in_order_take_few_reads_and_others_one_each() {
        let file = tempfile::tempfile().unwrap();
        let text = |n: u64| format!("text {n}").into_bytes();
        let bytes: Vec<u8> = (0..1000).flat_map(|n| [text(n), vec![0; STRING_LEN - text(n).len()]].concat()).collect();
        let len = bytes.len() as u64;
        io::Write::write_all(&mut &file, &bytes).unwrap();
        let mut texts = Texts::default();
        let mut reads = |order: &mut dyn Iterator<Item = u64>| {
            texts.clear();
            let mut starts = Vec::new();
            for n in order {
                assert_eq!(texts.read(&file, n * STRING_LEN as u64, len).unwrap(), text(n));
                starts.push(texts.at);
            }
            starts.dedup();
            starts.len()
        };
        assert_eq!(reads(&mut (0..1000)), 11);
        assert_eq!(reads(&mut (0..1000).step_by(2)), 11);
        assert_eq!(reads(&mut (0..1000).rev()), 1000);
        assert_eq!(reads(&mut (0..500).flat_map(|n| [n, 999 - n])), 1000);
        // Of each read, only the first string is of use.
        texts.clear();
        let (mut at, mut longest) = (0, 0);
        for _ in 0..100 {
            texts.read(&file, at, len).unwrap();
            longest = longest.max(texts.bytes.len());
            at = texts.at + texts.bytes.len() as u64;
        }
        assert_eq!(longest, 4 * STRING_LEN);
        assert!(texts.bytes.capacity() <= MOST);
    }

    #[test]
    fn a_string_beyond_the_end_is_an_error() {
        let file = tempfile::tempfile().unwrap();
        io::Write::write_all(&mut &file, &[b'a'; 3 * STRING_LEN + 7]).unwrap();
        let mut texts = Texts::default();
        for (at, is_inside) in
            [(0, true), (1, true), (256, true), (512, true), (519, true), (520, false), (1000, false)]
        {
            // The file was longer before.
            assert_eq!(texts.read(&file, at, 4096).is_ok(), is_inside, "{at}");
        }
        assert_eq!(texts.read(&file, 768, 775).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        // Another file, in whose place nothing is known of the first one.
        texts.begin(1);
        assert!(texts.read(&tempfile::tempfile().unwrap(), 0, 4096).is_err());
    }
}
