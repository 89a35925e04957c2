//! Changing from TCP to shared memory: an agent that starts after the first trace event.

use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use pcp_trace::shared_memory::Directory;
use pcp_trace::{Options, State, Tag, Trace};

use crate::common::{counted, files, serve};

/// Traces in two threads until `enough` returns true. Returns the number of trace events.
fn mark(trace: &Trace, enough: impl Fn() -> bool) -> u64 {
    let (marked, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let deadline = Instant::now() + Duration::from_secs(60);
    thread::scope(|scope| {
        for name in ["one", "two"] {
            let (marked, done) = (&marked, &done);
            scope.spawn(move || {
                let tag = Tag::new(name).unwrap();
                while !done.load(Relaxed) {
                    (0..100).for_each(|_| trace.point(&tag));
                    trace.begin(&tag).end();
                    marked.fetch_add(101, Relaxed);
                    thread::sleep(Duration::from_millis(1));
                }
            });
        }
        while !enough() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        done.store(true, Relaxed);
    });
    assert!(enough() && trace.flush(Duration::from_secs(60)));
    marked.into_inner()
}

#[test]
fn an_agent_that_comes_later_is_used_the_light_way() {
    for state in [State::empty(), State::ASYNC] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("4323");
        let port = testkit::free_port("127.0.0.1");
        let reconnect = vec![Duration::from_millis(10), Duration::from_secs(3600)];
        let trace = Trace::new(Options::default().port(port).directory(path.clone()).state(state).reconnect(reconnect));
        let before = mark(&trace, || trace.status().missed > 0);
        assert_eq!((trace.status().sent, trace.status().missed), (0, before));
        let directory = Directory::open(path, dir.path()).unwrap();
        let later = mark(&trace, || trace.status().sent > 1000);
        let status = trace.status();
        assert!(status.connected);
        assert_eq!((counted(directory.files()), status.sent + status.missed), (status.sent, before + later));
        // After the change to shared memory nothing is missed.
        let more = mark(&trace, || trace.status().sent > status.sent);
        assert_eq!((trace.status().missed, counted(directory.files())), (status.missed, status.sent + more));
    }
}

#[test]
fn a_connection_is_left_for_the_light_way_and_each_mark_counts_once() {
    for state in [State::empty(), State::ASYNC] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("4323");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let agent = thread::spawn(move || serve(listener.accept().unwrap().0));
        let reconnect = vec![Duration::from_millis(10)];
        let trace = Trace::new(Options::default().port(port).directory(path.clone()).state(state).reconnect(reconnect));
        let before = mark(&trace, || trace.status().sent > 1000);
        let directory = Directory::open(path, dir.path()).unwrap();
        let later = mark(&trace, || !files(directory.files()).is_empty());
        let more = mark(&trace, || counted(directory.files()) > 1000);
        let status = trace.status();
        assert_eq!((status.sent, status.missed), (before + later + more, 0));
        // The library has closed the connection, although the handle still exists.
        assert_eq!(agent.join().unwrap() + counted(directory.files()), status.sent);
        drop(trace);
    }
}
