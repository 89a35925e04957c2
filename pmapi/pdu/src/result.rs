//! The `RESULT` PDU: an agent's values for `FETCH`, and pmcd's request to store values.

use bitflags::bitflags;
use memchr::memchr;

use super::PduType;
use super::codec::{Decoded, Reader};
use pmapi::{Atom, Converted, Error, Inst, OptionWord as _, PmId, Type};

/// Encoding of a value in its set.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Format {
    /// The word is the value (`PM_VAL_INSITU`).
    #[default]
    InSitu,
    /// The word refers to a value block (`PM_VAL_DPTR`).
    Dynamic,
    /// The word refers to a value block, which C agents do not free (`PM_VAL_SPTR`).
    Static,
}

impl Format {
    /// Returns the code of the wire encoding.
    pub const fn code(self) -> u32 {
        self as u32
    }
}

/// Length of a value block's head in bytes.
pub const BLOCK_HEAD: usize = 4;

/// Longest payload of a value block in bytes: its length field has 24 bits and counts the head.
pub const MAX_PAYLOAD: usize = (1 << 24) - 1 - BLOCK_HEAD;

/// `RESULT`: value sets.
#[derive(Clone, Copy, Debug)]
pub struct ResultPdu<'a> {
    /// Seconds of the timestamp; from an agent, changes (see [`Changes`]).
    pub seconds: i32,
    /// Microseconds of the timestamp.
    pub microseconds: i32,
    values: ValueSets<'a>,
}

/// `HIGHRES_RESULT`: value sets with a timestamp in nanoseconds, from pmcd to a client.
#[derive(Clone, Copy, Debug)]
pub struct HighResResult<'a> {
    /// Seconds of the timestamp.
    pub seconds: i64,
    /// Nanoseconds of the timestamp.
    pub nanoseconds: i64,
    /// Value sets of the PDU.
    pub values: ValueSets<'a>,
}

/// Value sets of a PDU.
#[derive(Clone, Copy, Debug)]
pub struct ValueSets<'a> {
    count: usize,
    /// Offset of the first value set in the PDU.
    start: usize,
    pdu: &'a [u8],
}

bitflags! {
    /// Change notification of an agent or of pmcd with the answer to `FETCH` (`PMCD_*_CHANGE`).
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct Changes: u8 {
        /// An agent was added (`PMCD_ADD_AGENT`); only from pmcd.
        const AGENT_ADDED = 1;
        /// An agent was restarted (`PMCD_RESTART_AGENT`); only from pmcd.
        const AGENT_RESTARTED = 2;
        /// An agent was dropped (`PMCD_DROP_AGENT`); only from pmcd.
        const AGENT_DROPPED = 4;
        /// Labels have changed (`PMCD_LABEL_CHANGE`).
        const LABELS = 8;
        /// Names have changed (`PMCD_NAMES_CHANGE`).
        const NAMES = 16;
        /// The host name has changed (`PMCD_HOSTNAME_CHANGE`); only from pmcd.
        const HOST_NAME = 32;
    }
}

/// Values of one metric.
#[derive(Clone, Copy, Debug)]
pub struct ValueSet<'a> {
    /// Identifier of the metric; `None` for `PM_ID_NULL`.
    pub pmid: Option<PmId>,
    /// Error in place of values.
    pub error: Option<Error>,
    format: Format,
    list: &'a [u8],
    pdu: &'a [u8],
}

/// Value in wire encoding, whose type is known only in a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RawValue<'a> {
    /// Value in its set, a word.
    InSitu(u32),
    /// Value in a value block: type code and payload.
    Block(u8, &'a [u8]),
}

impl<'a> ResultPdu<'a> {
    pub(super) fn decode(r: &mut Reader<'a>) -> Decoded<Self> {
        let seconds = r.i32("seconds")?;
        let microseconds = r.i32("microseconds")?;
        let count = r.count("number of value sets")?;
        Ok(ResultPdu { seconds, microseconds, values: ValueSets::decode(r, count)? })
    }

    /// Returns the number of value sets.
    pub fn len(&self) -> usize {
        self.values.count
    }

    /// Returns whether there are no value sets.
    pub fn is_empty(&self) -> bool {
        self.values.count == 0
    }

    /// Iterates over the value sets.
    pub fn sets(&self) -> impl Iterator<Item = ValueSet<'a>> + use<'a> {
        self.values.iter()
    }

    /// Returns the value sets as one object.
    pub fn values(&self) -> ValueSets<'a> {
        self.values
    }
}

