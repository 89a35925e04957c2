//! Where the agent is, how long it is waited for, and the state flags: the environment of pmdatrace(3).

use std::ffi::OsString;
use std::net::IpAddr;
use std::ops::{BitOr, BitOrAssign};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;

use crate::protocol::PORT;

/// Delays before a connection is tried again, in seconds.
const RECONNECT: [u64; 5] = [5, 10, 20, 40, 80];

/// How to reach the agent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// The host, by name or address (`PCP_TRACE_HOST`): this one without it.
    pub host: String,
    /// The port (`PCP_TRACE_PORT`): 4323 without it.
    pub port: u16,
    /// How long a connection may take to be made (`PCP_TRACE_TIMEOUT`, seconds): 3 s without it.
    pub connect_timeout: Duration,
    /// How long an answer may take (`PCP_TRACE_REQTIMEOUT`, seconds): 10 s without it.
    pub request_timeout: Duration,
    /// After how long a connection is tried again that could not be made, and again; the last holds for
    /// all that follow (`PCP_TRACE_RECONNECT`, seconds with commas between): 5, 10, 20, 40, 80 s.
    pub reconnect: Vec<Duration>,
    /// Flags to begin with. `PCP_TRACE_NOAGENT` sets [`State::NOAGENT`].
    pub state: State,
    /// Which way marks take (`PCP_TRACE_TRANSPORT`: `auto`, `light` or `tcp`).
    pub transport: Transport,
    /// The agent's directory, which says where files go: `$PCP_RUN_DIR/trace/PORT` without it.
    pub directory: Option<PathBuf>,
    /// Bytes of each thread's records in the light transport, 64 for most: 128 KiB.
    pub ring_len: usize,
}

/// The way to the agent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Transport {
    /// The light one if the agent is on this host and takes files, else TCP. That is looked for when something is marked
    /// for the first time, before each connection, and while marks go over one as often as after the first delay of
    /// [`Options::reconnect`]. The light one stays.
    #[default]
    Auto,
    /// Through a mapped file (see the module [`light`](crate::light)). While there is no agent that takes it everything
    /// is missed, as it is over TCP.
    Light,
    /// Through a connection.
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

/// A variable that says nothing sensible (`PMTRACE_ERR_ENVFORMAT`).
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{name}={value}: {expected} expected")]
pub struct EnvError {
    /// The variable.
    pub name: &'static str,
    /// What it says.
    pub value: String,
    /// What it might say.
    pub expected: &'static str,
}

impl Options {
    /// What the environment says, and the defaults for the rest.
    pub fn from_env() -> Result<Options, EnvError> {
        Self::from_vars(std::env::var_os)
    }

    /// The same for variables from elsewhere.
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
            let error = || parse_error("PCP_TRACE_RECONNECT", &value, "seconds with commas between");
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
    /// The options with the light transport.
    pub fn light(mut self) -> Options {
        self.transport = Transport::Light;
        self
    }

    /// How often the light way is looked for while another one is used.
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

/// In base 8 after a 0 and 16 after 0x, as strtol(3) has it.
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

/// State flags (pmtracestate(3)). The diagnostics go to standard error.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct State(pub u32);

impl State {
    /// Synchronous, no diagnostics.
    pub const NONE: State = State(0);
    /// Shows calls.
    pub const API: State = State(1);
    /// Shows connections.
    pub const COMMS: State = State(2);
    /// Shows PDUs.
    pub const PDU: State = State(4);
    /// Shows the buffer of what is to be sent.
    pub const PDUBUF: State = State(8);
    /// Sends nothing at all.
    pub const NOAGENT: State = State(16);
    /// The asynchronous protocol: what is traced is sent later, together with more, and not acknowledged.
    pub const ASYNC: State = State(32);

    /// Whether all flags of the other are set.
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
