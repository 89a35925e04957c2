//! The agent's address, timeouts and state flags: the environment variables of pmdatrace(3).

use std::ffi::OsString;
use std::net::IpAddr;
use std::ops::{BitOr, BitOrAssign};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use pmapi::config::is_set_id;
use thiserror::Error;

use crate::protocol::PORT;

/// Default delays between attempts to connect, in seconds.
const RECONNECT: [u64; 5] = [5, 10, 20, 40, 80];

/// Options of a [`Trace`](crate::Trace): the agent's address, the transport, timeouts and state flags.
///
/// ```
/// let options = pcp_trace::Options { port: 4399, ..pcp_trace::Options::from_env()? };
/// let trace = pcp_trace::Trace::new(options);
/// # _ = trace;
/// # Ok::<(), pcp_trace::EnvError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// Host name or address of the agent (`PCP_TRACE_HOST`). Default: `localhost`.
    pub host: String,
    /// TCP port of the agent (`PCP_TRACE_PORT`). Default: 4323.
    pub port: u16,
    /// Timeout of connecting (`PCP_TRACE_TIMEOUT`, in seconds). Default: 3 s.
    pub connect_timeout: Duration,
    /// Timeout of the agent's answer (`PCP_TRACE_REQTIMEOUT`, in seconds). Default: 10 s.
    pub request_timeout: Duration,
    /// Delays between attempts to connect (`PCP_TRACE_RECONNECT`, comma-separated seconds). The last one repeats.
    /// Default: 5, 10, 20, 40, 80 s.
    pub reconnect: Vec<Duration>,
    /// Initial state flags. Setting the variable `PCP_TRACE_NOAGENT` adds [`State::NOAGENT`].
    pub state: State,
    /// Transport (`PCP_TRACE_TRANSPORT`: `auto`, `light` or `tcp`). Default: `auto`.
    pub transport: Transport,
    /// The agent's directory, for the shared-memory transport. Default: `$PCP_RUN_DIR/trace/PORT`.
    pub directory: Option<PathBuf>,
    /// Size of each thread's ring of event records in shared memory, in bytes. Default: 128 KiB.
    ///
    /// Most records take 64 bytes. The size is rounded up to pages of 4 KiB, and is at most 16 MiB.
    pub ring_len: usize,
}

/// Transport of trace events to the agent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Transport {
    /// Shared memory if the agent runs on this host and supports it, otherwise TCP.
    ///
    /// The library checks for shared memory at the first trace event and before each connection. While it uses a
    /// connection, it checks at intervals of the first delay of [`Options::reconnect`]. It never changes back to TCP.
    #[default]
    Auto,
    /// Shared memory, in a mapped file (module [`light`](crate::light)). Trace events are missed while no agent on this
    /// host supports it.
    Light,
    /// TCP, synchronous or asynchronous ([`State::ASYNC`]).
    Tcp,
}

impl FromStr for Transport {
    type Err = ();

    fn from_str(text: &str) -> Result<Transport, ()> {
        match text {
            "auto" => Ok(Transport::Auto),
            "light" => Ok(Transport::Light),
            "tcp" => Ok(Transport::Tcp),
            _ => Err(()),
        }
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            host: "localhost".to_owned(),
            port: PORT,
            connect_timeout: Duration::from_secs(3),
            request_timeout: Duration::from_secs(10),
            reconnect: RECONNECT.map(Duration::from_secs).to_vec(),
            state: State::NONE,
            transport: Transport::Auto,
            directory: None,
            ring_len: 128 << 10,
        }
    }
}

/// Environment variable whose value is not valid (`PMTRACE_ERR_ENVFORMAT`).
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{name}={value}: {expected} expected")]
pub struct EnvError {
    /// Name of the variable.
    pub name: &'static str,
    /// Its value.
    pub value: String,
    /// The kind of value that is valid.
    pub expected: &'static str,
}

impl Options {
    /// Reads the environment variables of pmdatrace(3). Options without a variable have their defaults, and so have all
    /// options of a program with more rights than its caller (set-uid, set-gid, or with file capabilities).
    ///
    /// # Errors
    /// [`EnvError`] for a variable whose value is not valid.
    pub fn from_env() -> Result<Options, EnvError> {
        Self::from_vars(|name| if is_set_id() { None } else { std::env::var_os(name) })
    }

