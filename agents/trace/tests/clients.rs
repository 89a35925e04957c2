//! Many clients, and such that are slow, silent or hostile, while others are served.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use pmapi::{Atom, Domain, Inst, Item, PmId};
use pmda::collector::{Collector, Launch, Process};
use trace::{Failure, Options, State, Tag, Trace, Transport, protocol};

/// The agent without pmcd.
struct Served {
    agent: Collector<Process>,
    port: u16,
    _dir: tempfile::TempDir,
}

impl Served {
    fn start(args: &[&str]) -> Served {
        let dir = tempfile::tempdir().unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let user = nix::unistd::User::from_uid(nix::unistd::geteuid()).unwrap().unwrap().name;
        let mut command = Command::new(env!("CARGO_BIN_EXE_pmdatrace"));
        command
            .args(["-M", &user, "-l", "trace.log", "-I", &port.to_string()])
            .args(args)
            .current_dir(dir.path())
            .env("PCP_RUN_DIR", dir.path());
        let mut agent = Launch::pipe(command).start().unwrap();
        // It listens when it answers.
        let _ = agent.value(pmid(14)).unwrap();
        Served { agent, port, _dir: dir }
    }

    fn connect(&self) -> TcpStream {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let mut greeting = [0; 16];
        stream.read_exact(&mut greeting).unwrap();
        assert_eq!(protocol::next(&greeting).unwrap(), Some((protocol::Pdu::Ack(1), 16)));
        stream
    }

    fn trace(&self, state: State) -> Trace {
        let transport = Transport::Tcp;
        Trace::new(Options { host: "127.0.0.1".into(), port: self.port, state, transport, ..Options::default() })
    }

    /// How often points have come, of the only tag.
    fn points(&mut self) -> u64 {
        match self.agent.values(pmid(6)).unwrap().get(Inst::new(1)) {
            None => 0,
            Some(Atom::U64(count)) => count,
            other => panic!("{other:?}"),
        }
    }

    fn until(&mut self, points: u64) {
        while self.points() < points {
            std::thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(self.points(), points);
    }
}

fn pmid(item: u16) -> PmId {
    PmId::new(Domain::new(10).unwrap(), Item::new(0, item))
}

/// A point with this tag; `reply`: it is to be acknowledged.
fn point(tag: &[u8], reply: bool) -> Vec<u8> {
    let len = 24 + (tag.len() + 1).next_multiple_of(4);
    let mut pdu = [len as u32, 0x7051, 1].map(u32::to_be_bytes).concat();
    pdu.extend([1, tag.len() as u8 + 1, 2, if reply { 0x80 } else { 0 }]);
    pdu.extend((-1.0_f64).to_be_bytes());
    pdu.extend(tag);
    pdu.resize(len, 0);
    pdu
}

/// Whether the agent has closed the connection.
fn is_left(mut stream: TcpStream) -> bool {
    match stream.read(&mut [0; 64]) {
        Ok(n) => n == 0,
        Err(e) => e.kind() == ErrorKind::ConnectionReset,
    }
}

#[test]
fn thousands_of_connections_are_served() {
    let mut served = Served::start(&[]);
    let mut clients: Vec<TcpStream> = (0..3000).map(|_| served.connect()).collect();
    for client in &mut clients {
        client.write_all(&point(b"tag", true)).unwrap();
    }
    for client in &mut clients {
        client.read_exact(&mut [0; 16]).unwrap();
    }
    assert_eq!(served.points(), 3000);
    clients.truncate(1);
    clients[0].write_all(&point(b"tag", true)).unwrap();
    clients[0].read_exact(&mut [0; 16]).unwrap();
    assert_eq!(served.points(), 3001);
}

#[test]
fn slow_and_silent_clients_are_not_waited_for() {
    let mut served = Served::start(&[]);
    let _silent = served.connect();
    let mut slow = served.connect();
    let trace = served.trace(State::NONE);
    let tag = Tag::new("tag").unwrap();
    let pdu = point(b"tag", false);
    for byte in &pdu {
        slow.write_all(&[*byte]).unwrap();
        trace.point(&tag);
    }
    assert_eq!((trace.status().sent, trace.status().missed), (pdu.len() as u64, 0));
    served.until(pdu.len() as u64 + 1);
}

#[test]
fn a_client_that_takes_no_answers_is_stopped_and_goes_on_later() {
    let mut served = Served::start(&[]);
    let mut greedy = served.connect();
    let many = point(b"tag", true).repeat(1000);
    // Until neither side takes anything any more.
    greedy.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut written = 0;
    let mut rest = &many[..];
    loop {
        match greedy.write(rest) {
            Ok(n) => {
                written += n;
                rest = if n == rest.len() { &many } else { &rest[n..] };
            }
            Err(e) => break assert!(matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)),
        }
    }
    // Others are served meanwhile.
    let trace = served.trace(State::NONE);
    trace.transact(&Tag::new("other").unwrap(), Duration::from_secs(1));
    assert_eq!(trace.status().sent, 1);
    assert!(served.points() < written as u64 / 28);
    // What was not taken comes when it is.
    let mut acks = vec![0; written / 28 * 16];
    greedy.read_exact(&mut acks).unwrap();
    assert_eq!(served.points(), written as u64 / 28);
}

