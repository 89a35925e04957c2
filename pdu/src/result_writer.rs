//! Builds a RESULT PDU in place.

use super::codec::MAX_LEN;
use super::result::{BLOCK_HEAD, Changes, Format, MAX_PAYLOAD, inst_word};
use super::{HEADER, Header, PduType};
use pmapi::id::OptionWord as _;
use pmapi::{Atom, Error, Inst, PmId, Result, Type};

/// Builds a RESULT PDU: value sets in order, values in order.
///
/// A set's list of values holds offsets of value blocks from the start of the PDU, which are unknown
/// until the last set is written. So lists and blocks grow side by side, offsets start at the first
/// block, and [`ResultWriter::seal`] adds what stands before it. The memory stays for the next PDU.
#[derive(Debug, Default)]
pub struct ResultWriter {
    lists: Vec<u8>,
    blocks: Vec<u8>,
    /// Where the lists of offsets are: byte offset of the first value, number of values.
    runs: Vec<(usize, usize)>,
    sets: u32,
    set: Option<OpenSet>,
    /// How the values of the open set stand, if they stand in blocks.
    format: Option<Format>,
    /// Instances for [`ResultWriter::repeated`]: a bit for each, or their words.
    seen: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct OpenSet {
    /// Byte offset of the set in `lists`, its values follow at `start + SET_HEAD`.
    start: usize,
    /// Bytes in `blocks` before the set.
    blocks: usize,
}

const RESULT_HEAD: usize = HEADER + 12;
const SET_HEAD: usize = 12;
/// Up to this many bytes, copying them costs less than a system call that gathers two parts.
const WHOLE: usize = 4096;

impl ResultWriter {
    /// An empty one, without memory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives memory back that is far more than the PDU has needed, if it is over `kept` bytes.
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

    /// Starts the set of a metric. Must be followed by [`ResultWriter::end_set`].
    pub fn begin_set(&mut self, pmid: Option<PmId>) {
        let start = self.lists.len();
        let mut head = [0; SET_HEAD];
        head[..4].copy_from_slice(&pmid.word().to_be_bytes());
        self.lists.extend_from_slice(&head);
        self.set = Some(OpenSet { start, blocks: self.blocks.len() });
        self.format = None;
    }

    /// Values in the set so far.
    pub fn count(&self) -> usize {
        self.set.map_or(0, |set| (self.lists.len() - set.start - SET_HEAD) / 8)
    }

    /// An instance that has several values in the set, `Some(None)` for a singular metric that has. In time and
    /// memory proportional to the values; those of ascending instances are only looked through.
    pub fn repeated(&mut self) -> Option<Option<Inst>> {
        let list = self.lists.get(self.set?.start + SET_HEAD..).unwrap_or_default();
        let words = list.as_chunks::<8>().0.iter().map(|pair| (u64::from_be_bytes(*pair) >> 32) as u32);
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

    /// Bytes of the PDU so far.
    pub fn len(&self) -> usize {
        self.lists.len() + self.blocks.len()
    }

    /// Whether no PDU has been started.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes room for values that are about to come.
    pub fn reserve(&mut self, values: usize) {
        self.lists.reserve(values.saturating_mul(8));
    }

    /// Adds a value. `ty` is the metric's type, `atom` must be of that type. `PM_ERR_TOOBIG` when it
    /// does not fit into a value block, `PM_ERR_TYPE` when the types differ; nothing is added then.
    // Inlined, a caller whose values are all of one type has the code for that type alone.
    #[inline]
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

    /// Adds the reference to a block that comes at the end of `blocks`.
    #[inline]
    fn reference(&mut self, inst: Option<Inst>, format: Format) {
        let offset = self.blocks.len() / 4;
        self.in_situ(inst, offset as u32);
        self.format = Some(format);
    }

    #[inline]
    fn fixed<const N: usize>(&mut self, inst: Option<Inst>, ty: Type, payload: [u8; N]) {
        self.reference(inst, Format::Dynamic);
        let head = block_head(ty, N);
        // One append of head and payload together: this is the hot path of 64-bit values.
        let mut block = [0; 12];
        block[..BLOCK_HEAD].copy_from_slice(&head.to_be_bytes());
        block[BLOCK_HEAD..BLOCK_HEAD + N].copy_from_slice(&payload);
        self.blocks.extend_from_slice(&block[..BLOCK_HEAD + N]);
    }

    /// `text` ends with NUL, which the payload does not have.
    fn block(&mut self, inst: Option<Inst>, ty: Type, payload: &[u8], text: bool) -> Result {
        let len = payload.len() + usize::from(text);
        if len > MAX_PAYLOAD {
            return Err(Error::TOOBIG);
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
        // End and padding are a part of one word: faster than two parts of any length.
        self.blocks.extend_from_slice(if text { b"\0~~~" } else { b"~~~~" });
        self.blocks.truncate(after);
        Ok(())
    }

    /// Ends the set. `status` counts when it has no value: an error, or simply none.
    pub fn end_set(&mut self, status: Result) {
        let count = self.count();
        let Some(set) = self.set.take() else { return };
        self.sets += 1;
        let head = set.start + 4..set.start + SET_HEAD;
        if count == 0 {
            let numval = status.map_or_else(Error::code, |()| 0);
            self.lists[head][..4].copy_from_slice(&numval.to_be_bytes());
            self.lists.truncate(set.start + 8);
            return;
        }
        let word = (count as u64) << 32 | u64::from(self.format.unwrap_or(Format::InSitu).code());
        self.lists[head].copy_from_slice(&word.to_be_bytes());
        if self.format.is_some() {
            self.runs.push((set.start + SET_HEAD, count));
        }
    }

    /// Ends the set with an error; values that it had are taken back.
    pub fn fail_set(&mut self, error: Error) {
        if let Some(set) = self.set {
            self.lists.truncate(set.start + SET_HEAD);
            self.blocks.truncate(set.blocks);
        }
        self.end_set(Err(error));
    }

    /// Completes the PDU: its two parts, to be sent one after the other; a short PDU comes whole in
    /// the first. `PM_ERR_TOOBIG` when it is longer than a PDU can be.
    pub fn seal(&mut self, from: i32, changes: Changes) -> Result<(&[u8], &[u8])> {
        let base = self.lists.len() / 4;
        let len = self.lists.len() + self.blocks.len();
        let len = i32::try_from(len).ok().filter(|&len| len <= MAX_LEN).ok_or(Error::TOOBIG)?;
        for &(start, count) in &self.runs {
            let pairs = self.lists.get_mut(start..).unwrap_or_default().as_chunks_mut::<8>().0;
            for pair in pairs.iter_mut().take(count) {
                // The sum stays within the lower word: the PDU has less than 2^29 words.
                *pair = (u64::from_be_bytes(*pair) + base as u64).to_be_bytes();
            }
        }
        let header = Header { len: len as u32, pdu: PduType::RESULT, from };
        if let Some((head, rest)) = self.lists.split_first_chunk_mut::<HEADER>() {
            *head = header.to_bytes();
            if let Some(state) = rest.first_chunk_mut::<12>() {
                state[..4].copy_from_slice(&u32::from(changes.0).to_be_bytes());
                state[8..].copy_from_slice(&self.sets.to_be_bytes());
            }
        }
        if self.blocks.len() <= WHOLE {
            self.lists.append(&mut self.blocks);
        }
        Ok(self.parts())
    }

    /// The two parts of the PDU that [`ResultWriter::seal`] has completed last.
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
}
