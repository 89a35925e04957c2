//! HTTP servers and scripts that behave badly. Each affects only its own source.

use std::fs;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::scene::{Agent, LIMIT, Scene, control, until, value, values};
use crate::server::{Server, send};
use flate2::Compression;
use flate2::write::GzEncoder;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pmapi::Error;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

#[test]
fn each_fetch_is_fresh() {
    let scene = Scene::new(&["--wait", "1min"]);
    let document = Arc::new(Mutex::new("a 1\n".to_owned()));
    let server = Server::of(&document);
    scene.url("src", &server.url("/metrics?x=1"));
    let mut agent = scene.start();
    // On a slow machine a reading may be late, and then a value is that of the fetch before.
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

/// Secrets of files, and copies of them in servers' answers, appear in no log line, even with debug messages, and in no
/// metric.
#[test]
fn secrets_are_never_shown() {
    let scene = Scene::new(&["-D", "appl0,log"]);
    let moved =
        |to: &'static str| Server::new(move |stream| send(stream, "302 Found", &format!("Location: {to}\r\n"), b""));
    let servers = [
        ("missing", Server::new(|stream| send(stream, "404 Not Found", "", b"no")), "404 Not Found"),
        ("odd", moved("http://ho st/?api_key=k3yk3y"), "the address of a redirection is not valid"),
        ("nowhere", moved("http:///x?api_key=k3yk3y"), ""),
        ("port", moved("http://me:passw0rd@127.0.0.1:1/x?api_key=k3yk3y"), ""),
        ("scheme", moved("ftp://me:passw0rd@127.0.0.1/k3yk3y"), ""),
        (
            "length",
            Server::new(|stream| _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: k3yk3y\r\n\r\n")),
            "",
        ),
        ("header", Server::new(|stream| _ = stream.write_all(b"HTTP/1.1 abc k3yk3y s3cs3cret\r\n\r\n")), ""),
    ];
    let secret = scene.path("token");
    fs::write(&secret, "s3cs3cret\n").unwrap();
    for (name, server, _) in &servers {
        let url = format!("http://me:passw0rd@127.0.0.1:{}/x?api_key=k3yk3y", server.port);
        // The last line is a mistake.
        let lines = format!("HEADER: X-Key: hh33hhader\nBEARER: {}\nAuthorization: t0ken", secret.display());
        scene.url(name, &format!("{url}\n{lines}"));
    }
    scene.url("value", "http://127.0.0.1:1/\nHEADER: X-Key: hh33hh\u{1}ader");
    scene.url("name", "http://127.0.0.1:1/\nHEADER: hh33hh\u{1}ader: x");
    scene.url("host", "http://me:passw0rd/x@127.0.0.1/");
    fs::write(scene.path("control"), "s3cs3c\u{1}ret\n").unwrap();
    scene.url("token", &format!("http://127.0.0.1:1/\nBASIC: {}", scene.path("control").display()));
    let mut agent = scene.start();
    let mut shown = String::new();
    let others = ["value", "name", "host", "token"].map(|name| (name, ""));
    for (name, reason) in servers.iter().map(|(name, _, reason)| (*name, *reason)).chain(others) {
        let mut status = String::new();
        until("the source has failed", || {
            status = control(&mut agent, "status", name);
            status != "unknown"
        });
        assert!(status.contains("failed") && status.contains(reason), "{name}: {status}");
        shown += &status;
        for metric in ["error", "refused", "state"] {
            shown += &control(&mut agent, metric, name);
        }
    }
    shown += &scene.log();
    assert!(shown.contains("line 4: unknown entry, ignored"), "{shown}");
    for secret in ["s3cs3c", "passw0rd", "k3yk3y", "hh33hh", "t0ken"] {
        assert!(!shown.contains(secret), "{secret}: {shown}");
    }
}

/// Headers of the file and secrets are sent to the server of the URL, also after a redirection to another address of it,
/// but not to other servers. A server on another port is another one.
#[test]
fn secrets_are_not_sent_elsewhere() {
    let scene = Scene::new(&[]);
    let other = Server::new(|stream| send(stream, "200 OK", "", b"a 1\n"));
    let to = format!("Location: {}\r\n", other.url("/target"));
    let number = Arc::new(AtomicUsize::new(0));
    let server = Server::new(move |stream| match number.fetch_add(1, Ordering::Relaxed) % 2 {
        0 => send(stream, "301 Moved Permanently", "Location: moved?x=1\r\n", b"It has moved."),
        _ => send(stream, "302 Found", &to, b""),
    });
    let secret = scene.path("token");
    fs::write(&secret, "s3cret\n").unwrap();
    scene.url("src", &format!("{}\nBEARER: {}\nHEADER: X-Key: s3cret", server.url("/a/b"), secret.display()));
    let mut agent = scene.start();
    until("the target has answered", || value(&mut agent, "src.a") == Ok(1.0));
    for (request, path) in server.requests.lock().unwrap().iter().zip(["/a/b", "/a/moved?x=1"]) {
        let request = request.to_ascii_lowercase();
        assert!(request.starts_with(&format!("get {path} http/1.1\r\n")), "{request}");
        assert!(request.contains("authorization: bearer s3cret\r\n") && request.contains("x-key: s3cret"), "{request}");
    }
    let requests = other.requests.lock().unwrap();
    assert!(requests.iter().all(|request| request.contains("/target") && !request.contains("s3cret")), "{requests:?}");
}

/// The user and password of a URL are sent without percent-encodings.
#[test]
fn users_and_passwords_of_urls() {
    let scene = Scene::new(&[]);
    let server = Server::new(|stream| send(stream, "200 OK", "", b"a 1\n"));
    scene.url("src", &format!("http://me%40x:se%2Fcret@127.0.0.1:{}/", server.port));
    let mut agent = scene.start();
    until("the server has answered", || value(&mut agent, "src.a") == Ok(1.0));
    let request = server.requests.lock().unwrap()[0].clone();
    // The text me@x:se/cret.
    assert!(request.to_ascii_lowercase().contains("authorization: basic bwvaedpzzs9jcmv0\r\n"), "{request}");
}

/// Answers of servers without a document, and the resulting status.
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
    let (gzip, zstd) = ("Content-Encoding: gzip\r\n", "Content-Encoding: zstd\r\n");
    let packed = |bytes: &[u8]| compress_to_vec(bytes, CompressionLevel::Fastest);
    let (zbomb, zgood) = (packed(&vec![b' '; 1_000_000]), packed(b"a 7\n"));
    let servers = [
        ("bomb", Server::new(move |stream| send(stream, "200 OK", gzip, &bomb)), "longer than 100000 bytes"),
        (
            "broken",
            Server::new(move |stream| send(stream, "200 OK", gzip, b"this is not compressed")),
            "not gzip, which the answer says that it is",
        ),
        (
            "brotli",
            Server::new(|stream| send(stream, "200 OK", "Content-Encoding: br\r\n", b"\x1b\x02")),
            "unknown encoding br",
        ),
        (
            "twice",
            Server::new(move |stream| send(stream, "200 OK", &gzip.repeat(2), b"x")),
            "not gzip, which the answer says that it is",
        ),
        (
            "echo",
            Server::new(|stream| send(stream, "200 OK", "Content-Encoding: s3cret\r\n", b"a 1\n\0")),
            "unknown encoding",
        ),
        ("endless", Server::new(|stream| while stream.write_all(&[b'x'; 4096]).is_ok() {}), ""),
        ("reset", Server::new(|_| {}), "the server ended the connection before its answer"),
        (
            "short",
            Server::new(|stream| _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\na 1\n")),
            "the server ended the connection within its answer",
        ),
        (
            "headers",
            Server::new(|stream| send(stream, "200 OK", &format!("X: {}\r\n", "x".repeat(2_000_000)), b"a 1\n")),
            "message head is too large",
        ),
        (
            "far",
            Server::new(|stream| send(stream, "302 Found", &format!("Location: /{}\r\n", "x".repeat(100_000)), b"")),
            "the URL, or that of a redirection, is too long or not valid",
        ),
        ("loop", Server::new(|stream| send(stream, "302 Found", "Location: /again\r\n", b"")), "redirect"),
        ("hangs", Server::new(|_| thread::sleep(LIMIT)), "no complete answer in time"),
        ("trickles", Server::new(trickle), "no complete answer in time"),
        ("zbomb", Server::new(move |stream| send(stream, "200 OK", zstd, &zbomb)), "longer than 100000 bytes"),
        ("zbroken", Server::new(move |stream| send(stream, "200 OK", zstd, b"this is not compressed")), ""),
        ("zgood", Server::new(move |stream| send(stream, "200 OK", zstd, &zgood)), "success"),
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
        assert!(!status.contains("s3cret"), "{name}: {status}");
        assert!(status.contains(reason) && name.ends_with("good") == (status == "success"), "{name}: {status}");
        assert_eq!(value(&mut agent, "good.a"), Ok(7.0));
    }
}

/// Text of the metrics, one on each line, with instances and values.
const EXEMPLARS: &str = "# TYPE foo histogram\nfoo_bucket{le=\"1\"} 11 # {id=\"KOO\"} 0.67 1520879607.789\n\
    foo_bucket{le=\"2\"} 12\nfoo_count 12 # {id=\"x\"} 9\n{\"my metric-2\",a=\"b\"} 3\n# EOF\n";

#[test]
fn openmetrics_exemplars_and_any_names() {
    let scene = Scene::new(&[]);
    let server = Server::new(|stream| send(stream, "200 OK", "", EXEMPLARS.as_bytes()));
    scene.url("src", &format!("{}\nFORMAT: openmetrics\nEXEMPLARS: metrics\n", server.url("/")));
    let mut agent = scene.start();
    let text = |agent: &mut Agent, name: &str| {
        let pmid = agent.pmid(&format!("openmetrics.src.{name}")).unwrap();
        let values = agent.values(pmid).unwrap();
        values.iter().map(|(inst, atom)| format!("{inst:?} {atom}")).collect::<Vec<_>>().join(", ")
    };
    for _ in 0..2 {
        assert_eq!(value(&mut agent, "src.foo_bucket"), Ok(11.0));
        let exemplars = text(&mut agent, "foo_bucket_exemplar");
        assert!(exemplars.contains("{id=\"KOO\"} 0.67 1520879607.789") && !exemplars.contains(", "), "{exemplars}");
        assert!(text(&mut agent, "foo_count_exemplar").contains("{id=\"x\"} 9"));
        assert_eq!(value(&mut agent, "src.my_metric_2"), Ok(3.0));
    }
    let request = server.requests.lock().unwrap()[0].to_ascii_lowercase();
    assert!(request.contains("accept: application/openmetrics-text;version=1.0.0,"), "{request}");
}

#[test]
fn a_unix_socket_in_place_of_a_host() {
    let scene = Scene::new(&[]);
    let path = scene.path("socket");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut buffer = [0; 4096];
            while std::io::Read::read(&mut stream, &mut buffer).is_ok_and(|len| len > 0) {
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\na 5\n").unwrap();
            }
        }
    });
    scene.url("src", &format!("http://localhost/metrics\nSOCKET: {}", path.display()));
    scene.url("none", &format!("http://localhost/metrics\nSOCKET: {}", scene.path("nothing").display()));
    let mut agent = scene.start();
    for _ in 0..3 {
        assert_eq!(value(&mut agent, "src.a"), Ok(5.0));
    }
    assert!(
        control(&mut agent, "status", "none").contains("No such file"),
        "{}",
        control(&mut agent, "status", "none")
    );
}

