//! HTTPS with a chosen authority, a client's certificate, and passwords in files.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::scene::{Agent, LIMIT, Scene, control, until, value};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};

fn certificate(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/certificates").join(name)
}

/// Starts a server that accepts clients with a certificate of the authority only. Its own certificate is that of a file,
/// all with the same key. Returns its port and the requests.
fn server(of: &str) -> (u16, Arc<Mutex<Vec<String>>>) {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(certificate("ca.pem")).unwrap()).unwrap();
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build().unwrap();
    let chain = vec![CertificateDer::from_pem_file(certificate(of)).unwrap()];
    let key = PrivateKeyDer::from_pem_file(certificate("server.key")).unwrap();
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = Arc::new(config.with_client_cert_verifier(clients).with_single_cert(chain, key).unwrap());
    // The certificate is not for the other addresses of the loopback interface.
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let requests = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&requests);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = StreamOwned::new(ServerConnection::new(Arc::clone(&config)).unwrap(), stream.unwrap());
            let mut request = Vec::new();
            let mut buffer = [0; 4096];
            while !request.ends_with(b"\r\n\r\n") {
                // A client without a certificate ends here.
                match stream.read(&mut buffer) {
                    Ok(0) | Err(_) => break,
                    Ok(len) => request.extend_from_slice(&buffer[..len]),
                }
            }
            kept.lock().unwrap().push(String::from_utf8_lossy(&request).into_owned());
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\na 5\n");
            stream.conn.send_close_notify();
            let _ = stream.flush();
        }
    });
    (port, requests)
}

#[test]
fn authorities_certificates_and_passwords() {
    let scene = Scene::new(&["-t", "1min", "--wait", "1min"]);
    let (port, requests) = server("server.pem");
    let password = scene.path("password");
    fs::write(&password, "me:s3cret\n").unwrap();
    let (ca, other) = (certificate("ca.pem"), certificate("other.pem"));
    let (client, key) = (certificate("client.pem"), certificate("client.key"));
    let late = certificate("expired_client.pem");
    let lines = |authority: &PathBuf| format!("AUTHORITIES: {}\nBASIC: {}", authority.display(), password.display());
    let own = format!("CERTIFICATE: {}\nKEY: {}", client.display(), key.display());
    let url = format!("https://localhost:{port}/metrics");
    for (name, text) in [
        ("good", format!("{url}\n{}\n{own}", lines(&ca))),
        ("stranger", format!("{url}\n{}\n{own}", lines(&other))),
        ("usual", format!("{url}\n{own}")),
        ("anonymous", format!("{url}\n{}", lines(&ca))),
        ("name", format!("https://127.0.0.2:{port}/\n{}\n{own}", lines(&ca))),
        ("missing", format!("{url}\nAUTHORITIES: {}", scene.path("nothing").display())),
        ("keyless", format!("{url}\n{}\nCERTIFICATE: {}", lines(&ca), client.display())),
        ("mixed", format!("{url}\nCERTIFICATE: {}\nKEY: {}", client.display(), certificate("server.key").display())),
        ("empty", format!("{url}\nCERTIFICATE: {}\nKEY: {}", key.display(), key.display())),
        ("no_list", format!("{url}\nAUTHORITIES: {}", key.display())),
        ("late", format!("{url}\n{}\nCERTIFICATE: {}\nKEY: {}", lines(&ca), late.display(), key.display())),
    ] {
        scene.url(name, &text);
    }
    let servers = ["expired", "future", "own"].map(|name| (name, server(&format!("{name}.pem")).0));
    for (name, port) in servers {
        scene.url(name, &format!("https://localhost:{port}/metrics\n{}\n{own}", lines(&ca)));
    }
    // The certificate that AUTHORITIES names may be the server's own one, whose authority is not known.
    for of in ["own", "server", "expired"] {
        let (port, authorities) = (server(&format!("{of}.pem")).0, certificate(&format!("{of}.pem")));
        scene.url(&format!("itself_{of}"), &format!("https://localhost:{port}/\n{}\n{own}", lines(&authorities)));
    }
    scene.url("itself_name", &format!("https://127.0.0.2:{port}/\n{}\n{own}", lines(&certificate("server.pem"))));
    let mut agent = scene.start();
    for name in ["good", "itself_own", "itself_server"] {
        until(name, || value(&mut agent, &format!("{name}.a")) == Ok(5.0));
    }
    assert!(requests.lock().unwrap().iter().any(|request| {
        request.to_ascii_lowercase().contains(&format!("authorization: basic {}\r\n", "bwu6cznjcmv0"))
    }));
    let mut logged = 0;
    for (name, reason) in [
        ("stranger", "UnknownIssuer"),
        ("usual", "UnknownIssuer"),
        ("anonymous", "CertificateRequired"),
        ("missing", "nothing: No such file"),
        ("keyless", "no private key"),
        ("mixed", "the key is not that of the certificate"),
        ("empty", "no certificate"),
        ("name", "not valid for name"),
        ("no_list", "client.key: no certificate"),
        ("late", "CertificateExpired"),
        ("expired", "certificate expired"),
        ("future", "certificate not valid yet"),
        ("own", "UnknownIssuer"),
        ("itself_expired", "certificate expired"),
        ("itself_name", "not valid for name"),
    ] {
        until("the source has failed", || control(&mut agent, "errors", name).parse::<u64>().is_ok_and(|n| n > 0));
        let error = control(&mut agent, "error", name);
        assert!(error.contains(reason), "{name}: {error}");
        assert!(agent.pmid(&format!("openmetrics.{name}.a")).is_err(), "{name}");
        let line = format!("source {name}: {error}; it has no values");
        logged += usize::from(scene.log().contains(&line));
    }
    // The log has only some of many lines at once, and where all reasons are.
    assert!(logged >= 5, "{logged} lines in {}", scene.log());
    until("the summary", || {
        scene.log().contains("15 of 18 sources have failed: openmetrics.control.error has the reason")
    });
    let log = scene.log();
    assert!(!log.contains("s3cret") && !log.contains("bWU6"), "{log}");
}

