//! Hostile sources under the real pmcd: they change all the time, while clients fetch everything. The agent must stay,
//! and answer for the others.

use std::fs::{self, Permissions};
use std::io::Write as _;
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crate::both::{self, By};
use crate::scene::{LIMIT, until};
use crate::server::{Server, send};
use flate2::Compression;
use flate2::write::GzEncoder;
use pcp_client::{Context, Settings};
use testkit::Pcp;

const CHUNKED: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

/// Sends a head, and then bytes until the agent closes the connection.
fn flood(stream: &mut TcpStream, head: &[u8], piece: &[u8], pause: Duration) {
    let _ = stream.write_all(head);
    while stream.write_all(piece).is_ok() {
        thread::sleep(pause);
    }
}

/// Returns a document whose instances and metrics are others each time.
fn exploding() -> Server {
    let count = std::sync::atomic::AtomicU32::new(0);
    Server::new(move |stream| {
        let from = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed) * 1000;
        let lines = (from..from + 1000).map(|n| format!("m{{n=\"{n}\"}} {n}\nmetric{n} {n}\n")).collect::<String>();
        send(stream, "200 OK", "", lines.as_bytes());
    })
}

fn servers() -> Vec<(&'static str, Server)> {
    const SOON: Duration = Duration::from_millis(5);
    let bomb = {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&vec![b' '; 100 << 20]).unwrap();
        encoder.finish().unwrap()
    };
    // A window of 3.75 TiB, and blocks that repeat a space.
    let zstd = [&b"\x28\xb5\x2f\xfd\x00\xff"[..], &b"\xfa\xff\x0f ".repeat(1000)].concat();
    // Very many frames with a window of 8 MiB, frames with one of 1 KiB, and members. Each has at most a byte of content.
    let large = b"\x28\xb5\x2f\xfd\x00\x68\x09\x00\x00 ".repeat(90_000);
    let small = b"\x28\xb5\x2f\xfd\x00\x00\x09\x00\x00 ".repeat(90_000);
    let members = GzEncoder::new(Vec::new(), Compression::fast()).finish().unwrap().repeat(45_000);
    let huge: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 10000000000\r\n\r\n";
    vec![
        ("hangs", Server::new(|_| thread::sleep(LIMIT))),
        ("trickles", Server::new(|stream| flood(stream, b"HTTP/1.1 200 OK\r\n\r\n", b"a", SOON))),
        ("headers", Server::new(|stream| flood(stream, b"HTTP/1.1 200 OK\r\n", b"X: y\r\n", SOON))),
        ("resets", Server::new(|_| {})),
        ("loops", Server::new(|stream| send(stream, "302 Found", "Location: /again\r\n", b""))),
        ("huge", Server::new(move |stream| flood(stream, huge, &b"a 1\n".repeat(10_000), Duration::ZERO))),
        ("chunks", Server::new(|stream| flood(stream, CHUNKED, b"0", Duration::ZERO))),
        ("continues", Server::new(|stream| flood(stream, b"", b"HTTP/1.1 100 Continue\r\n\r\n", Duration::ZERO))),
        ("gzip", Server::new(move |stream| send(stream, "200 OK", "Content-Encoding: gzip\r\n", &bomb))),
        ("zstd", Server::new(move |stream| send(stream, "200 OK", "Content-Encoding: zstd\r\n", &zstd))),
        ("large", Server::new(move |stream| send(stream, "200 OK", "Content-Encoding: zstd\r\n", &large))),
        ("small", Server::new(move |stream| send(stream, "200 OK", "Content-Encoding: zstd\r\n", &small))),
        ("members", Server::new(move |stream| send(stream, "200 OK", "Content-Encoding: gzip\r\n", &members))),
        ("explodes", exploding()),
        (
            "odd",
            Server::new(|stream| {
                send(stream, "200 OK", "", "{\"é 漢\",\"ö x\"=\"y\"} 1\na{b=\"\u{1}\"} 2\n".as_bytes())
            }),
        ),
        ("status", Server::new(|stream| send(stream, "500 s3cs3cret", "", b"s3cs3cret"))),
        ("moved", Server::new(|stream| send(stream, "302 Found", "Location: http://s3cs3cret:x/\r\n", b""))),
    ]
}

/// Scripts. `TIME` is the argument of `sleep` by which the test finds their processes.
const SCRIPTS: [&str; 6] = [
    "sleep TIME",
    "trap '' TERM; sleep TIME & sleep TIME",
    "setsid sleep 1 & echo a 1",
    "exec yes",
    "yes >&2 & exec sleep TIME",
    "echo s3cs3cret; exit 3",
];

/// A directory of sources, where one file after the other is replaced.
struct Directory(PathBuf);

