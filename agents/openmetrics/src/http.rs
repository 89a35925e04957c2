//! Documents of HTTP servers.
//!
//! The client is hyper's, below its pool: a source keeps its own connection, and the address that a redirection leads to
//! must be known between the look-up of its name and the request ([`Reach`]).

use std::error::Error as _;
use std::future::poll_fn;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _};
use std::sync::LazyLock;
use std::time::{Duration, Instant};
use std::{fmt, io};

use http_body_util::{BodyExt as _, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::client::conn::http1::SendRequest;
use hyper::header::{HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, Request, Response, StatusCode, Uri, header};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use url::{Host, Position, Url};

use crate::access::basic;
use crate::document::{Coding, Document, ENCODINGS};
use crate::runtime::{Permits, Slow};
use crate::tls;
use crate::url_file::{Format, UrlFile, quoted, without_user};

/// Largest number of redirections.
const REDIRECTS: u32 = 5;
/// Most bytes that are read of the body of a redirection, so that its connection can be used again.
const MOVED: usize = 64 << 10;
/// Bytes that are received before other sources have their turn.
const PIECE: usize = 256 << 10;
/// Most headers of an answer.
const HEADERS: usize = 512;
/// Largest number of bytes of a response that a connection holds before they are read: all of its headers fit.
const BUFFER: usize = 128 << 10;
/// Longest time for which a connection is kept without a request. Many servers close it earlier.
const IDLE: Duration = Duration::from_secs(300);
/// Most addresses of a host that are tried.
const ADDRESSES: usize = 16;
const AGENT: &str = concat!("pmdaopenmetrics/", env!("CARGO_PKG_VERSION"));

/// A connection without TLS, or with it.
trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// Client for one source, which keeps its connection between two requests.
#[derive(Debug)]
pub(crate) struct Client {
    url: Url,
    /// User and password of the URL, as the value of the header `Authorization`.
    user: Option<String>,
    kept: Option<Kept>,
    tls: Option<tls::Config>,
}

/// A connection without a request. It has no buffers, because each source keeps one.
struct Kept {
    /// Scheme, host and port.
    origin: String,
    io: Box<dyn Io>,
    reach: Reach,
    proxy: Proxy,
    since: Instant,
    _permit: OwnedSemaphorePermit,
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kept({})", self.origin)
    }
}

/// Whether requests name the whole URL, and the header for the proxy that gets them.
type Proxy = Option<Option<HeaderValue>>;

/// A connection with a request.
struct Connection {
    sender: SendRequest<Empty<Bytes>>,
    /// Speaks HTTP until `sender` is dropped. Returns the connection if it can be kept.
    task: JoinHandle<Option<Box<dyn Io>>>,
    /// How near the server is; elsewhere behind a proxy.
    reach: Reach,
    proxy: Proxy,
}

/// Limits of one reading of a source, and the permits that it needs.
pub(crate) struct Means<'a> {
    pub(crate) permits: &'a Permits,
    pub(crate) slow: &'a mut Slow,
    pub(crate) deadline: Instant,
    /// Longest document, in bytes.
    pub(crate) bytes: u64,
    /// Length of the last document, in bytes.
    pub(crate) usual: usize,
}

/// The reason why there is no document.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Failure {
    /// Status code of the answer; 0 without an answer.
    pub(crate) code: u16,
    pub(crate) reason: String,
    /// Whether the deadline has passed.
    pub(crate) is_late: bool,
}

impl From<String> for Failure {
    fn from(reason: String) -> Self {
        Failure { code: 0, reason, is_late: false }
    }
}

impl From<&str> for Failure {
    fn from(reason: &str) -> Self {
        reason.to_owned().into()
    }
}

impl Failure {
    pub(crate) fn late(reason: &str) -> Failure {
        Failure { code: 0, reason: reason.to_owned(), is_late: true }
    }

