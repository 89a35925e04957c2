//! PDUs that pmcd exchanges with its agents and clients.
//!
//! There is a module for each family of PDUs. It has views that borrow from the received bytes, and functions that
//! append a PDU to a buffer. [`Pdu::decode`] decodes every PDU of agents, [`client::Answer::decode`] every PDU for
//! clients. [`Frames`] finds the boundaries of PDUs in a stream. Nothing here does input or output.
//!
//! All numbers are big-endian. Strings are padded with `~` to a multiple of four bytes. The padding counts in the PDU's
//! length but not in the string's.
//!
//! Types of other crates in the interface: those of [`pmapi`], and the traits of `bitflags` for sets of flags.

pub mod client;
pub mod codec;
pub mod desc;
pub mod event;
mod frame;
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

pub use frame::{FrameError, Frames, Header, MAX_LEN};

use codec::{DecodeError, Decoded, Reader};

/// Length of a PDU's header in bytes.
pub const HEADER: usize = 12;

/// Sender of a PDU from an agent (`FROM_ANON`).
pub const FROM_AGENT: i32 = 0;

/// Type of a PDU.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PduType(i32);

/// Defines [`PduType`]'s constants and [`Pdu`]. Each line has a PDU's code, and the type that decodes it. The first
/// word is `request` for PDUs that an agent must answer, and `other` for all others. PDUs without a decoding type are
/// not exchanged with agents.
macro_rules! pdus {
    ($($kind:ident $name:ident = $code:literal $(=> $variant:ident($($decoded:tt)*))?;)*) => {
        #[allow(missing_docs)]
        impl PduType {
            $(pub const $name: PduType = PduType($code);)*

            fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($code => Some(stringify!($name)),)*
                    _ => None,
                }
            }

            /// Returns whether an agent must answer a PDU of this type.
            pub const fn is_request(self) -> bool {
                match self.0 {
                    $($code => pdus!(@ $kind),)*
                    _ => false,
                }
            }
        }

        /// Decoded PDU between pmcd and an agent.
        #[derive(Clone, Debug)]
        #[allow(missing_docs)]
        #[non_exhaustive]
        pub enum Pdu<'a> {
            $($($variant($($decoded)*),)?)*
        }

        impl<'a> Pdu<'a> {
            /// Decodes a whole PDU, header included, as [`Frames::next_pdu`] returns it.
            ///
            /// # Errors
            /// [`DecodeError`] for a type that pmcd and agents do not exchange, and for a PDU that is short, too long
            /// or has invalid fields.
            pub fn decode(header: Header, bytes: &'a [u8]) -> Decoded<Pdu<'a>> {
                let mut r = Reader::new(header.pdu, bytes);
                let pdu = match header.pdu {
                    $($(PduType::$name => Pdu::$variant(<$($decoded)*>::decode(&mut r)?),)?)*
                    other => return Err(DecodeError::Unexpected(other)),
                };
                r.finish()?;
                Ok(pdu)
            }
        }
    };
    (@ request) => { true };
    (@ other) => { false };
}

pdus! {
    other ERROR = 0x7000 => Error(handshake::ErrorPdu);
    // As a request of pmcd, it has values to be stored.
    request RESULT = 0x7001 => Result(result::ResultPdu<'a>);
    other PROFILE = 0x7002 => Profile(profile::ProfilePdu<'a>);
    request FETCH = 0x7003 => Fetch(metadata::Fetch<'a>);
    request DESC_REQ = 0x7004 => DescReq(metadata::DescReq);
    other DESC = 0x7005 => Desc(metadata::DescPdu);
    request INSTANCE_REQ = 0x7006 => InstanceReq(instance::InstanceReq<'a>);
    other INSTANCE = 0x7007 => Instance(instance::InstancePdu<'a>);
    request TEXT_REQ = 0x7008 => TextReq(metadata::TextReq);
    other TEXT = 0x7009 => Text(metadata::Text<'a>);
    other CONTROL_REQ = 0x700a;
    other CREDS = 0x700c => Creds(handshake::Creds<'a>);
    request PMNS_IDS = 0x700d => Ids(names::Ids<'a>);
    request PMNS_NAMES = 0x700e => Names(names::Names<'a>);
    request PMNS_CHILD = 0x700f => Child(names::Child<'a>);
    request PMNS_TRAVERSE = 0x7010 => Traverse(names::Traverse<'a>);
    other ATTR = 0x7011 => Attr(handshake::Attr<'a>);
    request LABEL_REQ = 0x7012 => LabelReq(label::LabelReq);
    other LABEL = 0x7013 => Label(label::LabelPdu<'a>);
    other HIGHRES_FETCH = 0x7014;
    other HIGHRES_RESULT = 0x7015;
    other DESC_IDS = 0x7016;
    other DESCS = 0x7017;
}

impl Pdu<'_> {
    /// Returns whether the PDU is a request that pmcd never sends: an empty fetch, or not exactly one name or PMID.
    pub fn asks_nothing(&self) -> bool {
        match self {
            Pdu::Fetch(fetch) => fetch.pmids().len() == 0,
            Pdu::Names(names) => names.len() != 1 || names.iter().any(|(_, name)| name.is_empty()),
            Pdu::Ids(ids) => ids.pmids().len() != 1,
            _ => false,
        }
    }
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

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
