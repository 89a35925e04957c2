//! PDUs about labels: `LABEL_REQ` and `LABEL`.

use super::PduType;
use super::codec::{Decoded, Reader, Writer};
use pmapi::{Error, Inst, LabelFlags, OptionWord as _, RawLabel, Result};

/// `LABEL_REQ`: a request for labels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LabelReq {
    /// Subject of the labels: all ones for the context, otherwise the identifier of a domain, cluster, metric or
    /// instance domain.
    pub ident: u32,
    /// Level of the labels, in `PM_LABEL_*` bits.
    pub bits: i32,
}

impl LabelReq {
    pub(super) fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        Ok(LabelReq { ident: r.u32("identifier")?, bits: r.i32("type")? })
    }

    /// Appends the PDU.
    ///
    /// # Errors
    /// `PM_ERR_TOOBIG` for a PDU over [`MAX_LEN`](crate::MAX_LEN) bytes.
    pub fn encode(self, out: &mut Vec<u8>, from: i32) -> Result {
        let mut w = Writer::new(out, PduType::LABEL_REQ, from);
        w.u32(self.ident).i32(self.bits);
        w.finish()
    }
}

const SPAN: usize = 8;

fn decode_labels(bytes: &[u8]) -> impl ExactSizeIterator<Item = RawLabel> {
    bytes.chunks_exact(SPAN).map(|span| decode_label(span.first_chunk().unwrap_or(&[0; SPAN])))
}

fn decode_label(bytes: &[u8; SPAN]) -> RawLabel {
    let [n0, n1, name_len, flags, v0, v1, l0, l1] = *bytes;
    RawLabel {
        name: u16::from_be_bytes([n0, n1]),
        name_len,
        flags: LabelFlags::from_bits_retain(flags),
        value: u16::from_be_bytes([v0, v1]),
        value_len: u16::from_be_bytes([l0, l1]),
    }
}

/// Label set of a `LABEL` PDU.
#[derive(Clone, Copy, Debug)]
pub struct RawLabelSet<'a> {
    /// Instance that the labels describe; `None` on other levels.
    pub inst: Option<Inst>,
    /// Error in place of labels.
    pub error: Option<Error>,
    /// JSON text of the labels.
    pub json: &'a [u8],
    spans: &'a [u8],
}

impl<'a> RawLabelSet<'a> {
    /// Returns the number of labels.
    pub fn len(&self) -> usize {
        self.spans.len() / SPAN
    }

    /// Returns whether there are no labels.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Iterates over the labels.
    pub fn spans(&self) -> impl ExactSizeIterator<Item = RawLabel> + use<'a> {
        decode_labels(self.spans)
    }
}

/// `LABEL`: label sets.
#[derive(Clone, Copy, Debug)]
pub struct LabelPdu<'a> {
    /// Subject of the labels, as in the request.
    pub ident: u32,
    /// Level of the labels, as in the request.
    pub bits: i32,
    count: usize,
    sets: &'a [u8],
    pdu: &'a [u8],
}

const SET_HEAD: usize = 16;
const MAX_LABELS: usize = 255;
const MAX_JSON: usize = 65_535;
/// Level with a label set for each instance.
const INSTANCES: i32 = 32;

impl<'a> LabelPdu<'a> {
    pub(super) fn decode(r: &mut Reader<'a>) -> Decoded<Self> {
        let pdu = r.whole();
        let ident = r.u32("identifier")?;
        let bits = r.i32("type")?;
        r.u32("padding")?;
        let count = r.count("number of label sets")?;
        if count > 1 && bits & INSTANCES == 0 {
            return Err(r.bad("number of label sets", count as i64, "is over one"));
        }
        let start = r.pos();
        let mut sets = r.clone();
        for _ in 0..count {
            sets.label_set()?;
        }
        let len = sets.pos() - start;
        let list = r.bytes(len, "label sets")?;
        let labels = LabelPdu { ident, bits, count, sets: list, pdu };
        // The JSON texts follow. After the last one, only padding is allowed.
        let end = labels.sets().map(|set| set.json).filter(|json| !json.is_empty());
        let end = end.map(|json| json.as_ptr_range().end.addr() - pdu.as_ptr().addr()).max().unwrap_or(r.pos());
        r.bytes(end.saturating_sub(r.pos()), "JSON")?;
        if r.left() < 4 {
            r.bytes(r.left(), "padding")?;
        }
        Ok(labels)
    }