    /// Describes an error of a connection, without the contents of URLs and headers, neither the source's nor the server's.
    /// Servers often repeat a request's address in their answer.
    fn of(e: &hyper::Error) -> Failure {
        let cause = e.source().and_then(|cause| cause.downcast_ref::<io::Error>());
        if let Some(cause) = cause.filter(|_| !is_end(e)) {
            return Failure::of_io(cause);
        }
        if e.is_incomplete_message() || e.is_canceled() || e.is_closed() || is_end(e) {
            return "the server ended the connection before its answer".into();
        }
        format!("protocol: {e}").into()
    }

    fn of_io(e: &io::Error) -> Failure {
        if let Some(reason) = tls::reason(e) {
            return reason.into();
        }
        e.to_string().into()
    }
}

/// Reason for an answer that does not end in time.
pub(crate) const LATE: &str = "no complete answer in time";

/// Answer of a server: a document that may be encoded.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) coding: Coding,
    pub(crate) document: Document,
}

/// A request to the source's server, or to the target of a redirection.
#[derive(Debug)]
struct Asked<'r> {
    url: Url,
    /// Headers of the source's file.
    headers: &'r [(String, String)],
    authorization: Option<String>,
}

impl Client {
    /// Creates a client for the URL of a file.
    ///
    /// # Errors
    /// The URL is not valid. The reason has no secrets.
    pub(crate) fn new(file: &UrlFile) -> Result<Client, String> {
        let (url, user) = without_user(&file.url);
        let user = user.map(|user| basic(&user));
        let url = Url::parse(&quoted(&url)).map_err(|e| format!("the URL is not valid: {e}"))?;
        Ok(Client { url, user, kept: None, tls: None })
    }

    /// Gets a document.
    ///
    /// # Errors
    /// A [`Failure`] whose text has no secrets.
    pub(crate) async fn get(
        &mut self,
        file: &UrlFile,
        authorization: Option<String>,
        means: &mut Means<'_>,
    ) -> Result<Answer, Failure> {
        let (deadline, mut code) = (means.deadline, 0);
        let answer = tokio::time::timeout_at(deadline.into(), self.answer(file, authorization, means, &mut code)).await;
        answer.unwrap_or_else(|_| Err(Failure { code, ..Failure::late(LATE) }))
    }

    async fn answer(
        &mut self,
        file: &UrlFile,
        authorization: Option<String>,
        means: &mut Means<'_>,
        code: &mut u16,
    ) -> Result<Answer, Failure> {
        let (response, connection, origin) = self.follow(file, authorization, means).await?;
        let status = response.status();
        *code = status.as_u16();
        let failed = |reason: String| Failure { code: status.as_u16(), ..Failure::from(reason) };
        if !status.is_success() {
            return Err(failed(format!(
                "{} {}",
                status.as_u16(),
                status.canonical_reason().unwrap_or("unknown status")
            )));
        }
        let coding = Coding::of(response.headers());
        let document = Document::new(means.permits, means.bytes, means.usual + means.usual / 16 + 64);
        let document = received(response, document).await.map_err(failed)?;
        self.keep(connection, origin, means.permits).await;
        Ok(Answer { code: *code, coding, document })
    }

    /// Sends a request, and follows redirections. The headers of the source's file and its secrets are sent to its own
    /// server only. No redirection leads nearer than the servers before it ([`reach`]).
    async fn follow(
        &mut self,
        file: &UrlFile,
        authorization: Option<String>,
        means: &mut Means<'_>,
    ) -> Result<(Response<Incoming>, Connection, String), Failure> {
        let authorization = authorization.or_else(|| self.user.clone());
        let mut asked = Asked { url: self.url.clone(), headers: &file.headers, authorization };
        let mut nearest = Reach::Host;
        for _ in 0..=REDIRECTS {
            let (response, connection) = self.ask(file, &asked, nearest, means).await?;
            let origin = origin(&asked.url);
            let Some(location) = location(response.status(), response.headers()) else {
                return Ok((response, connection, origin));
            };
            let named = asked.url.host().map_or(Reach::Elsewhere, |host| Reach::of_host(&host));
            nearest = nearest.min(connection.reach.max(named));
            let url = target(&asked.url, location)?;
            if !is_same_server(&asked.url, &url) {
                (asked.headers, asked.authorization) = (&[], None);
            }
            // A proxy may be on this host.
            if url.host().is_some_and(|host| Reach::of_host(&host) > nearest) {
                return Err(NEARER.into());
            }
            if is_read(response.into_body()).await {
                self.keep(connection, origin, means.permits).await;
            }
            asked.url = url;
        }
        Err(format!("more than {REDIRECTS} redirections").into())
    }

