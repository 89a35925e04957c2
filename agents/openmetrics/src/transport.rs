//! Connections for the HTTP client: TCP, TLS and Unix sockets, with buffers only while they are used, and addresses without
//! a name service.

use std::cell::RefCell;
use std::fmt::Debug;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use ureq::Error;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
#[cfg(feature = "tls")]
use ureq::unversioned::transport::RustlsConnector;
use ureq::unversioned::transport::{
    Buffers, ConnectProxyConnector, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport,
};

use crate::descriptors::Place;
use crate::lookup;
use crate::reach::{self, Reach};

/// Resolver that handles addresses and `localhost` without a name service. The default one starts a thread for each
/// request, without a limit, and panics if the system has no more threads.
#[derive(Debug, Default)]
pub(crate) struct Direct;

impl Resolver for Direct {
    fn resolve(&self, uri: &Uri, _: &Config, timeout: NextTimeout) -> Result<ResolvedSocketAddrs, Error> {
        let default = if uri.scheme_str() == Some("https") { 443 } else { 80 };
        let Some(authority) = uri.authority() else { return Err(Error::HostNotFound) };
        let port = authority.port_u16().unwrap_or(default);
        let host = authority.host();
        let mut addrs = self.empty();
        if let Ok(ip) = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
            addrs.push(SocketAddr::new(ip, port));
        } else if host == "localhost" {
            addrs.push(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
            addrs.push(SocketAddr::new(IpAddr::V6(Ipv6Addr::LOCALHOST), port));
        } else {
            let time = left(&timeout)?.unwrap_or(LOOKUP);
            let found = lookup::addresses(host, time)?.ok_or(Error::Timeout(timeout.reason))?;
            found.into_iter().take(MOST).for_each(|ip| addrs.push(SocketAddr::new(ip, port)));
        }
        if addrs.is_empty() { Err(Error::HostNotFound) } else { Ok(addrs) }
    }
}

/// Longest time for a look-up if the request has no limit.
const LOOKUP: Duration = Duration::from_secs(60);
/// Longest time for which a connection is kept without a request. Many servers close it earlier.
pub(crate) const IDLE: Duration = Duration::from_secs(300);
/// Shortest time for an attempt to connect. The system allows no shorter one.
const SHORTEST: Duration = Duration::from_millis(1);
/// Most addresses of a host: those that ureq can take.
const MOST: usize = 16;

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

/// Connector to the servers of URLs, or to a proxy that the environment names. It takes the place of ureq's, whose
/// connections keep their buffers, 9 KiB for each source, and reserve 1 KiB for TLS.
#[derive(Debug, Default)]
pub(crate) struct UrlConnector {
    proxy: ConnectProxyConnector,
    #[cfg(feature = "tls")]
    tls: RustlsConnector,
}

impl Connector for UrlConnector {
    type Out = Box<dyn Transport>;

    fn connect(&self, details: &ConnectionDetails<'_>, _: Option<()>) -> Result<Option<Self::Out>, Error> {
        let proxied = reach::to_proxy(|| self.proxy.connect(details, None::<()>))?;
        let plain: Box<dyn Transport> = match proxied {
            Some(proxied) => Box::new(proxied),
            None => Box::new(tcp(details)?),
        };
        #[cfg(feature = "tls")]
        if details.needs_tls() && !plain.is_tls() {
            return Ok(self.tls.connect(details, Some(plain))?.map(|secured| Box::new(secured) as Self::Out));
        }
        Ok(Some(plain))
    }
}

/// A source's connection between two requests. An agent of ureq can keep connections, too, but sources would need an
/// agent each, of 1 KiB.
#[derive(Debug, Default)]
pub(crate) struct Kept(Mutex<Option<Idle>>);

/// A connection without a request.
#[derive(Debug)]
struct Idle {
    /// Host and port of the URL.
    authority: Box<str>,
    since: Instant,
    stream: Arc<TcpStream>,
    _place: Place,
}

thread_local! {
    /// The connection of the source that this thread reads.
    static CURRENT: RefCell<Option<Arc<Kept>>> = const { RefCell::new(None) };
}

