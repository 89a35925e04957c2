//! Host specifications: the address of a pmcd as users write it (the host of pmNewContext(3), PCPIntro(1)).

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use pmapi::spec::SpecError;

/// Address of a pmcd.
///
/// ```text
/// [pcp://]HOST[:PORT[,PORT...]][@PROXY[:PORT]][?ATTRIBUTES]    HOST may be in brackets: [::1]:44321
/// unix:[//PATH][?ATTRIBUTES]
/// local:[//PATH][?ATTRIBUTES]                                  as unix:, and localhost if that fails
/// ```
///
/// Unlike libpcp, refuses ports above 65535 and an empty name after `@`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct HostSpec {
    text: String,
    pub(super) place: Place,
    /// Host and port of the pmproxy to connect through; `None` for that of the settings.
    pub(super) proxy: Option<HostPorts>,
    pub(super) attributes: Attributes,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Place {
    /// Unix socket; `None` for pmcd's default path.
    Unix(Option<PathBuf>),
    /// Unix socket, and localhost if that fails.
    Local(Option<PathBuf>),
    Host(HostPorts),
    /// Missing name, which is `PM_ERR_NOTHOST`.
    Nowhere,
}

/// Host and its ports; no ports stand for the default ones.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct HostPorts {
    pub(super) name: String,
    pub(super) ports: Vec<u16>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Attributes {
    /// Container whose metrics are requested.
    pub(super) container: Option<String>,
    /// Whether an unsupported feature is requested: encryption, compression or a user's password.
    pub(super) unsupported: bool,
}

/// Text that the specification was parsed from.
impl fmt::Display for HostSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl FromStr for HostSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<HostSpec, SpecError> {
        let mut scan = Scan { text, at: 0 };
        let mut attributes = Attributes::default();
        let mut proxy = None;
        let place = if scan.protocol("unix:") {
            Place::Unix(scan.path())
        } else if scan.protocol("local:") {
            Place::Local(scan.path())
        } else {
            attributes.unsupported = scan.protocol("pcps:");
            if !attributes.unsupported {
                scan.protocol("pcp:");
            }
            let mut hosts = scan.hosts()?.into_iter();
            let place = hosts.next().map_or(Place::Nowhere, Place::Host);
            proxy = hosts.next();
            place
        };
        match scan.peek() {
            Some(b'?') => scan.at += 1,
            None | Some(b'/') => {}
            Some(_) => return Err(scan.error("unexpected terminal character")),
        }
        attributes.read(scan.rest());
        Ok(HostSpec { text: text.to_owned(), place, proxy, attributes })
    }
}

impl Attributes {
    /// Reads `NAME=VALUE&...` and ignores unknown names.
    fn read(&mut self, text: &str) {
        let text = text.split('/').next().unwrap_or_default();
        for attribute in text.split('&') {
            let (name, value) = attribute.split_once('=').unwrap_or((attribute, ""));
            match name {
                "container" => self.container = Some(url_decoded(value)),
                "secure" => self.unsupported = value != "relaxed" && self.unsupported,
                "compress" | "userauth" | "authorise" | "authorize" | "user" | "username" | "realm" | "authmeth"
                | "method" | "pass" | "password" => self.unsupported = true,
                _ => {}
            }
        }
    }
}