/// Certificates as `openssl req -x509` makes them: their own authorities, with and without the name of the host. And
/// servers without an algorithm that the agent knows.
#[test]
#[ignore = "needs openssl"]
// Slow: openssl makes keys.
fn certificates_and_servers_of_openssl() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("metrics"), "rooms 4\n").unwrap();
    let names = ["-addext", "subjectAltName=DNS:localhost"];
    let other = ["-addext", "subjectAltName=DNS:elsewhere"];
    let curve = |curve: &'static str| ["-newkey", "ec", "-pkeyopt", curve];
    let nothing = "no TLS algorithm in common";
    let rsa = ["-newkey", "rsa:2048"];
    for (key, more, server, reason) in [
        (&rsa[..], &names[..], &[][..], ""),
        (&rsa, &[], &[], ""),
        (&rsa, &other, &[], "not valid for name"),
        (&curve("ec_paramgen_curve:P-256"), &names, &[], ""),
        (&curve("ec_paramgen_curve:P-384"), &names, &[], ""),
        (&curve("ec_paramgen_curve:P-521"), &names, &[], nothing),
        (&rsa, &names, &["-tls1_2", "-cipher", "AES128-GCM-SHA256"], nothing),
        (&rsa, &names, &["-tls1_2", "-cipher", "ECDHE-RSA-AES128-SHA256"], nothing),
        (&rsa, &names, &["-tls1_2", "-cipher", "ECDHE-RSA-AES128-GCM-SHA256"], ""),
    ] {
        let (own, own_key) = (path("own.pem"), path("own.key"));
        let mut made = Command::new("openssl");
        made.args([
            "req",
            "-x509",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=localhost",
            "-out",
            &own,
            "-keyout",
            &own_key,
        ]);
        assert!(made.args(key).args(more).output().unwrap().status.success(), "{key:?}");
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
        let mut serves = Command::new("openssl");
        serves.args(["s_server", "-WWW", "-quiet", "-accept", &free, "-cert", &own, "-key", &own_key]).args(server);
        serves.current_dir(dir.path()).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut serves = serves.spawn().unwrap();
        until("the server accepts", || std::net::TcpStream::connect(format!("127.0.0.1:{free}")).is_ok());
        fs::write(path("src.url"), format!("https://localhost:{free}/metrics\nAUTHORITIES: {own}\n")).unwrap();
        let mut check = Command::new(env!("CARGO_BIN_EXE_pmdaopenmetrics"));
        let output = check.args(["--any-owner", "--check", &path("src.url")]).output().unwrap();
        serves.kill().unwrap();
        serves.wait().unwrap();
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        let expected = if reason.is_empty() { "value 4" } else { reason };
        assert!(output.status.success() == reason.is_empty() && text.contains(expected), "{key:?} {server:?}: {text}");
    }
}

