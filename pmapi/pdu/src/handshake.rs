//! PDUs of the handshake: `ERROR`, `CREDS` and `ATTR`.

use bitflags::bitflags;

use super::codec::{Decoded, Reader, Writer};
use super::{FROM_AGENT, PduType};
use pmapi::{Error, Result};

/// `ERROR`: the outcome of a request, or a notification of a client or an agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ErrorPdu {
    /// 0 for success, a negative number for an error.
    pub code: i32,
    /// Second word, which some senders append.
    pub datum: Option<i32>,
}

impl ErrorPdu {
    pub(super) fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        let code = r.i32("code")?;
        let datum = if r.left() > 0 { Some(r.i32("datum")?) } else { None };
        Ok(ErrorPdu { code, datum })
    }

    /// Returns the code as a result.
    ///
    /// # Errors
    /// The error with this code, when it is negative.
    pub fn status(self) -> Result {
        Error::from_code(self.code).map_or(Ok(()), Err)
    }

    /// Returns the features that pmcd advertises in its first PDU to a client.
    ///
    /// # Errors
    /// pmcd's reason for refusing the client; `PM_ERR_IPC` for a PDU without features.
    pub fn greeting(self) -> Result<Features> {
        // The lower half has the features. The upper half has a version, which is ignored.
        let features = Features::from_bits_retain(self.datum.ok_or(Error::IPC)? as u16);
        // Only in this PDU are error codes those of PCP 1.
        let code = if self.code <= -1000 { self.code + 1000 + Error::GENERIC.code() } else { self.code };
        Error::from_code(code).map_or(Ok(features), Err)
    }
}

/// Appends an `ERROR` PDU with success or an error.
///
/// # Errors
/// Never fails: the PDU is always short.
pub fn encode_error(out: &mut Vec<u8>, from: i32, status: Result) -> Result {
    let mut w = Writer::new(out, PduType::ERROR, from);
    w.i32(status.map_or_else(Error::code, |()| 0));
    w.finish()
}

bitflags! {
    /// Features that an agent, a client or pmcd advertises (the flags of a version credential).
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct Features: u16 {
        /// The agent requests the attributes of clients (`PMDA_FLAG_AUTHORIZE`).
        const AUTHORIZE = 1 << 2;
        /// The agent requests the containers of clients (`PMDA_FLAG_CONTAINER`).
        const CONTAINER = 1 << 6;

        /// pmcd supports encryption. Only clients and pmcd use this flag and the following ones.
        const SECURE = 1;
        /// pmcd requires the client's credentials.
        const CREDENTIALS_REQUIRED = 1 << 3;
        /// pmcd requires a certificate of clients on other hosts.
        const CERTIFICATE_REQUIRED = 1 << 7;
        /// pmcd answers `LABEL_REQ`.
        const LABELS = 1 << 9;
        /// pmcd answers `HIGHRES_FETCH`.
        const HIGH_RES = 1 << 10;
        /// pmcd answers `DESC_IDS`.
        const DESCS = 1 << 11;
    }
}

/// PDU version of all current peers.
pub const VERSION: u8 = 2;

/// `CREDS`: the version exchange, which the agent begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Creds<'a> {
    list: &'a [u8],
}

impl<'a> Creds<'a> {
    const MAX: usize = 1024;
    const VERSION_TYPE: u32 = 1;

    pub(super) fn decode(r: &mut Reader<'a>) -> Decoded<Self> {
        let n = r.count("number of credentials")?;
        if n > Self::MAX {
            return Err(r.bad("number of credentials", n as i64, "is over 1024"));
        }
        Ok(Creds { list: r.records(n, 4, "credentials")? })
    }

    /// Returns version and features of the last version credential, if there is one.
    pub fn version(self) -> Option<(u8, Features)> {
        super::codec::words(self.list)
            .filter(|word| word >> 24 == Self::VERSION_TYPE)
            .last()
            .map(|word| ((word >> 16) as u8, Features::from_bits_retain(word as u16)))
    }
}

/// Appends a `CREDS` PDU with one version credential.
///
/// # Errors
/// Never fails: the PDU is always short.
pub fn encode_creds(out: &mut Vec<u8>, from: i32, features: Features) -> Result {
    let mut w = Writer::new(out, PduType::CREDS, from);
    w.count(1).u32(Creds::VERSION_TYPE << 24 | u32::from(VERSION) << 16 | u32::from(features.bits()));
    w.finish()
}

/// Attribute of a client that pmcd can send to an agent (`PCP_ATTR_*`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Attribute(i32);

impl Attribute {
    /// Name of the user.
    pub const USERNAME: Attribute = Attribute(5);
    /// Identifier of the user (uid).
    pub const USERID: Attribute = Attribute(11);
    /// Identifier of the group (gid).
    pub const GROUPID: Attribute = Attribute(12);
    /// Identifier of the process (pid).
    pub const PROCESSID: Attribute = Attribute(14);
    /// Container whose metrics the client requests.
    pub const CONTAINER: Attribute = Attribute(15);

    /// Creates the attribute with a code.
    pub const fn new(code: i32) -> Attribute {
        Attribute(code)
    }

    /// Returns the code of the wire encoding.
    pub const fn code(self) -> i32 {
        self.0
    }
}

/// `ATTR`: an attribute of the client whose context number is the sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attr<'a> {
    /// Kind of the attribute.
    pub attribute: Attribute,
    /// Value of the attribute, without the terminating NUL of the wire encoding.
    pub value: &'a [u8],
}

impl<'a> Attr<'a> {
    const MAX: usize = 4096;

    pub(super) fn decode(r: &mut Reader<'a>) -> Decoded<Self> {
        let attribute = Attribute(r.i32("attribute")?);
        let n = r.left();
        if n >= Self::MAX {
            return Err(r.bad("value", n as i64, "bytes are too many"));
        }
        let value = r.bytes(n, "value")?;
        Ok(Attr { attribute, value: value.strip_suffix(b"\0").unwrap_or(value) })
    }

    /// Appends the PDU.
    ///
    /// # Errors
    /// `PM_ERR_TOOBIG` for a PDU over [`MAX_LEN`](crate::MAX_LEN) bytes.
    pub fn encode(&self, out: &mut Vec<u8>, from: i32) -> Result {
        let mut w = Writer::new(out, PduType::ATTR, from);
        w.i32(self.attribute.0).bytes(self.value).bytes(b"\0");
        w.finish()
    }
}

/// Appends the ERROR PDU that an agent sends, without a request, when it has become ready.
///
/// # Errors
/// Never fails: the PDU is always short.
pub fn encode_ready(out: &mut Vec<u8>) -> Result {
    encode_error(out, FROM_AGENT, Err(Error::PMDAREADY))
}
