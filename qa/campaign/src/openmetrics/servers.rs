//! HTTP servers: an honest one, and hostile ones.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use nix::libc::linger;
use nix::sys::socket::{setsockopt, sockopt::Linger};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use super::damage::{damage, document};
use crate::Outcome;
use crate::rng::Rng;

/// Longest time that a connection is served.
const LONGEST: Duration = Duration::from_secs(3);
/// Largest number of connections at a time. Others are closed at once.
const CONNECTIONS: usize = 200;
/// Length of documents that compress very well, with gzip and with zstd, in bytes.
const BOMB: usize = 64 << 20;
const ZSTD_BOMB: usize = 8 << 20;
/// First byte of a client that begins with TLS.
const TLS: u8 = 22;

/// State that the server's threads share.
#[derive(Debug)]
struct Shared {
    port: u16,
    bomb: Vec<u8>,
    zstd_bomb: Vec<u8>,
    connections: AtomicUsize,
}

/// Starts a server. The path `/honest` always has the same document. Any other path is a number, which determines the
/// answer.
pub(crate) fn start(port: u16) -> Outcome {
    let listener = TcpListener::bind(("127.0.0.1", port))?;
    let bomb = gzip(&vec![b' '; BOMB])?;
    let zstd_bomb = compress_to_vec([b' '; ZSTD_BOMB / 1024].repeat(1024).as_slice(), CompressionLevel::Fastest);
    let shared = Arc::new(Shared { port, bomb, zstd_bomb, connections: AtomicUsize::new(0) });
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
            if request.first() == Some(&TLS) {
                return garbage(stream, &request);
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
        return hostile(stream, seed, shared);
    }
}

/// Heads of answers, and the data that follows at long intervals.
const TRICKLES: [(&[u8], &[u8]); 3] =
    [(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b"a"), (b"", b"H"), (b"HTTP/1.1 200 OK\r\n", b"X: y\r\n")];

/// Heads of answers, and the data that follows without end.
const FLOODS: [(&[u8], &[u8]); 7] = [
    (b"HTTP/1.1 200 OK\r\n\r\n", b"a 1\n"),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 10000000000\r\n\r\n", b"a 1\n"),
    (b"HTTP/1.1 200 OK\r\n", b"X-Header: value\r\n"),
    (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"4\r\na 1\n\r\n"),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffff\r\n", b"a 1\n"),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"0"),
];

/// Answers a request with something bad, which follows from `seed`.
fn hostile(mut out: &TcpStream, seed: u64, shared: &Shared) -> io::Result<()> {
    let rng = &mut Rng::of(seed, 0);
    let document = document(rng);
    let gzipped = "Content-Encoding: gzip\r\n";
    let answer = match rng.below(24) {
        0 => whole("", &document),
        1 => whole(gzipped, &gzip(&document)?),
        2 => {
            let mut bytes = gzip(&document)?;
            damage(rng, &mut bytes);
            whole(gzipped, &bytes)
        }
        3 => whole(gzipped, &shared.bomb),
        4 => whole("Content-Encoding: zstd\r\n", &shared.zstd_bomb),
        5 => {
            let mut bytes = whole("Content-Type: text/plain\r\nConnection: keep-alive\r\n", b"a 1\n");
            damage(rng, &mut bytes);
            bytes
        }
        6 => chunked(rng, &document),
        7 => redirect(rng, shared.port),
        8 => moved("302", &format!("http://127.0.0.1:{}/{seed}", shared.port)),
        9 => return wait(out),
        10 | 11 => return trickle(out, rng.pick(&TRICKLES)),
        12..=15 => return flood(out, rng.pick(&FLOODS)),
        16 => {
            let length = rng.pick(&["-1", "99999999999999999999", "1, 2", "0x10", "10000000000", " ", "+4"]);
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
            [head.as_bytes(), &document].concat()
        }
        17 => [whole("", b"a 1\n"), whole("", &document), document].concat(),
        18 => {
            let status =
                rng.pick(&["204 No Content", "304 Not Modified", "500 \u{1b}[2J", "999 Odd", "1 x", "-5", "200"]);
            format!("HTTP/1.1 {status}\r\nContent-Length: 4\r\n\r\na 1\n").into_bytes()
        }
        19 => document,
        20 => {
            let lines: String = (0..20_000).map(|n| format!("many{}{{n=\"{n}\"}} {n}\n", rng.below(2000))).collect();
            whole("", lines.as_bytes())
        }
        // A window of up to 3.75 TiB, or content of a length that is not that of the frame.
        21 if rng.one_in(2) => {
            let head =
                if rng.one_in(2) { vec![0, rng.next() as u8] } else { (rng.next() | 0x20).to_le_bytes().to_vec() };
            let blocks = [0xfa, 0xff, 0x0f, b' '].repeat(300);
            let body = [&[0x28, 0xb5, 0x2f, 0xfd], head.as_slice(), &blocks].concat();
            whole("Content-Encoding: zstd\r\n", &body)
        }
        21 => {
            let encoding = rng.pick(&["br", "zstd", "deflate", "gzip, gzip", "\u{1b}[2J", "identity"]);
            whole(&format!("Content-Encoding: {encoding}\r\n"), &document)
        }
        22 => return reset(out, &document),
        _ => return out.shutdown(Shutdown::Both),
    };
    out.write_all(&answer)
}

