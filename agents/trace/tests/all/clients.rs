//! TCP clients: many at a time, and slow, silent or hostile ones beside others.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use pcp_collector::{Collector, Launch, Process};
use pcp_pdu::handshake::Attribute;
use pmapi::{Atom, Domain, InDom, Inst, Item, PmId, Serial};
use pmda::limits::FixedLimit;
use testkit::{free_port, wait_for};
use trace::{Failure, Options, State, Tag, Trace, Transport, protocol};

/// The agent, over a pipe to this test instead of pmcd.
struct Served {
    agent: Collector<Process>,
    port: u16,
    dir: tempfile::TempDir,
}

impl Served {
    fn start(args: &[&str]) -> Served {
        Self::start_with(&[], args)
    }

    /// Starts the agent through another program, whose command line is `by`.
    fn start_with(by: &[&str], args: &[&str]) -> Served {
        let dir = tempfile::tempdir().unwrap();
        let port = free_port("127.0.0.1");
        let user = nix::unistd::User::from_uid(nix::unistd::geteuid()).unwrap().unwrap().name;
        let program: Vec<&str> = by.iter().copied().chain([env!("CARGO_BIN_EXE_pmdatrace")]).collect();
        let mut command = Command::new(program[0]);
        command
            .args(&program[1..])
            .args(["-M", &user, "-l", "trace.log", "-I", &port.to_string()])
            .args(args)
            .current_dir(dir.path())
            .env("PCP_RUN_DIR", dir.path())
            .env("PCP_TRACE_DIR", dir.path());
        let mut agent = Launch::pipe(command).start().unwrap();
        // The agent listens before it answers its first request.
        let _ = agent.value(pmid(14)).unwrap();
        Served { agent, port, dir }
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
        Trace::new(Options::default().host("127.0.0.1").port(self.port).state(state).transport(transport))
    }

    /// Returns the count of points of the only tag.
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

/// A PDU of a point with this tag. `reply` requests an acknowledgement.
fn point(tag: &[u8], reply: bool) -> Vec<u8> {
    let len = 24 + (tag.len() + 1).next_multiple_of(4);
    let mut pdu = [len as u32, 0x7051, 1].map(u32::to_be_bytes).concat();
    pdu.extend([1, tag.len() as u8 + 1, 2, if reply { 0x80 } else { 0 }]);
    pdu.extend((-1.0_f64).to_be_bytes());
    pdu.extend(tag);
    pdu.resize(len, 0);
    pdu
}

/// Returns whether the agent has closed the connection.
fn is_left(mut stream: TcpStream) -> bool {
    match stream.read(&mut [0; 64]) {
        Ok(n) => n == 0,
        Err(e) => e.kind() == ErrorKind::ConnectionReset,
    }
}

#[test]
fn thousands_of_connections_are_served() {
    // Users other than root may have fewer descriptors than 3,000 connections need.
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, most, most).unwrap();
    let count = most.saturating_sub(200).min(3000);
    // One host may have half of all connections.
    let mut served = Served::start(&["--limit", "connections=6000", "--limit", "connections-each=3000"]);
    let mut clients: Vec<TcpStream> = (0..count).map(|_| served.connect()).collect();
    for client in &mut clients {
        client.write_all(&point(b"tag", true)).unwrap();
    }
    for client in &mut clients {
        client.read_exact(&mut [0; 16]).unwrap();
    }
    assert_eq!(served.points(), count);
    clients.truncate(1);
    clients[0].write_all(&point(b"tag", true)).unwrap();
    clients[0].read_exact(&mut [0; 16]).unwrap();
    assert_eq!(served.points(), count + 1);
}

#[test]
fn slow_and_silent_clients_are_not_waited_for() {
    let mut served = Served::start(&[]);
    let _silent = served.connect();
    let mut slow = served.connect();
    let trace = served.trace(State::empty());
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
    // Writes until the buffers of both sides are full.
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
    // The agent serves others meanwhile.
    let trace = served.trace(State::empty());
    trace.transact(&Tag::new("other").unwrap(), Duration::from_secs(1));
    assert_eq!(trace.status().sent, 1);
    assert!(served.points() < written as u64 / 28);
    // The agent continues when the client reads its acknowledgements.
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
    let traces = [0; 3].map(|_| served.trace(State::empty()));
    traces.iter().for_each(|trace| trace.point(&tag));
    let refused: Vec<bool> =
        traces.iter().map(|trace| matches!(trace.status().failure, Some(Failure::ConnLimit))).collect();
    assert_eq!(refused, [false, false, true]);
    drop(traces);
    // The agent notices the closed connections when it reads from them.
    loop {
        let trace = served.trace(State::empty());
        trace.point(&tag);
        if trace.status().sent == 1 {
            break;
        }
    }
    let served = Served::start(&["-A", "disallow:127.*"]);
    let trace = served.trace(State::empty());
    trace.point(&tag);
    assert!(matches!(trace.status().failure, Some(Failure::Permission)), "{:?}", trace.status());
}

