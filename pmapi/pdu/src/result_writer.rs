//! Encoding of `RESULT` PDUs.

use memchr::memchr;

use super::frame::MAX_LEN;
use super::result::{BLOCK_HEAD, Changes, Format, MAX_PAYLOAD, inst_word};
use super::{HEADER, Header, PduType};
use pmapi::{Atom, Error, Inst, OptionWord as _, PmId, Result, Type};

/// Writer of a `RESULT` PDU: value sets in order, values in order.
///
/// A set's list of values has offsets of value blocks from the start of the PDU, which are unknown until the last set
/// is written. So lists and blocks grow side by side, and offsets assume that the lists will be as long as those of the
/// last PDU. [`ResultWriter::seal`] corrects them if the length is different. The memory is reused for the next PDU.
#[derive(Debug, Default)]
pub struct ResultWriter {
    lists: Vec<u8>,
    blocks: Vec<u8>,
    /// Lists with offsets: byte offset of the first value, number of values.
    runs: Vec<(usize, usize)>,
    /// Length of the lists that offsets assume, in words.
    base: u32,
    sets: u32,
    set: Option<OpenSet>,
    /// Encoding of the last value in a block. Either all values of a set are in blocks, or none of them.
    format: Format,
    /// Scratch memory of [`ResultWriter::repeated`]: a bit for each instance, or the instances' words.
    seen: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct OpenSet {
    /// Byte offset of the set in `lists`; its values begin at `start + SET_HEAD`.
    start: usize,
    /// Length of `blocks` before the set, in bytes.
    blocks: usize,
}

const RESULT_HEAD: usize = HEADER + 12;
const SET_HEAD: usize = 12;
/// Longest PDU in one part, in bytes: up to this length, copying costs less than a system call that gathers two parts.
const WHOLE: usize = 4096;

impl ResultWriter {
    /// Creates an empty writer without memory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Frees memory over `kept` bytes if the PDU has needed far less.
    pub fn give_back(&mut self, kept: usize) {
        for part in [&mut self.lists, &mut self.blocks] {
            if part.capacity() > kept && part.len() < part.capacity() / 16 {
                part.shrink_to(kept);
            }
        }
    }

    /// Starts a PDU.
    pub fn begin(&mut self) {
        self.lists.clear();
        self.lists.resize(RESULT_HEAD, 0);
        self.blocks.clear();
        self.runs.clear();
        self.sets = 0;
        self.set = None;
    }

    /// Starts the value set of a metric, which [`ResultWriter::end_set`] must end.
    #[inline]
    pub fn begin_set(&mut self, pmid: Option<PmId>) {
        let start = self.lists.len();
        // The number of values and their format, for a single value in the list, which most metrics have. `end_set`
        // corrects them for other metrics.
        let mut head = [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, Format::InSitu.code() as u8];
        head[..4].copy_from_slice(&pmid.word().to_be_bytes());
        self.lists.extend_from_slice(&head);
        self.set = Some(OpenSet { start, blocks: self.blocks.len() });
    }

    /// Returns the number of values in the open set.
    pub fn count(&self) -> usize {
        self.set.map_or(0, |set| (self.lists.len() - set.start - SET_HEAD) / 8)
    }

    /// Returns an instance with several values in the open set; `Some(None)` for a singular metric with several values.
    ///
    /// Needs time and memory proportional to the number of values, and no memory for ascending instances.
    #[inline]
    pub fn repeated(&mut self) -> Option<Option<Inst>> {
        if self.count() < 2 { None } else { self.repeated_of_many() }
    }

    fn repeated_of_many(&mut self) -> Option<Option<Inst>> {
        let list = self.lists.get(self.set?.start + SET_HEAD..).unwrap_or_default();
        let words = list.chunks_exact(8).map(|pair| u32::from_be_bytes([pair[0], pair[1], pair[2], pair[3]]));
        if words.clone().is_sorted_by(|a, b| a < b) {
            return None;
        }
        self.seen.clear();
        let most = words.clone().max()? as usize;
        if most / 8 < list.len() {
            self.seen.resize(most / 32 + 1, 0);
            let mut bits = words.filter(|&word| match self.seen.get_mut(word as usize / 32) {
                Some(bits) => {
                    *bits & 1 << (word % 32) != 0 || {
                        *bits |= 1 << (word % 32);
                        false
                    }
                }
                None => false,
            });
            return bits.next().map(Inst::from_word);
        }
        self.seen.extend(words);
        self.seen.sort_unstable();
        let mut pairs = self.seen.iter().zip(self.seen.iter().skip(1));
        pairs.find(|(a, b)| a == b).map(|(word, _)| Inst::from_word(*word))
    }

    /// Returns the number of bytes of the PDU so far.
    pub fn len(&self) -> usize {
        self.lists.len() + self.blocks.len()
    }

    /// Returns whether no PDU has been started.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reserves memory for a number of values.
    pub fn reserve(&mut self, values: usize) {
        self.lists.reserve(values.saturating_mul(8));
    }

