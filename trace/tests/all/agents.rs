//! The TCP transports with agents that are not running, restart, or misbehave.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use pcp_trace::protocol::{self, Pdu};
use pcp_trace::{Failure, Options, State, StateError, Tag, Trace};

fn tag() -> Tag {
    Tag::new("tag").unwrap()
}

fn options(listener: &TcpListener) -> Options {
    Options::default().host("127.0.0.1").port(listener.local_addr().unwrap().port())
}

fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").unwrap()
}

/// Receives `points` points, and acknowledges those that request it.
fn serve(stream: &mut TcpStream, points: usize) -> io::Result<()> {
    stream.write_all(&protocol::encode_ack(protocol::VERSION, 1))?;
    let mut bytes = Vec::new();
    for _ in 0..points {
        let (data, len) = loop {
            if let Some((Pdu::Data(data), len)) = protocol::next(&bytes).unwrap() {
                break (data, len);
            }
            let mut more = [0; 1];
            stream.read_exact(&mut more)?;
            bytes.push(more[0]);
        };
        if data.reply {
            stream.write_all(&protocol::encode_ack(data.kind as i32, 1))?;
        }
        bytes.drain(..len);
    }
    Ok(())
}

#[test]
fn without_an_agent_everything_is_missed() {
    let closed = options(&listener());
    for state in [State::empty(), State::ASYNC] {
        let trace = Trace::new(closed.clone().state(state));
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
    let trace = Trace::new(options(&listener).state(State::NOAGENT));
    trace.point(&tag());
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err());
    assert_eq!((trace.status().sent, trace.status().missed), (0, 0));
}

#[test]
fn the_protocol_is_chosen_once() {
    let trace = Trace::new(options(&listener()));
    assert_eq!(trace.set_state(State::ASYNC), Ok(State::empty()));
    assert_eq!(trace.set_state(State::empty()), Ok(State::ASYNC));
    trace.point(&tag());
    assert_eq!(trace.set_state(State::ASYNC), Ok(State::empty()));
    let closed = options(&listener());
    let trace = Trace::new(closed);
    trace.point(&tag());
    assert_eq!(trace.set_state(State::ASYNC), Err(StateError::TooLate));
    assert_eq!(trace.set_state(State::API), Ok(State::empty()));
}

#[test]
fn an_agent_that_closes_loses_nothing_when_it_is_back() {
    // A call waits only 10 ms for another connection, which may take longer on a busy machine.
    assert!((0..20).any(|_| sent_and_missed_when_the_agent_closes() == (3, 0)));
}

fn sent_and_missed_when_the_agent_closes() -> (u64, u64) {
    let listener = listener();
    let trace = Trace::new(options(&listener));
    thread::scope(|scope| {
        scope.spawn(|| {
            for points in [1, 2] {
                let _ = serve(&mut listener.accept().unwrap().0, points);
            }
        });
        (0..3).for_each(|_| trace.point(&tag()));
        let status = trace.status();
        drop(trace);
        // Ends the server if the client had no second connection.
        drop(TcpStream::connect(listener.local_addr().unwrap()));
        (status.sent, status.missed)
    })
}

#[test]
fn an_agent_that_does_not_answer_is_left() {
    let listener = listener();
    let trace = Trace::new(options(&listener).request_timeout(Duration::from_millis(20)));
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
    let trace = Trace::new(options(&listener).state(State::ASYNC));
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
    // Everything that was queued has arrived.
    assert_eq!(received % 280, 0);
    assert!(received > 1_000_000, "{received}");
}

/// A server that is not the agent, but has its port. It calls `with` for each connection.
fn stranger(listener: TcpListener, with: impl Fn(&mut TcpStream) + Send + Sync + 'static) {
    thread::spawn(move || {
        for stream in listener.incoming() {
            with(&mut stream.unwrap());
        }
    });
}

#[test]
fn a_stranger_that_never_acknowledges_costs_a_time_out_for_each_attempt() {
    let timeout = Duration::from_millis(200);
    let listener = listener();
    let trace = Trace::new(options(&listener).request_timeout(timeout));
    stranger(listener, |stream| {
        stream.write_all(&protocol::encode_ack(protocol::VERSION, 1)).unwrap();
        std::mem::forget(stream.try_clone().unwrap());
    });
    // With a timeout for each point this would take 200 s.
    (0..1000).for_each(|_| trace.point(&tag()));
    assert_eq!((trace.status().sent, trace.status().missed), (0, 1000));
}

