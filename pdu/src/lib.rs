//! PDUs that pmcd exchanges with its agents and clients.
//!
//! There is a module for each family of PDUs. It has views that borrow from the received bytes, and functions that
//! append a PDU to a buffer. [`Pdu::decode`] decodes every PDU of agents, [`client::Answer::decode`] every PDU for
//! clients. [`frame`] finds the boundaries of PDUs in a stream. Nothing here does input or output.
//!
//! All numbers are big-endian. Strings are padded with `~` to a multiple of four bytes. The padding counts in the PDU's
//! length but not in the string's.

pub mod client;
pub mod codec;
pub mod event;
pub mod frame;
pub mod handshake;
pub mod instance;
pub mod label;
pub mod metadata;
pub mod names;
pub mod print;
pub mod profile;
pub mod result;
pub mod result_writer;

use std::fmt;

pub use codec::{DecodeError, Decoded};
pub use frame::{FrameError, Frames, Header};

use codec::Reader;

/// Length of a PDU's header in bytes.
pub const HEADER: usize = 12;

/// Sender of a PDU from an agent (`FROM_ANON`).
pub const FROM_AGENT: i32 = 0;

/// Type of a PDU.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PduType(i32);

macro_rules! types {
    ($($name:ident = $code:literal,)*) => {
        #[allow(missing_docs)]
        impl PduType {
            $(pub const $name: PduType = PduType($code);)*

            fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($code => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

types! {
    ERROR = 0x7000,
    RESULT = 0x7001,
    PROFILE = 0x7002,
    FETCH = 0x7003,
    DESC_REQ = 0x7004,
    DESC = 0x7005,
    INSTANCE_REQ = 0x7006,
    INSTANCE = 0x7007,
    TEXT_REQ = 0x7008,
    TEXT = 0x7009,
    CONTROL_REQ = 0x700a,
    CREDS = 0x700c,
    PMNS_IDS = 0x700d,
    PMNS_NAMES = 0x700e,
    PMNS_CHILD = 0x700f,
    PMNS_TRAVERSE = 0x7010,
    ATTR = 0x7011,
    LABEL_REQ = 0x7012,
    LABEL = 0x7013,
    HIGHRES_FETCH = 0x7014,
    HIGHRES_RESULT = 0x7015,
    DESC_IDS = 0x7016,
    DESCS = 0x7017,
}

impl PduType {
    /// Creates the type with a code.
    pub const fn new(code: i32) -> PduType {
        PduType(code)
    }

    /// Returns the code of the wire encoding.
    pub const fn code(self) -> i32 {
        self.0
    }
}

/// Name in libpcp's diagnostics, for instance `FETCH`; `TYPE-n?` for an unknown type.
impl fmt::Display for PduType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "TYPE-{}?", self.0),
        }
    }
}

impl fmt::Debug for PduType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Decoded PDU between pmcd and an agent.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub enum Pdu<'a> {
    Error(handshake::ErrorPdu),
    Result(result::ResultPdu<'a>),
    Profile(profile::ProfilePdu<'a>),
    Fetch(metadata::Fetch<'a>),
    DescReq(metadata::DescReq),
    Desc(metadata::DescPdu),
    InstanceReq(instance::InstanceReq<'a>),
    Instance(instance::InstancePdu<'a>),
    TextReq(metadata::TextReq),
    Text(metadata::Text<'a>),
    Creds(handshake::Creds<'a>),
    Ids(names::Ids<'a>),
    Names(names::Names<'a>),
    Child(names::Child<'a>),
    Traverse(names::Traverse<'a>),
    Attr(handshake::Attr<'a>),
    LabelReq(label::LabelReq),
    Label(label::LabelPdu<'a>),
}

impl<'a> Pdu<'a> {
    /// Decodes a whole PDU, header included, as [`Frames::next_pdu`] returns it.
    ///
    /// # Errors
    /// [`DecodeError`] for a type that pmcd and agents do not exchange, and for a PDU that is short, too long or has
    /// invalid fields.
    pub fn decode(header: Header, bytes: &'a [u8]) -> Decoded<Pdu<'a>> {
        let mut r = Reader::new(header.pdu, bytes);
        let pdu = match header.pdu {
            PduType::ERROR => Pdu::Error(handshake::ErrorPdu::decode(&mut r)?),
            PduType::RESULT => Pdu::Result(result::ResultPdu::decode(&mut r, bytes)?),
            PduType::PROFILE => Pdu::Profile(profile::ProfilePdu::decode(&mut r)?),
            PduType::FETCH => Pdu::Fetch(metadata::Fetch::decode(&mut r)?),
            PduType::DESC_REQ => Pdu::DescReq(metadata::DescReq::decode(&mut r)?),
            PduType::DESC => Pdu::Desc(metadata::DescPdu::decode(&mut r)?),
            PduType::INSTANCE_REQ => Pdu::InstanceReq(instance::InstanceReq::decode(&mut r)?),
            PduType::INSTANCE => Pdu::Instance(instance::InstancePdu::decode(&mut r)?),
            PduType::TEXT_REQ => Pdu::TextReq(metadata::TextReq::decode(&mut r)?),
            PduType::TEXT => Pdu::Text(metadata::Text::decode(&mut r)?),
            PduType::CREDS => Pdu::Creds(handshake::Creds::decode(&mut r)?),
            PduType::PMNS_IDS => Pdu::Ids(names::Ids::decode(&mut r)?),
            PduType::PMNS_NAMES => Pdu::Names(names::Names::decode(&mut r)?),
            PduType::PMNS_CHILD => Pdu::Child(names::Child::decode(&mut r)?),
            PduType::PMNS_TRAVERSE => Pdu::Traverse(names::Traverse::decode(&mut r)?),
            PduType::ATTR => Pdu::Attr(handshake::Attr::decode(&mut r)?),
            PduType::LABEL_REQ => Pdu::LabelReq(label::LabelReq::decode(&mut r)?),
            PduType::LABEL => Pdu::Label(label::LabelPdu::decode(&mut r, bytes)?),
            other => return Err(DecodeError::Unexpected(other)),
        };
        r.finish()?;
        Ok(pdu)
    }
}