    /// Sends a request, and receives the head of the answer.
    async fn ask(
        &mut self,
        file: &UrlFile,
        asked: &Asked<'_>,
        nearest: Reach,
        means: &mut Means<'_>,
    ) -> Result<(Response<Incoming>, Connection), Failure> {
        let origin = origin(&asked.url);
        let is_usable = |kept: &Kept| kept.origin == origin && kept.since.elapsed() < IDLE && kept.reach <= nearest;
        if let Some(kept) = self.kept.take().filter(is_usable) {
            let mut connection = handshake(kept.io, kept.reach, kept.proxy).await?;
            // A server may end a kept connection when a request is under way.
            let request = request(file, asked, &connection.proxy)?;
            if let Ok(response) = connection.sender.send_request(request).await {
                return Ok((response, connection));
            }
        }
        let mut connection = self.connect(file, &asked.url, nearest, means).await?;
        let request = request(file, asked, &connection.proxy)?;
        let response = connection.sender.send_request(request).await.map_err(|e| Failure::of(&e))?;
        Ok((response, connection))
    }

    /// Keeps a connection for the next request, if that is possible.
    async fn keep(&mut self, connection: Connection, origin: String, permits: &Permits) {
        let Connection { mut sender, task, reach, proxy } = connection;
        // A server may want to end it.
        if sender.ready().await.is_err() {
            return;
        }
        drop(sender);
        if let (Ok(Some(io)), Some(permit)) = (task.await, permits.keep()) {
            self.kept = Some(Kept { origin, io, reach, proxy, since: Instant::now(), _permit: permit });
        }
    }

    /// Connects to the server of a URL: through the file's socket, through a proxy that the environment names, or directly.
    async fn connect(
        &mut self,
        file: &UrlFile,
        url: &Url,
        nearest: Reach,
        means: &mut Means<'_>,
    ) -> Result<Connection, Failure> {
        let is_https = url.scheme() == "https";
        if let Some(path) = &file.access.socket {
            if is_https {
                return Err("HTTPS is not supported over a Unix socket".into());
            }
            let stream = UnixStream::connect(path).await.map_err(|e| format!("{}: {e}", path.display()))?;
            return handshake(Box::new(stream), Reach::Host, None).await;
        }
        let tls = if is_https { Some(self.tls(file).await?) } else { None };
        let (host, port) = host_and_port(url)?;
        let Some(proxy) = proxy(url) else {
            let stream = connect_tcp(&host, port, nearest, means).await?;
            let reach = stream.peer_addr().map_or(Reach::Elsewhere, |peer| peer.ip().into());
            let mut io: Box<dyn Io> = Box::new(stream);
            if let Some(tls) = tls {
                io = secured(tls, io, &host).await?;
            }
            return handshake(io, reach, None).await;
        };
        let mut io = self.connect_proxy(file, &proxy, means).await?;
        let auth = proxy.basic_auth().cloned();
        let Some(tls) = tls else { return handshake(io, Reach::Elsewhere, Some(auth)).await };
        io = tunnel(io, &format!("{host}:{port}"), auth).await?;
        handshake(secured(tls, io, &host).await?, Reach::Elsewhere, None).await
    }

