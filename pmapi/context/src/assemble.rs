//! Samples made of single values.

use pcp_client::Sample;
use pcp_pdu::event::Stamp;
use pcp_pdu::result::{RawValue, ValueSets};
use pmapi::{Error, Inst, OptionWord as _, PmId};

/// Writer of value sets: lists, and the blocks that they refer to.
#[derive(Default)]
pub(crate) struct Assembly {
    lists: Vec<u8>,
    blocks: Vec<u8>,
    /// Offsets in `lists` of words that count from the start of the blocks.
    references: Vec<usize>,
    count: usize,
}

const BLOCK_HEAD: usize = 4;

impl Assembly {
    fn word(&mut self, word: u32) {
        self.lists.extend_from_slice(&word.to_be_bytes());
    }

    /// Adds the values of a metric. All of them are in situ, or all of them in blocks.
    pub(crate) fn add<'v>(
        &mut self,
        pmid: PmId,
        values: Result<impl Iterator<Item = (Option<Inst>, RawValue<'v>)>, Error>,
    ) {
        self.count += 1;
        self.word(pmid.word());
        let start = self.lists.len();
        let values = match values {
            Ok(values) => values,
            Err(e) => return self.word(e.code() as u32),
        };
        self.word(0);
        let mut count: u32 = 0;
        for (inst, value) in values {
            if count == 0 {
                self.word(u32::from(matches!(value, RawValue::Block(..))));
            }
            count += 1;
            self.word(inst.word());
            match value {
                RawValue::InSitu(word) => self.word(word),
                RawValue::Block(code, payload) => self.block(code, payload),
            }
        }
        if let Some(head) = self.lists.get_mut(start..start + 4) {
            head.copy_from_slice(&count.to_be_bytes());
        }
    }

    fn block(&mut self, code: u8, payload: &[u8]) {
        self.references.push(self.lists.len());
        self.word((self.blocks.len() / 4) as u32);
        let head = u32::from(code) << 24 | (payload.len() + BLOCK_HEAD) as u32 & 0xff_ffff;
        self.blocks.extend_from_slice(&head.to_be_bytes());
        self.blocks.extend_from_slice(payload);
        self.blocks.resize(self.blocks.len().next_multiple_of(4), 0);
    }

    /// Returns the values as a sample of this time.
    pub(crate) fn sample(mut self, time: Stamp) -> Sample {
        let base = (self.lists.len() / 4) as u32;
        for at in self.references {
            if let Some(word) = self.lists.get_mut(at..at + 4) {
                let offset = word.iter().fold(0_u32, |sum, byte| sum << 8 | u32::from(*byte));
                word.copy_from_slice(&(base + offset).to_be_bytes());
            }
        }
        self.lists.append(&mut self.blocks);
        Sample::at(time, ValueSets::unchecked(&self.lists, 0, self.count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pmapi::{Atom, Type};

    #[test]
    fn values_come_back() {
        let pmid = |word| PmId::from_word(word).unwrap();
        let mut assembly = Assembly::default();
        let text = (Some(Inst::new(7)), RawValue::Block(6, b"abcde\0"));
        assembly.add(pmid(1), Ok([text, (Some(Inst::new(3)), RawValue::Block(6, b""))].into_iter()));
        assembly.add(pmid(2), Err::<std::iter::Empty<_>, _>(Error::VALUE));
        assembly.add(pmid(3), Ok([(None, RawValue::InSitu(9))].into_iter()));
        assembly.add(pmid(4), Ok(std::iter::empty()));
        let time = Stamp { seconds: 5, nanoseconds: 6 };
        let mut sample = assembly.sample(time);
        assert_eq!((sample.time(), sample.len()), (time, 4));
        let texts = |sample: &Sample| {
            let set = sample.set(0).unwrap();
            set.values()
                .map(|(inst, value)| (inst.word(), value.atom(Type::String).unwrap().to_string()))
                .collect::<Vec<_>>()
        };
        assert_eq!(texts(&sample), [(7, "\"abcde\"".to_owned()), (3, "\"\"".to_owned())]);
        sample.sort_instances();
        assert_eq!(texts(&sample), [(3, "\"\"".to_owned()), (7, "\"abcde\"".to_owned())]);
        assert_eq!(sample.set(1).unwrap().error, Some(Error::VALUE));
        let nine = sample.set(2).unwrap().values().next().unwrap();
        assert_eq!((nine.0, nine.1.atom(Type::U32)), (None, Ok(Atom::U32(9))));
        assert!(sample.set(3).unwrap().is_empty() && sample.set(3).unwrap().error.is_none());
    }
}
