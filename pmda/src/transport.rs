//! How an agent talks to pmcd: pipe, inet, ipv6 or unix socket.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use pmapi::config::Config;
use tracing::{debug, warn};

use crate::user;

/// How an agent talks to pmcd.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) enum Transport {
    /// Standard input and output, which pmcd has made pipes (`-p`).
    #[default]
    Pipe,
    /// A TCP port on 127.0.0.1, by number or by its name in `/etc/services` (`-i`).
    Inet(String),
    /// A TCP port on ::1 (`-6`).
    Ipv6(String),
    /// A socket in the file system (`-u`).
    Unix(PathBuf),
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Transport::Pipe => f.write_str("pipe"),
            Transport::Inet(port) => write!(f, "inet port {port}"),
            Transport::Ipv6(port) => write!(f, "ipv6 port {port}"),
            Transport::Unix(path) => write!(f, "unix socket {}", path.display()),
        }
    }
}

/// A transport that pmcd can reach.
#[derive(Debug)]
pub(crate) enum Bound {
    Pipe,
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// A connection to pmcd: where PDUs come from, and where they go.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) input: File,
    pub(crate) output: File,
}

impl Transport {
    /// Makes sockets ready to be connected to.
    pub(crate) fn bind(&self, config: &Config) -> io::Result<Bound> {
        let tcp = |name: &str, at: fn(u16) -> SocketAddr| inet_port(name).and_then(|p| TcpListener::bind(at(p)));
        Ok(match self {
            Transport::Pipe => Bound::Pipe,
            Transport::Inet(name) => Bound::Tcp(tcp(name, |port| (Ipv4Addr::LOCALHOST, port).into())?),
            Transport::Ipv6(name) => Bound::Tcp(tcp(name, |port| (Ipv6Addr::LOCALHOST, port).into())?),
            Transport::Unix(path) => Bound::Unix(unix(path, config)?),
        })
    }
}

impl Bound {
    /// Waits for pmcd, and closes what it has connected to: an agent has one connection.
    pub(crate) fn accept(self) -> io::Result<Connection> {
        let socket = match self {
            Bound::Pipe => return pipe(),
            Bound::Tcp(listener) => {
                let (socket, from) = listener.accept()?;
                // A request and its answer shall not wait for each other's acknowledgement.
                socket.set_nodelay(true)?;
                debug!(target: "libpmda", "connected from {from}");
                OwnedFd::from(socket)
            }
            Bound::Unix(listener) => OwnedFd::from(listener.accept()?.0),
        };
        Ok(Connection { input: File::from(socket.try_clone()?), output: File::from(socket) })
    }
}

/// Takes standard input and output for PDUs. What the agent prints by mistake then goes to the log
/// and not into the middle of a PDU.
fn pipe() -> io::Result<Connection> {
    let input = io::stdin().as_fd().try_clone_to_owned()?;
    let output = io::stdout().as_fd().try_clone_to_owned()?;
    nix::unistd::dup2_stdin(File::open("/dev/null")?)?;
    nix::unistd::dup2_stdout(io::stderr())?;
    Ok(Connection { input: input.into(), output: output.into() })
}

/// The socket can be reached by pmcd's user and group.
fn unix(path: &Path, config: &Config) -> io::Result<UnixListener> {
    match fs::remove_file(path) {
        Ok(()) => warn!("socket {} exists, unlinked it", path.display()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(e),
    }
    let listener = UnixListener::bind(path)?;
    // Without the right to do this the agent may still be reached, for instance by a test.
    if let Err(e) = fs::set_permissions(path, PermissionsExt::from_mode(0o660)) {
        debug!(target: "libpmda", "mode of {}: {e}", path.display());
    }
    let name = config.user();
    match user::find(&name) {
        Some(user) => {
            if let Err(e) = nix::unistd::chown(path, Some(user.uid), Some(user.gid)) {
                debug!(target: "libpmda", "owner of {}: {e}", path.display());
            }
        }
        None => warn!("there is no user {name} to own socket {}", path.display()),
    }
    Ok(listener)
}

/// A TCP port by its number, or its name in `/etc/services`.
pub fn inet_port(name: &str) -> io::Result<u16> {
    if let Ok(port) = name.parse() {
        return Ok(port);
    }
    // Not every host has the file.
    let services = fs::read_to_string("/etc/services").unwrap_or_default();
    let found = services.lines().find_map(|line| {
        let mut words = line.split('#').next()?.split_whitespace();
        let (official, number) = (words.next()?, words.next()?);
        let port = number.strip_suffix("/tcp")?.parse().ok()?;
        (official == name || words.any(|alias| alias == name)).then_some(port)
    });
    found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("no port and no service {name:?}")))
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use nix::sys::socket::{getsockopt, sockopt::TcpNoDelay};

    use super::*;

    #[test]
    fn answers_do_not_wait_for_each_other() {
        let bound = Transport::Inet("0".into()).bind(&Config::new(b"", [])).unwrap();
        let Bound::Tcp(listener) = &bound else { panic!("{bound:?}") };
        let _pmcd = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let connection = bound.accept().unwrap();
        let undelayed = |file: &File| getsockopt(file, TcpNoDelay).unwrap();
        assert!(undelayed(&connection.input) && undelayed(&connection.output));
    }

    #[test]
    fn ports() {
        assert_eq!(inet_port("2078").unwrap(), 2078);
        assert!(inet_port("65536").is_err() && inet_port("no-such-service").is_err());
    }
}