impl Directory {
    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file by renaming, so that it is complete at once.
    fn write(&self, name: &str, text: &str, mode: u32) {
        let new = self.0.with_file_name("new");
        testkit::executable(&new, text, mode);
        fs::rename(new, self.path(name)).unwrap();
    }

    /// Replaces `odd.url` by something that is not a file with a URL.
    fn odd(&self, kind: usize) {
        let path = self.path("odd.url");
        let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir(&path));
        match kind {
            0 => nix::unistd::mkfifo(&path, nix::sys::stat::Mode::from_bits_truncate(0o644)).unwrap(),
            1 => symlink("/dev/zero", &path).unwrap(),
            2 => symlink(&path, &path).unwrap(),
            3 => symlink("nowhere", &path).unwrap(),
            4 => fs::create_dir(&path).unwrap(),
            5 => fs::write(&path, vec![b'#'; 2 << 20]).unwrap(),
            6 => self.write("odd.url", "file:///dev/zero\n", 0o644),
            _ => self.write("odd.url", "#!/bin/sh\necho 0wned 1\n", 0o777),
        }
    }
}

/// Fetches all metrics of the agent, and then those of the honest source and of pmcd. Returns whether both have values.
fn has_values(client: &mut Context) -> bool {
    let names = client.traverse("openmetrics").unwrap();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let pmids: Vec<_> = client.lookup_names(&names).unwrap().into_iter().flatten().collect();
    client.fetch(&pmids).unwrap();
    let wanted = ["openmetrics.honest.count", "pmcd.numagents"].map(|name| client.lookup_name(name).unwrap());
    let sample = client.fetch(&wanted).unwrap();
    (0..2).all(|at| sample.set(at).is_some_and(|set| set.error.is_none() && set.values().count() == 1))
}

#[test]
#[ignore = "needs PCP"]
// Slow: forty rounds of hostile servers and scripts.
fn hostile_sources_under_pmcd() {
    const ROUNDS: usize = 40;
    let pcp = Pcp::required();
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    let config = Directory(dir.path().join("config.d"));
    fs::create_dir(&config.0).unwrap();
    let honest = Server::new(|stream| send(stream, "200 OK", "", b"count 5\n"));
    config.write("honest.url", &format!("{}\nTIMEOUT: 1min\n", honest.url("/")), 0o644);
    let servers = servers();
    let agent = both::agent(&pcp, dir.path(), By::Us);
    let agent =
        agent.args(["-t", "300msec", "--script-timeout", "300msec", "--bytes", "1000000", "--instances", "2000"]);
    let pmcd = pcp.pmcd().agent(agent).options(["-t", "30"]).start();
    let mut client = Context::new(pmcd.host().parse().unwrap(), Settings::default()).unwrap();
    until("the honest value", || client.lookup_name("openmetrics.honest.count").is_ok());
    let pid = pmcd.agent_pid("openmetrics").unwrap();
    let time = format!("1000.{}", std::process::id());
    for round in 0..ROUNDS {
        let (name, server) = &servers[round % servers.len()];
        let url = format!("http://me:s3cs3cret@127.0.0.1:{}/?token=s3cs3cret", server.port);
        config.write(&format!("{name}.url"), &format!("{url}\nBACKOFF: 200msec\n"), 0o644);
        let script = format!("#!/bin/sh\n{}\n", SCRIPTS[round % 6].replace("TIME", &time));
        config.write(&format!("script{}.sh", round % 3), &script, 0o755);
        config.odd(round % 8);
        until("the honest value", || has_values(&mut client));
    }
    assert!(pmcd.run("pminfo", ["-f", "openmetrics.honest.count"]).text.contains("value 5"));
    assert_eq!(pmcd.agent_pid("openmetrics"), Some(pid), "{}", pmcd.log("pmcd"));
    let shown = pmcd.run("pminfo", ["-fdlmtT", "openmetrics"]).text + &logs(pmcd.dir());
    assert!(shown.contains("openmetrics.honest.count") && shown.contains("source hangs"), "{shown}");
    for secret in ["s3cs3cret", "0wned"] {
        assert!(!shown.contains(secret), "{shown}");
    }
    for name in (0..3).map(|n| format!("script{n}.sh")) {
        fs::remove_file(config.path(&name)).unwrap();
    }
    until("no script runs", || {
        has_values(&mut client);
        !sleeps(&time)
    });
}

/// Returns whether a process sleeps for this time.
fn sleeps(time: &str) -> bool {
    let lines =
        fs::read_dir("/proc").unwrap().flatten().filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    lines.into_iter().any(|line| line == format!("sleep\0{time}\0").into_bytes())
}

/// Returns the text of all logs below a directory.
fn logs(dir: &Path) -> String {
    let mut text = String::new();
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            text += &logs(&path);
        } else if path.extension().is_some_and(|end| end == "log") {
            text += &String::from_utf8_lossy(&fs::read(path).unwrap());
        }
    }
    text
}
