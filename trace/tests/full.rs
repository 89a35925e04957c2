//! The shared-memory transport on a full file system.

#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use pcp_trace::shared_memory::Directory;
use pcp_trace::{Options, Tag, Trace, Transport};

use common::serve;

/// Returns the mount point of a small file system.
///
/// Runs the test again in a mount namespace with such a file system. Returns `None` in the outer process, after that.
fn small_file_system(test: &str) -> Option<PathBuf> {
    if let Some(small) = std::env::var_os("SMALL") {
        return Some(small.into());
    }
    let dir = tempfile::tempdir().unwrap();
    let script =
        "mount -t tmpfs -o size=1m small \"$SMALL\" && exec \"$0\" --include-ignored --nocapture --exact \"$1\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script]).arg(std::env::current_exe().unwrap()).arg(test);
    assert!(command.env("SMALL", dir.path()).status().unwrap().success());
    None
}

#[test]
#[ignore = "needs PCP"]
fn a_mark_without_room_is_missed_until_there_is_some() {
    let Some(small) = small_file_system("a_mark_without_room_is_missed_until_there_is_some") else { return };
    let directory = Directory::open(small.join("4323"), &small).unwrap();
    let trace = Trace::new(Options::default().directory(directory.path()).transport(Transport::SharedMemory));
    let tag = Tag::new("tag").unwrap();
    trace.point(&tag);
    let other = small.join("other");
    assert!(fs::write(&other, vec![1; 1 << 20]).is_err());
    // A thread with a lane needs no more storage. A new thread cannot get a lane.
    trace.point(&tag);
    std::thread::scope(|scope| _ = scope.spawn(|| (0..100).for_each(|_| trace.point(&tag))));
    assert_eq!((trace.status().sent, trace.status().missed), (2, 100));
    fs::remove_file(other).unwrap();
    let start = Instant::now();
    while trace.status().sent == 2 {
        assert!(start.elapsed() < Duration::from_secs(30));
        std::thread::scope(|scope| _ = scope.spawn(|| trace.point(&tag)));
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(trace.status().missed > 100);
}

#[test]
#[ignore = "needs PCP"]
fn without_room_for_a_thread_marks_go_over_tcp_until_there_is_some() {
    let Some(small) = small_file_system("without_room_for_a_thread_marks_go_over_tcp_until_there_is_some") else {
        return;
    };
    let directory = Directory::open(small.join("4323"), &small).unwrap();
    let other = small.join("other");
    fs::write(&other, vec![1; (1 << 20) - (64 << 10)]).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let agent = std::thread::spawn(move || serve(listener.accept().unwrap().0));
    let (directory, reconnect) = (directory.path(), [Duration::from_millis(10)]);
    let trace = Trace::new(Options::default().port(port).directory(directory).reconnect(reconnect));
    let tag = Tag::new("tag").unwrap();
    (0..100).for_each(|_| trace.point(&tag));
    assert_eq!((trace.status().sent, trace.status().missed), (100, 0));
    fs::remove_file(other).unwrap();
    // The agent finishes when the library closes the connection.
    let mut marked = 100;
    while !agent.is_finished() {
        trace.point(&tag);
        marked += 1;
    }
    trace.point(&tag);
    assert_eq!((trace.status().sent, trace.status().missed), (marked + 1, 0));
    assert!((100..=marked).contains(&agent.join().unwrap()));
}
