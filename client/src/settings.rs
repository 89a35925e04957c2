//! How to connect: time-outs and defaults, from the environment (PCPIntro(1)).

use std::path::PathBuf;
use std::time::{Duration, Instant};

use pmapi::Config;

/// Time-outs, ports and paths. The default is what libpcp takes from the environment and `pcp.conf`; a variable that
/// makes no sense counts as absent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// How long a connection may take to be made, for all addresses of a port together; no limit when there is none
    /// (`$PMCD_CONNECT_TIMEOUT` in seconds with a fraction, 0 for no limit; 5 s).
    pub connect_timeout: Option<Duration>,
    /// How long a request may take to be sent, and its whole answer to come (`$PMCD_REQUEST_TIMEOUT`; 10 s).
    pub request_timeout: Duration,
    /// The longest answer that is taken, in bytes (256 MiB); libpcp takes any.
    pub longest_answer: u32,
    /// How long to wait after each attempt to connect again that failed; the last one holds for all further ones
    /// (`$PMCD_RECONNECT_TIMEOUT`, seconds with commas between; 5, 10, 20, 40, 80 s).
    pub reconnect: Vec<Duration>,
    /// The ports of a host that is named without any (`$PMCD_PORT`; 44321).
    pub ports: Vec<u16>,
    /// The socket of a pmcd on this host (`$PMCD_SOCKET`; `pmcd.socket` in `$PCP_RUN_DIR`).
    pub socket: PathBuf,
    /// The pmproxy to connect through, as `HOST` (`$PMPROXY_HOST`).
    pub proxy: Option<String>,
    /// The port of a pmproxy that is named without one (the first of `$PMPROXY_PORT`; 44322).
    pub proxy_port: u16,
    /// The container of a host that is named without one (`$PCP_CONTAINER`).
    pub container: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self::new(&Config::load())
    }
}

impl Settings {
    /// The settings in an environment.
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

/// Longer than any process lives, and no more than clocks and sockets can count.
pub(super) const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);

/// When a time is over that begins now.
pub(super) fn after(limit: Duration) -> Instant {
    Instant::now() + limit.min(FOREVER)
}

fn back_off(text: &str) -> Option<Vec<Duration>> {
    let seconds = |part: &str| part.trim_start().parse().ok().filter(|s: &u32| *s > 0);
    let steps: Option<Vec<u32>> = text.strip_suffix(',').unwrap_or(text).split(',').map(seconds).collect();
    Some(steps?.into_iter().map(|s| Duration::from_secs(s.into())).collect())
}

/// Ports up to the first that is none.
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
