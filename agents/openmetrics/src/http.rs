//! Documents of HTTP servers.

use std::io::{self, Read as _};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use ureq::ResponseExt as _;
use ureq::config::ConfigBuilder;
use ureq::http::Uri;
use ureq::typestate::AgentScope;

use crate::access::basic;
use crate::body::{Limit, decoded};
use crate::document::Document;
use crate::reach::{self, Reach};
use crate::redirection::{is_same_server, location, target};
use crate::transport::{Direct, IDLE, Kept, NoAddress, UnixConnector, UrlConnector};
use crate::url_file::{Format, UrlFile, presentable, quoted, without_user};

/// Largest number of redirections.
const REDIRECTS: u32 = 5;
/// Most bytes that are read of the body of a redirection, so that its connection can be used again.
const MOVED: u64 = 64 << 10;
/// Size of a connection's buffer for answers, in bytes. All headers of an answer must fit.
const BUFFER: usize = 8 << 10;
/// Size of a connection's buffer for requests, in bytes, besides the URL and the headers of the source's file.
const REQUEST: usize = 1 << 10;
/// Longest request of the shared agent, in bytes.
const SHARED: usize = 4 << 10;
/// Value of the header `Accept-Encoding`.
const ENCODINGS: &str = "gzip, deflate, zstd";

/// Client for one source, which keeps its connection between two requests.
#[derive(Debug)]
pub(crate) struct Client {
    /// Agent of a source that cannot use the [`shared`] one.
    own: OnceLock<ureq::Agent>,
    /// Connection of the shared agent.
    kept: Arc<Kept>,
    /// URL as it is requested: without user and password.
    url: String,
    /// User and password of the URL, as the value of the header `Authorization`.
    user: Option<String>,
}

/// A request to the source's server, or to the target of a redirection.
#[derive(Clone, Copy, Debug)]
struct Request<'r> {
    url: &'r str,
    /// Headers of the source's file.
    headers: &'r [(String, String)],
    authorization: Option<&'r str>,
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

/// Answer of a server: a document.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) document: Document,
}

impl Client {
    /// Creates a client.
    ///
    /// # Errors
    /// The reason why the certificates cannot be used.
    pub(crate) fn new(file: &UrlFile) -> Result<Client, String> {
        let (url, user) = without_user(&file.url);
        let user = user.map(|user| basic(&user));
        let client = Client { own: OnceLock::new(), kept: Arc::default(), url: quoted(&url), user };
        let is_plain =
            !file.url.starts_with("https:") && file.access.socket.is_none() && shared().config().proxy().is_none();
        if !is_plain || longest_request(file, &client.url) > SHARED {
            let _ = client.own.set(own_agent(file, &client.url)?);
        }
        Ok(client)
    }

    /// Gets a document. The size limit holds before and after decompression.
    ///
    /// # Errors
    /// A [`Failure`] whose text has no secrets.
    pub(crate) fn get(&self, file: &UrlFile, deadline: Instant, limit: Limit) -> Result<Answer, Failure> {
        let response = self.follow(file, deadline)?;
        let code = response.status().as_u16();
        if !response.status().is_success() {
            let reason = response.status().canonical_reason().unwrap_or("unknown status");
            return Err(Failure { code, reason: format!("{code} {reason}"), is_late: false });
        }
        // A body that was compressed several times may have a line for each time.
        let encodings = response.headers().get_all("content-encoding").iter();
        let encodings: Vec<_> = encodings.map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
        let encoding = encodings.join(",").trim().to_ascii_lowercase();
        let body = response.into_body().into_reader();
        let document = decoded(body, &encoding, limit, deadline).map_err(|e| match e.downcast::<ureq::Error>() {
            Ok(e) => failure(code, &e, &self.url),
            Err(e) if encoding.is_empty() && e.kind() == io::ErrorKind::UnexpectedEof => {
                let reason = "the server ended the connection within its answer".to_owned();
                Failure { code, reason, is_late: false }
            }
            Err(e) => Failure { code, reason: e.to_string(), is_late: e.kind() == io::ErrorKind::TimedOut },
        })?;
        Ok(Answer { code, document })
    }

