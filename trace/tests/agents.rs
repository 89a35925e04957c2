//! The library with agents that are away, that come, and that do not do as they should.

#![allow(clippy::unwrap_used)]

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use pcp_trace::protocol::{self, Pdu};
use pcp_trace::{Failure, Options, State, Tag, TooLate, Trace};

fn tag() -> Tag {
    Tag::new("tag").unwrap()
}

fn options(listener: &TcpListener) -> Options {
    Options { host: "127.0.0.1".into(), port: listener.local_addr().unwrap().port(), ..Options::default() }
}

fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").unwrap()
}

/// Takes `points` of a connection, and acknowledges those that ask for it.
fn serve(stream: &mut TcpStream, points: usize) {
    stream.write_all(&protocol::encode_ack(protocol::VERSION, 1)).unwrap();
    let mut bytes = Vec::new();
    for _ in 0..points {
        let (data, len) = loop {
            if let Some((Pdu::Data(data), len)) = protocol::next(&bytes).unwrap() {
                break (data, len);
            }
            let mut more = [0; 1];
            stream.read_exact(&mut more).unwrap();
            bytes.push(more[0]);
        };
        if data.reply {
            stream.write_all(&protocol::encode_ack(data.kind as i32, 1)).unwrap();
        }
        bytes.drain(..len);
    }
}

#[test]
fn without_an_agent_everything_is_missed() {
    let closed = options(&listener());
    for state in [State::NONE, State::ASYNC] {
        let trace = Trace::new(Options { state, ..closed.clone() });
        (0..1000).for_each(|_| trace.point(&tag()));
        assert!(trace.flush(Duration::from_secs(20)));
        let status = trace.status();
        assert_eq!((status.connected, status.sent, status.missed), (false, 0, 1000));
        assert!(matches!(status.failure, Some(Failure::Io(e)) if e.kind() == std::io::ErrorKind::ConnectionRefused));
    }
}

#[test]
fn noagent_does_nothing() {
    let listener = listener();
    let trace = Trace::new(Options { state: State::NOAGENT, ..options(&listener) });
    trace.point(&tag());
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err());
    assert_eq!((trace.status().sent, trace.status().missed), (0, 0));
}

#[test]
fn the_protocol_is_chosen_once() {
    let trace = Trace::new(options(&listener()));
    assert_eq!(trace.set_state(State::ASYNC), Ok(State::NONE));
    assert_eq!(trace.set_state(State::NONE), Ok(State::ASYNC));
    trace.point(&tag());
    assert_eq!(trace.set_state(State::ASYNC), Ok(State::NONE));
    let closed = options(&listener());
    let trace = Trace::new(closed);
    trace.point(&tag());
    assert_eq!(trace.set_state(State::ASYNC), Err(TooLate));
    assert_eq!(trace.set_state(State::API), Ok(State::NONE));
}

#[test]
fn an_agent_that_closes_loses_nothing_when_it_is_back() {
    let listener = listener();
    let trace = Trace::new(options(&listener));
    thread::scope(|scope| {
        scope.spawn(|| {
            for points in [1, 2] {
                serve(&mut listener.accept().unwrap().0, points);
            }
        });
        (0..3).for_each(|_| trace.point(&tag()));
    });
    assert_eq!((trace.status().sent, trace.status().missed), (3, 0));
}

#[test]
fn an_agent_that_does_not_answer_is_left() {
    let listener = listener();
    let trace = Trace::new(Options { request_timeout: Duration::from_millis(20), ..options(&listener) });
    thread::scope(|scope| {
        let (sender, receiver) = std::sync::mpsc::channel::<()>();
        scope.spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(&protocol::encode_ack(protocol::VERSION, 1)).unwrap();
            let _ = receiver.recv();
        });
        trace.point(&tag());
        assert_eq!((trace.status().connected, trace.status().sent, trace.status().missed), (false, 0, 1));
        drop(sender);
    });
}

#[test]
fn nonsense_ends_the_connection() {
    for greeting in [&[0xff; 16][..], b"HTTP/1.1 400 Bad", &protocol::encode_ack(-12345, 1)] {
        let listener = listener();
        let trace = Trace::new(options(&listener));
        thread::scope(|scope| {
            scope.spawn(|| listener.accept().unwrap().0.write_all(greeting));
            trace.point(&tag());
        });
        assert!(matches!(trace.status().failure, Some(Failure::Protocol)), "{:?}", trace.status());
        assert_eq!(trace.status().missed, 1);
    }
}

#[test]
fn what_does_not_fit_is_missed() {
    let listener = listener();
    let trace = Trace::new(Options { state: State::ASYNC, ..options(&listener) });
    let long = Tag::new(&"x".repeat(254)).unwrap();
    // The greeting never comes, so nothing can be sent.
    (0..10_000).for_each(|_| trace.point(&long));
    assert!(trace.status().missed > 2000, "{:?}", trace.status());
    let (mut stream, _) = listener.accept().unwrap();
    stream.write_all(&protocol::encode_ack(protocol::VERSION, 1)).unwrap();
    let mut received = 0;
    thread::scope(|scope| {
        scope.spawn(|| drop(trace));
        let mut buffer = vec![0; 65536];
        while let Ok(n @ 1..) = stream.read(&mut buffer) {
            received += n;
        }
    });
    // All that was put aside.
    assert_eq!(received % 280, 0);
    assert!(received > 1_000_000, "{received}");
}
