//! An agent that waits for sources besides pmcd: a slow source, its own socket, and a time.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::sockopt::SndBuf;
use nix::sys::socket::{getsockopt, setsockopt};
use pcp_collector::{AgentState, Channel, Collector, Local, Stream};
use pcp_pdu::Pdu;
use pcp_pdu::metadata::DescReq;
use pmapi::{Config, Domain, PmId};
use pmda::host::{Engine, Session, Startup};
use pmda::prelude::*;
use pmda::{PollSet, Wake, pmapi};

const SLOW: Item = Item::new(0, 0);
const LINES: Item = Item::new(0, 1);
const TICKS: Item = Item::new(0, 2);
const PANICS: Item = Item::new(0, 3);

/// An agent with a source whose values the test sends, lines over a socket, and a clock.
#[derive(Debug)]
struct Waiting {
    source: Background<u32>,
    /// Whether pmcd has to wait for the first snapshot.
    waits: bool,
    listener: UnixListener,
    peers: Vec<BufReader<UnixStream>>,
    lines: u32,
    ticks: u32,
    next: Instant,
}

/// The feeds of the agents' sources, one for each agent of a test.
static FEEDS: Mutex<Vec<(PathBuf, Receiver<Result<u32>>)>> = Mutex::new(Vec::new());

const LISTENER: usize = usize::MAX;

impl Agent for Waiting {
    const NAME: &'static str = "waiting";
    const DOMAIN: u16 = 402;

    fn new(setup: &mut Setup) -> Result<Self, BoxError> {
        for (item, name) in [(SLOW, "slow"), (LINES, "lines"), (TICKS, "ticks"), (PANICS, "panics")] {
            setup.metric(format!("waiting.{name}"), item, Type::U32);
        }
        let dir = setup.config().tmp_dir();
        let mut feeds = FEEDS.lock().unwrap();
        let feed = feeds.iter().position(|(of, _)| *of == dir).map(|at| feeds.swap_remove(at).1).unwrap();
        let source = move || Ok(feed.recv().unwrap_or(Err(Error::NODATA))?);
        let listener = UnixListener::bind(dir.join("socket"))?;
        listener.set_nonblocking(true)?;
        Ok(Waiting {
            source: Background::spawn(Duration::from_secs(3600), source)?,
            waits: dir.join("waits").exists(),
            listener,
            peers: Vec::new(),
            lines: 0,
            ticks: 0,
            next: Instant::now(),
        })
    }

    fn fetch(&mut self, item: Item, out: &mut Values<'_>) -> Result {
        match item {
            SLOW => {
                let value = self.source.latest().map(|value| *value);
                self.source.request_snapshot();
                out.put(value?)
            }
            LINES => out.put(self.lines),
            TICKS => out.put(self.ticks),
            _ => out.put(0u32),
        }
    }

    fn is_ready(&self) -> bool {
        !self.waits || self.source.is_ready()
    }

    fn sources<'a>(&'a self, set: &mut PollSet<'a>) {
        set.readable(LISTENER, &self.listener);
        self.peers.iter().enumerate().for_each(|(n, peer)| set.readable(n, peer.get_ref()));
        set.at(self.next);
        set.first_snapshot(&self.source);
    }

    fn wake(&mut self, wake: Wake) {
        match wake {
            Wake::Readable(LISTENER) => {
                let (peer, _) = self.listener.accept().unwrap();
                peer.set_nonblocking(true).unwrap();
                self.peers.push(BufReader::new(peer));
            }
            Wake::Readable(n) => self.read(n).unwrap(),
            Wake::Time => {
                self.ticks += 1;
                self.next = Instant::now() + Duration::from_millis(1);
            }
            _ => {}
        }
    }
}

impl Waiting {
    fn read(&mut self, n: usize) -> io::Result<()> {
        let mut line = String::new();
        self.peers[n].read_line(&mut line)?;
        assert_ne!(line, "panic\n", "as the test wants it");
        self.lines += 1;
        self.peers[n].get_mut().write_all(line.as_bytes())
    }
}