    /// Connects to a proxy, which may be anywhere.
    async fn connect_proxy(
        &mut self,
        file: &UrlFile,
        proxy: &Intercept,
        means: &mut Means<'_>,
    ) -> Result<Box<dyn Io>, Failure> {
        let uri = proxy.uri();
        let tls = match uri.scheme_str() {
            Some("http") => None,
            Some("https") => Some(self.tls(file).await?),
            _ => return Err("only proxies with HTTP are supported".into()),
        };
        let host = Host::parse(uri.host().unwrap_or_default()).map_err(|_| "the proxy has no valid host")?;
        let port = uri.port_u16().unwrap_or(if tls.is_some() { 443 } else { 80 });
        let failed = |failure: Failure| Failure { reason: format!("proxy: {}", failure.reason), ..failure };
        let stream = connect_tcp(&host, port, Reach::Host, means).await.map_err(failed)?;
        let io: Box<dyn Io> = Box::new(stream);
        match tls {
            Some(tls) => secured(tls, io, &host).await.map_err(failed),
            None => Ok(io),
        }
    }

    /// Returns the settings for TLS. The certificates of the source are read before a connection.
    async fn tls(&mut self, file: &UrlFile) -> Result<tls::Config, Failure> {
        if let Some(config) = &self.tls {
            return Ok(config.clone());
        }
        let access = file.access.clone();
        let read = tokio::task::spawn_blocking(move || tls::config(&access)).await;
        let config = read.map_err(|e| e.to_string())??;
        Ok(self.tls.insert(config).clone())
    }
}

/// Receives the body of an answer.
async fn received(response: Response<Incoming>, mut document: Document) -> Result<Document, String> {
    let headers = response.headers();
    let has_length = headers.contains_key(header::CONTENT_LENGTH) || headers.contains_key(header::TRANSFER_ENCODING);
    let (mut body, mut pause) = (response.into_body(), PIECE);
    while let Some(frame) = body.frame().await {
        // A server that floods the agent must not occupy the thread of all sources.
        if document.len() >= pause {
            pause = document.len() + PIECE;
            tokio::task::yield_now().await;
        }
        match frame {
            Ok(frame) => {
                let bytes = frame.data_ref().map_or(&[][..], |bytes| bytes);
                document.extend(bytes).map_err(|full| full.of("the answer is "))?;
            }
            // Many servers end TLS without saying so.
            Err(e) if !has_length && is_end(&e) => break,
            Err(e) if e.is_incomplete_message() || is_end(&e) => return Err(ENDED.to_owned()),
            Err(e) => return Err(Failure::of(&e).reason),
        }
    }
    Ok(document)
}

/// Returns whether the connection has ended, rather than failed.
fn is_end(e: &hyper::Error) -> bool {
    let cause = e.source().and_then(|cause| cause.downcast_ref::<io::Error>());
    cause.is_some_and(|cause| cause.kind() == io::ErrorKind::UnexpectedEof)
}

/// Reason for an answer that is not complete.
const ENDED: &str = "the server ended the connection within its answer";

/// Returns what the connections of a URL have in common.
fn origin(url: &Url) -> String {
    url[..Position::BeforePath].to_owned()
}

fn host_and_port(url: &Url) -> Result<(Host, u16), Failure> {
    let host = url.host().map(|host| host.to_owned());
    host.zip(url.port_or_known_default()).ok_or_else(|| "the URL has no valid host".into())
}

/// Proxies that the environment names when the agent starts.
struct Proxies {
    matcher: Matcher,
    /// Entries of `no_proxy` with a port.
    with_ports: Vec<String>,
}

