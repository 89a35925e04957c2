//! Which servers a redirection may lead to. A server elsewhere could otherwise make the agent send requests to servers of
//! this host, or of its link, that are not meant for strangers.
//!
//! A redirection must not lead nearer than any server that led to it. What counts is the address of the connection, not
//! the name in the URL. What is behind a proxy is elsewhere.

use std::net::{IpAddr, Ipv4Addr};

use url::Host;

/// Text of the error about a redirection that leads too near.
pub(crate) const REFUSED: &str = "a redirection leads from a server elsewhere to this host or its link";

/// How near an address is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Reach {
    Elsewhere,
    /// A link-local address, where clouds have the server of a host's secrets.
    Link,
    /// The host itself: loopback, unspecified (which is connected to loopback), or a Unix socket.
    Host,
}

impl From<IpAddr> for Reach {
    fn from(ip: IpAddr) -> Reach {
        // An IPv4 address may be written as one of IPv6.
        let v4 = |ip: Ipv4Addr| match ip.octets() {
            [0 | 127, ..] => Reach::Host,
            [169, 254, ..] => Reach::Link,
            _ => Reach::Elsewhere,
        };
        match ip {
            IpAddr::V4(ip) => v4(ip),
            IpAddr::V6(ip) if ip.is_loopback() || ip.is_unspecified() => Reach::Host,
            IpAddr::V6(ip) if ip.is_unicast_link_local() => Reach::Link,
            IpAddr::V6(ip) => ip.to_ipv4().map_or(Reach::Elsewhere, v4),
        }
    }
}

impl Reach {
    /// Returns how near the host of a URL is, as far as its text says.
    pub(crate) fn of_host(host: &Host<&str>) -> Reach {
        match host {
            Host::Ipv4(ip) => IpAddr::from(*ip).into(),
            Host::Ipv6(ip) => IpAddr::from(*ip).into(),
            Host::Domain(name) if name.eq_ignore_ascii_case("localhost") => Reach::Host,
            Host::Domain(_) => Reach::Elsewhere,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn hosts() {
        for (reach, hosts) in [
            (
                Reach::Host,
                "127.0.0.1 127.8.9.1 127.1 2130706433 0.0.0.0 0.1.2.3 localhost LOCALHOST [::1] [::] [::ffff:127.0.0.1] \
                 [::ffff:0.0.0.0] [::127.0.0.1] [0:0:0:0:0:FFFF:7F00:1]",
            ),
            (Reach::Link, "169.254.169.254 [fe80::1] [febf::1] [::ffff:169.254.1.1]"),
            (
                Reach::Elsewhere,
                "128.0.0.1 169.253.1.1 192.168.1.1 10.0.0.1 [fec0::1] [fd00::1] [2001:db8::1] [::ffff:10.0.0.1] localhost.x",
            ),
        ] {
            hosts.split_whitespace().for_each(|host| {
                let url = url::Url::parse(&format!("http://{host}/")).unwrap();
                assert_eq!(Reach::of_host(&url.host().unwrap()), reach, "{host}");
            });
        }
        assert!(Reach::Elsewhere < Reach::Link && Reach::Link < Reach::Host);
    }
}
