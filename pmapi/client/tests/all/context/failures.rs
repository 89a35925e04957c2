//! A pmcd that ends, and peers that are not pmcd.

use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use pcp_client::{Context, Settings};
use pcp_pdu::codec::Writer;
use pcp_pdu::handshake::{Features, encode_error};
use pcp_pdu::metadata::{DescPdu, Subject, TextKind};
use pcp_pdu::{Frames, Header, PduType};
use pmapi::{Desc, Error, InDom, Inst, PmId, Semantics, Type, Units};
use proptest::prelude::*;

use crate::context::stage;

/// Peer that greets a client and then behaves as a test requires.
struct Fake {
    dir: tempfile::TempDir,
    ends: Arc<AtomicBool>,
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::SeqCst);
        // Wakes the thread, which then closes the socket.
        let _ = UnixStream::connect(self.dir.path().join("s"));
    }
}

fn greeting(features: Features) -> Vec<u8> {
    let mut out = Vec::new();
    let mut w = Writer::new(&mut out, PduType::ERROR, 0);
    w.i32(0).u32(2 << 24 | 1 << 16 | u32::from(features.bits()));
    w.finish().unwrap();
    out
}

impl Fake {
    /// Serves one connection after the other until this object is dropped.
    fn new(mut serve: impl FnMut(UnixStream) + Send + 'static) -> Fake {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("s")).unwrap();
        let ends = Arc::new(AtomicBool::new(false));
        let stops = Arc::clone(&ends);
        let served = move |_: &UnixStream| !stops.load(Ordering::SeqCst);
        thread::spawn(move || listener.incoming().map_while(Result::ok).take_while(served).for_each(&mut serve));
        Fake { dir, ends }
    }

    /// Greets, reads the credentials and one request, and answers with `bytes`. Then it keeps the connection open or
    /// closes it.
    fn answering(features: Features, bytes: Vec<u8>, stays: bool) -> Fake {
        let mut kept = Vec::new();
        Fake::new(move |mut stream| {
            let _ = stream.write_all(&greeting(features));
            let (mut frames, mut requests) = (Frames::new(), 0);
            // Credentials and profiles have no answer.
            while requests == 0 {
                let Ok(n @ 1..) = stream.read(frames.space()) else { return };
                frames.filled(n);
                while let Ok(Some((Header { pdu, .. }, _))) = frames.next_pdu() {
                    requests += usize::from(pdu != PduType::CREDS && pdu != PduType::PROFILE);
                }
            }
            let _ = stream.write_all(&bytes);
            if stays {
                kept.push(stream);
            }
        })
    }

    fn settings(&self) -> Settings {
        let mut settings = Settings::default();
        settings.socket = self.dir.path().join("s");
        settings.request_timeout = Duration::from_secs(5);
        settings
    }

    fn connect_with(&self, timeout: Duration) -> Result<Context, Error> {
        let mut settings = self.settings();
        settings.request_timeout = timeout;
        Context::new("unix:".parse().unwrap(), settings)
    }

    fn connect(&self) -> Context {
        self.connect_with(Duration::from_secs(5)).unwrap()
    }
}

const ALL: Features =
    Features::from_bits_retain(!(Features::CREDENTIALS_REQUIRED.bits() | Features::CERTIFICATE_REQUIRED.bits()));

fn pmid(item: u32) -> PmId {
    PmId::from_word(0x0740_0000 + item).unwrap()
}

fn desc(item: u32) -> Vec<u8> {
    let desc = Desc {
        pmid: pmid(item),
        ty: Type::U32,
        indom: None,
        semantics: Semantics::Instant,
        units: Units::from_word(0),
    };
    let mut out = Vec::new();
    DescPdu { desc }.encode(&mut out, 0).unwrap();
    out
}

