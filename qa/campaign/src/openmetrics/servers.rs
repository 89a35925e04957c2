//! HTTP servers: an honest one, and hostile ones.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;

use super::damage::{damage, document};
use crate::Outcome;
use crate::rng::Rng;

/// Longest time that a connection is served.
const LONGEST: Duration = Duration::from_secs(3);
/// Most connections at a time. Others are closed at once.
const CONNECTIONS: usize = 200;
/// Length of a document that is compressed to a small part of it, in bytes.
const BOMB: usize = 64 << 20;

/// What the server's threads share.
#[derive(Debug)]
struct Shared {
    port: u16,
    bomb: Vec<u8>,
    connections: AtomicUsize,
}

/// Starts a server. The path `/honest` always has the same document. Any other path is a number, from which the answer
/// follows.
pub(super) fn start(port: u16) -> Outcome {
    let listener = TcpListener::bind(("127.0.0.1", port))?;
    let shared = Arc::new(Shared { port, bomb: gzip(&vec![b' '; BOMB])?, connections: AtomicUsize::new(0) });
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let shared = Arc::clone(&shared);
            if shared.connections.fetch_add(1, Relaxed) >= CONNECTIONS {
                shared.connections.fetch_sub(1, Relaxed);
                continue;
            }
            let serve = move || {
                // The agent closes connections whenever it wants.
                let _ = serve(&stream, &shared);
                shared.connections.fetch_sub(1, Relaxed);
            };
            // Without a thread, the connection is closed.
            let _ = thread::Builder::new().spawn(serve);
        }
    });
    Ok(())
}

fn serve(stream: &TcpStream, shared: &Shared) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(Duration::from_millis(500)))?;
    stream.set_read_timeout(Some(LONGEST))?;
    let mut request = Vec::new();
    loop {
        let mut buffer = [0; 4096];
        while !request.ends_with(b"\r\n\r\n") {
            match (&*stream).read(&mut buffer)? {
                0 => return Ok(()),
                n => request.extend_from_slice(buffer.get(..n).unwrap_or_default()),
            }
        }
        let text = String::from_utf8_lossy(&request).into_owned();
        request.clear();
        let path = text.split(' ').nth(1).unwrap_or("/");
        if path == "/honest" {
            let document = "count 12345\nrows{n=\"1\"} 1\nrows{n=\"2\"} 2\n";
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", document.len());
            (&*stream).write_all(format!("{head}{document}").as_bytes())?;
            continue;
        }
        let seed = path.trim_start_matches('/').parse().unwrap_or(0);
        return hostile(stream, &mut Rng::of(seed, 0), shared);
    }
}

/// Answers a request with something bad.
fn hostile(mut out: &TcpStream, rng: &mut Rng, shared: &Shared) -> io::Result<()> {
    let document = document(rng);
    let whole = |headers: &str, body: &[u8]| {
        let head = format!("HTTP/1.1 200 OK\r\n{headers}Content-Length: {}\r\n\r\n", body.len());
        [head.as_bytes(), body].concat()
    };
    let gzipped = "Content-Encoding: gzip\r\n";
    match rng.below(21) {
        0 => out.write_all(&whole("", &document)),
        1 => out.write_all(&whole(gzipped, &gzip(&document)?)),
        2 => {
            let mut bytes = gzip(&document)?;
            damage(rng, &mut bytes);
            out.write_all(&whole(gzipped, &bytes))
        }
        3 => out.write_all(&whole(gzipped, &shared.bomb)),
        4 => {
            let mut bytes = whole("Content-Type: text/plain\r\nConnection: keep-alive\r\n", b"a 1\n");
            damage(rng, &mut bytes);
            out.write_all(&bytes)
        }
        5 => out.write_all(&chunked(rng, &document)),
        6 => redirect(out, rng, shared.port),
        7 => wait(out),
        8 => trickle(out, b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b"a"),
        9 => trickle(out, b"", b"H"),
        10 => trickle(out, b"HTTP/1.1 200 OK\r\n", b"X: y\r\n"),
        11 => flood(out, b"HTTP/1.1 200 OK\r\n\r\n", b"a 1\n"),
        12 => flood(out, b"HTTP/1.1 200 OK\r\n", b"X-Header: value\r\n"),
        13 => flood(out, b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        14 => {
            let length = rng.pick(&["-1", "99999999999999999999", "1, 2", "0x10", "10000000000", " ", "+4"]);
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
            out.write_all(&[head.as_bytes(), &document].concat())
        }
        15 => out.write_all(&[whole("", b"a 1\n"), whole("", &document), document].concat()),
        16 => {
            let status =
                rng.pick(&["204 No Content", "304 Not Modified", "500 \u{1b}[2J", "999 Odd", "1 x", "-5", "200"]);
            out.write_all(format!("HTTP/1.1 {status}\r\nContent-Length: 4\r\n\r\na 1\n").as_bytes())
        }
        17 => out.write_all(&document),
        18 => {
            let lines: String = (0..20_000).map(|n| format!("many{}{{n=\"{n}\"}} {n}\n", rng.below(2000))).collect();
            out.write_all(&whole("", lines.as_bytes()))
        }
        19 => {
            let encoding = rng.pick(&["br", "zstd", "deflate", "gzip, gzip", "\u{1b}[2J", "identity"]);
            out.write_all(&whole(&format!("Content-Encoding: {encoding}\r\n"), &document))
        }
        _ => out.shutdown(Shutdown::Both),
    }
}

fn gzip(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes)?;
    encoder.finish()
}

/// Returns an answer in chunks, most of them with damage.
fn chunked(rng: &mut Rng, document: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    for chunk in document.chunks(1 + rng.below(300)) {
        let len = if rng.one_in(30) { rng.odd_number() } else { chunk.len() as u64 };
        body.extend_from_slice(format!("{len:x}\r\n").as_bytes());
        body.extend_from_slice(chunk);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(b"0\r\n\r\n");
    if rng.one_in(2) {
        damage(rng, &mut body);
    }
    [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".as_slice(), &body].concat()
}

fn redirect(mut out: &TcpStream, rng: &mut Rng, port: u16) -> io::Result<()> {
    let own = format!("http://127.0.0.1:{port}/{}", rng.next());
    let long = format!("/{}", "x".repeat(100_000));
    let to = rng.pick(&[
        &own,
        "/1",
        "file:///etc/passwd",
        "http://127.0.0.1:1/",
        "gopher://x",
        "",
        "//",
        &long,
        "http://[::",
    ]);
    let code = rng.pick(&["301", "302", "303", "307", "308", "300"]);
    out.write_all(format!("HTTP/1.1 {code} Moved\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n").as_bytes())
}

/// Waits until the agent closes the connection.
fn wait(mut stream: &TcpStream) -> io::Result<()> {
    let mut buffer = [0; 64];
    while stream.read(&mut buffer)? > 0 {}
    Ok(())
}

fn trickle(mut out: &TcpStream, head: &[u8], piece: &[u8]) -> io::Result<()> {
    out.write_all(head)?;
    let begin = Instant::now();
    while begin.elapsed() < LONGEST {
        out.write_all(piece)?;
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn flood(mut out: &TcpStream, head: &[u8], piece: &[u8]) -> io::Result<()> {
    let many = piece.repeat(1000);
    out.write_all(head)?;
    let begin = Instant::now();
    while begin.elapsed() < LONGEST {
        out.write_all(&many)?;
    }
    Ok(())
}
