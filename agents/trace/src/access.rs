//! Host-based access control (`-A`): which hosts may connect, and how many connections each may have.

use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs as _};
use std::str::FromStr;

use pmda::BoxError;
use trace::Failure;

/// Access specification: `allow:HOST:MAX` or `disallow:HOST`.
///
/// The host is a name, an address, or the beginning of an address as in `10.1.*`. `*` stands for all hosts. A maximum
/// of 0 connections stands for no limit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Spec {
    host: String,
    allowed: bool,
    most: u32,
}

impl FromStr for Spec {
    type Err = String;

    fn from_str(spec: &str) -> Result<Spec, String> {
        let (word, rest) = spec.split_once(':').unwrap_or((spec, ""));
        let (host, most) = rest.split_once(':').unwrap_or((rest, ""));
        let host = host.trim_start().to_owned();
        if word.eq_ignore_ascii_case("disallow") {
            return if host.is_empty() {
                Err(format!("invalid disallow ({spec})"))
            } else {
                Ok(Spec { host, allowed: false, most: 0 })
            };
        }
        if !word.eq_ignore_ascii_case("allow") {
            return Err(format!("access spec is invalid ({spec})"));
        }
        if host.is_empty() {
            return Err(format!("invalid allow ({spec})"));
        }
        let most = if most.is_empty() {
            0
        } else {
            most.trim_start().parse().map_err(|_| format!("bogus max connection in '{most}'"))?
        };
        Ok(Spec { host, allowed: true, most })
    }
}

/// Access list: rules for hosts, the most specific first.
#[derive(Debug, Default)]
pub(crate) struct Access {
    rules: Vec<Rule>,
    /// Addresses of this host. A client with a loopback address matches rules for any of these.
    own: Vec<Ipv4Addr>,
}

#[derive(Debug)]
struct Rule {
    network: Network,
    allowed: bool,
    most: u32,
    connected: u32,
}

/// Network of addresses that begin with the same bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Network {
    address: u32,
    /// Number of trailing bytes that may have any value, 0 to 4.
    any: u32,
}

impl Network {
    /// Parses a wildcard such as `10.1.*`. `None` without a `*` at the end.
    fn wildcard(text: &str) -> Option<Result<Network, String>> {
        let prefix = text.strip_suffix('*')?;
        let prefix = prefix.strip_suffix('.').unwrap_or(prefix);
        let bytes: Result<Vec<u8>, _> = prefix.split('.').filter(|byte| !byte.is_empty()).map(str::parse).collect();
        Some(match bytes {
            Ok(bytes) if bytes.len() <= 3 => {
                let any = 4 - bytes.len() as u32;
                let address = bytes.iter().fold(0, |address, byte| address << 8 | u32::from(*byte));
                Ok(Network { address: address.checked_shl(8 * any).unwrap_or(0), any })
            }
            _ => Err(format!("bad IP address wildcard {text}")),
        })
    }

    fn has(self, address: Ipv4Addr) -> bool {
        (address.to_bits() ^ self.address).checked_shr(8 * self.any).unwrap_or(0) == 0
    }
}

impl Access {
    /// Creates the access list, and resolves host names. An unknown host is an error, because ignoring it could admit a
    /// disallowed host.
    pub(crate) fn new(specs: &[Spec]) -> Result<Access, BoxError> {
        let mut access = Access::default();
        if specs.is_empty() {
            return Ok(access);
        }
        let name = nix::unistd::gethostname()?.to_string_lossy().into_owned();
        access.own = addresses(&name).unwrap_or_default();
        access.own.push(Ipv4Addr::LOCALHOST);
        for spec in specs {
            for network in access.networks(&spec.host)? {
                access.add(network, spec)?;
            }
        }
        // The first rule that matches applies.
        access.rules.sort_by_key(|rule| rule.network.any);
        Ok(access)
    }

    fn networks(&self, host: &str) -> Result<Vec<Network>, BoxError> {
        let exactly = |own: &[Ipv4Addr]| own.iter().map(|a| Network { address: a.to_bits(), any: 0 }).collect();
        match host {
            // The agent listens on IPv4 only.
            "unix" | "unix:" => Ok(Vec::new()),
            _ if host.eq_ignore_ascii_case("localhost") || host == "local" => Ok(exactly(&self.own)),
            _ => match Network::wildcard(host) {
                Some(network) => Ok(vec![network?]),
                None => Ok(exactly(&addresses(host).map_err(|e| format!("{host}: {e}"))?)),
            },
        }
    }

    fn add(&mut self, network: Network, spec: &Spec) -> Result<(), BoxError> {
        let Some(rule) = self.rules.iter_mut().find(|rule| rule.network == network) else {
            self.rules.push(Rule { network, allowed: spec.allowed, most: spec.most, connected: 0 });
            return Ok(());
        };
        if rule.allowed != spec.allowed || (rule.most != 0 && spec.most != 0 && rule.most != spec.most) {
            return Err(format!("permission clash for {}", spec.host).into());
        }
        rule.most = rule.most.max(spec.most);
        Ok(())
    }

