//! Error codes of the PMAPI.

use std::fmt;

/// Result of an operation that fails with a PMAPI error code.
pub type Result<T = (), E = Error> = std::result::Result<T, E>;

/// PMAPI error code: a `PM_ERR_*` code or a negated `errno`, as in an ERROR PDU or in place of a number of values.
///
/// `Display` gives the text of pmErrStr(3), [`Error::name`] the symbol that `pmerr -l` lists.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Error(i32);

macro_rules! codes {
    ($($name:ident = $code:literal, $text:literal;)*) => {
        /// Constants for the `PM_ERR_*` codes. The texts are those of PCP 7.2. In PCP 6.0 eight texts about archives
        /// contained the word "log" as well.
        impl Error {
            $(#[doc = concat!("`PM_ERR_", stringify!($name), "`: ", $text, ".")]
            pub const $name: Error = Error($code);)*

            /// All codes that have a name, with symbol and text, in the order of `pmerr -l`.
            pub const ALL: &[(Error, &str, &str)] = &[
                $((Error($code), concat!("PM_ERR_", stringify!($name)), $text),)*
            ];
        }
    };
}

codes! {
    GENERIC = -12345, "Generic error, already reported above";
    PMNS = -12346, "Problems parsing PMNS definitions";
    NOPMNS = -12347, "PMNS not accessible";
    DUPPMNS = -12348, "Attempt to reload the PMNS";
    TEXT = -12349, "One-line or help text is not available";
    APPVERSION = -12350, "Metric not supported by this version of monitored application";
    VALUE = -12351, "Missing metric value(s)";
    TIMEOUT = -12353, "Timeout waiting for a response from PMCD";
    NODATA = -12354, "Empty archive file";
    RESET = -12355, "PMCD reset or configuration change";
    NAME = -12357, "Unknown metric name";
    PMID = -12358, "Unknown or illegal metric identifier";
    INDOM = -12359, "Unknown or illegal instance domain identifier";
    INST = -12360, "Unknown or illegal instance identifier";
    TYPE = -12397, "Unknown or illegal metric type";
    UNIT = -12361, "Illegal pmUnits specification";
    CONV = -12362, "Impossible value or scale conversion";
    TRUNC = -12363, "Truncation in value conversion";
    SIGN = -12364, "Negative value in conversion to unsigned";
    PROFILE = -12365, "Explicit instance identifier(s) required";
    IPC = -12366, "IPC protocol failure";
    TLS = -12414, "TLS protocol failure";
    EOF = -12368, "IPC channel closed";
    NOTHOST = -12369, "Operation requires context with host source of metrics";
    EOL = -12370, "End of PCP archive";
    MODE = -12371, "Illegal mode specification";
    LABEL = -12372, "Illegal label record at start of a PCP archive file";
    LOGREC = -12373, "Corrupted record in a PCP archive";
    LOGFILE = -12375, "Missing PCP archive file";
    NOTARCHIVE = -12374, "Operation requires context with archive source of metrics";
    NOCONTEXT = -12376, "Attempt to use an illegal context";
    PROFILESPEC = -12377, "NULL pmInDom with non-NULL instlist";
    PMID_LOG = -12378, "Metric not defined in the PCP archive";
    INDOM_LOG = -12379, "Instance domain identifier not defined in the PCP archive";
    INST_LOG = -12380, "Instance identifier not defined in the PCP archive";
    NOPROFILE = -12381, "Missing profile - protocol botch";
    NOAGENT = -12386, "No PMCD agent for domain of request";
    PERMISSION = -12387, "No permission to perform requested operation";
    CONNLIMIT = -12388, "PMCD connection limit for this host exceeded";
    AGAIN = -12389, "Try again. Information not currently available";
    ISCONN = -12390, "Already Connected";
    NOTCONN = -12391, "Not Connected";
    NEEDPORT = -12392, "A non-null port name is required";
    NONLEAF = -12394, "Metric name is not a leaf in PMNS";
    PMDANOTREADY = -13394, "PMDA is not yet ready to respond to requests";
    PMDAREADY = -13393, "PMDA is now responsive to requests";
    BOTCH = -12442, "Internal inconsistency detected or assertion failed";
    TOOSMALL = -12443, "Insufficient elements in list";
    TOOBIG = -12444, "Result size exceeded";
    FAULT = -12445, "QA fault injected";
    THREAD = -12398, "Operation not supported for multi-threaded applications";
    NOCONTAINER = -12399, "Container not found";
    BADSTORE = -12400, "Bad input to pmstore";
    LOGOVERLAP = -12401, "Archives overlap in time";
    LOGHOST = -12402, "Archives differ by host";
    LOGCHANGETYPE = -12404, "The type of a metric has changed in an archive";
    LOGCHANGESEM = -12405, "The semantics of a metric has changed in an archive";
    LOGCHANGEINDOM = -12406, "The instance domain of a metric has changed in an archive";
    LOGCHANGEUNITS = -12407, "The units of a metric have changed in an archive";
    NEEDCLIENTCERT = -12408, "PMCD requires a client certificate";
    BADDERIVE = -12409, "Derived metric definition failed";
    NOLABELS = -12410, "No support for metric label metadata";
    PMDAFENCED = -12411, "PMDA is currently fenced and unable to respond to requests";
    RECTYPE = -12412, "Incorrect record type in an archive";
    FEATURE = -12413, "Archive feature not supported";
    ARG = -12415, "Bad value for function argument";
    NYI = -21344, "Functionality not yet implemented";
}