    /// Sends a request, and follows redirections. The headers of the source's file and its secrets are sent to its own
    /// server only. No redirection leads nearer than the servers before it ([`reach`]).
    fn follow(&self, file: &UrlFile, deadline: Instant) -> Result<Answered, Failure> {
        let authorization = file.access.authorization()?.or_else(|| self.user.clone());
        let (mut headers, mut authorization) = (&file.headers[..], authorization.as_deref());
        let ask = |request: &Request<'_>, nearest| -> Result<(Answered, Reach), Failure> {
            let (answer, reached) = reach::within(nearest, || self.ask(file, request, deadline));
            let answer = answer?;
            let named = Reach::of_host(answer.get_uri().host().unwrap_or_default());
            Ok((answer, nearest.min(reached.max(named))))
        };
        let (mut response, mut nearest) = ask(&Request { url: &self.url, headers, authorization }, Reach::Host)?;
        for _ in 0..REDIRECTS {
            let Some(location) = location(response.status(), response.headers()) else { return Ok(response) };
            let url = target(response.get_uri(), location)?;
            let to = url.parse::<Uri>().ok();
            if !to.as_ref().is_some_and(|to| is_same_server(response.get_uri(), to)) {
                headers = &[];
                authorization = None;
            }
            // A proxy may be on this host.
            if Reach::of_host(to.as_ref().and_then(Uri::host).unwrap_or_default()) > nearest {
                return Err(reach::REFUSED.to_owned().into());
            }
            let _ = io::copy(&mut response.into_body().into_reader().take(MOVED), &mut io::sink());
            (response, nearest) = ask(&Request { url: &url, headers, authorization }, nearest)?;
        }
        match location(response.status(), response.headers()) {
            None => Ok(response),
            Some(_) => Err(format!("more than {REDIRECTS} redirections").into()),
        }
    }

    /// Sends a request, and receives the head of the answer.
    fn ask(&self, file: &UrlFile, request: &Request<'_>, deadline: Instant) -> Result<Answered, Failure> {
        if request.url.starts_with("https:") && self.own.get().is_none() {
            // After a redirection to HTTPS. The shared agent does not know the source's certificates.
            let _ = self.own.set(own_agent(file, request.url)?);
        }
        let ask = || self.ask_once(file, request, deadline);
        // A server may end a kept connection when a request is under way.
        let answer = ask().or_else(|e| if has_ended(&e) { ask() } else { Err(e) });
        answer.map_err(|e| failure(0, &e, request.url))
    }

    fn ask_once(&self, file: &UrlFile, of: &Request<'_>, deadline: Instant) -> Result<Answered, ureq::Error> {
        let own = self.own.get();
        let mut request = own.unwrap_or_else(|| shared()).get(of.url);
        for (name, value) in [("Accept", accepted(file.format)), ("Accept-Encoding", ENCODINGS)] {
            if !of.headers.iter().any(|(known, _)| known.eq_ignore_ascii_case(name)) {
                request = request.header(name, value);
            }
        }
        for (name, value) in of.headers {
            request = request.header(name, value);
        }
        if let Some(value) = of.authorization {
            request = request.header("Authorization", value);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        let request = request.config().timeout_global(Some(left.max(Duration::from_millis(1)))).build();
        if own.is_some() { request.call() } else { self.kept.during(|| request.call()) }
    }
}

/// Head of an answer, and its body that is not received yet.
type Answered = ureq::http::Response<ureq::Body>;

/// Returns whether the connection has ended, instead of an answer.
fn has_ended(e: &ureq::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(e, ureq::Error::Io(e) if [BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof].contains(&e.kind()))
}

/// Returns the agent of all sources without HTTPS, socket or proxy. It keeps no connections: each source keeps its own.
fn shared() -> &'static ureq::Agent {
    static AGENT: OnceLock<ureq::Agent> = OnceLock::new();
    AGENT.get_or_init(|| {
        let config = config(SHARED).max_idle_connections(0).build();
        ureq::Agent::with_parts(config, UrlConnector::default(), Direct)
    })
}

/// Creates an agent that keeps one connection.
fn own_agent(file: &UrlFile, url: &str) -> Result<ureq::Agent, String> {
    let config = config(longest_request(file, url)).max_idle_connections(1).max_idle_connections_per_host(1);
    let config = config.max_idle_age(IDLE);
    // Certificates take time and memory that other sources do not need.
    #[cfg(feature = "tls")]
    let config = if url.starts_with("https:") { crate::tls::configure(config, &file.access)? } else { config };
    let config = config.build();
    Ok(match &file.access.socket {
        Some(path) => ureq::Agent::with_parts(config, UnixConnector(path.clone()), NoAddress),
        None => ureq::Agent::with_parts(config, UrlConnector::default(), Direct),
    })
}

