//! PDUs about metrics: `FETCH`, `DESC_REQ`, `DESC`, `TEXT_REQ` and `TEXT`.

use super::PduType;
use super::codec::{Decoded, Reader, Writer, words};
use pmapi::{Desc, Error, InDom, OptionWord as _, PmId, Result, Semantics, Type, Units};

/// `FETCH`: a client's request for values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fetch<'a> {
    /// Context that the last profile belongs to.
    pub context: i32,
    list: &'a [u8],
}

impl<'a> Fetch<'a> {
    pub(super) fn decode(r: &mut Reader<'a>) -> Decoded<Self> {
        let context = r.i32("context")?;
        r.bytes(8, "time")?;
        let n = r.count("number of PMIDs")?;
        Ok(Fetch { context, list: r.records(n, 4, "PMIDs")? })
    }

    /// Returns the PMIDs in network byte order.
    pub fn bytes(self) -> &'a [u8] {
        self.list
    }

    /// Iterates over parts of the request with at most `most` metrics each, in their order.
    ///
    /// # Panics
    /// If `most` is 0.
    pub fn parts(self, most: usize) -> impl Iterator<Item = Fetch<'a>> {
        self.list.chunks(4 * most).map(move |list| Fetch { list, ..self })
    }

    /// Iterates over the metrics, in the order of the answer.
    pub fn pmids(self) -> impl ExactSizeIterator<Item = Option<PmId>> + Clone + 'a {
        words(self.list).map(PmId::from_word)
    }
}

/// Appends a `FETCH` PDU.
///
/// # Errors
/// `PM_ERR_TOOBIG` for a PDU over [`MAX_LEN`](crate::MAX_LEN) bytes.
pub fn encode_fetch(
    out: &mut Vec<u8>,
    from: i32,
    context: i32,
    pmids: impl ExactSizeIterator<Item = Option<PmId>>,
) -> Result {
    encode_fetch_as(PduType::FETCH, out, from, context, pmids)
}

/// Appends a `FETCH` or a `HIGHRES_FETCH` PDU.
pub(super) fn encode_fetch_as(
    pdu: PduType,
    out: &mut Vec<u8>,
    from: i32,
    context: i32,
    pmids: impl ExactSizeIterator<Item = Option<PmId>>,
) -> Result {
    let mut w = Writer::new(out, pdu, from);
    w.i32(context).bytes(&[0; 8]).count(pmids.len());
    for pmid in pmids {
        w.u32(pmid.word());
    }
    w.finish()
}

/// `DESC_REQ`: a request for a metric's descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DescReq {
    /// Identifier of the metric; `None` for `PM_ID_NULL`.
    pub pmid: Option<PmId>,
}

impl DescReq {
    pub(super) fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        Ok(DescReq { pmid: PmId::from_word(r.u32("PMID")?) })
    }

    /// Appends the PDU.
    ///
    /// # Errors
    /// Never fails: the PDU is always short.
    pub fn encode(self, out: &mut Vec<u8>, from: i32) -> Result {
        let mut w = Writer::new(out, PduType::DESC_REQ, from);
        w.u32(self.pmid.word());
        w.finish()
    }
}

/// `DESC`: a metric's descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DescPdu {
    /// Descriptor of the metric.
    pub desc: Desc,
}

impl DescPdu {
    pub(super) fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        let pmid = PmId::from_word(r.u32("PMID")?).ok_or(r.bad("PMID", -1, "is PM_ID_NULL"))?;
        let code = r.i32("type")?;
        let ty = Type::from_code(code).map_err(|_| r.bad("type", code, "is unknown"))?;
        let indom = InDom::from_word(r.u32("instance domain")?);
        let semantics = match (r.i32("semantics")?, ty) {
            // C agents leave the rest of the descriptor empty for a type without values.
            (0, Type::NoSupport) => Semantics::Instant,
            (code, _) => Semantics::from_code(code).map_err(|_| r.bad("semantics", code, "is unknown"))?,
        };
        let units = Units::from_word(r.u32("units")?);
        Ok(DescPdu { desc: Desc { pmid, ty, indom, semantics, units } })
    }

    /// Appends the PDU.
    ///
    /// # Errors
    /// Never fails: the PDU is always short.
    pub fn encode(self, out: &mut Vec<u8>, from: i32) -> Result {
        let Desc { pmid, ty, indom, semantics, units } = self.desc;
        let mut w = Writer::new(out, PduType::DESC, from);
        w.u32(pmid.word()).i32(ty.code()).u32(indom.word()).i32(semantics.code()).u32(units.word());
        w.finish()
    }
}