static PROXIES: LazyLock<Proxies> = LazyLock::new(|| {
    // As with python-requests, the small letters count first.
    let of = |name: &str| {
        [name.to_owned(), name.to_uppercase()].iter().find_map(|name| std::env::var(name).ok()).unwrap_or_default()
    };
    let no = of("no_proxy");
    let entries = no.split([',', ' ']).map(str::trim).filter(|entry| !entry.is_empty());
    let (with_ports, others): (Vec<&str>, Vec<&str>) = entries.partition(|entry| {
        let port = entry.rsplit_once(':').filter(|(host, _)| !host.contains(':') || host.ends_with(']'));
        port.is_some_and(|(_, port)| port.parse::<u16>().is_ok())
    });
    if others.contains(&"*") {
        return Proxies { matcher: Matcher::builder().build(), with_ports: Vec::new() };
    }
    let matcher = Matcher::builder().all(of("all_proxy")).http(of("http_proxy")).https(of("https_proxy"));
    Proxies {
        matcher: matcher.no(others.join(",")).build(),
        with_ports: with_ports.into_iter().map(|entry| entry.trim_start_matches('.').to_ascii_lowercase()).collect(),
    }
});

/// Returns the proxy for a URL.
fn proxy(url: &Url) -> Option<Intercept> {
    let (host, port) = host_and_port(url).ok()?;
    let server = format!("{host}:{port}");
    let is_excepted = |entry: &String| {
        server.strip_suffix(entry.as_str()).is_some_and(|before| before.is_empty() || before.ends_with('.'))
    };
    if PROXIES.with_ports.iter().any(is_excepted) {
        return None;
    }
    PROXIES.matcher.intercept(&url[..Position::BeforePath].parse().ok()?)
}

/// Connects to the first address of a host that accepts. Each address has half of the time that is left, and the last one
/// all of it.
async fn connect_tcp(host: &Host, port: u16, nearest: Reach, means: &mut Means<'_>) -> Result<TcpStream, Failure> {
    let all: Vec<IpAddr> = match host {
        Host::Ipv4(ip) => vec![(*ip).into()],
        Host::Ipv6(ip) => vec![(*ip).into()],
        Host::Domain(name) if name == "localhost" => vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()],
        Host::Domain(name) => look_up(name, means).await?,
    };
    let addresses: Vec<SocketAddr> = all
        .iter()
        .filter(|ip| Reach::from(**ip) <= nearest)
        .take(ADDRESSES)
        .map(|ip| SocketAddr::new(*ip, port))
        .collect();
    let mut last = if all.is_empty() { "the host has no address" } else { NEARER }.into();
    for (at, address) in (1..).zip(&addresses) {
        let left = means.deadline.saturating_duration_since(Instant::now());
        let share = if at == addresses.len() { left } else { left / 2 };
        match timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Ok(Err(e)) => last = e.to_string().into(),
            Err(_) => last = Failure::late("no connection in time"),
        }
    }
    Err(last)
}

/// Looks up a name. That cannot be stopped: if the name service does not answer, it goes on after the request has ended.
async fn look_up(name: &str, means: &mut Means<'_>) -> Result<Vec<IpAddr>, Failure> {
    let name = name.to_owned();
    let work = move || (name.as_str(), 0).to_socket_addrs().map(|found| found.map(|address| address.ip()).collect());
    let found = means.slow.run(means.permits, means.deadline, work).await;
    let found: io::Result<Vec<IpAddr>> =
        found.ok_or_else(|| Failure::late("the name service has not answered in time"))?;
    found.map_err(|e| e.to_string().into())
}

async fn secured(tls: tls::Config, io: Box<dyn Io>, host: &Host) -> Result<Box<dyn Io>, Failure> {
    let secured = tls::secured(tls, io, &host.to_string()).await.map_err(|e| Failure::of_io(&e))?;
    Ok(Box::new(secured))
}