/// Files with certificates are replaced, and vanish for a while. The `.url` file stays the same.
#[test]
fn certificates_that_change() {
    let scene = Scene::new(&["-t", "1min", "--wait", "1min", "-R", "20msec"]);
    let (port, _) = server("server.pem");
    let names = ["ca.pem", "client.pem", "client.key"];
    let [ca, client, key] = names.map(|name| scene.path(name));
    let put = |from: &str, to: &PathBuf| {
        fs::copy(certificate(from), scene.path("new.pem")).unwrap();
        fs::rename(scene.path("new.pem"), to).unwrap();
    };
    let lines = [("AUTHORITIES", &ca), ("CERTIFICATE", &client), ("KEY", &key)];
    let lines = lines.map(|(what, path)| format!("{what}: {}\n", path.display())).concat();
    scene.url("src", &format!("https://localhost:{port}/metrics\nBACKOFF: 0\n{lines}"));
    let mut agent = scene.start();
    let fails = |agent: &mut Agent, reason: &str| {
        until(reason, || {
            let _ = value(agent, "src.a");
            control(agent, "status", "src").contains(reason)
        });
    };
    fails(&mut agent, "ca.pem: No such file or directory");
    put("other.pem", &ca);
    fails(&mut agent, "client.pem: No such file or directory");
    put("expired_client.pem", &client);
    put("client.key", &key);
    fails(&mut agent, "UnknownIssuer");
    put("ca.pem", &ca);
    fails(&mut agent, "CertificateExpired");
    put("client.pem", &client);
    until("all are valid", || value(&mut agent, "src.a") == Ok(5.0));
    for (name, path) in names.into_iter().zip([&ca, &client, &key]) {
        fs::remove_file(path).unwrap();
        fails(&mut agent, &format!("{name}: No such file or directory"));
        put(name, path);
        until("the file is back", || value(&mut agent, "src.a") == Ok(5.0));
    }
    let log = scene.log();
    assert_eq!(log.matches("source src has values again").count(), 4, "{log}");
}

/// A server that ends the connection without an alert of TLS: its answer is complete only if it has no length.
#[test]
fn connections_that_end_without_a_word() {
    let scene = Scene::new(&["-t", "1min", "--wait", "1min"]);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let chain = vec![CertificateDer::from_pem_file(certificate("server.pem")).unwrap()];
    let key = PrivateKeyDer::from_pem_file(certificate("server.key")).unwrap();
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = Arc::new(config.with_no_client_auth().with_single_cert(chain, key).unwrap());
    for (name, headers) in [("open", ""), ("short", "Content-Length: 100\r\n")] {
        let (config, listener) = (Arc::clone(&config), TcpListener::bind("127.0.0.1:0").unwrap());
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = StreamOwned::new(ServerConnection::new(Arc::clone(&config)).unwrap(), stream.unwrap());
                let _ = stream.read(&mut [0; 4096]);
                let _ = stream.write_all(format!("HTTP/1.1 200 OK\r\n{headers}\r\na 5\n").as_bytes());
                let _ = stream.flush();
            }
        });
        let authorities = certificate("ca.pem");
        scene.url(name, &format!("https://localhost:{port}/\nAUTHORITIES: {}", authorities.display()));
    }
    let mut agent = scene.start();
    until("the whole answer", || value(&mut agent, "open.a") == Ok(5.0));
    until("the other fails", || control(&mut agent, "error", "short").contains("ended the connection within"));
}

/// A server that sends its part of the handshake slowly has no more time than another one.
#[test]
fn a_handshake_that_trickles() {
    const BYTES: usize = 2000;
    let scene = Scene::new(&["-t", "500msec"]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sent, sends) = channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            // A record of 16 KiB. Its content counts only once it is complete.
            let _ = stream.write_all(&[0x16, 3, 3, 0x40, 0]);
            let written = (0..BYTES).take_while(|_| {
                thread::sleep(Duration::from_millis(20));
                stream.write_all(&[0]).is_ok()
            });
            let _ = sent.send(written.count());
        }
    });
    scene.url("src", &format!("https://localhost:{port}/"));
    let mut agent = scene.start();
    until("the source has failed", || control(&mut agent, "error", "src").contains("no complete answer in time"));
    assert!(sends.recv_timeout(LIMIT).unwrap() < BYTES);
}