impl<'a> HighResResult<'a> {
    pub(super) fn decode(r: &mut Reader<'a>) -> Decoded<Self> {
        let count = r.count("number of value sets")?;
        let seconds = r.i64("seconds")?;
        let nanoseconds = r.i64("nanoseconds")?;
        Ok(HighResResult { seconds, nanoseconds, values: ValueSets::decode(r, count)? })
    }
}

impl<'a> ValueSets<'a> {
    /// Decodes `count` value sets that begin at offset `start` of `bytes` and end with it. References to value blocks
    /// count from the start of `bytes`. A record of an archive (LOGARCHIVE(5)) has this layout, beginning eight bytes
    /// before its length.
    ///
    /// # Errors
    /// [`DecodeError`](super::codec::DecodeError) for value sets that are short, too long or have invalid fields.
    pub fn within(bytes: &'a [u8], start: usize, count: usize) -> Decoded<ValueSets<'a>> {
        let mut r = Reader::at(PduType::RESULT, bytes, start);
        let sets = ValueSets::decode(&mut r, count)?;
        r.finish()?;
        Ok(sets)
    }

    /// Returns the value sets that [`ValueSets::within`] decodes, without checking them first, for a reader that needs
    /// few of many. Iteration ends before the first damaged set, and within a set before the first damaged value. If
    /// there are fewer than the count, the data is damaged.
    pub const fn unchecked(bytes: &'a [u8], start: usize, count: usize) -> ValueSets<'a> {
        ValueSets { count, start, pdu: bytes }
    }

    /// Returns no value sets.
    pub const fn empty() -> ValueSets<'a> {
        ValueSets { count: 0, start: 0, pdu: &[] }
    }

    fn decode(r: &mut Reader<'a>, count: usize) -> Decoded<Self> {
        let start = r.pos();
        let sets = ValueSets { count, start, pdu: r.whole() };
        if let Some(end) = sets.end() {
            r.bytes(end - start, "value sets")?;
            return Ok(sets);
        }
        // Something is invalid: the slower check finds out what.
        sets.check(r)?;
        Ok(sets)
    }

    /// Reads the value sets and their blocks, field by field.
    fn check(&self, r: &mut Reader<'a>) -> Decoded<()> {
        for _ in 0..self.count {
            r.set()?;
        }
        self.check_blocks(r)
    }

    /// Returns the offset after the value sets and their blocks, or `None` if any part is invalid.
    ///
    /// Makes the same checks as the field-by-field decoder and [`ValueSets::check_blocks`], in one pass. Each block's
    /// head is loaded by the reference to it, not by the end of the block before, so that the loads do not wait for
    /// each other.
    fn end(&self) -> Option<usize> {
        let (mut place, mut first, mut expected, mut wrong) = (self.start, None, 0_u64, 0_u64);
        for _ in 0..self.count {
            let (_, numval) = halves(self.pdu.get(place..)?.first_chunk()?);
            if numval as i32 <= 0 {
                place += 8;
                continue;
            }
            let (format, rest) = self.pdu.get(place + 8..)?.split_first_chunk::<4>()?;
            let list = rest.get(..(numval as usize).checked_mul(8)?)?;
            place += 12 + list.len();
            if format_of(u32::from_be_bytes(*format))? == Format::InSitu {
                continue;
            }
            for (_, word) in list.chunks_exact(8).filter_map(<[u8]>::first_chunk).map(halves) {
                let word = u64::from(word);
                if first.is_none() {
                    (first, expected) = (Some(word), word);
                }
                let at = usize::try_from(word * 4).ok()?;
                let head = u32::from_be_bytes(*self.pdu.get(at..)?.first_chunk()?);
                let len = u64::from(head & 0xff_ffff);
                wrong |= (word ^ expected) | u64::from(len < BLOCK_HEAD as u64);
                expected = word + len.div_ceil(4);
            }
        }
        let Some(first) = first else { return (place <= self.pdu.len()).then_some(place) };
        let end = usize::try_from(expected * 4).ok()?;
        (wrong == 0 && first == (place / 4) as u64 && place % 4 == 0 && end <= self.pdu.len()).then_some(end)
    }

    /// Checks the value blocks: they must be in the order of their references, begin directly after the sets, and not
    /// be shared.
    fn check_blocks(&self, r: &mut Reader<'a>) -> Decoded<()> {
        for set in self.iter().filter(|set| set.format != Format::InSitu) {
            for (_, word) in set.pairs() {
                if word as usize != r.pos() / 4 {
                    return Err(r.bad("value offset", word, "is not where the next value block is"));
                }
                let head = r.u32("value block")?;
                let len = (head & 0xff_ffff) as usize;
                if len < BLOCK_HEAD {
                    return Err(r.bad("value block length", len as i64, "does not cover its head"));
                }
                r.padded(len - BLOCK_HEAD, "value block")?;
            }
        }
        Ok(())
    }

    /// Returns the number of value sets.
    pub fn len(self) -> usize {
        self.count
    }

    /// Returns whether there are no value sets.
    pub fn is_empty(self) -> bool {
        self.count == 0
    }

    fn places(self) -> impl Iterator<Item = (usize, ValueSet<'a>)> {
        let mut next = self.start;
        (0..self.count).map_while(move |_| {
            let place = next;
            let (set, after) = ValueSet::at(self.pdu, place)?;
            next = after;
            Some((place, set))
        })
    }

    /// Iterates over the offsets of the value sets in the PDU, for [`ValueSet::at`], and the words of their PMIDs,
    /// without decoding anything else. Iteration ends before a set that does not fit.
    pub fn heads(self) -> impl Iterator<Item = (usize, u32)> + use<'a> {
        let (pdu, mut next) = (self.pdu, self.start);
        (0..self.count).map_while(move |_| {
            let place = next;
            let (pmid, numval) = halves(pdu.get(place..)?.first_chunk()?);
            // A set without values has neither their format nor a list.
            let len = if numval as i32 <= 0 { 8 } else { (numval as usize).checked_mul(8)?.checked_add(12)? };
            next = place.checked_add(len).filter(|next| *next <= pdu.len())?;
            Some((place, pmid))
        })
    }

