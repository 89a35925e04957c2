//! The agent's address, timeouts and state flags: the environment variables of pmdatrace(3).

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use bitflags::bitflags;
use pmapi::is_set_id;
use thiserror::Error;

use crate::protocol::PORT;

/// Default delays between attempts to connect, in seconds.
const RECONNECT: [u64; 5] = [5, 10, 20, 40, 80];

/// Options of a [`Trace`](crate::Trace): the agent's address, the transport, timeouts and state flags.
///
/// ```
/// use pcp_trace::{Options, State, Trace};
///
/// let trace = Trace::new(Options::from_env()?.port(4399).state(State::ASYNC));
/// # _ = trace;
/// # Ok::<(), pcp_trace::EnvError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
#[must_use]
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
    /// Transport (`PCP_TRACE_TRANSPORT`: `auto`, `shared-memory` or `tcp`). Default: `auto`.
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
#[non_exhaustive]
pub enum Transport {
    /// Shared memory if the agent runs on this host and supports it, otherwise TCP.
    ///
    /// The library checks for shared memory at the first trace event and before each connection. While it uses a
    /// connection, it checks at intervals of the first delay of [`Options::reconnect`]. It never changes back to TCP.
    #[default]
    Auto,
    /// Shared memory, in a mapped file (module [`shared_memory`](crate::shared_memory)). Trace events are missed while
    /// no agent on this host supports it.
    SharedMemory,
    /// TCP, synchronous or asynchronous ([`State::ASYNC`]).
    Tcp,
}

/// Error of parsing a [`Transport`].
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("unknown transport {0:?}: auto, shared-memory or tcp is expected")]
pub struct UnknownTransport(pub String);

impl FromStr for Transport {
    type Err = UnknownTransport;

    fn from_str(text: &str) -> Result<Transport, UnknownTransport> {
        match text {
            "auto" => Ok(Transport::Auto),
            "shared-memory" => Ok(Transport::SharedMemory),
            "tcp" => Ok(Transport::Tcp),
            _ => Err(UnknownTransport(text.to_owned())),
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
            state: State::empty(),
            transport: Transport::Auto,
            directory: None,
            ring_len: 128 << 10,
        }
    }
}

/// Environment variable whose value is not valid (`PMTRACE_ERR_ENVFORMAT`).
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{name}={value}: {expected} expected")]
#[non_exhaustive]
pub struct EnvError {
    /// Name of the variable.
    pub name: &'static str,
    /// Value of the variable.
    pub value: String,
    /// The kind of value that is valid.
    pub expected: &'static str,
}

impl Options {
    /// Reads the environment variables of pmdatrace(3). Options without a variable have their defaults. In a program
    /// with more rights than its caller (set-uid, set-gid, or with file capabilities), all options have their defaults.
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
            options.reconnect =
                delays(&value).ok_or_else(|| parse_error("PCP_TRACE_RECONNECT", &value, "comma-separated seconds"))?;
        }
        if let Some(value) = text("PCP_TRACE_TRANSPORT") {
            options.transport =
                value.parse().map_err(|_| parse_error("PCP_TRACE_TRANSPORT", &value, "auto, shared-memory or tcp"))?;
        }
        if var("PCP_TRACE_NOAGENT").is_some() {
            options.state |= State::NOAGENT;
        }
        Ok(options)
    }
}

impl Options {
    /// Sets the [host](Options::host) of the agent.
    pub fn host(self, host: impl Into<String>) -> Options {
        Options { host: host.into(), ..self }
    }

    /// Sets the [TCP port](Options::port) of the agent.
    pub fn port(self, port: u16) -> Options {
        Options { port, ..self }
    }

    /// Sets the [timeout of connecting](Options::connect_timeout).
    pub fn connect_timeout(self, connect_timeout: Duration) -> Options {
        Options { connect_timeout, ..self }
    }

    /// Sets the [timeout of the agent's answer](Options::request_timeout).
    pub fn request_timeout(self, request_timeout: Duration) -> Options {
        Options { request_timeout, ..self }
    }

    /// Sets the [delays between attempts to connect](Options::reconnect).
    pub fn reconnect(self, reconnect: impl Into<Vec<Duration>>) -> Options {
        Options { reconnect: reconnect.into(), ..self }
    }

    /// Sets the [initial state flags](Options::state).
    pub fn state(self, state: State) -> Options {
        Options { state, ..self }
    }

    /// Sets the [transport](Options::transport).
    pub fn transport(self, transport: Transport) -> Options {
        Options { transport, ..self }
    }

    /// Sets the [agent's directory](Options::directory).
    pub fn directory(self, directory: impl Into<PathBuf>) -> Options {
        Options { directory: Some(directory.into()), ..self }
    }

    /// Sets the [size of each thread's ring](Options::ring_len), in bytes.
    pub fn ring_len(self, ring_len: usize) -> Options {
        Options { ring_len, ..self }
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

bitflags! {
    /// State flags (pmtracestate(3)). Without flags, TCP is synchronous, and there are no diagnostics.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct State: u32 {
        /// Shows calls of this library on standard error.
        const API = 1;
        /// Shows connections made and broken on standard error.
        const COMMS = 2;
        /// Shows PDUs that are sent on standard error.
        const PDU = 4;
        /// Shows how much the asynchronous protocol sends at a time, on standard error.
        const PDUBUF = 8;
        /// Traces nothing: calls return at once, and nothing is counted as missed.
        const NOAGENT = 16;
        /// Asynchronous protocol over TCP: trace events are queued and sent together. The agent does not acknowledge
        /// them. Shared memory ignores the flag, because it never waits for the agent.
        const ASYNC = 32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(vars: &[(&'static str, &str)]) -> Result<Options, EnvError> {
        Options::from_vars(|name| vars.iter().find(|var| var.0 == name).map(|var| var.1.into()))
    }

    #[test]
    fn transports_have_names() {
        let parse = |text: &str| text.parse::<Transport>().map_err(|e| e.to_string());
        let all = [Transport::Auto, Transport::SharedMemory, Transport::Tcp];
        assert_eq!(["auto", "shared-memory", "tcp"].map(parse), all.map(Ok));
        let expected = "unknown transport \"heavy\": auto, shared-memory or tcp is expected";
        assert_eq!(parse("heavy"), Err(expected.to_owned()));
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