impl Kept {
    /// Runs `work`. Its connections are kept here, and the one that is kept is used again.
    pub(crate) fn during<T>(self: &Arc<Self>, work: impl FnOnce() -> T) -> T {
        CURRENT.set(Some(Arc::clone(self)));
        let _end = End;
        work()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Idle>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the connection if it leads to this server and is not too old.
    fn take(&self, authority: &str) -> Option<Arc<TcpStream>> {
        let idle = self.lock().take()?;
        (*idle.authority == *authority && idle.since.elapsed() < IDLE).then_some(idle.stream)
    }
}

/// Ends the use of a source's connection, even if the request panics.
struct End;

impl Drop for End {
    fn drop(&mut self) {
        CURRENT.set(None);
    }
}

/// Returns the kept connection of the source that this thread reads, or a new one.
fn tcp(details: &ConnectionDetails<'_>) -> Result<Connection<TcpStream>, Error> {
    // ureq keeps connections with TLS.
    let kept = CURRENT.with_borrow(Clone::clone).filter(|_| !details.needs_tls());
    let new = |stream, home| Connection::new(stream, details.config, home);
    let Some(kept) = kept else { return Ok(new(Arc::new(connect_tcp(details)?), None)) };
    let authority = details.uri.authority().map_or("", |authority| authority.as_str());
    let home = || Some(Home { kept: Arc::clone(&kept), authority: authority.into(), may_return: false });
    if let Some(stream) = kept.take(authority) {
        let mut known = new(stream, home());
        if reach::may_reach(known.reach) && known.is_open() {
            return Ok(known);
        }
    }
    Ok(new(Arc::new(connect_tcp(details)?), home()))
}

/// Connects to the first address that accepts. Each address has half of the time that is left, and the last one all of
/// it.
fn connect_tcp(details: &ConnectionDetails<'_>) -> Result<TcpStream, Error> {
    let end = details.timeout.not_zero().and_then(|time| Instant::now().checked_add(*time));
    let addrs: Vec<&SocketAddr> = details.addrs.iter().filter(|addr| reach::may_reach(addr.ip().into())).collect();
    let mut last = (addrs.is_empty() && !details.addrs.is_empty()).then(too_near);
    for (at, addr) in (1..).zip(&addrs) {
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        let share = left.map(|left| if at == addrs.len() { left } else { left / 2 });
        let connected = match share {
            Some(share) => TcpStream::connect_timeout(addr, share.max(SHORTEST)),
            None => TcpStream::connect(*addr),
        };
        match connected {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(e) => last = Some(failed(e, &details.timeout)),
        }
    }
    Err(last.unwrap_or(Error::HostNotFound))
}

fn too_near() -> Error {
    Error::Io(io::Error::new(ErrorKind::PermissionDenied, reach::REFUSED))
}

/// Connector to a Unix socket. It ignores the host of the URL.
#[derive(Debug)]
pub(crate) struct UnixConnector(pub(crate) PathBuf);

impl Connector for UnixConnector {
    type Out = Connection<UnixStream>;

    fn connect(&self, details: &ConnectionDetails<'_>, _: Option<()>) -> Result<Option<Self::Out>, Error> {
        if details.needs_tls() {
            return Err(Error::Io(io::Error::new(ErrorKind::Unsupported, "HTTPS is not supported over a Unix socket")));
        }
        let stream = connect_unix(&self.0)
            .map_err(|e| Error::Io(io::Error::new(e.kind(), format!("{}: {e}", self.0.display()))))?;
        Ok(Some(Connection::new(Arc::new(stream), details.config, None)))
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

/// What TCP and Unix streams have in common.
pub(crate) trait Stream: Debug + Send + Sync + 'static {
    /// Reads, for at most `time`.
    fn read(&self, bytes: &mut [u8], time: Option<Duration>) -> io::Result<usize>;
    /// Reads a byte that has arrived. The error is `WouldBlock` if there is none.
    fn read_now(&self) -> io::Result<usize>;
    /// Writes all bytes, for at most `time`.
    fn write(&self, bytes: &[u8], time: Option<Duration>) -> io::Result<()>;
    /// Returns how near the other end is.
    fn reach(&self) -> Reach;
    /// Keeps the stream for later requests, if that is possible.
    fn keep(self: &Arc<Self>, home: Home);
}

/// Implements [`Stream`] but for [`Stream::keep`].
macro_rules! stream {
    () => {
        fn read(&self, bytes: &mut [u8], time: Option<Duration>) -> io::Result<usize> {
            self.set_read_timeout(time)?;
            loop {
                match (&mut &*self).read(bytes) {
                    Err(e) if e.kind() == ErrorKind::Interrupted => {}
                    other => return other,
                }
            }
        }

        fn read_now(&self) -> io::Result<usize> {
            self.set_nonblocking(true)?;
            let read = (&mut &*self).read(&mut [0]);
            self.set_nonblocking(false)?;
            read
        }

        fn write(&self, mut bytes: &[u8], time: Option<Duration>) -> io::Result<()> {
            let end = time.and_then(|time| Instant::now().checked_add(time));
            self.set_write_timeout(time)?;
            loop {
                match (&mut &*self).write(bytes) {
                    Ok(0) if !bytes.is_empty() => return Err(ErrorKind::WriteZero.into()),
                    Ok(len) => bytes = bytes.get(len..).unwrap_or_default(),
                    Err(e) if e.kind() == ErrorKind::Interrupted => {}
                    Err(e) => return Err(e),
                }
                if bytes.is_empty() {
                    return Ok(());
                }
                if let Some(end) = end {
                    let left = end.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Err(ErrorKind::TimedOut.into());
                    }
                    self.set_write_timeout(Some(left))?;
                }
            }
        }
    };
}

impl Stream for TcpStream {
    stream!();

