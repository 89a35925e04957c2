//! Documents of HTTP servers.

use std::io::{self, Read};
use std::path::Path;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::{MultiGzDecoder, ZlibDecoder};
use pmapi::file;
use ruzstd::decoding::StreamingDecoder;
use ruzstd::decoding::errors::FrameDecoderError;
use ureq::unversioned::transport::DefaultConnector;

use crate::transport::{Direct, NoAddress, UnixConnector};
use crate::url_file::{Access, Format, UrlFile, presentable};

/// Most redirections.
const REDIRECTS: u32 = 5;
/// Size of the buffers of a connection, in bytes. All headers of an answer must fit.
const BUFFER: usize = 16 << 10;
/// Value of the header `Accept-Encoding`.
const ENCODINGS: &str = "gzip, deflate, zstd";
/// Longest file with a secret or a certificate, in bytes.
const LONGEST: u64 = 1 << 20;

/// Client for one source, which keeps its connection between two requests.
#[derive(Debug)]
pub(crate) struct Client {
    agent: ureq::Agent,
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

/// Length of a document, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    pub(crate) most: u64,
    /// Length that is likely.
    pub(crate) usual: usize,
}

/// A document.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) document: Vec<u8>,
}

impl Client {
    /// Creates a client.
    ///
    /// # Errors
    /// The reason why the certificates cannot be used.
    pub(crate) fn new(url: &str, access: &Access) -> Result<Client, String> {
        let config = ureq::Agent::config_builder()
            .user_agent(concat!("pmdaopenmetrics/", env!("CARGO_PKG_VERSION")))
            .http_status_as_error(false)
            .max_redirects(REDIRECTS)
            .max_idle_connections(1)
            .max_idle_connections_per_host(1)
            // Each source keeps a connection with its buffers.
            .input_buffer_size(BUFFER)
            .output_buffer_size(BUFFER)
            .max_idle_age(Duration::from_secs(300));
        // Certificates take time and memory that other sources do not need.
        let config = if url.starts_with("https:") { tls::configure(config, access)? } else { config };
        let config = config.build();
        let agent = match &access.socket {
            Some(path) => ureq::Agent::with_parts(config, UnixConnector(path.clone()), NoAddress),
            None => ureq::Agent::with_parts(config, DefaultConnector::default(), Direct::default()),
        };
        Ok(Client { agent })
    }

    /// Gets a document, whose limit holds before and after it is uncompressed.
    ///
    /// # Errors
    /// A [`Failure`] whose text has no secrets.
    pub(crate) fn get(&self, file: &UrlFile, deadline: Instant, limit: Limit) -> Result<Answer, Failure> {
        let mut request = self.agent.get(&file.url);
        let has = |name: &str| file.headers.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
        for (name, value) in [("Accept", accepted(file.format)), ("Accept-Encoding", ENCODINGS)] {
            if !has(name) {
                request = request.header(name, value);
            }
        }
        for (name, value) in &file.headers {
            request = request.header(name, value);
        }
        if let Some(value) = authorization(&file.access)? {
            request = request.header("Authorization", value);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        let request = request.config().timeout_global(Some(left.max(Duration::from_millis(1)))).build();
        let response = request.call().map_err(|e| failure(0, &e, &file.url))?;
        let code = response.status().as_u16();
        if !response.status().is_success() {
            let reason = response.status().canonical_reason().unwrap_or("unknown status");
            return Err(Failure { code, reason: format!("{code} {reason}"), is_late: false });
        }
        let encoding = response.headers().get("content-encoding").and_then(|value| value.to_str().ok());
        let encoding = encoding.unwrap_or_default().trim().to_ascii_lowercase();
        let body = response.into_body().into_reader();
        let document = decoded(body, &encoding, limit).map_err(|e| match e.downcast::<ureq::Error>() {
            Ok(e) => failure(code, &e, &file.url),
            Err(e) => Failure { code, reason: e.to_string(), is_late: e.kind() == io::ErrorKind::TimedOut },
        })?;
        Ok(Answer { code, document })
    }
}

/// Returns the value of the header `Accept`.
fn accepted(format: Format) -> &'static str {
    match format {
        Format::Any => "*/*",
        Format::OpenMetrics => "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
        Format::Prometheus => "text/plain;version=0.0.4,*/*;q=0.1",
    }
}

fn failure(code: u16, e: &ureq::Error, url: &str) -> Failure {
    let is_late = matches!(e, ureq::Error::Timeout(_));
    let reason = if is_late { "no complete answer in time".to_owned() } else { e.to_string() };
    Failure { code, reason: reason.replace(url, &presentable(url)), is_late }
}

