//! Texts of values that are the same in several records.

use std::hash::BuildHasher as _;
use std::io;

use hashbrown::DefaultHashBuilder;
use pcp_pdu::result::ValueSet;

use crate::out::Out;

/// Largest size of what is kept of all metrics together, in bytes.
const MOST: usize = 16 << 20;

/// Memory that may still be used for values and texts that are kept, and the hasher of values.
pub(crate) struct Left {
    bytes: usize,
    hasher: DefaultHashBuilder,
}

impl Default for Left {
    fn default() -> Left {
        Left { bytes: MOST, hasher: DefaultHashBuilder::default() }
    }
}

/// Values of a metric in the last record, and their text. Many metrics have the same values in each record.
#[derive(Default)]
pub(crate) struct Repeat {
    state: State,
    /// Number of the record with the instances of the metric's domain, which has their names.
    names: Option<usize>,
    kept: Option<Box<Kept>>,
}

/// Values, and their text.
#[derive(Default)]
struct Kept {
    /// The encoded values: their words, and then their blocks.
    values: Vec<u8>,
    /// Number of bytes of the words.
    words: usize,
    text: Vec<u8>,
}

/// What is known of the last values.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Nothing,
    /// Their hash.
    Hash(u64),
    /// Their hash, which was that of the values before, too. Values and text are kept when it comes again, so that
    /// values that change now and then cost no copies.
    Again(u64),
    /// The values and their text.
    Text,
}

/// Replaces the contents by new ones if there is memory for them. Returns whether there is.
fn replace(kept: &mut Vec<u8>, new: [&[u8]; 2], left: &mut Left) -> bool {
    let len = new.iter().map(|part| part.len()).sum::<usize>();
    kept.clear();
    let more = len.saturating_sub(kept.capacity());
    let Some(rest) = left.bytes.checked_sub(more) else { return false };
    if more > 0 {
        kept.reserve_exact(len);
        left.bytes = rest;
    }
    new.iter().for_each(|part| kept.extend_from_slice(part));
    true
}

/// Compares words and blocks. The C library's comparison of no bytes is slow on some processors, because it loads from
/// the address of the empty slice with an empty mask.
fn is_same(new: (&[u8], &[u8]), kept: (&[u8], &[u8])) -> bool {
    new.0 == kept.0 && new.1.len() == kept.1.len() && (new.1.is_empty() || new.1 == kept.1)
}

impl Repeat {
    /// Appends the text of values: that of the last record if the values are the same, or else the one that `make`
    /// appends.
    pub(crate) fn append(
        &mut self,
        out: &mut Out,
        set: &ValueSet<'_>,
        names: Option<usize>,
        left: &mut Left,
        make: impl FnOnce(&mut Out) -> io::Result<()>,
    ) -> io::Result<()> {
        let Some((words, blocks)) = set.encoded() else {
            self.state = State::Nothing;
            return make(out);
        };
        if let Some(kept) = self.kept.as_ref().filter(|_| self.state == State::Text && self.names == names) {
            if kept.values.split_at_checked(kept.words).is_some_and(|kept| is_same((words, blocks), kept)) {
                out.text.extend_from_slice(&kept.text);
                return Ok(());
            }
        }
        let hash = left.hasher.hash_one((words, blocks));
        let has_names = std::mem::replace(&mut self.names, names) == names;
        let (start, written) = (out.text.len(), out.written);
        make(out)?;
        self.state = match self.state {
            State::Hash(last) if has_names && last == hash => State::Again(hash),
            State::Again(last) if has_names && last == hash && out.written == written => {
                let kept = self.kept.get_or_insert_default();
                kept.words = words.len();
                let is_kept = replace(&mut kept.values, [words, blocks], left)
                    && replace(&mut kept.text, [out.text.get(start..).unwrap_or_default(), &[]], left);
                if is_kept { State::Text } else { State::Again(hash) }
            }
            _ => State::Hash(hash),
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of a value set with values of 32 bits.
    fn bytes(values: &[(u32, u32)]) -> Vec<u8> {
        let mut words = vec![1, values.len() as u32, 0];
        words.extend(values.iter().flat_map(|(inst, value)| [*inst, *value]));
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    #[test]
    fn texts_are_made_when_something_differs() {
        let (mut repeat, mut left, mut out) = (Repeat::default(), Left::default(), Out::new());
        let (one, two) = (bytes(&[(1, 5)]), bytes(&[(1, 6)]));
        let mut made = |bytes: &[u8], names| {
            let (set, _) = ValueSet::at(bytes, 0).unwrap();
            let mut is_made = false;
            let made = repeat.append(&mut out, &set, names, &mut left, |out| {
                is_made = true;
                out.text.push(set.values().count() as u8 + names.unwrap_or_default() as u8);
                Ok(())
            });
            made.unwrap();
            is_made
        };
        for names in [None, Some(1)] {
            let is_made: Vec<_> = (0..5).map(|_| made(&one, names)).collect();
            assert_eq!(is_made, [true, true, true, false, false]);
        }
        assert!(made(&two, Some(1)));
        assert!(made(&one, Some(1)));
        assert_eq!(out.text, [1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2]);
    }

    #[test]
    fn memory_has_a_limit() {
        let (mut repeat, mut left, mut out) = (Repeat::default(), Left { bytes: 16, ..Left::default() }, Out::new());
        let values = bytes(&[(1, 5), (2, 6)]);
        let (set, _) = ValueSet::at(&values, 0).unwrap();
        for _ in 0..5 {
            let add = |out: &mut Out| {
                out.text.extend_from_slice(b"text");
                Ok(())
            };
            repeat.append(&mut out, &set, None, &mut left, add).unwrap();
        }
        assert_eq!((out.text.len(), left.bytes, repeat.kept.map(|kept| kept.text.capacity())), (20, 0, Some(0)));
    }
}