/// Asks a proxy for a connection to a server.
async fn tunnel(io: Box<dyn Io>, server: &str, auth: Option<HeaderValue>) -> Result<Box<dyn Io>, Failure> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(io)).await.map_err(|e| Failure::of(&e))?;
    let task = tokio::spawn(connection.with_upgrades());
    let mut request = Request::new(Empty::<Bytes>::new());
    *request.method_mut() = Method::CONNECT;
    *request.uri_mut() = server.parse::<Uri>().map_err(|_| "the URL has no valid host")?;
    let host = HeaderValue::from_str(server).map_err(|_| "the URL has no valid host")?;
    request.headers_mut().insert(header::HOST, host);
    if let Some(auth) = auth {
        request.headers_mut().insert(header::PROXY_AUTHORIZATION, auth);
    }
    let response = sender.send_request(request).await.map_err(|e| Failure::of(&e))?;
    let status = response.status();
    if !status.is_success() {
        task.abort();
        return Err(format!("the proxy refuses the connection: {}", status.as_u16()).into());
    }
    let upgraded = hyper::upgrade::on(response).await.map_err(|e| Failure::of(&e))?;
    Ok(Box::new(TokioIo::new(upgraded)))
}

/// Begins to speak HTTP on a connection.
async fn handshake(io: Box<dyn Io>, reach: Reach, proxy: Proxy) -> Result<Connection, Failure> {
    // Headers that the agent does not need cost no values.
    let mut builder = http1::Builder::new();
    builder.allow_spaces_after_header_name_in_responses(true).allow_obsolete_multiline_headers_in_responses(true);
    builder.ignore_invalid_headers_in_responses(true).max_headers(HEADERS).max_buf_size(BUFFER);
    let (sender, mut connection) = builder.handshake(TokioIo::new(io)).await.map_err(|e| Failure::of(&e))?;
    let task = tokio::spawn(async move {
        poll_fn(|context| connection.poll_without_shutdown(context)).await.ok()?;
        let parts = connection.into_parts();
        parts.read_buf.is_empty().then(|| parts.io.into_inner())
    });
    Ok(Connection { sender, task, reach, proxy })
}

/// Builds a request for a server, or for a proxy.
fn request(file: &UrlFile, asked: &Asked<'_>, proxy: &Proxy) -> Result<Request<Empty<Bytes>>, Failure> {
    let mut request = Request::new(Empty::new());
    let from = if proxy.is_some() { Position::BeforeScheme } else { Position::BeforePath };
    let uri = asked.url[from..Position::AfterQuery].parse::<Uri>();
    *request.uri_mut() = uri.map_err(|_| "the URL, or that of a redirection, is too long or not valid")?;
    let headers = request.headers_mut();
    for (name, value) in asked.headers {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| format!("HEADER: {name:?} is no name"))?;
        let value = HeaderValue::from_bytes(value.as_bytes());
        headers.append(&name, value.map_err(|_| format!("HEADER: the value of {name} has control characters"))?);
    }
    let host = HeaderValue::from_str(&asked.url[Position::BeforeHost..Position::AfterPort]);
    let host = host.map_err(|_| "the URL has no valid host")?;
    let usual = [
        (header::HOST, host),
        (header::ACCEPT, HeaderValue::from_static(accepted(file.format))),
        (header::ACCEPT_ENCODING, HeaderValue::from_static(ENCODINGS)),
        (header::USER_AGENT, HeaderValue::from_static(AGENT)),
    ];
    for (name, value) in usual {
        headers.entry(name).or_insert(value);
    }
    if let Some(authorization) = &asked.authorization {
        let value = HeaderValue::from_str(authorization);
        headers.insert(header::AUTHORIZATION, value.map_err(|_| "the secret has characters that no header may have")?);
    }
    if let Some(Some(auth)) = proxy {
        headers.insert(header::PROXY_AUTHORIZATION, auth.clone());
    }
    Ok(request)
}

/// Returns the value of the header `Accept`.
fn accepted(format: Format) -> &'static str {
    match format {
        Format::Any => "*/*",
        Format::OpenMetrics => "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
        Format::Prometheus => "text/plain;version=0.0.4,*/*;q=0.1",
    }
}

/// Returns the address that an answer redirects to, as the server has sent it.
fn location(status: StatusCode, headers: &HeaderMap) -> Option<&[u8]> {
    let is_redirection = matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308);
    headers.get(header::LOCATION).filter(|_| is_redirection).map(|value| value.as_bytes())
}

