//! An HTTP server that keeps connections, as exporters do.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// `/m/METRICS/INSTANCES[/SOURCE]` is a document with these numbers of metrics and instances. `/bad/KIND` is a bad
/// answer of some kind.
pub(crate) struct Server {
    pub(crate) port: u16,
    pub(crate) is_bad: Arc<AtomicBool>,
}

impl Server {
    pub(crate) fn start() -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let is_bad = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&is_bad);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let flag = Arc::clone(&flag);
                // The agent closes connections whenever it wants.
                thread::spawn(move || stream.map(|stream| serve(&stream, &flag)));
            }
        });
        Server { port, is_bad }
    }
}

fn document(path: &str) -> String {
    let mut numbers = path.split('/').skip(2).map(|word| word.parse::<usize>().unwrap());
    let (metrics, instances) = (numbers.next().unwrap(), numbers.next().unwrap());
    let source = numbers.next().map(|source| format!("_{source}")).unwrap_or_default();
    let mut text = String::new();
    for metric in 0..metrics {
        let name = format!("bench_metric{source}_{metric:04}");
        let _ = writeln!(text, "# HELP {name} A metric of the benchmark.\n# TYPE {name} counter");
        if instances == 0 {
            let _ = writeln!(text, "{name} {}", metric * 7);
        }
        for instance in 0..instances {
            let _ = writeln!(text, "{name}{{device=\"eth{instance}\",host=\"h1\"}} {}", metric * 7 + instance);
        }
    }
    text
}

fn serve(mut stream: &TcpStream, is_bad: &AtomicBool) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut known: Option<(String, Vec<u8>)> = None;
    let mut lines = BufReader::new(stream).lines();
    while let Some(line) = lines.next() {
        let line = line?;
        let Some(path) = line.strip_prefix("GET ").and_then(|rest| rest.split(' ').next()) else { continue };
        for header in lines.by_ref() {
            if header?.is_empty() {
                break;
            }
        }
        if let Some(kind) = path.strip_prefix("/bad/") {
            bad(stream, kind, is_bad)?;
            continue;
        }
        if known.as_ref().is_none_or(|(of, _)| of != path) {
            let text = document(path);
            let head = format!("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n", text.len());
            known = Some((path.to_owned(), (head + &text).into_bytes()));
        }
        stream.write_all(known.as_ref().map_or(&[], |(_, answer)| answer))?;
    }
    Ok(())
}

fn bad(mut stream: &TcpStream, kind: &str, is_bad: &AtomicBool) -> std::io::Result<()> {
    let is_bad = || is_bad.load(Ordering::Relaxed);
    if !is_bad() {
        return stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nbad 1\n");
    }
    if kind == "trickle" {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")?;
    }
    if kind == "flood" {
        // More than the agent reads, as fast as it reads.
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n")?;
        let lines = b"flood{a=\"0123456789\"} 1\n".repeat(10_000);
        while is_bad() {
            stream.write_all(&lines)?;
        }
        return Ok(());
    }
    while is_bad() {
        thread::sleep(Duration::from_millis(500));
        if kind == "trickle" {
            stream.write_all(b"#")?;
        }
    }
    Ok(())
}