#[test]
fn a_stranger_that_drips_its_answer_costs_no_more_than_the_time_out() {
    let listener = listener();
    let trace = Trace::new(options(&listener).request_timeout(Duration::from_millis(100)));
    stranger(listener, |stream| {
        stream.write_all(&protocol::encode_ack(protocol::VERSION, 1)).unwrap();
        let ack = protocol::encode_ack(pcp_trace::protocol::Kind::Point as i32, 1);
        for byte in ack {
            thread::sleep(Duration::from_millis(60));
            if stream.write_all(&[byte]).is_err() {
                break;
            }
        }
    });
    trace.point(&tag());
    assert_eq!((trace.status().sent, trace.status().missed), (0, 1), "{:?}", trace.status());
}

#[test]
fn a_stranger_that_greets_and_closes_is_not_asked_all_the_time() {
    for state in [State::empty(), State::ASYNC] {
        let listener = listener();
        let count = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let trace = Trace::new(options(&listener).state(state));
        let connections = count.clone();
        stranger(listener, move |stream| {
            connections.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let _ = stream.write_all(&protocol::encode_ack(protocol::VERSION, 1));
        });
        for _ in 0..100 {
            trace.point(&tag());
            assert!(trace.flush(Duration::from_secs(20)));
        }
        let connections = count.load(std::sync::atomic::Ordering::Relaxed);
        assert!((1..=2).contains(&connections), "{connections}");
    }
}

#[test]
fn an_asynchronous_application_waits_for_no_stranger() {
    let listener = listener();
    let trace = Trace::new(options(&listener).state(State::ASYNC));
    // The server greets, sends data that no client expects, and reads nothing.
    stranger(listener, |stream| {
        let _ = stream.write_all(&protocol::encode_ack(protocol::VERSION, 1));
        stream.set_nonblocking(true).unwrap();
        let _ = stream.write_all(&[0xff; 1 << 20]);
        std::mem::forget(stream.try_clone().unwrap());
    });
    let long = Tag::new(&"x".repeat(254)).unwrap();
    // More than all buffers hold. A call that waited would wait for the request timeout, 10 s.
    let start = std::time::Instant::now();
    (0..100_000).for_each(|_| trace.point(&long));
    assert!(start.elapsed() < Duration::from_secs(10));
    assert!(trace.status().missed > 0);
    drop(trace);
}

#[test]
fn an_agent_that_closes_between_two_marks_loses_none_of_an_asynchronous_client() {
    let listener = listener();
    let trace = Trace::new(options(&listener).state(State::ASYNC));
    thread::scope(|scope| {
        let (closed, is_closed) = std::sync::mpsc::channel();
        scope.spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            serve(&mut stream, 1).unwrap();
            // Long enough that the connection does not count as a failed attempt.
            thread::sleep(Duration::from_millis(1100));
            drop(stream);
            closed.send(()).unwrap();
            serve(&mut listener.accept().unwrap().0, 2).unwrap();
        });
        trace.point(&tag());
        is_closed.recv().unwrap();
        (0..2).for_each(|_| trace.point(&tag()));
        assert!(trace.flush(Duration::from_secs(20)));
    });
    assert_eq!((trace.status().sent, trace.status().missed), (3, 0));
}

#[test]
fn delays_that_are_for_ever_are_no_panic() {
    let closed = options(&listener());
    for state in [State::empty(), State::ASYNC] {
        let (connect_timeout, request_timeout, reconnect) = (Duration::MAX, Duration::MAX, vec![Duration::MAX]);
        let trace = Trace::new(
            closed
                .clone()
                .state(state)
                .connect_timeout(connect_timeout)
                .request_timeout(request_timeout)
                .reconnect(reconnect),
        );
        (0..10).for_each(|_| trace.point(&tag()));
        assert!(trace.flush(Duration::from_secs(20)));
        assert_eq!(trace.status().missed, 10);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_moment_without_threads_costs_no_trace_event() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    use nix::unistd::{Uid, setresuid};

    let listener = listener();
    let options = options(&listener).state(State::ASYNC).reconnect([Duration::ZERO]);
    let agent = thread::spawn(move || serve(&mut listener.accept().unwrap().0, 2));
    testkit::Child::new(|| {
        // No limit of threads applies to root.
        if Uid::current().is_root() {
            let nobody = Uid::from_raw(65534);
            setresuid(nobody, nobody, nobody).unwrap();
        }
        let (soft, hard) = getrlimit(Resource::RLIMIT_NPROC).unwrap();
        setrlimit(Resource::RLIMIT_NPROC, 0, hard).unwrap();
        let trace = Trace::new(options.clone());
        trace.point(&tag());
        assert!(!trace.flush(Duration::from_millis(1)));
        setrlimit(Resource::RLIMIT_NPROC, soft, hard).unwrap();
        trace.point(&tag());
        assert!(trace.flush(Duration::from_secs(60)));
        assert_eq!((trace.status().sent, trace.status().missed), (2, 0));
    })
    .ends();
    agent.join().unwrap().unwrap();
}