    /// Reads the variables of [`Options::from_env`] from `var` instead of the environment.
    ///
    /// # Errors
    /// [`EnvError`] for a variable whose value is not valid.
    pub fn from_vars(var: impl Fn(&'static str) -> Option<OsString>) -> Result<Options, EnvError> {
        let text = |name| var(name).map(|value| value.to_string_lossy().into_owned());
        let mut options = Options::default();
        let parse_error = |name, value: &str, expected| EnvError { name, value: value.to_owned(), expected };
        let seconds = |name, default| match text(name) {
            None => Ok(default),
            Some(value) => seconds(&value).ok_or_else(|| parse_error(name, &value, "a number of seconds")),
        };
        options.connect_timeout = seconds("PCP_TRACE_TIMEOUT", options.connect_timeout)?;
        options.request_timeout = seconds("PCP_TRACE_REQTIMEOUT", options.request_timeout)?;
        options.host = text("PCP_TRACE_HOST").unwrap_or(options.host);
        if let Some(value) = text("PCP_TRACE_PORT") {
            options.port = port(&value).ok_or_else(|| parse_error("PCP_TRACE_PORT", &value, "a port number"))?;
        }
        if let Some(value) = text("PCP_TRACE_RECONNECT") {
            let error = || parse_error("PCP_TRACE_RECONNECT", &value, "comma-separated seconds");
            options.reconnect = delays(&value).ok_or_else(error)?;
        }
        if let Some(value) = text("PCP_TRACE_TRANSPORT") {
            let error = || parse_error("PCP_TRACE_TRANSPORT", &value, "auto, light or tcp");
            options.transport = value.parse().map_err(|()| error())?;
        }
        if var("PCP_TRACE_NOAGENT").is_some() {
            options.state |= State::NOAGENT;
        }
        Ok(options)
    }
}

impl Options {
    /// Selects [`Transport::Light`].
    pub fn light(mut self) -> Options {
        self.transport = Transport::Light;
        self
    }

    /// Interval of checks for the shared-memory transport while TCP is in use.
    pub(crate) fn look_every(&self) -> Duration {
        self.reconnect.first().copied().unwrap_or(Duration::from_secs(RECONNECT[0]))
    }

    pub(crate) fn is_local(&self) -> bool {
        self.host == "localhost" || self.host.parse::<IpAddr>().is_ok_and(|host| host.is_loopback())
    }
}

fn seconds(text: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(text.trim_start().parse().ok()?).ok()
}

/// Parses a port number: octal after `0`, hexadecimal after `0x`, as strtol(3) does.
fn port(text: &str) -> Option<u16> {
    let text = text.trim_start();
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u16::from_str_radix(digits, 16).ok(),
        None if text.len() > 1 && text.starts_with('0') => u16::from_str_radix(text, 8).ok(),
        None => text.parse().ok(),
    }
}

fn delays(text: &str) -> Option<Vec<Duration>> {
    let words = text.strip_suffix(',').unwrap_or(text).split(',');
    words.map(|word| word.trim_start().parse().ok().filter(|n| *n > 0).map(Duration::from_secs)).collect()
}

/// State flags (pmtracestate(3)). Diagnostics go to standard error.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct State(pub u32);

impl State {
    /// No flags: the synchronous protocol without diagnostics.
    pub const NONE: State = State(0);
    /// Shows calls of this library.
    pub const API: State = State(1);
    /// Shows connections made and broken.
    pub const COMMS: State = State(2);
    /// Shows PDUs that are sent.
    pub const PDU: State = State(4);
    /// Shows how much the asynchronous protocol sends at a time.
    pub const PDUBUF: State = State(8);
    /// Traces nothing: calls return at once, and nothing is counted as missed.
    pub const NOAGENT: State = State(16);
    /// Asynchronous protocol: trace events are queued and sent together. The agent does not acknowledge them.
    pub const ASYNC: State = State(32);

    /// Returns whether all flags of `other` are set.
    pub const fn has(self, other: State) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for State {
    type Output = State;

    fn bitor(self, other: State) -> State {
        State(self.0 | other.0)
    }
}

impl BitOrAssign for State {
    fn bitor_assign(&mut self, other: State) {
        self.0 |= other.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(vars: &[(&'static str, &str)]) -> Result<Options, EnvError> {
        Options::from_vars(|name| vars.iter().find(|var| var.0 == name).map(|var| var.1.into()))
    }

    #[test]
    fn variables() {
        assert_eq!(with(&[]), Ok(Options::default()));
        let options = with(&[
            ("PCP_TRACE_HOST", "bozo"),
            ("PCP_TRACE_PORT", "0x10E4"),
            ("PCP_TRACE_TIMEOUT", "0.5"),
            ("PCP_TRACE_REQTIMEOUT", "2"),
            ("PCP_TRACE_RECONNECT", "1,3"),
            ("PCP_TRACE_NOAGENT", ""),
            ("PCP_TRACE_TRANSPORT", "tcp"),
        ]);
        let expected = Options {
            host: "bozo".into(),
            port: 4324,
            connect_timeout: Duration::from_millis(500),
            request_timeout: Duration::from_secs(2),
            reconnect: vec![Duration::from_secs(1), Duration::from_secs(3)],
            state: State::NOAGENT,
            transport: Transport::Tcp,
            ..Options::default()
        };
        assert_eq!(options, Ok(expected));
        for (name, value) in [
            ("PCP_TRACE_PORT", "http"),
            ("PCP_TRACE_PORT", "-1"),
            ("PCP_TRACE_PORT", "65536"),
            ("PCP_TRACE_TIMEOUT", "-1"),
            ("PCP_TRACE_TIMEOUT", "nan"),
            ("PCP_TRACE_REQTIMEOUT", "1s"),
            ("PCP_TRACE_RECONNECT", "1,,2"),
            ("PCP_TRACE_RECONNECT", "0"),
            ("PCP_TRACE_RECONNECT", ""),
            ("PCP_TRACE_TRANSPORT", "heavy"),
        ] {
            let error = with(&[(name, value)]).unwrap_err();
            assert!(error.to_string().starts_with(&format!("{name}={value}: ")), "{error}");
        }
    }
}