    /// Returns the number of label sets.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns whether there are no label sets.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Iterates over the label sets.
    pub fn sets(&self) -> impl Iterator<Item = RawLabelSet<'a>> + use<'a> {
        let mut rest = self.sets;
        let pdu = self.pdu;
        std::iter::from_fn(move || {
            let (head, tail) = rest.split_first_chunk::<SET_HEAD>()?;
            let mut head = super::codec::words(head);
            let inst = Inst::from_word(head.next()?);
            let count = head.next()? as i32;
            let (offset, len) = (head.next()? as usize, head.next()? as usize);
            let (spans, tail) = tail.split_at_checked(usize::try_from(count).unwrap_or(0) * SPAN)?;
            rest = tail;
            let json = if len == 0 { &[] } else { pdu.get(offset..)?.get(..len)? };
            Some(RawLabelSet { inst, error: Error::from_code(count), json, spans })
        })
    }
}

impl Reader<'_> {
    /// Skips a label set and checks it.
    fn label_set(&mut self) -> Decoded<()> {
        self.u32("instance")?;
        let count = usize::try_from(self.i32("number of labels")?).unwrap_or(0);
        let offset = self.count("JSON offset")?;
        let len = self.count("JSON length")?;
        if count > MAX_LABELS {
            return Err(self.bad("number of labels", count as i64, "is over 255"));
        }
        if len > MAX_JSON {
            return Err(self.bad("JSON length", len as i64, "is over 65535"));
        }
        let Some(json) = offset.checked_add(len).and_then(|end| self.whole().get(offset..end)) else {
            return Err(self.bad("JSON offset", offset as i64, "and length reach past the PDU's end"));
        };
        for span in decode_labels(self.records(count, SPAN, "labels")?) {
            if span.name_in(json).is_none() {
                return Err(self.bad("label name", span.name, "reaches past the JSON's end"));
            }
            if span.value_in(json).is_none() {
                return Err(self.bad("label value", span.value, "reaches past the JSON's end"));
            }
        }
        Ok(())
    }
}

/// Label set to send.
#[derive(Clone, Copy, Debug)]
pub struct LabelSetRef<'a> {
    /// Instance that the labels describe; `None` on other levels.
    pub inst: Option<Inst>,
    /// Labels, or the error in place of them.
    pub labels: Result<&'a [RawLabel]>,
    /// JSON text of the labels.
    pub json: &'a [u8],
}

/// Appends a `LABEL` PDU.
///
/// # Errors
/// `PM_ERR_TOOBIG` for a set of over 255 labels or 65535 bytes of JSON, and for a PDU over
/// [`MAX_LEN`](crate::MAX_LEN) bytes.
pub fn encode_label(out: &mut Vec<u8>, from: i32, req: LabelReq, sets: &[LabelSetRef<'_>]) -> Result {
    if sets.iter().any(|set| set.labels.is_ok_and(|l| l.len() > MAX_LABELS) || set.json.len() > MAX_JSON) {
        return Err(Error::TOOBIG);
    }
    let mut w = Writer::new(out, PduType::LABEL, from);
    w.u32(req.ident).i32(req.bits).u32(0).count(sets.len());
    let mut json = w.len() + sets.iter().map(|set| SET_HEAD + SPAN * set.labels.map_or(0, <[_]>::len)).sum::<usize>();
    for set in sets {
        let count = set.labels.map_or_else(Error::code, |labels| labels.len() as i32);
        w.u32(set.inst.word()).i32(count).count(json).count(set.json.len());
        json += set.json.len();
        for l in set.labels.unwrap_or_default() {
            w.bytes(&l.name.to_be_bytes()).bytes(&[l.name_len, l.flags.bits()]);
            w.bytes(&l.value.to_be_bytes()).bytes(&l.value_len.to_be_bytes());
        }
    }
    for set in sets {
        w.bytes(set.json);
    }
    w.finish()
}
