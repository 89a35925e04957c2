//! HTTPS: authorities to trust, the client's own certificate, and reasons why a connection fails.
//!
//! The library is rustls: it is memory-safe where strangers' bytes arrive, and the program needs no library of the host.
//! In return it knows neither the key exchange RSA, nor ciphers with CBC, nor ECDSA with P-521; [`reason`] says so.

use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use pcp_base::file;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::access::{Access, LONGEST};

/// Settings of all sources without certificates of their own.
static USUAL: OnceLock<Result<Arc<ClientConfig>, String>> = OnceLock::new();
const LIST: &str = "/etc/ssl/certs/ca-certificates.crt";
/// Reason for a server that knows none of the agent's algorithms. It does not say which ones it knows.
const NOTHING_IN_COMMON: &str =
    "no TLS algorithm in common: the agent offers TLS 1.2 and 1.3, ECDHE, AES-GCM and ChaCha20, RSA, P-256 and P-384";

/// Settings for the connections of a source.
pub(crate) type Config = Arc<ClientConfig>;

/// Reads the certificates of a source.
///
/// # Errors
/// The reason why they cannot be used, with the path.
pub(crate) fn config(access: &Access) -> Result<Config, String> {
    if access.certificates().next().is_none() {
        return USUAL.get_or_init(|| new(access)).clone();
    }
    new(access)
}

fn new(access: &Access) -> Result<Config, String> {
    let provider = Arc::new(ring::default_provider());
    let trusted = match &access.authorities {
        Some(path) => certificates(path)?,
        None => certificates(LIST.as_ref()).unwrap_or_default(),
    };
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(trusted.iter().cloned());
    if access.authorities.is_none() && roots.is_empty() {
        // The host has no list.
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    let named = if access.authorities.is_some() { trusted } else { Vec::new() };
    let verifier = Verifier::new(roots, named, &provider)?;
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|e| e.to_string())?;
    let config = config.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
    let Some(path) = &access.certificate else { return Ok(Arc::new(config.with_no_client_auth())) };
    let failed = |reason: &dyn std::fmt::Display| format!("{}: {reason}", path.display());
    let key = access.key.as_ref().unwrap_or(path);
    let read = file::read(key, LONGEST).map_err(|e| format!("{}: {e}", key.display()))?;
    let key = PrivateKeyDer::from_pem_slice(&read).map_err(|_| format!("{}: no private key", key.display()))?;
    match config.with_client_auth_cert(certificates(path)?, key) {
        Ok(config) => Ok(Arc::new(config)),
        Err(Error::InconsistentKeys(_)) => Err(failed(&"the key is not that of the certificate")),
        Err(e) => Err(failed(&e)),
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let text = file::read(path, LONGEST).map_err(|e| format!("{}: {e}", path.display()))?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match found {
        Ok(found) if found.is_empty() => Err(format!("{}: no certificate", path.display())),
        found => found.map_err(|e| format!("{}: {e}", path.display())),
    }
}

/// Checks certificates of servers. One that `AUTHORITIES` names itself need not be that of a server: programs make
/// certificates that are their own authorities, and some of them name no host.
#[derive(Debug)]
struct Verifier {
    usual: Option<Arc<WebPkiServerVerifier>>,
    named: Vec<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
}

impl Verifier {
    fn new(
        roots: RootCertStore,
        named: Vec<CertificateDer<'static>>,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Verifier, String> {
        let usual = match roots.is_empty() {
            true => None,
            false => {
                let builder = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
                Some(builder.build().map_err(|e| e.to_string())?)
            }
        };
        Ok(Verifier { usual, named, provider: Arc::clone(provider) })
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let unknown = Err(Error::InvalidCertificate(CertificateError::UnknownIssuer));
        let Some(usual) = &self.usual else { return unknown };
        let verified = usual.verify_server_cert(certificate, others, name, ocsp, now);
        let is_named = self.named.iter().any(|named| named == certificate);
        match verified {
            Err(Error::InvalidCertificate(reason)) if is_named => {
                // Its time has been checked before that, and its host has not.
                let is_its_own = match &reason {
                    CertificateError::UnknownIssuer => true,
                    CertificateError::Other(other) => {
                        matches!(other.0.downcast_ref(), Some(webpki::Error::CaUsedAsEndEntity))
                    }
                    _ => false,
                };
                if is_its_own {
                    let parsed = rustls::server::ParsedCertificate::try_from(certificate)?;
                    return host(rustls::client::verify_server_name(&parsed, name));
                }
                host(Err(Error::InvalidCertificate(reason)))
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Accepts a certificate that names no host at all.
fn host(verified: Result<(), Error>) -> Result<ServerCertVerified, Error> {
    match verified {
        Err(Error::InvalidCertificate(CertificateError::NotValidForNameContext { presented, .. }))
            if presented.is_empty() => {}
        other => other?,
    }
    Ok(ServerCertVerified::assertion())
}

/// Secures a connection to `host`.
///
/// # Errors
/// Errors of the handshake; `host` is no name.
pub(crate) async fn secured<T: AsyncRead + AsyncWrite + Unpin>(
    config: Config,
    io: T,
    host: &str,
) -> io::Result<TlsStream<T>> {
    let name = ServerName::try_from(host.trim_start_matches('[').trim_end_matches(']').to_owned());
    let name = name.map_err(|_| io::Error::other("the URL has no valid host"))?;
    TlsConnector::from(config).connect(name, io).await
}

/// Describes an error of TLS, if it is one.
pub(crate) fn reason(e: &io::Error) -> Option<String> {
    let e = e.get_ref()?.downcast_ref::<Error>()?;
    Some(match e {
        Error::AlertReceived(
            AlertDescription::HandshakeFailure
            | AlertDescription::InsufficientSecurity
            | AlertDescription::ProtocolVersion,
        )
        | Error::PeerIncompatible(_) => {
            format!("{NOTHING_IN_COMMON} ({e})")
        }
        Error::InvalidCertificate(CertificateError::BadSignature) => {
            format!("{e}: it is not the server's, or its RSA key is shorter than 2048 bits")
        }
        Error::InvalidMessage(_) => format!("the server does not answer with TLS: {e}"),
        e => e.to_string(),
    })
}