/// Returns a complete answer.
fn whole(headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\n{headers}Content-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// Ends a connection with a reset, in the middle of an answer.
fn reset(mut out: &TcpStream, document: &[u8]) -> io::Result<()> {
    out.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")?;
    out.write_all(document)?;
    Ok(setsockopt(&out, Linger, &linger { l_onoff: 1, l_linger: 0 })?)
}

/// Answers the first message of TLS: with that message, damaged, as a record of a server, or with HTTP.
fn garbage(mut out: &TcpStream, hello: &[u8]) -> io::Result<()> {
    // The message has random bytes.
    let seed = hello.iter().fold(0, |sum: u64, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
    let mut rng = Rng::of(seed, 0);
    let mut bytes = match rng.below(4) {
        0 => b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n".to_vec(),
        1 => hello.to_vec(),
        2 => [&[TLS, 3, 3, 0, 4, 2, 0xff, 0xff, 0xff], hello].concat(),
        _ => return flood(out, (b"", &[TLS, 3, 3, 0, 1, 0])),
    };
    damage(&mut rng, &mut bytes);
    out.write_all(&bytes)
}

fn gzip(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes)?;
    encoder.finish()
}

/// Returns an answer in chunks, most of them damaged.
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

/// Returns a redirection to some address.
fn redirect(rng: &mut Rng, port: u16) -> Vec<u8> {
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
    moved(rng.pick(&["301", "302", "303", "307", "308", "300"]), to)
}

fn moved(code: &str, to: &str) -> Vec<u8> {
    format!("HTTP/1.1 {code} Moved\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n").into_bytes()
}

/// Waits until the agent closes the connection.
fn wait(mut stream: &TcpStream) -> io::Result<()> {
    let mut buffer = [0; 64];
    while stream.read(&mut buffer)? > 0 {}
    Ok(())
}

fn trickle(mut out: &TcpStream, (head, piece): (&[u8], &[u8])) -> io::Result<()> {
    out.write_all(head)?;
    let begin = Instant::now();
    while begin.elapsed() < LONGEST {
        out.write_all(piece)?;
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn flood(mut out: &TcpStream, (head, piece): (&[u8], &[u8])) -> io::Result<()> {
    let many = piece.repeat(1000);
    out.write_all(head)?;
    let begin = Instant::now();
    while begin.elapsed() < LONGEST {
        out.write_all(&many)?;
    }
    Ok(())
}