fn pmid(item: Item) -> PmId {
    PmId::new(Domain::new(Waiting::DOMAIN).unwrap(), item)
}

/// Returns a configuration with which an agent finds its feed and the directory for its socket.
fn feed(dir: &tempfile::TempDir) -> (Sender<Result<u32>>, Config) {
    let (feed, fed) = mpsc::channel();
    FEEDS.lock().unwrap().push((dir.path().to_owned(), fed));
    (feed, Config::new(b"", [(OsString::from("PCP_TMP_DIR"), dir.path().into())]))
}

fn start(config: Config) -> (JoinHandle<()>, Collector<Stream>) {
    let (agent, collector, _) = start_with_socket(config);
    (agent, collector)
}

/// Starts an agent. Also returns another handle to the collector's end of the socket.
fn start_with_socket(config: Config) -> (JoinHandle<()>, Collector<Stream>, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    // The smallest buffer that the kernel allows.
    setsockopt(&ours, SndBuf, &0).unwrap();
    let agent = std::thread::spawn(move || {
        let mut session = Session::open(ours.try_clone().unwrap(), ours, Waiting::WANTS).unwrap();
        let mut engine = Engine::<Waiting>::builder().domain(pmid(SLOW).domain()).config(config).build().unwrap();
        session.serve(&mut engine, Startup::Ready).unwrap();
    });
    let (input, socket) = (OwnedFd::from(theirs.try_clone().unwrap()), theirs.try_clone().unwrap());
    (agent, Collector::connect(Stream::new(input, theirs.into()).unwrap()).unwrap(), socket)
}

/// Returns the value or the error of the slow source.
fn slow(agent: &mut Collector<impl Channel>) -> Result<u32> {
    let fetched = agent.fetch(&[pmid(SLOW)]).unwrap();
    let set = fetched.sets().next().unwrap();
    match set.values().next() {
        Some((_, raw)) => raw.atom(Type::U32).map(|atom| if let Atom::U32(n) = atom { n } else { panic!() }),
        None => Err(set.error.unwrap()),
    }
}

/// Fetches until the source has another outcome. The answers before that come without delay.
fn until(agent: &mut Collector<impl Channel>, before: Result<u32>, after: Result<u32>) {
    loop {
        match slow(agent) {
            now if now == after => return,
            now => assert_eq!(now, before),
        }
    }
}

fn answers_while_its_source_hangs(agent: &mut Collector<impl Channel>, feed: &Sender<Result<u32>>) {
    // The source hangs from the start, because nothing has been sent.
    for _ in 0..100 {
        assert_eq!(slow(agent), Err(Error::AGAIN));
    }
    feed.send(Ok(1)).unwrap();
    until(agent, Err(Error::AGAIN), Ok(1));
    for _ in 0..100 {
        assert_eq!(slow(agent), Ok(1));
    }
    feed.send(Err(Error::NOAGENT)).unwrap();
    until(agent, Ok(1), Err(Error::NOAGENT));
    feed.send(Ok(2)).unwrap();
    until(agent, Err(Error::NOAGENT), Ok(2));
}