#[test]
fn refusals() {
    for (code, expected) in [(-1042, Error::PERMISSION), (-1043, Error::CONNLIMIT), (-13, Error::from_errno(13))] {
        let fake = Fake::new(move |mut stream| {
            let mut out = Vec::new();
            let mut w = Writer::new(&mut out, PduType::ERROR, 0);
            w.i32(code).u32(0x0201_0000);
            w.finish().unwrap();
            let _ = stream.write_all(&out);
        });
        assert_eq!(fake.connect_with(Duration::from_secs(5)).unwrap_err(), expected);
    }
    // An acknowledgement without features is that of PCP 1.
    let fake = Fake::new(|mut stream| {
        let mut out = Vec::new();
        encode_error(&mut out, 0, Ok(())).unwrap();
        let _ = stream.write_all(&out);
    });
    assert_eq!(fake.connect_with(Duration::from_secs(5)).unwrap_err(), Error::IPC);
    let fake = Fake::new(|mut stream| drop(stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")));
    assert!(fake.connect_with(Duration::from_secs(5)).is_err());
    let fake = Fake::new(drop);
    assert_eq!(fake.connect_with(Duration::from_secs(5)).unwrap_err(), Error::IPC);
}

#[test]
fn time_outs() {
    let short = Duration::from_millis(50);
    // A peer that sends nothing.
    let mut kept = Vec::new();
    let fake = Fake::new(move |stream| kept.push(stream));
    assert_eq!(fake.connect_with(short).unwrap_err(), Error::TIMEOUT);
    // A partial answer: the limit applies to the whole.
    let whole = desc(1);
    let fake = Fake::answering(ALL, whole[..20].to_vec(), true);
    let mut context = fake.connect_with(short).unwrap();
    assert_eq!(context.lookup_desc(pmid(1)), Err(Error::TIMEOUT));
    // The rest of the answer can no longer arrive: the connection is closed.
    assert!(!context.is_connected());
    assert_eq!(context.lookup_desc(pmid(2)), Err(Error::IPC));
}

#[test]
fn times_without_end() {
    let fake = Fake::answering(ALL, desc(1), false);
    let longest = Duration::MAX;
    let mut settings = fake.settings();
    settings.connect_timeout = Some(longest);
    settings.request_timeout = longest;
    settings.reconnect = vec![longest];
    let mut context = Context::new("unix:".parse().unwrap(), settings.clone()).unwrap();
    assert_eq!(context.lookup_desc(pmid(1)).unwrap().pmid, pmid(1));
    drop(fake);
    assert!(context.reconnect().is_err() && context.retry_in() > Duration::from_secs(1 << 31));
    assert!(Context::new("127.0.0.1:1".parse().unwrap(), settings).is_err());
}

/// pmcd sends an error to a new client while an agent is not ready.
#[test]
fn an_error_before_the_first_answer() {
    let serve = |mut stream: UnixStream| {
        let _ = stream.write_all(&greeting(ALL));
        let (mut frames, mut nth) = (Frames::new(), 0);
        while let Ok(n @ 1..) = stream.read(frames.space()) {
            frames.filled(n);
            while let Ok(Some((Header { pdu, .. }, _))) = frames.next_pdu() {
                let mut answer = desc(nth);
                if pdu == PduType::CREDS {
                    answer.clear();
                    encode_error(&mut answer, 0, Err(Error::AGAIN)).unwrap();
                }
                nth += 1;
                let _ = stream.write_all(&answer);
            }
        }
    };
    let fake = Fake::new(serve);
    let mut context = fake.connect();
    context.settle().unwrap();
    assert_eq!(context.lookup_desc(pmid(2)).unwrap().pmid, pmid(2));
    drop(context);
    // Without it, the error counts as the answer.
    assert_eq!(fake.connect().lookup_desc(pmid(1)), Err(Error::AGAIN));
    // A pmcd without this metric.
    let mut unknown = Vec::new();
    encode_error(&mut unknown, 0, Err(Error::NOAGENT)).unwrap();
    let mut context = Fake::answering(ALL, unknown, true).connect();
    assert_eq!((context.settle(), context.is_connected()), (Ok(()), true));
}

/// Answers that make libpcp wait, or that it would take for answers to other requests.
#[test]
fn more_than_was_asked_for() {
    let fake = Fake::answering(ALL, [desc(1), desc(2)].concat(), true);
    let mut context = fake.connect();
    assert_eq!(context.lookup_desc(pmid(1)).unwrap().pmid, pmid(1));
    assert_eq!(context.lookup_desc(pmid(3)), Err(Error::IPC));
    assert!(!context.is_connected());
    // Changes without end.
    let mut news = Vec::new();
    let mut w = Writer::new(&mut news, PduType::ERROR, 0);
    w.i32(4);
    w.finish().unwrap();
    let fake = Fake::answering(ALL, news.repeat(1000), true);
    let mut context = fake.connect();
    assert_eq!(context.fetch(&[pmid(1)]).unwrap_err(), Error::IPC);
    assert!(!context.is_connected());
    // A length that would need much memory.
    for (length, error) in [(1 << 30, Error::TOOBIG), (-1, Error::IPC), (0, Error::IPC), (i32::MAX, Error::TOOBIG)] {
        let fake = Fake::answering(ALL, [i32::to_be_bytes(length), [0; 4], [0; 4]].concat(), true);
        let mut context = fake.connect();
        assert_eq!(context.fetch(&[pmid(1)]).unwrap_err(), error, "{length}");
        assert!(!context.is_connected());
    }
}

#[test]
fn the_end_in_the_middle_of_an_answer() {
    let whole = desc(1);
    for cut in 0..whole.len() {
        let fake = Fake::answering(ALL, whole[..cut].to_vec(), false);
        let mut context = fake.connect();
        assert_eq!(context.lookup_desc(pmid(1)), Err(Error::IPC), "{cut}");
        assert_eq!(context.lookup_desc(pmid(1)), Err(Error::IPC), "{cut}");
        // Reconnecting makes a new connection.
        context.reconnect().unwrap();
        assert!(context.is_connected());
    }
}

#[test]
fn back_off() {
    let fake = Fake::answering(ALL, Vec::new(), false);
    let mut settings = fake.settings();
    settings.reconnect = vec![Duration::ZERO, Duration::from_secs(1000)];
    let mut context = Context::new("unix:".parse().unwrap(), settings).unwrap();
    drop(fake);
    let timed_out = Err(Error::from_errno(110));
    assert_eq!(context.reconnect(), timed_out);
    assert!(context.retry_in().is_zero() && !context.is_connected());
    assert_eq!(context.reconnect(), timed_out);
    assert!(context.retry_in() > Duration::from_secs(900));
    assert_eq!(context.reconnect(), timed_out);
    assert_eq!(context.lookup_desc(pmid(1)), Err(Error::IPC));
}

#[test]
fn what_an_old_pmcd_does_not_have() {
    let fake = Fake::answering(Features::empty(), desc(1), true);
    assert_eq!(fake.connect().lookup_labels(pmid(1)).unwrap_err(), Error::NOLABELS);
    assert_eq!(fake.connect().context_labels().unwrap_err(), Error::NOLABELS);
    let mut settings = fake.settings();
    settings.container = Some("c".into());
    let error = Context::new("unix:".parse().unwrap(), settings).unwrap_err();
    assert_eq!(error, Error::from_errno(95));
    for host in ["pcps://h", "h?user=otto", "h?compress"] {
        assert_eq!(Context::connect(host).unwrap_err(), Error::from_errno(95).into(), "{host}");
    }
}

/// A pmcd without `DESCS` gets one request for each descriptor.
#[test]
fn descriptors_one_by_one() {
    let fake = Fake::new(|mut stream| {
        let _ = stream.write_all(&greeting(Features::empty()));
        let mut frames = Frames::new();
        loop {
            let Ok(n @ 1..) = stream.read(frames.space()) else { return };
            frames.filled(n);
            while let Ok(Some((header, bytes))) = frames.next_pdu() {
                let mut out = Vec::new();
                match (header.pdu, bytes.last()) {
                    (PduType::DESC_REQ, Some(1..=9)) => out = desc(u32::from(bytes[15])),
                    (PduType::DESC_REQ, _) => encode_error(&mut out, 0, Err(Error::PMID)).unwrap(),
                    _ => {}
                }
                let _ = stream.write_all(&out);
            }
        }
    });
    let mut context = fake.connect();
    let found = |descs: Vec<Option<Desc>>| descs.iter().map(Option::is_some).collect::<Vec<_>>();
    assert_eq!(found(context.lookup_descs(&[pmid(1), pmid(20), pmid(2)]).unwrap()), [true, false, true]);
    assert_eq!(found(context.lookup_descs(&[pmid(21), pmid(20)]).unwrap()), [false, false]);
    assert_eq!(context.lookup_descs(&[pmid(20)]), Err(Error::PMID));
}

fn every_call(context: &mut Context) {
    let indom = InDom::from_word(0x0740_0001).unwrap();
    let _ = context.lookup_names(&["a", "b"]);
    let _ = context.lookup_desc(pmid(1));
    let _ = context.lookup_descs(&[pmid(1), pmid(2)]);
    let _ = context.name_all(pmid(1));
    let _ = context.children("a");
    let _ = context.traverse("a");
    let _ = context.indom(indom);
    let _ = context.lookup_indom(indom, b"a");
    let _ = context.name_indom(indom, Inst::new(1));
    let _ = context.lookup_text(Subject::InDom(indom), TextKind::Help);
    let _ = context.instances_labels(indom);
    let _ = context.item_labels(pmid(1));
    let _ = context.store(pmid(1), &[(None, pmapi::Atom::U32(1))]);
    if let Ok(sample) = context.fetch(&[pmid(1), pmid(2)]) {
        for set in sample.sets() {
            let _ = set.values().map(|(_, value)| value.atom(Type::U64)).collect::<Vec<_>>();
        }
    }
}

const ANSWERS: [PduType; 11] = [
    PduType::ERROR,
    PduType::RESULT,
    PduType::HIGHRES_RESULT,
    PduType::DESC,
    PduType::DESCS,
    PduType::INSTANCE,
    PduType::TEXT,
    PduType::PMNS_IDS,
    PduType::PMNS_NAMES,
    PduType::LABEL,
    PduType::FETCH,
];

/// PDUs of valid types with random content.
fn garbage() -> impl Strategy<Value = Vec<u8>> {
    let small = prop_oneof![Just(0u32), Just(1), Just(2), Just(u32::MAX), 0..64u32, any::<u32>()];
    let pdu = (prop::sample::select(&ANSWERS[..]), prop::collection::vec(small, 0..24));
    prop::collection::vec(pdu, 1..40).prop_map(|pdus| {
        let mut out = Vec::new();
        for (pdu, words) in pdus {
            let mut w = Writer::new(&mut out, pdu, 0);
            for word in words {
                w.u32(word);
            }
            w.finish().unwrap();
        }
        out
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    // Slow: each random answer is given to each call.
    fn garbage_is_an_error_and_no_more(bytes in garbage()) {
        let fake = Fake::answering(ALL, bytes, false);
        every_call(&mut fake.connect());
    }

    #[test]
    fn noise_is_an_error_and_no_more(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let fake = Fake::answering(ALL, bytes, false);
        let mut context = fake.connect();
        every_call(&mut context);
        prop_assert!(!context.is_connected());
    }
}

#[test]
#[ignore = "needs PCP"]
fn pmcd_restarts() {
    let mut pmcd = stage::pmcd();
    let mut context = Context::connect(&pmcd.host()).unwrap();
    let bin = context.lookup_name("sample.bin").unwrap();
    let indom = context.lookup_desc(bin).unwrap().indom.unwrap();
    context.profile_mut().add(indom, &[Inst::new(100), Inst::new(300)]);
    assert_eq!(context.fetch(&[bin]).unwrap().set(0).unwrap().len(), 2);
    for _ in 0..3 {
        pmcd.restart();
        assert_eq!(context.fetch(&[bin]).unwrap_err(), Error::IPC);
        assert_eq!(context.lookup_name("sample.bin"), Err(Error::IPC));
        context.reconnect().unwrap();
        // The profile survives the reconnection.
        assert_eq!(context.fetch(&[bin]).unwrap().set(0).unwrap().len(), 2);
        assert_eq!(context.lookup_name("sample.bin"), Ok(bin));
    }
}

/// An agent does not answer: pmcd drops it and continues.
#[test]
#[ignore = "needs PCP"]
fn an_agent_dies() {
    let pmcd = stage::pmcd();
    let mut context = Context::connect(&pmcd.host()).unwrap();
    let (ours, other) = (context.lookup_name("sample.long.one").unwrap(), context.lookup_name("simple.now").unwrap());
    pmcd.kill_agent("sample");
    let sample = context.fetch(&[ours, other]).unwrap();
    let errors: Vec<_> = sample.sets().map(|set| set.error).collect();
    assert_eq!(errors[1], None);
    assert!(errors[0].is_some());
    // pmcd restarts the agent later; this connection has stayed open.
    assert_eq!(context.lookup_name("simple.now"), Ok(other));
}

/// Results much larger than a buffer: a metric with all of its instances, many times.
#[test]
#[ignore = "needs PCP"]
fn large_results() {
    let pmcd = stage::pmcd();
    let mut context = Context::connect(&pmcd.host()).unwrap();
    let bin = context.lookup_name("sample.bin").unwrap();
    let hordes = context.lookup_name("sample.hordes.one").unwrap();
    let many = vec![hordes; 4000];
    let sample = context.fetch(&many).unwrap();
    assert_eq!(sample.len(), many.len());
    let values: usize = sample.sets().map(|set| set.values().count()).sum();
    assert!(values > 100_000, "{values}");
    assert!(context.name_all(bin).unwrap().iter().any(|name| name == "sample.bin"));
    // A request longer than pmcd accepts.
    let too_many = vec![bin; 20_000];
    assert!(context.fetch(&too_many).is_err());
    let found = context.lookup_descs(&too_many);
    if context.is_connected() {
        assert!(found.unwrap().iter().all(Option::is_some));
    }
    context.reconnect().unwrap();
    assert!(context.lookup_descs(&too_many).unwrap().iter().all(Option::is_some));
}