#[test]
fn hostile_clients_are_left() {
    let mut served = Served::start(&[]);
    let with = |at: usize, byte: u8| {
        let mut pdu = point(b"tag", false);
        pdu[at] = byte;
        pdu
    };
    let bad = [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![0; 4096],
        vec![0xff; 4096],
        protocol::encode_ack(1, 1).to_vec(),
        with(3, 4),
        with(0, 0x7f),
        with(7, 0x52),
        with(12, 2),
        with(13, 200),
        with(13, 0),
        with(14, 9),
        with(24, 0),
    ];
    for bytes in &bad {
        let mut client = served.connect();
        client.write_all(bytes).unwrap();
        assert!(is_left(client), "{bytes:?}");
    }
    let mut client = served.connect();
    client.write_all(&[point(b"tag", false), vec![0xff; 8]].concat()).unwrap();
    assert!(is_left(client));
    served.until(1);
}

#[test]
fn connection_limits_hold_and_are_given_back() {
    let served = Served::start(&["-A", "disallow:*", "-A", "allow:localhost:2"]);
    let tag = Tag::new("tag").unwrap();
    let traces = [0; 3].map(|_| served.trace(State::NONE));
    traces.iter().for_each(|trace| trace.point(&tag));
    let refused: Vec<bool> =
        traces.iter().map(|trace| matches!(trace.status().failure, Some(Failure::ConnLimit))).collect();
    assert_eq!(refused, [false, false, true]);
    drop(traces);
    // The agent finds out about the ends of these when it gets to them.
    loop {
        let trace = served.trace(State::NONE);
        trace.point(&tag);
        if trace.status().sent == 1 {
            break;
        }
    }
    let served = Served::start(&["-A", "disallow:127.*"]);
    let trace = served.trace(State::NONE);
    trace.point(&tag);
    assert!(matches!(trace.status().failure, Some(Failure::Permission)), "{:?}", trace.status());
}

#[test]
fn threads_of_both_protocols_are_counted_exactly() {
    let mut served = Served::start(&[]);
    let tag = Tag::new("tag").unwrap();
    let [sync, asynchronous] = [State::NONE, State::ASYNC].map(|state| served.trace(state));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..500).for_each(|_| sync.point(&tag)));
            scope.spawn(|| (0..10_000).for_each(|_| asynchronous.point(&tag)));
        }
    });
    assert!(asynchronous.flush(Duration::from_secs(30)));
    assert_eq!((sync.status().missed, asynchronous.status().missed), (0, 0));
    served.until(21_000);
}
