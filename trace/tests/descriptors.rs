//! Applications that close all descriptors which they do not know, as daemons do when they start, or that have none left. A
//! process of its own: it forks, and descriptors of other tests would be closed.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

mod common;

use std::net::TcpListener;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use pcp_trace::shared_memory::Directory;
use pcp_trace::{Options, State, Tag, Trace, Transport};
use testkit::{Child, Taken};

const TAGS: u64 = 3000;

/// Traces, closes all descriptors, and traces with many tags and from another thread. After the first one that is not
/// missed, at most `missed` trace events are missed. The application's own files stay as they are.
fn trace_without_descriptors(options: &Options, missed: u64) {
    let own = tempfile::tempdir().unwrap();
    Child::new(|| {
        let trace = Trace::new(options.clone());
        let tag = Tag::new("tag").unwrap();
        trace.point(&tag);
        assert!(trace.flush(Duration::from_secs(60)));
        let taken = Taken::new(own.path());
        // Trace events are missed while a new connection is established.
        let end = Instant::now() + Duration::from_secs(60);
        let before = trace.status().sent;
        while options.transport == Transport::Tcp && trace.status().sent == before && Instant::now() < end {
            trace.point(&tag);
            trace.flush(Duration::from_secs(1));
        }
        let before = trace.status().missed;
        (0..TAGS).for_each(|n| trace.point(&Tag::new(&format!("tag{n}")).unwrap()));
        let other = trace.clone();
        thread::spawn(move || other.point(&tag)).join().unwrap();
        assert!(trace.flush(Duration::from_secs(60)));
        let status = trace.status();
        assert!(status.missed - before <= missed, "{status:?}");
        taken.assert_untouched();
        drop(trace);
        taken.assert_untouched();
    })
    .ends();
}

#[test]
fn files_of_an_application_that_has_closed_its_trace_file_stay_as_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let directory = Directory::open(dir.path().join("4323"), dir.path()).unwrap();
    trace_without_descriptors(&Options::default().directory(directory.path()).transport(Transport::SharedMemory), 1);
    let count = common::counted(directory.files());
    assert!(count > TAGS, "{count}");
}

#[test]
fn files_of_an_application_that_has_closed_its_socket_stay_as_they_are() {
    for state in [State::empty(), State::ASYNC] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let agent = thread::spawn(move || {
            let counts = (0..2).map(|_| common::serve(listener.accept().unwrap().0));
            counts.sum::<u64>()
        });
        let options = Options::default().host("127.0.0.1").port(port).transport(Transport::Tcp).state(state);
        trace_without_descriptors(&options.reconnect([Duration::ZERO]), 0);
        assert!(agent.join().unwrap() > TAGS);
    }
}

#[test]
fn a_relative_directory_stays_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let directory = Directory::open(dir.path().join("4323"), dir.path()).unwrap();
    Child::new(|| {
        std::env::set_current_dir(dir.path()).unwrap();
        let trace = Trace::new(Options::default().directory("4323").transport(Transport::SharedMemory));
        std::env::set_current_dir("/").unwrap();
        trace.point(&Tag::new("tag").unwrap());
        assert_eq!((trace.status().sent, trace.status().missed), (1, 0));
    })
    .ends();
    drop(directory);
}

#[test]
fn a_handle_that_is_dropped_without_descriptors_leaves_its_trace_events_to_the_agent() {
    let dir = tempfile::tempdir().unwrap();
    let directory = Directory::open(dir.path().join("4323"), dir.path()).unwrap();
    Child::new(|| {
        let trace = Trace::new(Options::default().directory(directory.path()).transport(Transport::SharedMemory));
        trace.point(&Tag::new("tag").unwrap());
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, 0, hard).unwrap();
        drop(trace);
    })
    .ends();
    assert_eq!(common::counted(directory.files()), 1);
}