/// Subject of a help text.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Subject {
    /// Metric (`PM_TEXT_PMID`).
    Metric(PmId),
    /// Instance domain (`PM_TEXT_INDOM`).
    InDom(InDom),
}

/// Length of a help text.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TextKind {
    /// One-line text (`PM_TEXT_ONELINE`).
    OneLine,
    /// Full text (`PM_TEXT_HELP`).
    Help,
}

/// `TEXT_REQ`: a request for help text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TextReq {
    /// Word of the metric or instance domain.
    pub ident: u32,
    /// Subject and kind of the text, in `PM_TEXT_*` bits.
    pub bits: i32,
}

impl TextReq {
    const ONELINE: i32 = 1;
    const HELP: i32 = 2;
    const PMID: i32 = 4;
    const INDOM: i32 = 8;

    /// Creates a request for a text.
    pub fn new(subject: Subject, kind: TextKind) -> TextReq {
        let (ident, what) = match subject {
            Subject::Metric(pmid) => (pmid.word(), Self::PMID),
            Subject::InDom(indom) => (indom.word(), Self::INDOM),
        };
        let kind = match kind {
            TextKind::OneLine => Self::ONELINE,
            TextKind::Help => Self::HELP,
        };
        TextReq { ident, bits: what | kind }
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        Ok(TextReq { ident: r.u32("identifier")?, bits: r.i32("type")? })
    }

    /// Returns the subject and kind of the text. As in `libpcp_pmda`, when several bits are set, a metric takes
    /// precedence over an instance domain and a one-line text over a full one.
    ///
    /// # Errors
    /// `PM_ERR_PMID` or `PM_ERR_INDOM` for an identifier of all ones, `PM_ERR_TEXT` when no subject's bit is set.
    pub fn parse(self) -> Result<(Subject, TextKind)> {
        let subject = if self.bits & Self::PMID != 0 {
            Subject::Metric(PmId::from_word(self.ident).ok_or(Error::PMID)?)
        } else if self.bits & Self::INDOM != 0 {
            Subject::InDom(InDom::from_word(self.ident).ok_or(Error::INDOM)?)
        } else {
            return Err(Error::TEXT);
        };
        let kind = if self.bits & Self::ONELINE != 0 { TextKind::OneLine } else { TextKind::Help };
        Ok((subject, kind))
    }

    /// Appends the PDU.
    ///
    /// # Errors
    /// Never fails: the PDU is always short.
    pub fn encode(self, out: &mut Vec<u8>, from: i32) -> Result {
        let mut w = Writer::new(out, PduType::TEXT_REQ, from);
        w.u32(self.ident).i32(self.bits);
        w.finish()
    }
}

/// `TEXT`: help text. PCP promises no character encoding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Text<'a> {
    /// Word of the metric or instance domain. libpcp sends it in the host's byte order, and no receiver reads it.
    pub ident: u32,
    /// Text without a terminating NUL.
    pub text: &'a [u8],
}

impl<'a> Text<'a> {
    pub(super) fn decode(r: &mut Reader<'a>) -> Decoded<Self> {
        Ok(Text { ident: r.u32("identifier")?, text: r.string("text")? })
    }

    /// Appends the PDU.
    ///
    /// # Errors
    /// `PM_ERR_TOOBIG` for a PDU over [`MAX_LEN`](crate::MAX_LEN) bytes.
    pub fn encode(self, out: &mut Vec<u8>, from: i32) -> Result {
        let mut w = Writer::new(out, PduType::TEXT, from);
        w.u32(self.ident).string(self.text);
        w.finish()
    }
}
