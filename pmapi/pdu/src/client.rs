//! PDUs of clients and pmcd alone: `DESC_IDS`, `DESCS`, `HIGHRES_FETCH` and `HIGHRES_RESULT`.

use super::codec::{Decoded, Reader, Writer, words};
use super::result::HighResResult;
use super::{Header, Pdu, PduType, metadata};
use pmapi::{Desc, Error, InDom, OptionWord as _, PmId, Result, Semantics, Type, Units};

/// Decoded PDU from pmcd to a client.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Answer<'a> {
    /// PDU that agents send too.
    Pdu(Pdu<'a>),
    /// Values with a time stamp in nanoseconds.
    HighResResult(HighResResult<'a>),
    /// Descriptors of several metrics.
    Descs(Descs<'a>),
    /// Descriptor as received, which may be invalid.
    Desc(RawDesc),
}

impl<'a> Answer<'a> {
    /// Decodes a whole PDU, header included.
    ///
    /// # Errors
    /// [`DecodeError`](super::DecodeError) for a type that pmcd does not send, and for a PDU that is short, too long or
    /// has invalid fields.
    pub fn decode(header: Header, bytes: &'a [u8]) -> Decoded<Answer<'a>> {
        let mut r = Reader::new(header.pdu, bytes);
        let answer = match header.pdu {
            PduType::HIGHRES_RESULT => Answer::HighResResult(HighResResult::decode(&mut r)?),
            PduType::DESCS => Answer::Descs(Descs::decode(&mut r)?),
            PduType::DESC => Answer::Desc(RawDesc::decode(r.bytes(RawDesc::SIZE, "descriptor")?)),
            _ => return Pdu::decode(header, bytes).map(Answer::Pdu),
        };
        r.finish()?;
        Ok(answer)
    }
}

/// Descriptor as received. pmcd forwards the descriptors of agents, valid or not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawDesc {
    /// Identifier of the metric; `None` when there is no descriptor.
    pub pmid: Option<PmId>,
    ty: i32,
    indom: Option<InDom>,
    semantics: i32,
    units: Units,
}

impl RawDesc {
    const SIZE: usize = 20;

    fn decode(bytes: &[u8]) -> RawDesc {
        let mut words = words(bytes);
        let mut word = || words.next().unwrap_or_default();
        RawDesc {
            pmid: PmId::from_word(word()),
            ty: word() as i32,
            indom: InDom::from_word(word()),
            semantics: word() as i32,
            units: Units::from_word(word()),
        }
    }

    /// Returns the descriptor.
    ///
    /// # Errors
    /// `PM_ERR_PMID` when there is no descriptor, `PM_ERR_TYPE` for an invalid type, `PM_ERR_CONV` for invalid
    /// semantics.
    pub fn desc(self) -> Result<Desc> {
        let pmid = self.pmid.ok_or(Error::PMID)?;
        let ty = Type::from_code(self.ty)?;
        let semantics = match (self.semantics, ty) {
            // C agents leave the rest of the descriptor empty for a type without values.
            (0, Type::NoSupport) => Semantics::Instant,
            (code, _) => Semantics::from_code(code)?,
        };
        Ok(Desc { pmid, ty, indom: self.indom, semantics, units: self.units })
    }
}

/// `DESCS`: descriptors, one for each metric of the request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Descs<'a> {
    list: &'a [u8],
}

impl<'a> Descs<'a> {
    fn decode(r: &mut Reader<'a>) -> Decoded<Self> {
        let n = r.count("number of descriptors")?;
        Ok(Descs { list: r.records(n, RawDesc::SIZE, "descriptors")? })
    }

    /// Iterates over the descriptors.
    pub fn iter(self) -> impl ExactSizeIterator<Item = RawDesc> + use<'a> {
        self.list.chunks_exact(RawDesc::SIZE).map(RawDesc::decode)
    }
}

/// Appends a `DESC_IDS` PDU, a request for the descriptors of several metrics.
///
/// # Errors
/// `PM_ERR_TOOBIG` for a PDU over [`MAX_LEN`](crate::MAX_LEN) bytes.
pub fn encode_desc_ids(out: &mut Vec<u8>, from: i32, pmids: &[PmId]) -> Result {
    let mut w = Writer::new(out, PduType::DESC_IDS, from);
    w.i32(-1).count(pmids.len());
    for pmid in pmids {
        w.u32(Some(*pmid).word());
    }
    w.finish()
}

/// Appends a `HIGHRES_FETCH` PDU, a request for values with a timestamp in nanoseconds.
///
/// # Errors
/// `PM_ERR_TOOBIG` for a PDU over [`MAX_LEN`](crate::MAX_LEN) bytes.
pub fn encode_high_res_fetch(
    out: &mut Vec<u8>,
    from: i32,
    context: i32,
    pmids: impl ExactSizeIterator<Item = Option<PmId>>,
) -> Result {
    metadata::encode_fetch_as(PduType::HIGHRES_FETCH, out, from, context, pmids)
}