/// Decodes a value of a URL: `%41` is an `A`, and a plus is a space.
fn url_decoded(text: &str) -> String {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [byte, tail @ ..] = rest {
        rest = tail;
        decoded.push(match (byte, tail) {
            (b'+', _) => b' ',
            (b'%', [high, low, after @ ..]) if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                rest = after;
                hex(*high) << 4 | hex(*low)
            }
            _ => *byte,
        });
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

fn hex(digit: u8) -> u8 {
    char::from(digit).to_digit(16).map_or(0, |value| value as u8)
}

struct Scan<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scan<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn error(&self, reason: &'static str) -> SpecError {
        SpecError::new(self.text, self.at, reason)
    }

    /// Skips `name` and the slashes after it, if the text begins with this protocol. Returns whether it does.
    fn protocol(&mut self, name: &str) -> bool {
        let Some(rest) = self.rest().strip_prefix(name) else { return false };
        self.at = self.text.len() - rest.trim_start_matches('/').len();
        true
    }

    /// Consumes and returns the text before any of the characters.
    fn until(&mut self, ends: &[char]) -> &'a str {
        let rest = self.rest();
        let taken = rest.get(..rest.find(ends).unwrap_or(rest.len())).unwrap_or_default();
        self.at += taken.len();
        taken
    }

    /// Consumes the path of a socket and makes it absolute, since `protocol` has skipped its slash.
    fn path(&mut self) -> Option<PathBuf> {
        match self.until(&[':', '?']) {
            "" => None,
            path => Some(format!("/{path}").into()),
        }
    }

    fn hosts(&mut self) -> Result<Vec<HostPorts>, SpecError> {
        const ENDS: [char; 4] = [':', '@', '/', '?'];
        let mut hosts = Vec::new();
        loop {
            let name = if self.peek() == Some(b'[') { self.bracketed(&ENDS)? } else { self.until(&ENDS) };
            if name.is_empty() {
                // pmNewContext(3) accepts a specification without any name, but not an empty name after an `@`.
                return if hosts.is_empty() { Ok(hosts) } else { Err(self.error("host name expected")) };
            }
            let ports = if self.peek() == Some(b':') { self.ports()? } else { Vec::new() };
            hosts.push(HostPorts { name: name.to_owned(), ports });
            if self.peek() != Some(b'@') {
                return Ok(hosts);
            }
            self.at += 1;
        }
    }

    fn bracketed(&mut self, ends: &[char]) -> Result<&'a str, SpecError> {
        self.at += 1;
        let name = self.until(&[']']);
        if self.peek().is_none() {
            return Err(self.error("missing closing ']' for host spec"));
        }
        self.at += 1;
        if !self.rest().is_empty() && !self.rest().starts_with(ends) {
            return Err(self.error("extra characters after host spec"));
        }
        Ok(name)
    }

    /// Consumes ports, each after a colon or comma.
    fn ports(&mut self) -> Result<Vec<u16>, SpecError> {
        let mut ports = Vec::new();
        while matches!(self.peek(), Some(b':' | b',')) && (ports.is_empty() || self.peek() == Some(b',')) {
            self.at += 1;
            let start = self.at;
            while self.peek().is_some_and(|b| b.is_ascii_digit()) {
                self.at += 1;
            }
            if !matches!(self.peek(), None | Some(b',' | b'@' | b'/' | b'?')) {
                return Err(self.error("non-numeric port"));
            }
            let digits = self.text.get(start..self.at).unwrap_or_default();
            if digits.is_empty() {
                return Err(self.error("missing port"));
            }
            ports.push(digits.parse().map_err(|_| SpecError::new(self.text, start, "port above 65535"))?);
        }
        Ok(ports)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> (String, Vec<u16>) {
        match text.parse::<HostSpec>().unwrap().place {
            Place::Host(host) => (host.name, host.ports),
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn hosts_and_ports() {
        assert_eq!(host("h"), ("h".into(), vec![]));
        assert_eq!(host("h:1"), ("h".into(), vec![1]));
        assert_eq!(host("pcp://h:1,2?container=c"), ("h".into(), vec![1, 2]));
        assert_eq!(host("pcp:h/"), ("h".into(), vec![]));
        assert_eq!(host("[::1]:44321,4321"), ("::1".into(), vec![44321, 4321]));
        assert_eq!(host("[::1]"), ("::1".into(), vec![]));
        let proxied: HostSpec = "h:7@[fe80::1]:8@ignored".parse().unwrap();
        assert_eq!(proxied.proxy, Some(HostPorts { name: "fe80::1".into(), ports: vec![8] }));
        assert_eq!("".parse::<HostSpec>().unwrap().place, Place::Nowhere);
        assert_eq!("?container=c".parse::<HostSpec>().unwrap().place, Place::Nowhere);
    }

    #[test]
    fn sockets() {
        let place = |text: &str| text.parse::<HostSpec>().unwrap().place;
        assert_eq!(place("unix:"), Place::Unix(None));
        assert_eq!(place("unix://run/s"), Place::Unix(Some("/run/s".into())));
        assert_eq!(place("unix:run/s?container=c"), Place::Unix(Some("/run/s".into())));
        assert_eq!(place("local:"), Place::Local(None));
        assert_eq!(place("local:///run/s?container=c"), Place::Local(Some("/run/s".into())));
        assert_eq!(place("local:?container=c"), Place::Local(None));
    }

    #[test]
    fn attributes() {
        let attributes = |text: &str| text.parse::<HostSpec>().unwrap().attributes;
        assert_eq!(attributes("h?container=a%2Fb+c&x=1").container.as_deref(), Some("a/b c"));
        assert_eq!(attributes("h?container=%zz%4").container.as_deref(), Some("%zz%4"));
        assert!(!attributes("h?x").unsupported && attributes("h?user=otto").unsupported);
        assert!(attributes("pcps://h").unsupported && !attributes("pcps://h?secure=relaxed").unsupported);
    }

    /// Compares with the texts of `pminfo -h`.
    #[test]
    fn refused() {
        let refused = |text: &str| text.parse::<HostSpec>().unwrap_err().to_string();
        assert_eq!(refused("host:x"), "host:x\n     ^ -- non-numeric port");
        assert_eq!(refused(":44321"), ":44321\n^ -- unexpected terminal character");
        assert_eq!(refused("[abc"), "[abc\n    ^ -- missing closing ']' for host spec");
        assert_eq!(refused("[abc]d"), "[abc]d\n     ^ -- extra characters after host spec");
        assert_eq!(refused("localhost:"), "localhost:\n          ^ -- missing port");
        assert_eq!(refused("h:1,"), "h:1,\n    ^ -- missing port");
        assert_eq!(refused("h:65536"), "h:65536\n  ^ -- port above 65535");
        assert_eq!(refused("h@"), "h@\n  ^ -- host name expected");
        assert_eq!(refused("unix://x:"), "unix://x:\n        ^ -- unexpected terminal character");
        assert_eq!(refused("h:1:2"), "h:1:2\n   ^ -- non-numeric port");
    }

    proptest::proptest! {
        #[test]
        fn anything_is_a_host_or_an_error(text in "(pcp:|unix:|local:)?[a-z\\[\\]:,@/?%&=+.0-9é]{0,20}") {
            if let Err(e) = text.parse::<HostSpec>() {
                assert!(e.at() <= text.len() && text.is_char_boundary(e.at()), "{text:?}: {e:?}");
            }
        }
    }
}