/// The answer is larger than the buffer of the socket.
#[test]
fn sources_are_served_while_pmcd_does_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let (_feed, config) = feed(&dir);
    let (thread, mut agent, socket) = start_with_socket(config);
    assert_eq!(agent.value(pmid(LINES)).unwrap(), Atom::U32(0));
    // The answer has at least 24 bytes for each metric.
    let many = vec![pmid(LINES); 3_000];
    let (other, _) = UnixStream::pair().unwrap();
    setsockopt(&other, SndBuf, &0).unwrap();
    assert!(getsockopt(&other, SndBuf).unwrap() < 24 * many.len());
    agent
        .send_raw(|out, from| pcp_pdu::metadata::encode_fetch(out, from, from, many.iter().copied().map(Some)))
        .unwrap();
    // The answer has begun.
    poll(&mut [PollFd::new(socket.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE).unwrap();
    // A request that arrives in the meantime is not answered yet.
    agent.send_raw(|out, from| DescReq { pmid: Some(pmid(LINES)) }.encode(out, from)).unwrap();
    let mut peer = BufReader::new(UnixStream::connect(dir.path().join("socket")).unwrap());
    for _ in 0..100 {
        peer.get_mut().write_all(b"line\n").unwrap();
        let mut line = String::new();
        peer.read_line(&mut line).unwrap();
        assert_eq!(line, "line\n");
    }
    let (_, answer) = agent.receive_raw().unwrap();
    let Pdu::Result(result) = answer else { panic!("{answer:?}") };
    // The values are from the time of the request.
    assert!(result.sets().all(|set| set.values().all(|(_, raw)| raw.atom(Type::U32) == Ok(Atom::U32(0)))));
    assert_eq!(result.sets().count(), many.len());
    let (_, answer) = agent.receive_raw().unwrap();
    assert!(matches!(answer, Pdu::Desc(_)), "{answer:?}");
    assert_eq!(agent.value(pmid(LINES)).unwrap(), Atom::U32(100));
    drop((agent, socket));
    thread.join().unwrap();
}

#[test]
fn an_agent_answers_while_its_source_hangs() {
    let dir = tempfile::tempdir().unwrap();
    let (feed, config) = feed(&dir);
    let (thread, mut agent) = start(config);
    answers_while_its_source_hangs(&mut agent, &feed);
    // The agent ends although its source hangs.
    drop(agent);
    thread.join().unwrap();
}

#[test]
fn so_does_one_in_the_same_process() {
    let dir = tempfile::tempdir().unwrap();
    let (feed, config) = feed(&dir);
    let mut agent =
        Collector::new(Local::<Waiting>::start(Engine::builder().domain(pmid(SLOW).domain()).config(config)).unwrap());
    answers_while_its_source_hangs(&mut agent, &feed);
}

#[test]
fn pmcd_is_told_when_the_first_snapshot_is_there() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("waits"), "").unwrap();
    let (feed, config) = feed(&dir);
    let (thread, mut agent) = start(config);
    assert!(matches!(agent.fetch(&[pmid(SLOW)]), Err(pcp_collector::Error::NotReady)));
    agent.settle().unwrap();
    assert_eq!(agent.state(), AgentState::NotReady);
    feed.send(Ok(5)).unwrap();
    assert!(agent.wait_ready(None).unwrap());
    assert_eq!(slow(&mut agent), Ok(5));
    drop(agent);
    thread.join().unwrap();
}

#[test]
fn sockets_and_times_are_served_between_requests() {
    let dir = tempfile::tempdir().unwrap();
    let (_feed, config) = feed(&dir);
    let (thread, mut agent) = start(config);
    assert_eq!(agent.value(pmid(LINES)).unwrap(), Atom::U32(0));
    let mut peers = [(); 2].map(|()| BufReader::new(UnixStream::connect(dir.path().join("socket")).unwrap()));
    for n in 0..20 {
        let peer = &mut peers[n % 2];
        peer.get_mut().write_all(format!("line {n}\n").as_bytes()).unwrap();
        // The answer comes while pmcd sends nothing.
        let mut line = String::new();
        peer.read_line(&mut line).unwrap();
        assert_eq!(line, format!("line {n}\n"));
    }
    assert_eq!(agent.value(pmid(LINES)).unwrap(), Atom::U32(20));
    // A panic between requests does not end the agent either.
    peers[0].get_mut().write_all(b"panic\n").unwrap();
    peers[1].get_mut().write_all(b"after\n").unwrap();
    peers[1].read_line(&mut String::new()).unwrap();
    assert_eq!(agent.value(pmid(LINES)).unwrap(), Atom::U32(21));
    loop {
        if matches!(agent.value(pmid(TICKS)).unwrap(), Atom::U32(3..)) {
            break;
        }
    }
    drop(agent);
    thread.join().unwrap();
}
