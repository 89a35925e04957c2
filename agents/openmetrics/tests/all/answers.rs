//! Answers as some servers send them, proxies that the environment names, and URLs that are not written in the usual way:
//! each has the values that PCP's agent, whose client is python-requests, exports.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use crate::scene::LIMIT;

/// Starts a server that answers each request with these bytes. Returns its port and the first lines of requests.
fn server(answer: &[u8]) -> (u16, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (seen, sees) = channel();
    let answer = answer.to_vec();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, mut request) = (stream.unwrap(), Vec::new());
            let mut piece = [0; 4096];
            while !request.ends_with(b"\r\n\r\n") {
                match stream.read(&mut piece) {
                    Ok(0) | Err(_) => break,
                    Ok(len) => request.extend_from_slice(&piece[..len]),
                }
            }
            let _ = stream.write_all(&answer);
            let _ = seen.send(String::from_utf8_lossy(&request).lines().next().unwrap_or_default().to_owned());
        }
    });
    (port, sees)
}

/// Returns whether the option `--check` succeeds, and what it prints.
fn check(url: &str, variables: &[(&str, &str)]) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pmdaopenmetrics"));
    for name in ["http_proxy", "https_proxy", "all_proxy", "no_proxy"] {
        command.env_remove(name).env_remove(name.to_uppercase());
    }
    let output = command.args(["--check", url]).envs(variables.iter().copied()).output().unwrap();
    (output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

/// Returns an answer with some headers and a body.
fn answer(headers: &str, body: &[u8]) -> Vec<u8> {
    [format!("HTTP/1.1 200 OK\r\n{headers}Content-Length: {}\r\n\r\n", body.len()).as_bytes(), body].concat()
}

#[test]
fn headers_that_are_not_needed() {
    let long = format!("X-Policy: {}\r\n", "a".repeat(60_000));
    let many = (0..90).map(|n| format!("X-{n}: {}\r\n", "v".repeat(600))).collect::<String>();
    for headers in [
        "X-Note: first\r\n second\r\n",
        "X-Note: first\r\n\tsecond\r\n\tthird\r\n",
        "X-Powered-By\r\n",
        "X-Note : value\r\n",
        "X Note: value\r\n",
        ": value\r\n",
        "X@[]: value\r\n",
        "X-\u{e9}: \u{e9}\r\n",
        "X-Note: a\u{1}b\r\n",
        &long,
        &many,
    ] {
        let (port, _) = server(&answer(headers, b"rooms 4\n"));
        let (is_good, text) = check(&format!("http://127.0.0.1:{port}/"), &[]);
        assert!(is_good && text.contains("value 4"), "{headers:.60}: {text}");
    }
    let whole: [&[u8]; 4] = [
        b"HTTP/1.1 200\r\nContent-Length: 8\r\n\r\nrooms 4\n",
        b"HTTP/1.1 200 OK\nContent-Length: 8\n\nrooms 4\n",
        b"HTTP/1.0 200 OK\r\n\r\nrooms 4\n",
        b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n8;a=b\r\nrooms 4\n\r\n0\r\n\r\n",
    ];
    for answer in whole {
        let (port, _) = server(answer);
        let (is_good, text) = check(&format!("http://127.0.0.1:{port}/"), &[]);
        assert!(is_good && text.contains("value 4"), "{}: {text}", answer.escape_ascii());
    }
}

/// An answer has up to 512 headers. One with more is an error, and its values are not read.
#[test]
fn headers_without_number() {
    let check_with = |count: usize| {
        let headers = (1..count).map(|n| format!("X-{n}: v\r\n")).collect::<String>();
        check(&format!("http://127.0.0.1:{}/", server(&answer(&headers, b"rooms 4\n")).0), &[])
    };
    let (is_good, text) = check_with(512);
    assert!(is_good && text.contains("value 4"), "{text}");
    let (is_good, text) = check_with(513);
    assert!(!is_good && text.contains("head is too large") && !text.contains("value 4"), "{text}");
}

/// A server elsewhere is reached through the proxy, which may be on this host. It must not lead to servers of this host.
#[test]
fn no_redirection_behind_a_proxy_leads_to_this_host() {
    let (local, seen) = server(&answer("", b"secret 4\n"));
    for host in ["127.0.0.1", "localhost", "[::1]", "169.254.7.7", "0.0.0.0"] {
        let location = format!("HTTP/1.1 302 Found\r\nLocation: http://{host}:{local}/\r\nContent-Length: 0\r\n\r\n");
        let (proxy, asked) = server(location.as_bytes());
        let proxy = format!("http://127.0.0.1:{proxy}");
        // With `no_proxy` the next request would be sent directly, without it to the proxy.
        for no_proxy in ["", host] {
            let (is_good, text) = check("http://far.test/", &[("http_proxy", &proxy), ("no_proxy", no_proxy)]);
            assert!(!is_good && text.contains("a redirection leads from a server elsewhere"), "{host}: {text}");
            assert_eq!(asked.recv_timeout(LIMIT).unwrap(), "GET http://far.test/ HTTP/1.1");
            assert!(asked.try_recv().is_err() && seen.try_recv().is_err(), "{host}");
        }
    }
}

#[test]
fn character_sets_and_encodings() {
    let latin = b"rooms{city=\"Z\xfcrich\"} 4\n";
    for headers in [
        "Content-Type: text/plain;charset=ISO-8859-1\r\n",
        "Content-Type: text/plain; charset=\"iso-8859-1\"\r\nContent-Encoding: iso-8859-1\r\n",
    ] {
        let (port, _) = server(&answer(headers, latin));
        let (is_good, text) = check(&format!("http://127.0.0.1:{port}/"), &[]);
        assert!(is_good && text.contains("city:Zürich"), "{headers}: {text}");
    }
    let wide: Vec<u8> = "\u{feff}rooms{city=\"Zürich\"} 4\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let (port, _) = server(&answer("Content-Type: text/plain; charset=utf-16\r\n", &wide));
    assert!(check(&format!("http://127.0.0.1:{port}/"), &[]).1.contains("city:Zürich"));
}

/// Plain HTTP goes through a proxy by `GET http://…`. Hosts that `no_proxy` names are reached directly.
#[test]
fn proxies_of_the_environment() {
    let (port, seen) = server(&answer("", b"from_proxy 4\n"));
    let (local, _) = server(&answer("", b"direct 4\n"));
    let proxy = format!("http://me:secret@127.0.0.1:{port}");
    let far = "http://exporter.invalid:9100/metrics?x=1";
    for variables in [
        &[("http_proxy", &*proxy)][..],
        &[("HTTP_PROXY", &proxy)],
        &[("all_proxy", &proxy)],
        &[("http_proxy", proxy.trim_start_matches("http://")), ("no_proxy", "localhost,.other,10.0.0.0/8")],
    ] {
        let (is_good, text) = check(far, variables);
        assert!(is_good && text.contains("from_proxy"), "{variables:?}: {text}");
        assert_eq!(seen.recv_timeout(LIMIT).unwrap(), format!("GET {far} HTTP/1.1"));
    }
    let near = format!("http://127.0.0.1:{local}/");
    let named = format!("http://localhost:{local}/");
    let with_port = format!("localhost:{local}");
    for (url, no_proxy) in [
        (&near, "127.0.0.1"),
        (&near, "10.0.0.0/8, 127.0.0.0/16"),
        (&near, "*"),
        (&named, "LOCALHOST"),
        (&named, &with_port),
    ] {
        let (is_good, text) = check(url, &[("http_proxy", &proxy), ("no_proxy", no_proxy)]);
        assert!(is_good && text.contains("direct"), "{url} {no_proxy}: {text}");
    }
    // These are not excepted.
    for (url, no_proxy) in [(&near, "localhost"), (&near, "10.0.0.0/8"), (&named, "localhost:1"), (&named, "host")] {
        let (is_good, text) = check(url, &[("http_proxy", &proxy), ("no_proxy", no_proxy)]);
        assert!(is_good && text.contains("from_proxy"), "{url} {no_proxy}: {text}");
    }
    let (is_good, text) = check(&near, &[("https_proxy", &proxy)]);
    assert!(is_good && text.contains("direct"), "{text}");
    let refused = check("https://exporter.invalid/", &[("https_proxy", &proxy)]);
    assert!(!refused.0 && !refused.1.contains("secret"), "{refused:?}");
    let socks = check(far, &[("http_proxy", "socks5://127.0.0.1:1")]);
    assert!(!socks.0 && socks.1.contains("only proxies with HTTP"), "{socks:?}");
}

#[test]
fn urls_that_are_written_otherwise() {
    let (port, seen) = server(&answer("", b"rooms 4\n"));
    for (url, path) in [
        ("HTTP://LOCALHOST:PORT/metrics", "/metrics"),
        ("http://127.0.0.1:PORT/app/../metrics", "/metrics"),
        ("http://127.0.0.1:PORT/./a/b/..", "/a/"),
        ("http://127.0.0.1:PORT//metrics", "//metrics"),
        ("http://127.0.0.1:PORT/a b/é?match[]={x=\"y\"}#z", "/a%20b/%C3%A9?match%5B%5D=%7Bx=%22y%22%7D"),
        ("http://127.0.0.1:PORT?x=../b", "/?x=../b"),
        ("http://127.1:PORT", "/"),
    ] {
        let (is_good, text) = check(&url.replace("PORT", &port.to_string()), &[]);
        assert!(is_good && text.contains("value 4"), "{url}: {text}");
        assert_eq!(seen.recv_timeout(LIMIT).unwrap(), format!("GET {path} HTTP/1.1"), "{url}");
    }
    // The name that is looked up.
    let (proxy, seen) = server(&answer("", b"rooms 4\n"));
    let proxy = format!("127.0.0.1:{proxy}");
    let (is_good, text) = check("http://MÜNCHEN.test:9100/metrics", &[("http_proxy", &proxy)]);
    assert!(is_good, "{text}");
    assert_eq!(seen.recv_timeout(LIMIT).unwrap(), "GET http://xn--mnchen-3ya.test:9100/metrics HTTP/1.1");
}