fn trickle(stream: &mut std::net::TcpStream) {
    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n");
    while stream.write_all(b"a").is_ok() {
        thread::sleep(Duration::from_millis(50));
    }
}

/// A source that suddenly hangs keeps its last values for a while, then has no values, and has values again when it
/// answers.
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

/// A source that answers does not wait for the time-outs of all others, although there are fewer threads than sources.
#[test]
fn most_sources_hang() {
    // Each of the others would take all of its time, a thread after the other.
    let scene = Scene::new(&["-t", "1min", "--script-timeout", "1min", "--threads", "4"]);
    let hangs = Server::new(|_| thread::sleep(2 * LIMIT));
    for number in 0..20 {
        scene.url(&format!("bad{number}"), &hangs.url("/"));
        scene.config(&format!("a_hung{number}.sh"), "#!/bin/sh\nexec sleep 1000\n", 0o755);
    }
    let good = Server::new(|stream| send(stream, "200 OK", "", b"a 1\n"));
    scene.url("good", &good.url("/"));
    let mut agent = scene.start();
    until("the good one has a value", || value(&mut agent, "good.a") == Ok(1.0));
}

/// Many servers send long documents, and never their ends.
#[test]
// Slow: documents of the length of the limit, which are as long as those of users.
fn long_documents_share_a_limit_of_memory() {
    const SOURCES: usize = 40;
    const LEN: usize = 30 << 20;
    let scene = Scene::new(&["-t", "30s"]);
    let long = Server::new(|stream| {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", LEN + 1);
        if stream.write_all(&[head.as_bytes(), &vec![b'#'; LEN]].concat()).is_ok() {
            thread::sleep(LIMIT);
        }
    });
    for number in 0..SOURCES {
        scene.url(&format!("long{number}"), &format!("{}\nWAIT: 0", long.url("/")));
    }
    let short = Server::new(|stream| send(stream, "200 OK", "", b"a 1\n"));
    scene.url("short", &short.url("/"));
    let mut agent = scene.start();
    let full = "all long documents need more than 268435456 bytes";
    until("some documents fail", || {
        (0..SOURCES).any(|number| control(&mut agent, "error", &format!("long{number}")) == full)
    });
    until("the short one has a value", || value(&mut agent, "short.a") == Ok(1.0));
    let status = fs::read_to_string(format!("/proc/{}/status", agent.pid().unwrap())).unwrap();
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")).unwrap();
    assert!(most.parse::<usize>().unwrap() < 500 << 10, "{most} kB");
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
fn a_file_beside_a_script_has_its_limits() {
    let scene = Scene::new(&["--script-timeout", "300msec"]);
    scene.config("slow.conf", "TIMEOUT: 1min\nWAIT: 1min\nFILTER: EXCLUDE METRIC b\nINSTANCES: 2\n", 0o644);
    let lines = (0..5).map(|n| format!("echo 'c{{n=\"{n}\"}} {n}'\n")).collect::<String>();
    scene.config("slow.sh", &format!("#!/bin/sh\nsleep 1\necho a 1\necho b 2\n{lines}"), 0o755);
    scene.config("bad.sh", "#!/bin/sh\necho a 1\n", 0o755);
    scene.config("bad.conf", "# a comment\nTIMEOUT: soon\n", 0o644);
    let mut agent = scene.start();
    until("the slow one has a value", || value(&mut agent, "slow.a") == Ok(1.0));
    assert!(agent.pmid("openmetrics.slow.b").is_err());
    assert_eq!(values(&mut agent, "slow.c").unwrap().len(), 2);
    until("the other is refused", || control(&mut agent, "status", "bad").contains("bad.conf: line 2: "));
    scene.config("bad.conf", "BACKOFF: 0\n", 0o644);
    until("and accepted", || value(&mut agent, "bad.a") == Ok(1.0));
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
    for name in ["fails", "hangs"] {
        assert!(control(&mut agent, "errors", name).parse::<u64>().unwrap() > 0);
        assert!(!control(&mut agent, "error", name).is_empty());
    }
    assert_eq!(control(&mut agent, "error", "good"), "");
    until("the good one is ready", || {
        let _ = value(&mut agent, "good.a");
        control(&mut agent, "state", "good") == "ready"
    });
    until("the other pauses", || control(&mut agent, "state", "hangs") == "pausing");
    // Only standard output is a document. The error output of a script that succeeds has no effect.
    scene.config("good.sh", "#!/bin/sh\necho oops >&2\necho a 2\n", 0o755);
    until("the new script is run", || value(&mut agent, "good.a") == Ok(2.0));
    assert!(scene.log().contains("source good has written to standard error: oops"), "{}", scene.log());
}

/// Returns whether a process runs. A zombie has no command line.
fn runs(pid: &str) -> bool {
    fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty())
}

/// An agent that is killed cannot end its scripts, but the kernel does.
#[test]
fn scripts_end_with_an_agent_that_is_killed() {
    let scene = Scene::new(&["--script-timeout", "10min"]);
    let path = scene.path("pid");
    let text = format!("#!/bin/sh\necho $$ >{0}.new\nmv {0}.new {0}\nexec sleep 1000\n", path.display());
    scene.config("hangs.sh", &text, 0o755);
    let agent = scene.start();
    until("the script runs", || path.exists());
    let pid = fs::read_to_string(path).unwrap();
    assert!(runs(pid.trim()), "{pid}");
    let agent_pid = i32::try_from(agent.pid().unwrap()).unwrap();
    kill(Pid::from_raw(agent_pid), Signal::SIGKILL).unwrap();
    until("the script has ended", || !runs(pid.trim()));
}