    /// Iterates over the value sets.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = ValueSet<'a>> + use<'a> {
        self.places().map(|(_, set)| set)
    }

    /// Returns the PDU that contains the value sets.
    pub fn pdu(self) -> &'a [u8] {
        self.pdu
    }

    /// Iterates over the offsets of the value sets in the PDU, for [`ValueSet::at`].
    pub fn offsets(self) -> impl Iterator<Item = usize> + use<'a> {
        self.places().map(|(place, _)| place)
    }
}

#[inline]
fn halves(pair: &[u8; 8]) -> (u32, u32) {
    let word = u64::from_be_bytes(*pair);
    ((word >> 32) as u32, word as u32)
}

#[inline]
fn format_of(code: u32) -> Option<Format> {
    Some(match code {
        0 => Format::InSitu,
        1 => Format::Dynamic,
        2 => Format::Static,
        _ => return None,
    })
}

impl Reader<'_> {
    /// Skips a value set and checks it.
    fn set(&mut self) -> Decoded<()> {
        self.u32("PMID")?;
        if let Ok(numval @ 1..) = usize::try_from(self.i32("number of values")?) {
            let format = self.u32("value format")?;
            format_of(format).ok_or(self.bad("value format", format, "is unknown"))?;
            self.records(numval, 8, "values")?;
        }
        Ok(())
    }
}

impl<'a> ValueSet<'a> {
    /// Returns the value set at an offset of a decoded PDU, and the offset after it.
    #[inline]
    pub fn at(pdu: &'a [u8], offset: usize) -> Option<(ValueSet<'a>, usize)> {
        let (head, rest) = pdu.get(offset..)?.split_first_chunk::<8>()?;
        let (pmid, numval) = halves(head);
        let mut set = ValueSet {
            pmid: PmId::from_word(pmid),
            error: Error::from_code(numval as i32),
            format: Format::InSitu,
            list: &[],
            pdu,
        };
        if numval as i32 <= 0 {
            return Some((set, offset + 8));
        }
        let (format, rest) = rest.split_first_chunk::<4>()?;
        set.format = format_of(u32::from_be_bytes(*format))?;
        set.list = rest.get(..(numval as usize).checked_mul(8)?)?;
        Some((set, offset + 12 + set.list.len()))
    }

    /// Returns the encoding of the values.
    #[inline]
    pub fn format(&self) -> Format {
        self.format
    }

    /// Returns the number of values.
    #[inline]
    pub fn len(&self) -> usize {
        self.list.len() / 8
    }

    /// Returns whether there are no values.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns the words of instances and values, and the bytes of the value blocks. Checked sets of which both are equal
    /// have equal values. Equal values may have different words, because references to blocks count from the start of
    /// the PDU. Returns `None` for references that point outside of the PDU.
    pub fn encoded(&self) -> Option<(&'a [u8], &'a [u8])> {
        if self.format == Format::InSitu {
            return Some((self.list, &[]));
        }
        let (_, first) = halves(self.list.first_chunk()?);
        let (_, last) = halves(self.list.last_chunk()?);
        // Blocks are in the order of their references, without gaps.
        let (first, last) = ((first as usize).checked_mul(4)?, (last as usize).checked_mul(4)?);
        let head = u32::from_be_bytes(*self.pdu.get(last..)?.first_chunk()?);
        let end = last.checked_add((head & 0xff_ffff) as usize)?;
        Some((self.list, self.pdu.get(first..end)?))
    }

