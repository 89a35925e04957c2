//! Time-outs and defaults of a context, from the environment (PCPIntro(1)).

use std::path::PathBuf;
use std::time::{Duration, Instant};

use pmapi::Config;

/// Time-outs, ports and paths of a [`Context`](super::Context).
///
/// The default is what libpcp reads from the environment and `pcp.conf`. A variable with an invalid value counts as
/// unset.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// Time limit for connecting to all addresses of a port together; `None` for no limit.
    ///
    /// `$PMCD_CONNECT_TIMEOUT`, in seconds with a fraction, 0 for no limit; by default 5 s.
    pub connect_timeout: Option<Duration>,
    /// Time limit for sending a request, and for receiving its whole answer (`$PMCD_REQUEST_TIMEOUT`; 10 s).
    pub request_timeout: Duration,
    /// Longest answer that is accepted, in bytes (256 MiB); libpcp accepts any.
    pub longest_answer: u32,
    /// Pauses after failed attempts to reconnect, one for each attempt; the last one holds for all further attempts.
    ///
    /// `$PMCD_RECONNECT_TIMEOUT`, whole seconds separated by commas; by default 5, 10, 20, 40 and 80 s.
    pub reconnect: Vec<Duration>,
    /// Default ports of host specifications (`$PMCD_PORT`; 44321).
    pub ports: Vec<u16>,
    /// Unix socket of the local pmcd (`$PMCD_SOCKET`; `pmcd.socket` in `$PCP_RUN_DIR`).
    pub socket: PathBuf,
    /// Host name of the pmproxy to connect through (`$PMPROXY_HOST`).
    pub proxy: Option<String>,
    /// Default port of pmproxy (the first of `$PMPROXY_PORT`; 44322).
    pub proxy_port: u16,
    /// Default container of host specifications (`$PCP_CONTAINER`).
    pub container: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self::new(&Config::load())
    }
}

impl Settings {
    /// Reads the settings from the variables of `config`.
    pub fn new(config: &Config) -> Settings {
        let text = |name: &str| config.var(name).and_then(|value| value.to_str());
        let seconds = |name: &str| Duration::try_from_secs_f64(text(name)?.trim_start().parse().ok()?).ok();
        let connect = seconds("PMCD_CONNECT_TIMEOUT").unwrap_or(Duration::from_secs(5));
        let socket = config.var("PMCD_SOCKET").map_or_else(|| config.run_dir().join("pmcd.socket"), PathBuf::from);
        Settings {
            connect_timeout: Some(connect).filter(|limit| !limit.is_zero()),
            request_timeout: seconds("PMCD_REQUEST_TIMEOUT").unwrap_or(Duration::from_secs(10)),
            longest_answer: 256 << 20,
            reconnect: text("PMCD_RECONNECT_TIMEOUT").and_then(back_off).unwrap_or_else(|| {
                let default = [5, 10, 20, 40, 80];
                default.map(Duration::from_secs).to_vec()
            }),
            ports: ports(text("PMCD_PORT")).unwrap_or_else(|| vec![44321]),
            socket,
            proxy: text("PMPROXY_HOST").map(str::to_owned),
            proxy_port: ports(text("PMPROXY_PORT")).and_then(|ports| ports.first().copied()).unwrap_or(44322),
            container: text("PCP_CONTAINER").map(str::to_owned),
        }
    }
}

/// Longest time limit: longer than any process lives, and within the range of clocks and sockets.
pub(super) const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);

/// Returns the instant at which `limit` has passed from now.
pub(super) fn after(limit: Duration) -> Instant {
    Instant::now() + limit.min(FOREVER)
}

fn back_off(text: &str) -> Option<Vec<Duration>> {
    let parts = text.strip_suffix(',').unwrap_or(text).split(',');
    let steps: Option<Vec<u32>> = parts.map(|part| part.trim_start().parse().ok().filter(|s| *s > 0)).collect();
    Some(steps?.into_iter().map(|s| Duration::from_secs(s.into())).collect())
}

/// Parses ports, up to the first invalid one.
fn ports(text: Option<&str>) -> Option<Vec<u16>> {
    let ports: Vec<u16> = text?.split(',').map_while(|port| port.trim().parse().ok()).collect();
    (!ports.is_empty()).then_some(ports)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(env: &[(&str, &str)]) -> Settings {
        Settings::new(&Config::new(b"PCP_RUN_DIR=/run/pcp\n", env.iter().map(|(k, v)| (k.into(), v.into()))))
    }

    #[test]
    fn from_the_environment() {
        let default = settings(&[]);
        assert_eq!(default.connect_timeout, Some(Duration::from_secs(5)));
        assert_eq!(default.request_timeout, Duration::from_secs(10));
        assert_eq!((default.ports.as_slice(), default.proxy_port), (&[44321][..], 44322));
        assert_eq!(default.socket.to_str(), Some("/run/pcp/pmcd.socket"));
        assert_eq!(default.reconnect.len(), 5);
        let other = settings(&[
            ("PMCD_CONNECT_TIMEOUT", "0"),
            ("PMCD_REQUEST_TIMEOUT", "0.5"),
            ("PMCD_RECONNECT_TIMEOUT", "1,2"),
            ("PMCD_PORT", "1,2,x"),
            ("PMCD_SOCKET", "/s"),
        ]);
        assert_eq!((other.connect_timeout, other.request_timeout), (None, Duration::from_millis(500)));
        assert_eq!(other.reconnect, [1, 2].map(Duration::from_secs));
        assert_eq!((other.ports.as_slice(), other.socket.to_str()), (&[1, 2][..], Some("/s")));
    }

    #[test]
    fn what_makes_no_sense_counts_as_absent() {
        let env = [
            ("PMCD_CONNECT_TIMEOUT", "-1"),
            ("PMCD_REQUEST_TIMEOUT", "1s"),
            ("PMCD_RECONNECT_TIMEOUT", "1,0"),
            ("PMCD_PORT", "x"),
        ];
        assert_eq!(settings(&env), settings(&[]));
    }
}
