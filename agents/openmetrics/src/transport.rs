//! Connections for the HTTP client: addresses without a name service, and Unix sockets.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use ureq::Error;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport};

/// Resolver that answers for addresses and for `localhost` itself. The default one starts a thread for each request.
#[derive(Debug, Default)]
pub(crate) struct Direct(DefaultResolver);

impl Resolver for Direct {
    fn resolve(&self, uri: &Uri, config: &Config, timeout: NextTimeout) -> Result<ResolvedSocketAddrs, Error> {
        let default = if uri.scheme_str() == Some("https") { 443 } else { 80 };
        let Some(authority) = uri.authority() else { return self.0.resolve(uri, config, timeout) };
        let port = authority.port_u16().unwrap_or(default);
        let host = authority.host();
        let mut addrs = self.empty();
        if let Ok(ip) = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
            addrs.push(SocketAddr::new(ip, port));
        } else if host == "localhost" {
            addrs.push(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
            addrs.push(SocketAddr::new(IpAddr::V6(Ipv6Addr::LOCALHOST), port));
        } else {
            return self.0.resolve(uri, config, timeout);
        }
        Ok(addrs)
    }
}

/// Resolver for connections that need no address.
#[derive(Debug)]
pub(crate) struct NoAddress;

impl Resolver for NoAddress {
    fn resolve(&self, _: &Uri, _: &Config, _: NextTimeout) -> Result<ResolvedSocketAddrs, Error> {
        let mut addrs = self.empty();
        addrs.push(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0));
        Ok(addrs)
    }
}

/// Connector to a Unix socket, whatever the host of the URL.
#[derive(Debug)]
pub(crate) struct UnixConnector(pub(crate) PathBuf);

impl Connector for UnixConnector {
    type Out = UnixTransport;

    fn connect(&self, details: &ConnectionDetails<'_>, _: Option<()>) -> Result<Option<UnixTransport>, Error> {
        if details.needs_tls() {
            return Err(Error::Io(io::Error::new(ErrorKind::Unsupported, "no HTTPS over a Unix socket")));
        }
        let stream = connect_unix(&self.0)
            .map_err(|e| Error::Io(io::Error::new(e.kind(), format!("{}: {e}", self.0.display()))))?;
        let buffers = LazyBuffers::new(details.config.input_buffer_size(), details.config.output_buffer_size());
        Ok(Some(UnixTransport { stream, buffers }))
    }
}

/// Connects without waiting for a server whose queue is full.
fn connect_unix(path: &std::path::Path) -> io::Result<UnixStream> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    connect(fd.as_raw_fd(), &UnixAddr::new(path)?)?;
    let stream = UnixStream::from(fd);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// A connection to a Unix socket.
#[derive(Debug)]
pub(crate) struct UnixTransport {
    stream: UnixStream,
    buffers: LazyBuffers,
}

/// Converts an error. The socket's own time limit is the one of `timeout`.
fn failed(e: io::Error, timeout: &NextTimeout) -> Error {
    match e.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => Error::Timeout(timeout.reason),
        _ => Error::Io(e),
    }
}

impl Transport for UnixTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.stream.set_write_timeout(timeout.not_zero().map(|time| *time))?;
        let output = self.buffers.output().get(..amount).unwrap_or_default();
        self.stream.write_all(output).map_err(|e| failed(e, &timeout))
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.stream.set_read_timeout(timeout.not_zero().map(|time| *time))?;
        let amount = loop {
            match self.stream.read(self.buffers.input_append_buf()) {
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                other => break other.map_err(|e| failed(e, &timeout))?,
            }
        };
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    /// A connection is open if there is nothing to be read, not even its end.
    fn is_open(&mut self) -> bool {
        let probe = |stream: &mut UnixStream| {
            stream.set_nonblocking(true)?;
            let read = stream.read(&mut [0]);
            stream.set_nonblocking(false)?;
            read
        };
        matches!(probe(&mut self.stream), Err(e) if e.kind() == ErrorKind::WouldBlock)
    }
}
