//! Connecting to pmcd: sockets, pmproxy and the handshake.

use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, UnixAddr, connect, setsockopt, socket, sockopt::SendTimeout,
};
use nix::sys::time::{TimeVal, TimeValLike};

use super::channel::{Channel, Stream};
use super::host::{HostPorts, HostSpec, Place};
use super::settings::{FOREVER, Settings, after};
use pcp_pdu::client::Answer;
use pcp_pdu::handshake::{Attr, Attribute, Features, encode_creds};
use pcp_pdu::{FROM_AGENT, Pdu};
use pmapi::{Error, Result};

const REFUSED: Error = Error::from_errno(Errno::ECONNREFUSED as i32);
const NO_ROUTE: Error = Error::from_errno(Errno::EHOSTUNREACH as i32);
const TIMED_OUT: Error = Error::from_errno(Errno::ETIMEDOUT as i32);
const UNSUPPORTED: Error = Error::from_errno(Errno::EOPNOTSUPP as i32);

/// Connects to pmcd and returns the features that it advertises.
pub(super) fn connect_pmcd(spec: &HostSpec, settings: &Settings) -> Result<(Channel, Features)> {
    if spec.attributes.unsupported {
        return Err(UNSUPPORTED);
    }
    let attempt = Attempt { spec, settings };
    match &spec.place {
        Place::Nowhere => Err(Error::NOTHOST),
        Place::Host(host) => attempt.host(host),
        Place::Unix(path) => attempt.unix(path.as_deref()),
        Place::Local(path) => attempt
            .unix(path.as_deref())
            .or_else(|_| attempt.host(&HostPorts { name: "localhost".into(), ports: Vec::new() })),
    }
}

struct Attempt<'a> {
    spec: &'a HostSpec,
    settings: &'a Settings,
}

impl Attempt<'_> {
    fn unix(&self, path: Option<&Path>) -> Result<(Channel, Features)> {
        let stream = unix(path.unwrap_or(&self.settings.socket), self.settings.connect_timeout)?;
        self.greet(Channel::new(Stream::Unix(stream), self.settings), true)
    }

    /// Tries the ports one after the other. If all fail, returns the error of the last one.
    fn host(&self, host: &HostPorts) -> Result<(Channel, Features)> {
        let ports = if host.ports.is_empty() { &self.settings.ports } else { &host.ports };
        let mut result = Err(REFUSED);
        for port in ports {
            result = self.port(&host.name, *port);
            if result.is_ok() {
                break;
            }
        }
        result
    }

    fn port(&self, name: &str, port: u16) -> Result<(Channel, Features)> {
        let given = self.spec.proxy.as_ref().map(|proxy| (proxy.name.as_str(), proxy.ports.first().copied()));
        let proxy = given.or(self.settings.proxy.as_deref().map(|name| (name, None)));
        let channel = |stream| Channel::new(Stream::Tcp(stream), self.settings);
        let Some((proxy, proxy_port)) = proxy else {
            let stream = tcp(name, port, self.settings.connect_timeout)?;
            return self.greet(channel(stream), name.contains("localhost"));
        };
        let proxy_port = proxy_port.unwrap_or(self.settings.proxy_port);
        let mut channel = channel(tcp(proxy, proxy_port, self.settings.connect_timeout)?);
        channel.send_bytes(&[b"pmproxy-client 1\n"])?;
        if channel.line(100)? != b"pmproxy-server 1" {
            return Err(Error::IPC);
        }
        channel.send_bytes(&[format!("{name} {port}\n").as_bytes()])?;
        self.greet(channel, proxy.contains("localhost"))
    }

    /// Completes the handshake: pmcd sends its features, the client credentials and a container, which pmcd does not
    /// answer.
    fn greet(&self, mut channel: Channel, local: bool) -> Result<(Channel, Features)> {
        let features = match channel.receive_any()? {
            Answer::Pdu(Pdu::Error(greeting)) => greeting.greeting()?,
            _ => return Err(Error::IPC),
        };
        let unix = matches!(self.spec.place, Place::Unix(_) | Place::Local(_));
        let mut wanted = Features::empty();
        if features.contains(Features::CREDENTIALS_REQUIRED) {
            // Only on a Unix socket does the kernel tell pmcd the client's user.
            if !unix {
                return Err(UNSUPPORTED);
            }
            wanted |= Features::CREDENTIALS_REQUIRED;
        }
        if features.contains(Features::CERTIFICATE_REQUIRED) && !local {
            return Err(Error::NEEDCLIENTCERT);
        }
        let container = self.spec.attributes.container.as_deref().or(self.settings.container.as_deref());
        if container.is_some() {
            if !features.contains(Features::CONTAINER) {
                return Err(UNSUPPORTED);
            }
            wanted |= Features::CONTAINER;
        }
        let process = i32::try_from(std::process::id()).unwrap_or(FROM_AGENT);
        channel.send(|out| encode_creds(out, process, wanted))?;
        if let Some(container) = container {
            let attr = Attr { attribute: Attribute::CONTAINER, value: container.as_bytes() };
            channel.send(|out| attr.encode(out, FROM_AGENT))?;
        }
        Ok((channel, features))
    }
}

/// Connects to the first address that answers. Addresses share the time limit, so an address that does not answer
/// leaves time for the next one.
fn tcp(name: &str, port: u16, limit: Option<Duration>) -> Result<TcpStream> {
    let addresses: Vec<_> = (name, port).to_socket_addrs().map_err(|_| NO_ROUTE)?.collect();
    let deadline = limit.map(after);
    let mut error = NO_ROUTE;
    for (at, address) in addresses.iter().enumerate() {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let shared = u32::try_from(addresses.len() - at).unwrap_or(u32::MAX);
        let result = match left.map(|left| left / shared) {
            None => TcpStream::connect(address),
            Some(Duration::ZERO) => return Err(TIMED_OUT),
            Some(share) => TcpStream::connect_timeout(address, share),
        };
        match result {
            Ok(stream) => {
                // Requests are short, and the client waits for each answer.
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(e) if e.kind() == std::io::ErrorKind::TimedOut => error = TIMED_OUT,
            Err(e) => error = e.into(),
        }
    }
    Err(error)
}

/// Connects to a Unix socket. Connecting blocks while the server's queue is full. Only the send time-out ends that.
fn unix(path: &Path, limit: Option<Duration>) -> Result<UnixStream> {
    let errno = |e: Errno| match e {
        Errno::ENOENT => REFUSED,
        Errno::EAGAIN => TIMED_OUT,
        other => Error::from_errno(other as i32),
    };
    let address = UnixAddr::new(path).map_err(errno)?;
    let socket = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).map_err(errno)?;
    if let Some(limit) = limit {
        let micros = i64::try_from(limit.min(FOREVER).as_micros()).unwrap_or(i64::MAX).max(1);
        setsockopt(&socket, SendTimeout, &TimeVal::microseconds(micros)).map_err(errno)?;
    }
    connect(socket.as_raw_fd(), &address).map_err(errno)?;
    Ok(UnixStream::from(socket))
}