/// Reads and uncompresses a body.
fn decoded(body: impl Read, encoding: &str, limit: Limit) -> io::Result<Vec<u8>> {
    let Limit { most: limit, usual } = limit;
    let most = limit.saturating_add(1);
    let mut body = body.take(most);
    // Some more, so that the end is found without another allocation.
    let mut document = Vec::with_capacity(usual + usual / 16 + 64);
    match encoding {
        "" | "identity" => body.read_to_end(&mut document)?,
        "gzip" | "x-gzip" => MultiGzDecoder::new(body).take(most).read_to_end(&mut document)?,
        "deflate" => ZlibDecoder::new(body).take(most).read_to_end(&mut document)?,
        "zstd" => {
            let invalid = |e: FrameDecoderError| io::Error::new(io::ErrorKind::InvalidData, e.to_string());
            StreamingDecoder::new(body).map_err(invalid)?.take(most).read_to_end(&mut document)?
        }
        other => {
            let name: String = other.chars().take(40).collect();
            return Err(io::Error::new(io::ErrorKind::Unsupported, format!("unknown encoding {name:?}")));
        }
    };
    if document.len() as u64 > limit {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("the answer is longer than {limit} bytes")));
    }
    Ok(document)
}

/// Returns the value of the header `Authorization`.
fn authorization(access: &Access) -> Result<Option<String>, String> {
    if let Some(path) = &access.bearer {
        return Ok(Some(format!("Bearer {}", secret(path)?)));
    }
    let Some(path) = &access.basic else { return Ok(None) };
    Ok(Some(format!("Basic {}", STANDARD.encode(secret(path)?))))
}

/// Reads the first line of a file.
fn secret(path: &Path) -> Result<String, String> {
    let text = file::read(path, LONGEST).map_err(|e| format!("{}: {e}", path.display()))?;
    let text = String::from_utf8(text).map_err(|_| format!("{}: no text", path.display()))?;
    Ok(text.lines().next().unwrap_or_default().trim().to_owned())
}

#[cfg(feature = "tls")]
mod tls {
    use std::path::Path;
    use std::sync::{Arc, OnceLock};

    use pmapi::file;
    use ureq::config::ConfigBuilder;
    use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};
    use ureq::typestate::AgentScope;

    use super::LONGEST;
    use crate::url_file::Access;

    /// Certificates of the authorities that the host trusts, if it has a list. All sources share them.
    static AUTHORITIES: OnceLock<Option<Arc<Vec<Certificate<'static>>>>> = OnceLock::new();
    const LIST: &str = "/etc/ssl/certs/ca-certificates.crt";

    pub(super) fn configure(
        config: ConfigBuilder<AgentScope>,
        access: &Access,
    ) -> Result<ConfigBuilder<AgentScope>, String> {
        let mut tls = TlsConfig::builder();
        let trusted = match &access.authorities {
            Some(path) => Some(certificates(path)?),
            // Without a list, the authorities that come with the program are trusted.
            None => AUTHORITIES.get_or_init(|| certificates(LIST.as_ref()).ok()).clone(),
        };
        if let Some(trusted) = trusted {
            tls = tls.root_certs(RootCerts::Specific(trusted));
        }
        if let Some(path) = &access.certificate {
            let key = items(access.key.as_ref().unwrap_or(path))?.into_iter().find_map(private_key);
            let key = key.ok_or_else(|| format!("{}: no private key", path.display()))?;
            tls = tls.client_cert(Some(ClientCert::new_with_certs(&certificates(path)?, key)));
        }
        Ok(config.tls_config(tls.build()))
    }

    fn certificates(path: &Path) -> Result<Arc<Vec<Certificate<'static>>>, String> {
        Ok(Arc::new(items(path)?.into_iter().filter_map(certificate).collect()))
    }

    fn items(path: &Path) -> Result<Vec<PemItem<'static>>, String> {
        let text = file::read(path, LONGEST).map_err(|e| format!("{}: {e}", path.display()))?;
        parse_pem(&text).collect::<Result<_, _>>().map_err(|e| format!("{}: {e}", path.display()))
    }

    fn certificate(item: PemItem<'static>) -> Option<Certificate<'static>> {
        match item {
            PemItem::Certificate(certificate) => Some(certificate),
            _ => None,
        }
    }

    fn private_key(item: PemItem<'static>) -> Option<PrivateKey<'static>> {
        match item {
            PemItem::PrivateKey(key) => Some(key),
            _ => None,
        }
    }
}

#[cfg(not(feature = "tls"))]
mod tls {
    use ureq::config::ConfigBuilder;
    use ureq::typestate::AgentScope;

    use crate::url_file::Access;

    pub(super) fn configure(
        config: ConfigBuilder<AgentScope>,
        _: &Access,
    ) -> Result<ConfigBuilder<AgentScope>, String> {
        Ok(config)
    }
}