/// Returns the URL of a redirection from `base`.
///
/// # Errors
/// A text without the address.
fn target(base: &Url, location: &[u8]) -> Result<Url, &'static str> {
    const MALFORMED: &str = "the address of a redirection is not valid";
    let location = std::str::from_utf8(location).map_err(|_| MALFORMED)?.trim();
    let mut url = base.join(location).map_err(|_| MALFORMED)?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err("a redirection leads to another protocol than HTTP");
    }
    // They would be a stranger's.
    let _ = url.set_username("").and_then(|()| url.set_password(None));
    if url.host_str().is_none_or(str::is_empty) { Err(MALFORMED) } else { Ok(url) }
}

/// Returns whether what is secret for `from` may be sent to `to`: the same host and port with the same protocol, or with
/// HTTPS in place of HTTP, each with its usual port.
fn is_same_server(from: &Url, to: &Url) -> bool {
    let of = |url: &Url| (url.scheme() == "https", url.port_or_known_default());
    from.host() == to.host() && (of(from) == of(to) || (of(from), of(to)) == ((false, Some(80)), (true, Some(443))))
}

/// Reads the body of a redirection. Returns false if it is too long.
async fn is_read(mut body: Incoming) -> bool {
    let mut left = MOVED;
    while let Some(frame) = body.frame().await {
        let len = frame.as_ref().map_or(MOVED, |frame| frame.data_ref().map_or(0, Bytes::len));
        match left.checked_sub(len).filter(|_| frame.is_ok()) {
            Some(rest) => left = rest,
            None => return false,
        }
    }
    true
}

/// Text of the error about a redirection that leads too near.
const NEARER: &str = "a redirection leads from a server elsewhere to this host or its link";