fn config(longest_request: usize) -> ConfigBuilder<AgentScope> {
    ureq::Agent::config_builder()
        .user_agent(concat!("pmdaopenmetrics/", env!("CARGO_PKG_VERSION")))
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .input_buffer_size(BUFFER)
        .output_buffer_size(longest_request)
}

/// Returns a size that is enough for any request of this file. A secret may change while the connection is kept.
fn longest_request(file: &UrlFile, url: &str) -> usize {
    let headers: usize = file.headers.iter().map(|(name, value)| name.len() + value.len() + 4).sum();
    let has_secret = file.access.bearer.is_some() || file.access.basic.is_some();
    REQUEST + url.len() + 2 * file.url.len() + headers + if has_secret { BUFFER } else { 0 }
}

/// Returns the value of the header `Accept`.
fn accepted(format: Format) -> &'static str {
    match format {
        Format::Any => "*/*",
        Format::OpenMetrics => "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
        Format::Prometheus => "text/plain;version=0.0.4,*/*;q=0.1",
    }
}

/// Describes an error without the contents of URLs and headers, neither the source's nor the server's. Servers often
/// repeat a request's address in their answer.
fn failure(code: u16, e: &ureq::Error, url: &str) -> Failure {
    let reason = match e {
        ureq::Error::Timeout(_) => "no complete answer in time".to_owned(),
        ureq::Error::BadUri(_) => "the URL, or that of a redirection, has no valid host".to_owned(),
        ureq::Error::ConnectProxyFailed(_) => "the proxy refuses the connection".to_owned(),
        // All headers that arrive must fit into the buffer.
        ureq::Error::Io(e) if code == 0 && e.kind() == io::ErrorKind::UnexpectedEof => {
            format!("the server ended the connection before its answer, or the headers are longer than {BUFFER} bytes")
        }
        ureq::Error::Protocol(e) => {
            let text = e.to_string();
            let known = Some("bad header").filter(|known| text.starts_with(known));
            if text.starts_with("output too small") {
                "the address of a redirection is too long".to_owned()
            } else {
                format!("protocol: {}", known.unwrap_or(&text))
            }
        }
        e => e.to_string().replace(url, &presentable(url)),
    };
    Failure { code, reason, is_late: matches!(e, ureq::Error::Timeout(_)) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::{SocketAddr, TcpListener};
    use std::sync::Mutex;

    use super::*;

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
                            Some(to) => format!("302 Found\r\nLocation: http://{to}/\r\nContent-Length: 0\r\n\r\n"),
                            None => format!("200 OK\r\nContent-Length: 4\r\n\r\n{:04}", connections.lock().unwrap()),
                        };
                        stream.write_all(format!("HTTP/1.1 {answer}").as_bytes()).unwrap();
                    }
                });
            }
        });
        addr
    }

    fn get(client: &Client, file: &UrlFile) -> String {
        let limit = Limit { most: 100, usual: 0 };
        String::from_utf8(client.get(file, Instant::now() + LIMIT, limit).unwrap().document.to_vec()).unwrap()
    }

    fn client(url: &str) -> (Client, UrlFile) {
        let file = UrlFile::parse(url).unwrap();
        (Client::new(&file).unwrap(), file)
    }

    /// A source keeps its connection, another one has another connection, and a server may end them.
    #[test]
    fn connections_are_used_again() {
        let addr = server(3);
        let (first, file) = client(&format!("http://{addr}/"));
        let (other, _) = client(&format!("http://{addr}/"));
        let documents = [0; 7].map(|_| get(&first, &file));
        assert_eq!(documents, ["0001", "0001", "0001", "0002", "0002", "0002", "0003"]);
        assert_eq!([get(&other, &file), get(&first, &file), get(&other, &file)], ["0004"; 3]);
        assert!(first.own.get().is_none());
        // The agent of its own for very long requests keeps the connection, too.
        let (long, file) = client(&format!("http://{addr}/\nHEADER: X-Long: {}\n", "x".repeat(SHARED)));
        assert!(long.own.get().is_some());
        assert_eq!([get(&long, &file), get(&long, &file)], ["0005"; 2]);
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
        let (client, file) = client(&format!("http://{addr}/"));
        assert_eq!([0; 4].map(|_| get(&client, &file)), ["1", "2", "3", "4"]);
    }

    /// The connection to another server is not used for the source's own. Only one is kept.
    #[test]
    fn a_redirection_leads_to_another_connection() {
        let (from, to) = (server(100), server(100));
        let (client, file) = client(&format!("http://{from}/to/{to}"));
        assert_eq!([get(&client, &file), get(&client, &file)], ["0001", "0002"]);
    }
}
