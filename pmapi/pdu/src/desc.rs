//! Descriptors whose codes may be invalid, and their text in PCP's tools (pmPrintDesc(3)).

use std::fmt;

use pmapi::{Desc, InDom, OptionWord as _, OrNull, PmId, Semantics, Type, Units};

use crate::codec::words;
use crate::{HEADER, Header, PduType};

/// Descriptor with its codes as received. `Display` has the format of pmPrintDesc(3), without the newline at the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RawDesc {
    /// Identifier of the metric; `None` for `PM_ID_NULL`.
    pub pmid: Option<PmId>,
    /// Type of the metric's values.
    pub ty: i32,
    /// Instance domain of the metric's values; `None` for a singular metric.
    pub indom: Option<InDom>,
    /// Semantics of the metric's values.
    pub semantics: i32,
    /// Dimension and scale of the metric's values (`pmUnits`).
    pub units: u32,
}

impl RawDesc {
    /// Decodes a DESC PDU. Returns `None` for another PDU or a wrong length.
    pub fn decode(pdu: &[u8]) -> Option<RawDesc> {
        let header = Header::parse(pdu).ok().flatten()?;
        let body = pdu.get(HEADER..).filter(|body| header.pdu == PduType::DESC && body.len() == 20)?;
        let mut words = words(body);
        Some(RawDesc {
            pmid: PmId::from_word(words.next()?),
            ty: words.next()? as i32,
            indom: InDom::from_word(words.next()?),
            semantics: words.next()? as i32,
            units: words.next()?,
        })
    }
}

impl From<Desc> for RawDesc {
    fn from(Desc { pmid, ty, indom, semantics, units }: Desc) -> RawDesc {
        RawDesc { pmid: Some(pmid), ty: ty.code(), indom, semantics: semantics.code(), units: units.word() }
    }
}

impl fmt::Display for RawDesc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Type::from_code(self.ty) {
            Ok(Type::NoSupport) => return f.write_str("    Data Type: Not Supported"),
            Ok(ty) => write!(f, "    Data Type: {}", ty.description())?,
            Err(_) => write!(f, "    Data Type: ??? ({})", self.ty)?,
        }
        writeln!(f, "  InDom: {} {:#x}", OrNull(self.indom), self.indom.word())?;
        match Semantics::from_code(self.semantics) {
            Ok(semantics) => write!(f, "    Semantics: {semantics}")?,
            Err(_) => write!(f, "    Semantics: ??? ({})", self.semantics)?,
        }
        match &*Units::from_word(self.units).to_string() {
            "" => f.write_str("  Units: none"),
            units => write!(f, "  Units: {units}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::DescPdu;

    #[test]
    fn valid_and_invalid_numbers() {
        let desc = Desc {
            pmid: "253.0.1".parse().unwrap(),
            ty: Type::U64,
            indom: Some("253.0".parse().unwrap()),
            semantics: Semantics::Counter,
            units: Units::KBYTES,
        };
        let mut bytes = Vec::new();
        DescPdu { desc }.encode(&mut bytes, 0).unwrap();
        let mut raw = RawDesc::decode(&bytes).unwrap();
        assert_eq!(raw, desc.into());
        let text = "    Data Type: 64-bit unsigned int  InDom: 253.0 0x3f400000\n    Semantics: counter  Units: Kbyte";
        assert_eq!(raw.to_string(), text);
        raw = RawDesc { ty: 99, indom: None, semantics: 2, units: 0, ..raw };
        let text = "    Data Type: ??? (99)  InDom: PM_INDOM_NULL 0xffffffff\n    Semantics: ??? (2)  Units: none";
        assert_eq!(raw.to_string(), text);
        raw.ty = Type::NoSupport.code();
        assert_eq!(raw.to_string(), "    Data Type: Not Supported");
        assert_eq!(RawDesc::decode(&bytes[..bytes.len() - 4]), None);
    }
}