/// How near an address is. A redirection must not lead nearer than any server that led to it: a server elsewhere could
/// otherwise make the agent send requests to servers of this host, or of its link, that are not meant for strangers. What
/// counts is the address of the connection, not the name in the URL. What is behind a proxy is elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Reach {
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
    use std::io::BufRead as _;
    use std::io::BufReader;
    use std::io::Write as _;
    use std::net::TcpListener;
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::runtime;

    const LIMIT: Duration = Duration::from_secs(60);

    /// Starts a server whose connections end after so many requests. A request for `/to/X` is redirected to `http://X/`. A
    /// document is the number of connections so far.
    fn server(requests: usize) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let connections = Arc::new(Mutex::new(0));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, connections) = (stream.unwrap(), Arc::clone(&connections));
                std::thread::spawn(move || {
                    *connections.lock().unwrap() += 1;
                    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                    for _ in 0..requests {
                        let Some(Ok(first)) = lines.next() else { return };
                        lines.by_ref().find(|line| line.as_ref().is_ok_and(String::is_empty));
                        let answer = match first.strip_prefix("GET /to/").and_then(|rest| rest.split(' ').next()) {
                            Some(to) => format!("302 Found\r\nLocation: http://{to}/\r\nContent-Length: 2\r\n\r\nno"),
                            None => format!("200 OK\r\nContent-Length: 4\r\n\r\n{:04}", connections.lock().unwrap()),
                        };
                        stream.write_all(format!("HTTP/1.1 {answer}").as_bytes()).unwrap();
                    }
                });
            }
        });
        addr
    }

    /// Gets documents one after the other, each by the client with this number.
    fn get(urls: &[String], order: &[usize]) -> Vec<String> {
        let files: Vec<_> = urls.iter().map(|url| UrlFile::parse(url).unwrap()).collect();
        let mut clients: Vec<_> = files.iter().map(|file| Client::new(file).unwrap()).collect();
        let permits = Permits::new(1, 0, usize::MAX);
        let all = async {
            let mut documents = Vec::new();
            for at in order {
                let (slow, deadline) = (&mut Slow::default(), Instant::now() + LIMIT);
                let mut means = Means { permits: &permits, slow, deadline, bytes: 100, usual: 0 };
                let answer = clients[*at].get(&files[*at], None, &mut means).await.unwrap();
                documents.push(String::from_utf8(answer.document.to_vec()).unwrap());
                // The connection is idle, or its end has arrived.
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            documents
        };
        runtime::run(all).unwrap()
    }

    /// A source keeps its connection, another one has another connection, and a server may end them.
    #[test]
    fn connections_are_used_again() {
        let url = format!("http://{}/", server(3));
        let documents = get(&[url.clone(), url], &[0, 0, 0, 0, 0, 0, 0, 1, 0, 1]);
        let expected = ["0001", "0001", "0001", "0002", "0002", "0002", "0003", "0004", "0004", "0004"];
        assert_eq!(documents, expected);
    }

    /// A server that ends a kept connection instead of answering gets the request again, over a new connection.
    #[test]
    fn a_kept_connection_ends_with_a_request() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for (number, stream) in (1..).zip(listener.incoming()) {
                let mut stream = stream.unwrap();
                let mut lines = BufReader::with_capacity(1, stream.try_clone().unwrap()).lines();
                lines.by_ref().find(|line| line.as_ref().is_ok_and(String::is_empty));
                stream.write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{number}").as_bytes()).unwrap();
                // The rest of the next request is not read, so the connection is reset.
                lines.next();
            }
        });
        assert_eq!(get(&[format!("http://{addr}/")], &[0; 4]), ["1", "2", "3", "4"]);
    }

    /// The connection to another server is not used for the source's own. The last one is kept.
    #[test]
    fn a_redirection_leads_to_another_connection() {
        let (from, to) = (server(100), server(100));
        assert_eq!(get(&[format!("http://{from}/to/{to}")], &[0, 0]), ["0001", "0002"]);
        let own = server(100);
        assert_eq!(get(&[format!("http://{own}/to/{own}")], &[0, 0]), ["0001", "0001"]);
    }

    #[test]
    fn addresses_of_redirections() {
        let base = Url::parse("http://host:1/a/b?q=1").unwrap();
        for (location, url) in [
            ("/x", "http://host:1/x"),
            ("x?y=1", "http://host:1/a/x?y=1"),
            ("../x/./y/..", "http://host:1/x/"),
            ("../../../..", "http://host:1/"),
            ("?z", "http://host:1/a/b?z"),
            ("", "http://host:1/a/b?q=1"),
            ("//other/x", "http://other/x"),
            ("HTTPS://other/a b?c=d:e/f", "https://other/a%20b?c=d:e/f"),
            ("/x?to=http://y", "http://host:1/x?to=http://y"),
            ("http://me:secret@other/", "http://other/"),
        ] {
            assert_eq!(target(&base, location.as_bytes()).unwrap().as_str(), url, "{location}");
        }
        for location in ["file:///etc/passwd", "unix:///x", "ftp://x/", "mailto:x", "javascript:1", "a:b/c"] {
            assert!(target(&base, location.as_bytes()).unwrap_err().contains("protocol"), "{location}");
        }
        for location in [&b"http://"[..], b"http://s3cret t/x", b"//", b"\xff", b"http://x:y/"] {
            let reason = target(&base, location).unwrap_err();
            assert_eq!(reason, "the address of a redirection is not valid", "{}", location.escape_ascii());
        }
    }

    #[test]
    fn servers() {
        let same = |from: &str, to: &str| is_same_server(&Url::parse(from).unwrap(), &Url::parse(to).unwrap());
        for (from, to, is_same) in [
            ("http://host/a", "http://HOST:80/b", true),
            ("http://host:1/a", "http://host:1/b", true),
            ("http://host/", "https://host/", true),
            ("https://host/", "http://host/", false),
            ("http://host:1/", "https://host:1/", false),
            ("http://host:1/", "http://host:2/", false),
            ("http://host/", "http://host.other/", false),
            ("http://host/", "http://host:x@other/", false),
        ] {
            assert_eq!(same(from, to), is_same, "{from} {to}");
        }
    }

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
