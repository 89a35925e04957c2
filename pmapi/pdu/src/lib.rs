//! PDUs that pmcd exchanges with its agents and clients.
//!
//! ```
//! use pcp_pdu::metadata::encode_fetch;
//! use pcp_pdu::{FROM_AGENT, Frames, Pdu};
//! use pmapi::PmId;
//!
//! let reads: PmId = "60.0.24".parse()?;
//! let mut request = Vec::new();
//! encode_fetch(&mut request, FROM_AGENT, 0, [Some(reads)].into_iter())?;
//!
//! let mut frames = Frames::new();
//! frames.space()[..request.len()].copy_from_slice(&request); // as read(2) does
//! frames.filled(request.len());
//! let (header, bytes) = frames.next_pdu()?.ok_or("incomplete")?;
//! let Pdu::Fetch(fetch) = Pdu::decode(header, bytes)? else { return Err("no fetch".into()) };
//! assert_eq!(fetch.pmids().collect::<Vec<_>>(), [Some(reads)]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! There is a module for each family of PDUs. It has views that borrow from the received bytes, and functions that
//! append a PDU to a buffer. [`Pdu::decode`] decodes every PDU of agents, [`client::Answer::decode`] every PDU for
//! clients. [`Frames`] finds the boundaries of PDUs in a stream. Nothing here does input or output.
//!
//! All numbers are big-endian. Strings are padded with `~` to a multiple of four bytes. The padding counts in the PDU's
//! length but not in the string's.
//!
//! Types of [`pmapi`] are in the interface, so this crate is re-exported. Sets of flags have the traits of `bitflags`.

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

pub use pmapi;

pub use frame::{FrameError, Frames, Header, MAX_LEN};

use codec::{DecodeError, Decoded, Reader};

/// Length of a PDU's header in bytes.
pub const HEADER: usize = 12;

/// Sender of a PDU from an agent (`FROM_ANON`).
pub const FROM_AGENT: i32 = 0;

/// Type of a PDU.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PduType(i32);

/// Defines [`PduType`]'s constants and [`Pdu`]. Each line has a PDU's documentation, its code, and the type that decodes
/// it. The word before the name is `request` for PDUs that an agent must answer, and `other` for all others. PDUs without
/// a decoding type are not exchanged with agents.
macro_rules! pdus {
    ($($(#[$doc:meta])* $kind:ident $name:ident = $code:literal $(=> $variant:ident($($decoded:tt)*))?;)*) => {
        impl PduType {
            $($(#[$doc])* pub const $name: PduType = PduType($code);)*

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
        #[non_exhaustive]
        pub enum Pdu<'a> {
            $($(
                #[doc = concat!("PDU of type [`PduType::", stringify!($name), "`].")]
                $variant($($decoded)*),
            )?)*
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
    /// Error code in place of an answer, or a change of the agent's state (`PM_ERR_PMDANOTREADY`).
    other ERROR = 0x7000 => Error(handshake::ErrorPdu);
    /// Values: the answer to a fetch; as a request, values to be stored.
    request RESULT = 0x7001 => Result(result::ResultPdu<'a>);
    /// Profile: the instances that later fetches include. It has no answer.
    other PROFILE = 0x7002 => Profile(profile::ProfilePdu<'a>);
    /// Request for the values of metrics.
    request FETCH = 0x7003 => Fetch(metadata::Fetch<'a>);
    /// Request for the descriptor of a metric.
    request DESC_REQ = 0x7004 => DescReq(metadata::DescReq);
    /// Descriptor of a metric.
    other DESC = 0x7005 => Desc(metadata::DescPdu);
    /// Request for instances of a domain: all, or one by its number or name.
    request INSTANCE_REQ = 0x7006 => InstanceReq(instance::InstanceReq<'a>);
    /// Instances of a domain.
    other INSTANCE = 0x7007 => Instance(instance::InstancePdu<'a>);
    /// Request for a text of help, of a metric or an instance domain.
    request TEXT_REQ = 0x7008 => TextReq(metadata::TextReq);
    /// Text of help.
    other TEXT = 0x7009 => Text(metadata::Text<'a>);
    /// Request of pmlc(1) to pmlogger(1).
    other CONTROL_REQ = 0x700a;
    /// Version and features of the sender, at the start of a connection.
    other CREDS = 0x700c => Creds(handshake::Creds<'a>);
    /// PMIDs: the answer to a request for the PMIDs of names; as a request, one whose names are wanted.
    request PMNS_IDS = 0x700d => Ids(names::Ids<'a>);
    /// Names: the answer to a request for names; as a request, names whose PMIDs are wanted.
    request PMNS_NAMES = 0x700e => Names(names::Names<'a>);
    /// Request for the names directly below a name.
    request PMNS_CHILD = 0x700f => Child(names::Child<'a>);
    /// Request for all metrics below a name.
    request PMNS_TRAVERSE = 0x7010 => Traverse(names::Traverse<'a>);
    /// Attribute of a client: user, container and others. It has no answer.
    other ATTR = 0x7011 => Attr(handshake::Attr<'a>);
    /// Request for the labels of one level: host, domain, cluster and so on.
    request LABEL_REQ = 0x7012 => LabelReq(label::LabelReq);
    /// Sets of labels.
    other LABEL = 0x7013 => Label(label::LabelPdu<'a>);
    /// Request of a client for values with a time stamp in nanoseconds.
    other HIGHRES_FETCH = 0x7014;
    /// Values with a time stamp in nanoseconds, for clients.
    other HIGHRES_RESULT = 0x7015;
    /// Request of a client for the descriptors of several metrics.
    other DESC_IDS = 0x7016;
    /// Descriptors of several metrics, for clients.
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
