//! HTTPS: authorities to trust, and the client's own certificate.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use pmapi::file;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use ureq::config::ConfigBuilder;
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};
use ureq::typestate::AgentScope;

use crate::access::{Access, LONGEST};

/// Certificates of the authorities that the host trusts, if it has such a list. All sources share them.
static AUTHORITIES: OnceLock<Option<Arc<Vec<Certificate<'static>>>>> = OnceLock::new();
const LIST: &str = "/etc/ssl/certs/ca-certificates.crt";

pub(crate) fn configure(
    config: ConfigBuilder<AgentScope>,
    access: &Access,
) -> Result<ConfigBuilder<AgentScope>, String> {
    let mut tls = TlsConfig::builder();
    let trusted = match &access.authorities {
        Some(path) => Some(certificates(path)?),
        // Without a list, the authorities built into the program are trusted.
        None => AUTHORITIES.get_or_init(|| certificates(LIST.as_ref()).ok()).clone(),
    };
    if let Some(trusted) = trusted {
        tls = tls.root_certs(RootCerts::Specific(trusted));
    }
    if let Some(path) = &access.certificate {
        check_pair(path, access.key.as_ref().unwrap_or(path))?;
        let key = items(access.key.as_ref().unwrap_or(path))?.into_iter().find_map(private_key);
        let key = key.ok_or_else(|| format!("{}: no private key", path.display()))?;
        tls = tls.client_cert(Some(ClientCert::new_with_certs(&certificates(path)?, key)));
    }
    Ok(config.tls_config(tls.build()))
}

/// Checks that a client's certificate and key can be used. ureq would panic otherwise.
fn check_pair(certificate: &Path, key: &Path) -> Result<(), String> {
    let read = |path: &Path| file::read(path, LONGEST).map_err(|e| format!("{}: {e}", path.display()));
    let failed = |reason: &dyn std::fmt::Display| format!("{}: {reason}", certificate.display());
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read(certificate)?).collect();
    let chain = chain.map_err(|e| failed(&e))?;
    if chain.is_empty() {
        return Err(failed(&"no certificate"));
    }
    let key = PrivateKeyDer::from_pem_slice(&read(key)?).map_err(|_| format!("{}: no private key", key.display()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|e| failed(&e))?.with_root_certificates(RootCertStore::empty());
    match config.with_client_auth_cert(chain, key) {
        Ok(_) => Ok(()),
        Err(rustls::Error::InconsistentKeys(_)) => Err(failed(&"the key is not that of the certificate")),
        Err(e) => Err(failed(&e)),
    }
}

fn certificates(path: &Path) -> Result<Arc<Vec<Certificate<'static>>>, String> {
    let found: Vec<_> = items(path)?.into_iter().filter_map(certificate).collect();
    if found.is_empty() { Err(format!("{}: no certificate", path.display())) } else { Ok(Arc::new(found)) }
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