impl Error {
    /// Returns the error for a code from the wire, or `None` for 0 and positive numbers, which are not errors.
    pub const fn from_code(code: i32) -> Option<Error> {
        if code < 0 { Some(Error(code)) } else { None }
    }

    /// Returns the error for an `errno`, for instance `-ENOENT` for `Error::from_errno(2)`. A number that cannot be an
    /// `errno` becomes [`Error::GENERIC`].
    pub const fn from_errno(errno: i32) -> Error {
        if errno > 0 && errno < -Error::GENERIC.0 { Error(-errno) } else { Error::GENERIC }
    }

    /// Returns the code of the wire encoding, which is negative.
    pub const fn code(self) -> i32 {
        self.0
    }

    /// Returns the symbol, for instance `PM_ERR_PMID`; `None` for an `errno` or an unknown code.
    pub fn name(self) -> Option<&'static str> {
        Self::ALL.iter().find(|e| e.0 == self).map(|e| e.1)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((_, _, text)) = Self::ALL.iter().find(|e| e.0 == *self) {
            return f.write_str(text);
        }
        if self.0 > Error::GENERIC.0 {
            // The standard library appends the number to strerror(3)'s text.
            let text = std::io::Error::from_raw_os_error(-self.0).to_string();
            return f.write_str(text.strip_suffix(&format!(" (os error {})", -self.0)).unwrap_or(&text));
        }
        write!(f, "No such PMAPI error code ({})", self.0)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "Error({}: {self})", self.0),
        }
    }
}

impl std::error::Error for Error {}

impl From<std::io::Error> for Error {
    /// Converts an error of the operating system to `-errno`, any other to [`Error::GENERIC`].
    fn from(e: std::io::Error) -> Self {
        e.raw_os_error().map_or(Error::GENERIC, Error::from_errno)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        assert_eq!(Error::PMID.to_string(), "Unknown or illegal metric identifier");
        assert_eq!(Error::from_errno(2).to_string(), "No such file or directory");
        assert_eq!(Error(-12352).to_string(), "No such PMAPI error code (-12352)");
        assert_eq!(Error(-999).to_string(), "Unknown error 999");
        assert_eq!(Error::PMID.name(), Some("PM_ERR_PMID"));
        assert_eq!(format!("{:?}", Error::from_errno(2)), "Error(-2: No such file or directory)");
    }

    #[test]
    fn only_negative_codes_are_errors() {
        assert_eq!(Error::from_code(0), None);
        assert_eq!(Error::from_code(7), None);
        assert_eq!(Error::from_code(-12358), Some(Error::PMID));
        assert_eq!(Error::from_errno(0), Error::GENERIC);
        assert_eq!(Error::from_errno(i32::MIN), Error::GENERIC);
    }
}