    /// Adds a value. `ty` is the metric's type, and `atom` must have this type.
    ///
    /// # Errors
    /// `PM_ERR_TOOBIG` for a value that does not fit into a value block, `PM_ERR_TYPE` for another type, and
    /// `PM_ERR_CONV` for a text with a NUL byte, which would end it. After an error, nothing has been added.
    // Always inlined, so that a caller whose values all have one type gets code for that type alone.
    #[inline(always)]
    pub fn push(&mut self, inst: Option<Inst>, ty: Type, atom: Atom<'_>) -> Result {
        match (ty, atom) {
            (Type::I32, Atom::I32(v)) => self.in_situ(inst, v as u32),
            (Type::U32, Atom::U32(v)) => self.in_situ(inst, v),
            (Type::I64, Atom::I64(v)) => self.fixed(inst, ty, v.to_be_bytes()),
            (Type::U64, Atom::U64(v)) => self.fixed(inst, ty, v.to_be_bytes()),
            (Type::Double, Atom::Double(v)) => self.fixed(inst, ty, v.to_be_bytes()),
            (Type::Float, Atom::Float(v)) => self.fixed(inst, ty, v.to_be_bytes()),
            (Type::String, Atom::String(v)) => return self.block(inst, ty, v, true),
            (Type::Aggregate | Type::AggregateStatic, Atom::Aggregate(v)) => return self.block(inst, ty, v, false),
            (Type::Event, Atom::Event(v)) => return self.block(inst, ty, v, false),
            (Type::HighResEvent, Atom::HighResEvent(v)) => return self.block(inst, ty, v, false),
            _ => return Err(Error::TYPE),
        }
        Ok(())
    }

    #[inline]
    fn in_situ(&mut self, inst: Option<Inst>, word: u32) {
        let pair = u64::from(inst_word(inst)) << 32 | u64::from(word);
        self.lists.extend_from_slice(&pair.to_be_bytes());
    }

    /// Adds the reference to a block that is appended next.
    #[inline]
    fn reference(&mut self, inst: Option<Inst>, format: Format) {
        self.in_situ(inst, self.base + (self.blocks.len() / 4) as u32);
        self.format = format;
    }

    #[inline]
    fn fixed<const N: usize>(&mut self, inst: Option<Inst>, ty: Type, payload: [u8; N]) {
        self.reference(inst, Format::Dynamic);
        let head = block_head(ty, N);
        // Head and payload in one append: this is the hot path of 64-bit values.
        let mut block = [0; 12];
        block[..BLOCK_HEAD].copy_from_slice(&head.to_be_bytes());
        block[BLOCK_HEAD..BLOCK_HEAD + N].copy_from_slice(&payload);
        self.blocks.extend_from_slice(&block[..BLOCK_HEAD + N]);
    }

    /// Adds a value block. `text` adds a terminating NUL, which `payload` does not have.
    // Not inlined, so that `push` may be.
    #[inline(never)]
    fn block(&mut self, inst: Option<Inst>, ty: Type, payload: &[u8], text: bool) -> Result {
        let len = payload.len() + usize::from(text);
        if len > MAX_PAYLOAD {
            return Err(Error::TOOBIG);
        }
        if text && memchr(0, payload).is_some() {
            return Err(Error::CONV);
        }
        let format = match ty {
            Type::AggregateStatic | Type::Event | Type::HighResEvent => Format::Static,
            _ => Format::Dynamic,
        };
        self.reference(inst, format);
        let after = (self.blocks.len() + BLOCK_HEAD + len).next_multiple_of(4);
        self.blocks.reserve(BLOCK_HEAD + len + 4);
        self.blocks.extend_from_slice(&block_head(ty, len).to_be_bytes());
        self.blocks.extend_from_slice(payload);
        // Part of a constant word, because that is faster than NUL and padding of variable length.
        self.blocks.extend_from_slice(if text { b"\0~~~" } else { b"~~~~" });
        self.blocks.truncate(after);
        Ok(())
    }

    /// Ends the value set. If it has no values, `status` is sent: an error, or the number 0.
    #[inline]
    pub fn end_set(&mut self, status: Result) {
        let count = self.count();
        let Some(set) = self.set.take() else { return };
        self.sets += 1;
        let is_in_blocks = self.blocks.len() > set.blocks;
        if count != 1 || is_in_blocks {
            self.correct_head(set, count, is_in_blocks, status);
        }
    }

    /// Writes the number and format of the values of a set, unless it has a single value in the list.
    fn correct_head(&mut self, set: OpenSet, count: usize, is_in_blocks: bool, status: Result) {
        let head = self.lists.get_mut(set.start + 4..).and_then(|list| list.first_chunk_mut::<8>());
        let Some(head) = head else { return };
        if count == 0 {
            let numval = status.map_or_else(Error::code, |()| 0);
            head[..4].copy_from_slice(&numval.to_be_bytes());
            self.lists.truncate(set.start + 8);
            return;
        }
        let format = if is_in_blocks { self.format } else { Format::InSitu };
        *head = ((count as u64) << 32 | u64::from(format.code())).to_be_bytes();
        if is_in_blocks {
            self.runs.push((set.start + SET_HEAD, count));
        }
    }

