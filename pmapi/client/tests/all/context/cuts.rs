//! Connections that end or fall silent at any byte of any answer of a real pmcd.

use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use pcp_client::{Context, Settings};
use pcp_pdu::metadata::{Subject, TextKind};
use pmapi::{Atom, Error, InDom, Inst, PmId};

use crate::context::stage;

/// Relay between clients and pmcd, which stops after a number of bytes.
struct Relay {
    dir: tempfile::TempDir,
    /// Bytes of pmcd that the relay sends on to a client.
    allowed: Arc<AtomicUsize>,
    /// Bytes that pmcd has sent to the last client.
    sent: Arc<AtomicUsize>,
}

impl Relay {
    /// Starts a relay; `stays` keeps the connection open after the last byte.
    fn new(pmcd: &Path, stays: bool) -> Relay {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("s")).unwrap();
        let (allowed, sent) = (Arc::new(AtomicUsize::new(usize::MAX)), Arc::new(AtomicUsize::new(0)));
        let (pmcd, limit, count) = (pmcd.to_owned(), Arc::clone(&allowed), Arc::clone(&sent));
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let server = UnixStream::connect(&pmcd).unwrap();
                count.store(0, SeqCst);
                let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                thread::spawn(move || {
                    std::io::copy(&mut from, &mut to).and_then(|_| to.shutdown(std::net::Shutdown::Both))
                });
                let (limit, count) = (Arc::clone(&limit), Arc::clone(&count));
                thread::spawn(move || answers(server, client, &limit, &count, stays));
            }
        });
        Relay { dir, allowed, sent }
    }

    fn connect(&self, timeout: Duration) -> Context {
        let mut settings = Settings::default();
        (settings.socket, settings.request_timeout) = (self.dir.path().join("s"), timeout);
        Context::new("unix:".parse().unwrap(), settings).unwrap()
    }
}

fn answers(mut server: UnixStream, mut client: UnixStream, limit: &AtomicUsize, count: &AtomicUsize, stays: bool) {
    let mut buffer = [0; 4096];
    while let Ok(n @ 1..) = server.read(&mut buffer) {
        let before = count.fetch_add(n, SeqCst);
        let goes_on = limit.load(SeqCst).saturating_sub(before).min(n);
        let whole = client.write_all(&buffer[..goes_on]).is_ok() && goes_on == n;
        if !whole && !stays {
            break;
        }
    }
    let _ = client.shutdown(std::net::Shutdown::Both);
}

type Call = fn(&mut Context) -> Result<(), Error>;

fn bin() -> PmId {
    PmId::from_word(29 << 22 | 6).unwrap()
}

fn bins() -> InDom {
    InDom::from_word(29 << 22 | 2).unwrap()
}

const CALLS: [(&str, Call); 16] = [
    ("lookup_names", |c| c.lookup_names(&["sample.bin", "sample.no.such", "sample.long.one"]).map(drop)),
    ("lookup_desc", |c| c.lookup_desc(bin()).map(drop)),
    ("lookup_descs", |c| c.lookup_descs(&[bin(), bin()]).map(drop)),
    ("name_all", |c| c.name_all(bin()).map(drop)),
    ("children", |c| c.children("sample").map(drop)),
    ("traverse", |c| c.traverse("sample").map(drop)),
    ("indom", |c| c.indom(bins()).map(drop)),
    ("lookup_indom", |c| c.lookup_indom(bins(), b"bin-300").map(drop)),
    ("name_indom", |c| c.name_indom(bins(), Inst::new(300)).map(drop)),
    ("fetch", |c| c.fetch(&[bin(), bin()]).map(drop)),
    ("store", |c| c.store(PmId::from_word(29 << 22 | 35).unwrap(), &[(None, Atom::I32(1))]).or(Err(Error::IPC))),
    ("lookup_text", |c| c.lookup_text(Subject::Metric(bin()), TextKind::Help).map(drop)),
    ("context_labels", |c| c.context_labels().map(drop)),
    ("instances_labels", |c| c.instances_labels(bins()).map(drop)),
    ("lookup_labels", |c| c.lookup_labels(bin()).map(drop)),
    ("merged_labels", |c| c.merged_labels(bin()).map(drop)),
];

/// Makes each call with its answer cut at each of `places`, and asserts the error.
fn at_every_place(stays: bool, timeout: Duration, places: impl Fn(usize) -> Vec<usize>, expected: Error) {
    let pmcd = stage::pmcd();
    let host = pmcd.host();
    let relay = Relay::new(Path::new(host.strip_prefix("unix://").unwrap()), stays);
    let mut cuts = 0;
    for (name, call) in CALLS {
        relay.allowed.store(usize::MAX, SeqCst);
        let mut context = relay.connect(Duration::from_secs(10));
        let greeting = relay.sent.load(SeqCst);
        let whole = call(&mut context);
        let answer = relay.sent.load(SeqCst) - greeting;
        assert!(name == "store" || whole.is_ok(), "{name}: {whole:?}");
        for place in places(answer) {
            relay.allowed.store(usize::MAX, SeqCst);
            let mut context = relay.connect(timeout);
            relay.allowed.store(relay.sent.load(SeqCst) + place, SeqCst);
            let error = call(&mut context).unwrap_err();
            assert!(error == expected || name == "store", "{name}, {place} of {answer}: {error}");
            assert!(!context.is_connected(), "{name}, {place} of {answer}");
            assert_eq!(call(&mut context), Err(Error::IPC));
            relay.allowed.store(usize::MAX, SeqCst);
            context.reconnect().unwrap();
            assert_eq!(call(&mut context), whole, "{name} after {place} of {answer}");
            cuts += 1;
        }
    }
    assert!(cuts >= 3 * CALLS.len(), "{cuts}");
}

#[test]
#[ignore = "needs PCP"]
fn pmcd_ends_in_the_middle_of_an_answer() {
    let places = |answer: usize| {
        let some = [0, 1, 4, 11, 12, 13, 16, 20, answer / 2, answer.saturating_sub(5), answer - 1];
        some.into_iter().filter(|place| *place < answer).collect()
    };
    at_every_place(false, Duration::from_secs(10), places, Error::IPC);
}

#[test]
#[ignore = "needs PCP"]
fn pmcd_falls_silent_in_the_middle_of_an_answer() {
    let places = |answer: usize| vec![0, 12.min(answer - 1), answer - 1];
    at_every_place(true, Duration::from_millis(300), places, Error::TIMEOUT);
}