    #[inline]
    fn pairs(&self) -> impl Iterator<Item = (u32, u32)> + use<'a> {
        self.list.chunks_exact(8).map(|pair| pair.first_chunk().map_or((0, 0), halves))
    }

    /// Iterates over the instances and their values. The instance is `None` for a singular metric.
    #[inline]
    pub fn values(&self) -> impl Iterator<Item = (Option<Inst>, RawValue<'a>)> + use<'a> {
        let (format, pdu) = (self.format, self.pdu);
        self.pairs().map_while(move |(inst, word)| {
            let value = match format {
                Format::InSitu => RawValue::InSitu(word),
                _ => RawValue::block(pdu, word)?,
            };
            Some((Inst::from_word(inst), value))
        })
    }
}

impl<'a> RawValue<'a> {
    #[inline]
    fn block(pdu: &'a [u8], word: u32) -> Option<RawValue<'a>> {
        let rest = pdu.get((word as usize).checked_mul(4)?..)?;
        let (head, payload) = rest.split_first_chunk()?;
        let head = u32::from_be_bytes(*head);
        let len = ((head & 0xff_ffff) as usize).checked_sub(BLOCK_HEAD)?;
        Some(RawValue::Block((head >> 24) as u8, payload.get(..len)?))
    }

    /// Decodes the value of a metric of type `ty`.
    ///
    /// # Errors
    /// `PM_ERR_CONV` when the value has another type, or a size that does not match its type.
    #[inline]
    pub fn atom(self, ty: Type) -> Result<Atom<'a>, Error> {
        let (code, payload) = match (self, ty) {
            (RawValue::InSitu(word), Type::I32) => return Ok(Atom::I32(word as i32)),
            (RawValue::InSitu(word), Type::U32) => return Ok(Atom::U32(word)),
            (RawValue::InSitu(_), _) => return Err(Error::CONV),
            (RawValue::Block(code, payload), _) => (code, payload),
        };
        if i32::from(code) != ty.code() {
            return Err(Error::CONV);
        }
        block_atom(ty, payload).ok_or(Error::CONV)
    }
}

/// Decodes the payload of a value block. Returns `None` when its size does not match the type.
#[inline]
pub(super) fn block_atom(ty: Type, payload: &[u8]) -> Option<Atom<'_>> {
    let four = || Some(u32::from_be_bytes(payload.try_into().ok()?));
    let eight = || Some(u64::from_be_bytes(payload.try_into().ok()?));
    Some(match ty {
        Type::I32 => Atom::I32(four()? as i32),
        Type::U32 => Atom::U32(four()?),
        Type::I64 => Atom::I64(eight()? as i64),
        Type::U64 => Atom::U64(eight()?),
        Type::Float => Atom::Float(f32::from_bits(four()?)),
        Type::Double => Atom::Double(f64::from_bits(eight()?)),
        Type::String => Atom::String(payload.get(..memchr(0, payload).unwrap_or(payload.len())).unwrap_or_default()),
        Type::Aggregate | Type::AggregateStatic => Atom::Aggregate(payload),
        Type::Event => Atom::Event(payload),
        Type::HighResEvent => Atom::HighResEvent(payload),
        Type::NoSupport => return None,
    })
}

/// Returns the word of an instance in a value set.
pub(super) fn inst_word(inst: Option<Inst>) -> u32 {
    inst.word()
}

impl<'a> RawValue<'a> {
    /// Decodes the value of a metric of type `from` and converts it to type `to` (pmExtractValue(3)).
    ///
    /// # Errors
    /// Errors of [`Atom::convert`]. `PM_ERR_CONV` also when the value is not encoded as `from` requires: 32-bit
    /// integers in situ, floats in situ or in a block, all other types in a block. A block must have the type's code,
    /// or 0, and the type's size.
    pub fn extract(self, from: Type, to: Type) -> Result<Converted<'a>, Error> {
        self.typed(from).ok_or(Error::CONV)?.convert(to)
    }

    fn typed(self, ty: Type) -> Option<Atom<'a>> {
        match (self, ty) {
            (RawValue::InSitu(word), Type::I32) => Some(Atom::I32(word as i32)),
            (RawValue::InSitu(word), Type::U32) => Some(Atom::U32(word)),
            (RawValue::InSitu(word), Type::Float) => Some(Atom::Float(f32::from_bits(word))),
            (
                RawValue::Block(code, payload),
                Type::I64 | Type::U64 | Type::Float | Type::Double | Type::String | Type::Aggregate,
            ) if code == 0 || i32::from(code) == ty.code() => RawValue::Block(ty.code() as u8, payload).atom(ty).ok(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