#[test]
fn threads_of_both_protocols_are_counted_exactly() {
    let mut served = Served::start(&[]);
    let tag = Tag::new("tag").unwrap();
    let [sync, asynchronous] = [State::empty(), State::ASYNC].map(|state| served.trace(state));
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

/// Returns the value of a metric of limits.
fn limit(served: &mut Served, item: u16) -> u64 {
    let pmid = PmId::new(Domain::new(10).unwrap(), Item::new(4, item));
    match served.agent.value(pmid).unwrap() {
        Atom::U64(count) => count,
        other => panic!("{other:?}"),
    }
}

/// Returns the metrics of limits for connections, silent clients, names and values.
fn left_out(served: &mut Served) -> [u64; 4] {
    [0, 1, 2, 3].map(|item| limit(served, item))
}

#[test]
fn limits_of_the_framework_have_metrics() {
    let mut served = Served::start(&[]);
    let of = |limit: FixedLimit| 16 + FixedLimit::ALL.iter().position(|other| *other == limit).unwrap() as u16;
    assert_eq!((16..21).map(|item| limit(&mut served, item)).collect::<Vec<_>>(), [0; 5]);
    // The log has a line for each of these filters, with its text, until there are too many.
    let records = PmId::new(Domain::new(10).unwrap(), Item::new(1, 0));
    let filter = "x".repeat(1024);
    for _ in 0..1000 {
        let stored = served.agent.as_client(1).store(records, None, Atom::from(filter.as_str()));
        assert!(stored.is_err());
    }
    assert!(limit(&mut served, of(FixedLimit::LogLines)) > 0 && limit(&mut served, of(FixedLimit::LogCut)) > 0);
}

#[test]
fn filters_of_one_user_leave_some_to_others() {
    let mut served = Served::start(&[]);
    let records = PmId::new(Domain::new(10).unwrap(), Item::new(1, 0));
    let mut filters = |uid: &str, clients: std::ops::Range<i32>| {
        let mut count = 0;
        for client in clients {
            served.agent.as_client(client).attribute(Attribute::USERID, uid).unwrap();
            count += i32::from(served.agent.store(records, None, Atom::from("tag=x")).is_ok());
        }
        count
    };
    assert_eq!([filters("1001", 0..100), filters("1002", 100..200), filters("1003", 200..300)], [33, 1, 1]);
    // A client that ends gives its filter back.
    served.agent.as_client(200).end_client().unwrap();
    served.agent.as_client(300).attribute(Attribute::USERID, "1003").unwrap();
    served.agent.store(records, None, Atom::from("tag=x")).unwrap();
    served.agent.as_client(301).attribute(Attribute::USERID, "1003").unwrap();
    assert!(served.agent.store(records, None, Atom::from("tag=x")).is_err());
}

#[test]
fn connections_have_a_limit_and_are_given_back() {
    let mut served = Served::start(&["--limit", "connections=20", "--limit", "connections-each=8"]);
    let clients: Vec<TcpStream> = (0..8).map(|_| served.connect()).collect();
    let trace = served.trace(State::empty());
    trace.point(&Tag::new("tag").unwrap());
    assert!(matches!(trace.status().failure, Some(Failure::ConnLimit)), "{:?}", trace.status());
    assert_eq!(left_out(&mut served), [1, 0, 0, 0]);
    drop(clients);
    wait_for("a connection", || {
        let trace = served.trace(State::empty());
        trace.point(&Tag::new("tag").unwrap());
        trace.status().sent == 1
    });
}

#[test]
fn slow_and_silent_clients_are_left_and_idle_ones_stay() {
    let mut served = Served::start(&["--limit", "pdu-time=1"]);
    let mut idle = served.connect();
    idle.write_all(&point(b"tag", true)).unwrap();
    idle.read_exact(&mut [0; 16]).unwrap();
    // These clients send single bytes all the time, but never a whole PDU: one from the start, one after its first PDU.
    let mut slow = [served.connect(), served.connect()];
    slow[1].write_all(&point(b"tag", false)).unwrap();
    let silent = served.connect();
    // This client never reads its acknowledgements.
    let mut greedy = served.connect();
    greedy.set_nonblocking(true).unwrap();
    let many = point(b"tag", true).repeat(1000);
    let mut rest = &many[..];
    let start = Instant::now();
    let mut left = [false; 3];
    let mut bytes = point(b"slow", false).into_iter().cycle();
    while left != [true; 3] {
        assert!(start.elapsed() < Duration::from_secs(30), "{left:?}");
        let byte = bytes.next().unwrap();
        for (left, slow) in left.iter_mut().zip(&mut slow) {
            // A PDU takes 6 s, longer than `pdu-time`.
            *left |= slow.write_all(&[byte]).is_err();
        }
        // Writes until the buffers of both sides are full.
        while !left[2] {
            match greedy.write(rest) {
                Ok(n) => rest = if n == rest.len() { &many } else { &rest[n..] },
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(_) => left[2] = true,
            }
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    assert!(is_left(silent));
    idle.write_all(&point(b"tag", true)).unwrap();
    idle.read_exact(&mut [0; 16]).unwrap();
    assert_eq!(left_out(&mut served)[1], 4);
}

#[test]
fn idle_clients_go_in_time() {
    let served = Served::start(&["--limit", "idle-time=1"]);
    let mut idle = served.connect();
    idle.write_all(&point(b"tag", false)).unwrap();
    assert!(is_left(idle));
}

#[test]
fn silent_hosts_are_asked_whether_they_are_there() {
    let served = Served::start(&[]);
    let _client = served.connect();
    let shown = Command::new("ss").args(["-Htno", "sport", "=", &format!(":{}", served.port)]).output();
    let Ok(shown) = shown else { return };
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("timer:(keepalive,"), "{shown}");
}

#[test]
fn without_descriptors_connections_are_accepted_later_and_the_log_has_a_line() {
    let limited = ["sh", "-c", "ulimit -n 30; exec \"$0\" \"$@\""];
    let mut served = Served::start_with(&limited, &["--limit", "connections=1000", "--limit", "connections-each=1000"]);
    let mut clients: Vec<TcpStream> = Vec::new();
    let connect = || TcpStream::connect(("127.0.0.1", served.port)).unwrap();
    let is_greeted = |mut client: &TcpStream, time| {
        client.set_read_timeout(Some(Duration::from_millis(time))).unwrap();
        client.read_exact(&mut [0; 16]).is_ok()
    };
    while clients.len() < 100 && clients.last().is_none_or(|client| is_greeted(client, 500)) {
        clients.push(connect());
    }
    assert!(clients.len() < 40, "{}", clients.len());
    // Each closed connection lets one other client connect.
    clients.extend((0..20).map(|_| connect()));
    for _ in 0..10 {
        drop(clients.remove(0));
        assert!(clients.iter().all(|client| client.peer_addr().is_ok()));
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(clients);
    wait_for("a connection", || is_greeted(&connect(), 500));
    let log = std::fs::read_to_string(served.dir.path().join("trace.log")).unwrap();
    let lines = log.lines().filter(|line| line.contains("cannot accept connections")).count();
    assert_eq!(lines, 1, "{log}");
    assert_eq!(served.points(), 0);
}

#[test]
fn values_of_strangers_spoil_no_tag() {
    let mut served = Served::start(&[]);
    let mut stranger = served.connect();
    for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e308, 1e308] {
        let mut pdu = point(b"work", true);
        pdu[14] = 1;
        pdu[16..24].copy_from_slice(&value.to_be_bytes());
        stranger.write_all(&pdu).unwrap();
        stranger.read_exact(&mut [0; 16]).unwrap();
    }
    let trace = served.trace(State::empty());
    trace.transact(&Tag::new("work").unwrap(), Duration::from_secs(2));
    assert_eq!(trace.status().sent, 1);
    let total = served.agent.values(pmid(5)).unwrap().get(Inst::new(1));
    assert_eq!(total, Some(Atom::Double(2.0)));
    assert_eq!(left_out(&mut served)[3], 5);
}

#[test]
fn names_have_a_limit_and_an_answer_too() {
    let mut served = Served::start(&["--limit", "names=1000"]);
    let mut stranger = served.connect();
    for n in 0..5000_u32 {
        // Each byte that is not UTF-8 is escaped as four bytes.
        let tag = [&n.to_be_bytes().map(|byte| byte | 128)[..], format!("{n}").as_bytes(), &[0xff; 100]].concat();
        stranger.write_all(&point(&tag, n == 4999)).unwrap();
    }
    stranger.read_exact(&mut [0; 16]).unwrap();
    let indom = InDom::new(Domain::new(10).unwrap(), Serial::new(1));
    let instances = served.agent.instances(indom).unwrap();
    let bytes: usize = instances.iter().map(|(_, name)| 8 + name.len()).sum();
    assert!(bytes <= 64_000 && instances.len() > 70, "{bytes} {}", instances.len());
    assert_eq!(left_out(&mut served)[2], 5000 - instances.len() as u64);
}

/// The reply is larger than the pipe's buffer, and pmcd does not read it, perhaps because it is stopped.
#[test]
fn applications_do_not_wait_for_a_pmcd_that_hangs() {
    let mut served = Served::start(&[]);
    let trace = served.trace(State::empty());
    let tag = Tag::new("tag").unwrap();
    trace.point(&tag);
    let many = vec![pmid(14); 10_000];
    let fetch =
        |out: &mut Vec<u8>, from| pcp_pdu::metadata::encode_fetch(out, from, from, many.iter().copied().map(Some));
    served.agent.send_raw(fetch).unwrap();
    // If the agent blocked, each point would wait for the request timeout of 10 s, and be missed.
    (0..100).for_each(|_| trace.point(&tag));
    assert_eq!((trace.status().sent, trace.status().missed), (101, 0));
    assert!(matches!(served.agent.receive_raw().unwrap().1, pcp_pdu::Pdu::Result(_)));
    assert_eq!(served.points(), 101);
}
