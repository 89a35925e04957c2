//! HTTP servers and scripts that behave badly: each costs its own source only.

#![allow(clippy::unwrap_used, clippy::panic)]

mod scene;

use std::fs;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use pmapi::Error;
use scene::{LIMIT, Scene, Server, control, send, until, value};

#[test]
fn each_fetch_is_fresh() {
    let scene = Scene::new(&["--wait", "1min"]);
    let document = Arc::new(Mutex::new("a 1\n".to_owned()));
    let server = Server::of(&document);
    scene.url("src", &server.url("/metrics?x=1"));
    let mut agent = scene.start();
    // On a slow machine a reading may be late, and a value then is that of the last fetch.
    for number in 2..5 {
        *document.lock().unwrap() = format!("a {number}\n");
        until("the new value", || value(&mut agent, "src.a") == Ok(f64::from(number)));
    }
    assert_eq!(control(&mut agent, "status_code", "src"), "200");
    assert_eq!(control(&mut agent, "status", "src"), "success");
    let request = server.requests.lock().unwrap()[0].clone();
    assert!(request.starts_with("GET /metrics?x=1 HTTP/1.1\r\n"), "{request}");
}

#[test]
fn headers_and_secrets() {
    let scene = Scene::new(&[]);
    let server = Server::new(|stream| send(stream, "404 Not Found", "", b"no"));
    let secret = scene.path("token");
    fs::write(&secret, "s3cret\n").unwrap();
    let url = format!("http://me:passw0rd@127.0.0.1:{}/x?api_key=k3y", server.port);
    scene.url("src", &format!("{url}\nHEADER: X-Test: a: b\nBEARER: {}", secret.display()));
    let mut agent = scene.start();
    assert_eq!(control(&mut agent, "status_code", "src"), "404");
    let request = server.requests.lock().unwrap()[0].to_ascii_lowercase();
    for header in ["x-test: a: b\r\n", "authorization: bearer s3cret\r\n", "accept: */*\r\n"] {
        assert!(request.contains(header), "{request}");
    }
    let shown = control(&mut agent, "status", "src") + &scene.log();
    for secret in ["s3cret", "passw0rd", "k3y"] {
        assert!(!shown.contains(secret), "{shown}");
    }
    assert!(shown.contains("404 Not Found"), "{shown}");
}

/// What servers answer that have no document, and what the status says then.
#[test]
fn bad_answers() {
    let scene = Scene::new(&["--bytes", "100000", "-t", "1s"]);
    let compressed = |bytes: &[u8]| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    let bomb = compressed(&vec![b' '; 50_000_000]);
    let good = compressed(b"a 7\n");
    let gzip = "Content-Encoding: gzip\r\n";
    let servers = [
        ("bomb", Server::new(move |stream| send(stream, "200 OK", gzip, &bomb)), "longer than 100000 bytes"),
        (
            "broken",
            Server::new(move |stream| send(stream, "200 OK", gzip, b"this is not compressed")),
            "invalid gzip header",
        ),
        ("brotli", Server::new(|stream| send(stream, "200 OK", "Content-Encoding: br\r\n", b"x")), "unknown encoding"),
        ("endless", Server::new(|stream| while stream.write_all(&[b'x'; 4096]).is_ok() {}), ""),
        ("reset", Server::new(|_| {}), ""),
        ("loop", Server::new(|stream| send(stream, "302 Found", "Location: /again\r\n", b"")), "redirect"),
        ("hangs", Server::new(|_| thread::sleep(LIMIT)), "no complete answer in time"),
        ("trickles", Server::new(trickle), "no complete answer in time"),
        ("good", Server::new(move |stream| send(stream, "200 OK", gzip, &good)), "success"),
    ];
    for (name, server, _) in &servers {
        scene.url(name, &server.url("/"));
    }
    let mut agent = scene.start();
    assert_eq!(value(&mut agent, "good.a"), Ok(7.0));
    for (name, _, reason) in &servers {
        let mut status = String::new();
        until("the source has failed", || {
            status = control(&mut agent, "status", name);
            status != "unknown"
        });
        assert!(status.contains(reason) && (*name == "good") == (status == "success"), "{name}: {status}");
        assert_eq!(value(&mut agent, "good.a"), Ok(7.0));
    }
}

fn trickle(stream: &mut std::net::TcpStream) {
    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n");
    while stream.write_all(b"a").is_ok() {
        thread::sleep(Duration::from_millis(50));
    }
}

/// A source that suddenly hangs has its last values until its time is over, then none, and is back when it answers.
#[test]
fn a_source_that_hangs_is_alone() {
    let scene = Scene::new(&["-t", "2s"]);
    let hangs = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&hangs);
    let bad = Server::new(move |stream| {
        while flag.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(5));
        }
        send(stream, "200 OK", "", b"a 1\n");
    });
    let good = Server::new(|stream| send(stream, "200 OK", "", b"a 2\n"));
    scene.url("bad", &bad.url("/"));
    scene.url("good", &good.url("/"));
    let mut agent = scene.start();
    assert_eq!(value(&mut agent, "bad.a"), Ok(1.0));
    hangs.store(true, Ordering::Relaxed);
    until("the source is late", || {
        assert!(matches!(value(&mut agent, "bad.a"), Ok(1.0) | Err(Error::AGAIN)));
        control(&mut agent, "late", "bad") == "1"
    });
    until("its values are gone", || value(&mut agent, "bad.a") == Err(Error::AGAIN));
    assert_eq!(value(&mut agent, "good.a"), Ok(2.0));
    hangs.store(false, Ordering::Relaxed);
    until("its values are back", || value(&mut agent, "bad.a") == Ok(1.0));
    assert_eq!(control(&mut agent, "late", "bad"), "0");
}

#[test]
fn a_source_with_an_interval_is_read_in_the_background() {
    let scene = Scene::new(&[]);
    let document = Arc::new(Mutex::new("a 1\n".to_owned()));
    let server = Server::of(&document);
    scene.url("src", &format!("{}\nINTERVAL: 20msec", server.url("/")));
    let mut agent = scene.start();
    until("it is read without a fetch", || server.requests.lock().unwrap().len() > 3);
    *document.lock().unwrap() = "a 2\n".to_owned();
    until("the new value", || value(&mut agent, "src.a") == Ok(2.0));
}

#[test]
fn scripts_that_fail() {
    let scene = Scene::new(&["--script-timeout", "300msec"]);
    scene.config("fails", "#!/bin/sh\necho oops >&2\nexit 3\n", 0o755);
    scene.config("hangs.sh", "#!/bin/sh\nsleep 1000 &\nsleep 1000\n", 0o755);
    scene.config("good.sh", "#!/bin/sh\necho a 1\n", 0o755);
    let mut agent = scene.start();
    until("the good one has a value", || value(&mut agent, "good.a") == Ok(1.0));
    for (name, reason) in [("fails", "its exit status was 3"), ("hangs", "was killed")] {
        until("the other has failed", || control(&mut agent, "status", name).contains(reason));
    }
    // Only documents count, and so does what a script that succeeds says.
    scene.config("good.sh", "#!/bin/sh\necho oops >&2\necho a 2\n", 0o755);
    until("the new script is run", || value(&mut agent, "good.a") == Ok(2.0));
    assert!(scene.log().contains("source good says: oops"), "{}", scene.log());
}