    /// Counts another connection of a host, if it may connect.
    pub(crate) fn connect(&mut self, host: Ipv4Addr) -> Result<(), Failure> {
        let own = std::mem::take(&mut self.own);
        let names = if host.is_loopback() { &own[..] } else { std::slice::from_ref(&host) };
        let fits = |rule: &Rule| names.iter().any(|name| rule.network.has(*name));
        let result = match self.rules.iter().find(|rule| fits(rule)) {
            Some(rule) if !rule.allowed => Err(Failure::Permission),
            Some(rule) if rule.most != 0 && rule.connected >= rule.most => Err(Failure::ConnLimit),
            _ => Ok(()),
        };
        if result.is_ok() {
            self.rules.iter_mut().filter(|rule| fits(rule)).for_each(|rule| rule.connected += 1);
        }
        self.own = own;
        result
    }

    /// Returns whether clients on this host may connect.
    pub(crate) fn allows_own(&mut self) -> bool {
        let allowed = self.connect(Ipv4Addr::LOCALHOST).is_ok();
        if allowed {
            self.disconnect(Ipv4Addr::LOCALHOST);
        }
        allowed
    }

    /// Counts a connection of a host as ended.
    pub(crate) fn disconnect(&mut self, host: Ipv4Addr) {
        let names = if host.is_loopback() { &self.own[..] } else { std::slice::from_ref(&host) };
        for rule in self.rules.iter_mut().filter(|rule| names.iter().any(|name| rule.network.has(*name))) {
            rule.connected = rule.connected.saturating_sub(1);
        }
    }
}

fn addresses(host: &str) -> std::io::Result<Vec<Ipv4Addr>> {
    let found = (host, 0).to_socket_addrs()?.filter_map(|address| match address {
        SocketAddr::V4(address) => Some(*address.ip()),
        SocketAddr::V6(_) => None,
    });
    Ok(found.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(specs: &[&str]) -> Access {
        let specs: Vec<Spec> = specs.iter().map(|spec| spec.parse().unwrap()).collect();
        Access::new(&specs).unwrap()
    }

    fn ip(text: &str) -> Ipv4Addr {
        text.parse().unwrap()
    }

    #[test]
    fn specs() {
        let spec = |text: &str| text.parse::<Spec>();
        assert_eq!(spec("allow:10.1.*:5"), Ok(Spec { host: "10.1.*".into(), allowed: true, most: 5 }));
        assert_eq!(spec("ALLOW: bozo:0"), Ok(Spec { host: "bozo".into(), allowed: true, most: 0 }));
        assert_eq!(spec("Disallow:*"), Ok(Spec { host: "*".into(), allowed: false, most: 0 }));
        assert_eq!(spec("disallow:"), Err("invalid disallow (disallow:)".into()));
        assert_eq!(spec("allow::3"), Err("invalid allow (allow::3)".into()));
        assert_eq!(spec("allow:bozo:x"), Err("bogus max connection in 'x'".into()));
        assert_eq!(spec("allow:bozo:-1"), Err("bogus max connection in '-1'".into()));
        assert_eq!(spec("bozo"), Err("access spec is invalid (bozo)".into()));
    }

    #[test]
    fn without_a_list_everybody_may() {
        let mut access = access(&[]);
        (0..100).for_each(|_| access.connect(ip("10.0.0.1")).unwrap());
    }

    #[test]
    fn the_closest_rule_counts() {
        let mut access = access(&["disallow:*", "allow:10.1.*:0", "disallow:10.1.2.*", "allow:10.1.2.3:0"]);
        for (host, allowed) in
            [("10.1.2.3", true), ("10.1.2.4", false), ("10.1.3.3", true), ("10.2.2.3", false), ("127.0.0.1", false)]
        {
            assert_eq!(access.connect(ip(host)).is_ok(), allowed, "{host}");
        }
    }

    #[test]
    fn connections_are_counted() {
        let mut access = access(&["allow:10.1.*:2", "allow:localhost:1"]);
        let [a, b] = ["10.1.0.1", "10.1.9.9"].map(ip);
        assert!(access.connect(a).is_ok() && access.connect(b).is_ok());
        assert!(matches!(access.connect(a), Err(Failure::ConnLimit)));
        access.disconnect(b);
        assert!(access.connect(a).is_ok() && access.connect(b).is_err());
        assert!(access.connect(ip("127.0.0.1")).is_ok() && access.connect(ip("127.0.0.2")).is_err());
        assert!(access.connect(ip("10.2.0.1")).is_ok());
    }

    #[test]
    fn what_cannot_be_a_host() {
        for spec in ["disallow:10.1.2.3.*", "disallow:10.x.*", "disallow:10.300.*", "allow:no such host:0"] {
            assert!(Access::new(&[spec.parse().unwrap()]).is_err(), "{spec}");
        }
        let clash = ["allow:10.1.*:0", "disallow:10.1.*"].map(|spec| spec.parse().unwrap());
        assert_eq!(Access::new(&clash).unwrap_err().to_string(), "permission clash for 10.1.*");
    }
}