    /// Ends the value set with an error, and removes its values.
    pub fn fail_set(&mut self, error: Error) {
        if let Some(set) = self.set {
            self.lists.truncate(set.start + SET_HEAD);
            self.blocks.truncate(set.blocks);
        }
        self.end_set(Err(error));
    }

    /// Completes the PDU and returns its two parts, to be sent one after the other. A short PDU is wholly in the first
    /// part.
    ///
    /// # Errors
    /// `PM_ERR_TOOBIG` for a PDU over [`MAX_LEN`] bytes.
    pub fn seal(&mut self, from: i32, changes: Changes) -> Result<(&[u8], &[u8])> {
        let base = (self.lists.len() / 4) as u32;
        let len = self.lists.len() + self.blocks.len();
        let len = i32::try_from(len).ok().filter(|&len| len <= MAX_LEN).ok_or(Error::TOOBIG)?;
        // The sum stays within the lower word: it is the offset of a block, and the PDU has less than 2^29 words.
        let correction = i64::from(base) - i64::from(self.base);
        let runs = if correction == 0 { &[] } else { &*self.runs };
        for &(start, count) in runs {
            let pairs = self.lists.get_mut(start..).unwrap_or_default().chunks_exact_mut(8);
            for pair in pairs.take(count) {
                let word = u64::from_be_bytes((&*pair).try_into().unwrap_or_default());
                let sum = word.wrapping_add_signed(correction);
                pair.copy_from_slice(&sum.to_be_bytes());
            }
        }
        self.base = base;
        let header = Header { len: len as u32, pdu: PduType::RESULT, from };
        if let Some((head, rest)) = self.lists.split_first_chunk_mut::<HEADER>() {
            *head = header.to_bytes();
            if let Some(state) = rest.first_chunk_mut::<12>() {
                state[..4].copy_from_slice(&u32::from(changes.bits()).to_be_bytes());
                state[8..].copy_from_slice(&self.sets.to_be_bytes());
            }
        }
        if self.blocks.len() <= WHOLE {
            self.lists.append(&mut self.blocks);
        }
        Ok(self.parts())
    }

    /// Returns the two parts of the PDU that [`ResultWriter::seal`] has completed last.
    pub fn parts(&self) -> (&[u8], &[u8]) {
        (&self.lists, &self.blocks)
    }
}

const fn block_head(ty: Type, payload: usize) -> u32 {
    (ty.code() as u32) << 24 | (payload + BLOCK_HEAD) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repeated(writer: &mut ResultWriter, insts: &[u32]) -> Option<u32> {
        writer.begin();
        writer.begin_set(None);
        insts.iter().for_each(|&inst| writer.push(Inst::from_word(inst), Type::U32, Atom::U32(7)).unwrap());
        writer.repeated().map(|inst| inst.map_or(u32::MAX, Inst::word))
    }

    #[test]
    fn instances_with_several_values() {
        let mut writer = ResultWriter::new();
        let far = i32::MAX as u32;
        for (insts, found) in [
            (&[][..], None),
            (&[u32::MAX], None),
            (&[u32::MAX, u32::MAX], Some(u32::MAX)),
            (&[1, 2, 40], None),
            (&[1, 1], Some(1)),
            (&[40, 2, 31, 32, 0], None),
            (&[40, 2, 31, 32, 2, 0], Some(2)),
            (&[far, 3, 0], None),
            (&[far, 3, far], Some(far)),
            (&[3, far, 3], Some(3)),
        ] {
            assert_eq!(repeated(&mut writer, insts), found, "{insts:?}");
        }
        let mut many: Vec<u32> = (0..1000).rev().collect();
        assert_eq!(repeated(&mut writer, &many), None);
        many.push(999);
        assert_eq!(repeated(&mut writer, &many), Some(999));
        many.push(far);
        assert_eq!(repeated(&mut writer, &many), Some(999));
    }

    #[test]
    fn an_answer_is_the_same_whatever_the_one_before_was() {
        let answer = |writer: &mut ResultWriter, values: u32| {
            writer.begin();
            for pmid in 0..3 {
                writer.begin_set(PmId::from_word(pmid));
                for inst in 0..values * pmid {
                    writer.push(Inst::from_word(inst), Type::U64, Atom::U64(u64::MAX - u64::from(inst))).unwrap();
                    writer.push(Inst::from_word(inst), Type::String, Atom::String(b"text")).unwrap();
                }
                writer.end_set(Ok(()));
            }
            let (lists, blocks) = writer.seal(0, Changes::default()).unwrap();
            [lists, blocks].concat()
        };
        let [few, many] = [2, 1000].map(|values| answer(&mut ResultWriter::new(), values));
        let mut writer = ResultWriter::new();
        for base in [0, 1, MAX_LEN as u32 / 4] {
            writer.base = base;
            for (values, expected) in [(2, &few), (2, &few), (1000, &many), (1000, &many), (2, &few)] {
                assert!(answer(&mut writer, values) == *expected, "{values} {base}");
            }
        }
    }
}