    fn reach(&self) -> Reach {
        // Without an address, the connection has ended.
        self.peer_addr().map_or(Reach::Elsewhere, |peer| peer.ip().into())
    }

    fn keep(self: &Arc<Self>, home: Home) {
        let Home { kept, authority, .. } = home;
        let Some(place) = Place::take() else { return };
        *kept.lock() = Some(Idle { authority, since: Instant::now(), stream: Arc::clone(self), _place: place });
    }
}

impl Stream for UnixStream {
    stream!();

    fn reach(&self) -> Reach {
        Reach::Host
    }

    fn keep(self: &Arc<Self>, _: Home) {}
}

/// A connection. It has buffers only while a request is in progress, because each source keeps its connection.
#[derive(Debug)]
pub(crate) struct Connection<S: Stream> {
    stream: Arc<S>,
    reach: Reach,
    buffers: LazyBuffers,
    /// Lengths of the buffers for answers and requests, in bytes.
    lengths: (usize, usize),
    home: Option<Home>,
}

/// Where a connection is kept after a request.
#[derive(Debug)]
pub(crate) struct Home {
    kept: Arc<Kept>,
    authority: Box<str>,
    /// Whether the last answer is complete, so that there may be another request.
    may_return: bool,
}

/// Buffers of ended requests of the shared agent, with their lengths. The next requests need not allocate and clear others.
static SPARE: Mutex<Vec<((usize, usize), LazyBuffers)>> = Mutex::new(Vec::new());
/// Most buffers in [`SPARE`].
const SPARES: usize = 8;

impl<S: Stream> Connection<S> {
    fn new(stream: Arc<S>, config: &Config, home: Option<Home>) -> Connection<S> {
        let lengths = (config.input_buffer_size(), config.output_buffer_size());
        let mut spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
        let buffers = match spare.last().is_some_and(|(known, _)| *known == lengths).then(|| spare.pop()).flatten() {
            Some((_, buffers)) => buffers,
            None => LazyBuffers::new(lengths.0, lengths.1),
        };
        Connection { reach: reach::of_connection(stream.reach()), stream, buffers, lengths, home }
    }
}

impl<S: Stream> Drop for Connection<S> {
    fn drop(&mut self) {
        let Some(home) = self.home.take() else { return };
        let mut spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < SPARES && self.buffers.input().is_empty() {
            let buffers = std::mem::replace(&mut self.buffers, LazyBuffers::new(self.lengths.0, self.lengths.1));
            spare.push((self.lengths, buffers));
        }
        drop(spare);
        if home.may_return {
            self.stream.keep(home);
        }
    }
}

/// Converts an error. If the socket's time limit has passed, the error names the limit of `timeout`.
fn failed(e: io::Error, timeout: &NextTimeout) -> Error {
    match e.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => Error::Timeout(timeout.reason),
        _ => Error::Io(e),
    }
}

/// Returns the time that is left, if there is a limit.
///
/// # Errors
/// [`Error::Timeout`] if none is left. [`NextTimeout::not_zero`] would be another second then, for each byte of a server
/// that sends its part of a TLS handshake slowly.
fn left(timeout: &NextTimeout) -> Result<Option<Duration>, Error> {
    if timeout.after.is_zero() {
        return Err(Error::Timeout(timeout.reason));
    }
    Ok(timeout.not_zero().map(|time| *time))
}

impl<S: Stream> Transport for Connection<S> {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        if !reach::may_reach(self.reach) {
            return Err(too_near());
        }
        reach::reached(self.reach);
        if let Some(home) = &mut self.home {
            home.may_return = false;
        }
        let output = self.buffers.output().get(..amount).unwrap_or_default();
        self.stream.write(output, left(&timeout)?).map_err(|e| failed(e, &timeout))
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        let time = left(&timeout)?;
        let amount = self.stream.read(self.buffers.input_append_buf(), time).map_err(|e| failed(e, &timeout))?;
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    /// Returns whether the connection can be kept, or used again: nothing can be read from it, not even its end. ureq
    /// calls this after each complete answer, and before each request.
    fn is_open(&mut self) -> bool {
        if !self.buffers.input().is_empty() {
            return false;
        }
        if self.home.is_none() {
            self.buffers = LazyBuffers::new(self.lengths.0, self.lengths.1);
        }
        let is_open = matches!(self.stream.read_now(), Err(e) if e.kind() == ErrorKind::WouldBlock);
        if let Some(home) = &mut self.home {
            home.may_return = is_open;
        }
        is_open
    }
}
