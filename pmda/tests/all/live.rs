//! Events, clients, states and types for each host of an agent: in this process, a session over a socket, a process
//! over a pipe, and a shared object.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use crate::stage::{self, *};
use pcp_collector::{AgentState, Channel, Collector, LabelTarget, Launch, Local, SharedObject, Stream};
use pcp_pdu::event::{self, EventFlags, Layout};
use pcp_pdu::handshake::{Attr, Attribute};
use pcp_pdu::metadata::{Subject, TextKind};
use pmapi::{Atom, Config, Domain, Error, InDom, Inst, Item, PmId, Type};
use pmda::Agent;
use pmda::host::{Engine, Session, Startup};

fn domain() -> Domain {
    Domain::new(stage::DOMAIN).unwrap()
}

fn pmid(item: Item) -> PmId {
    PmId::new(domain(), item)
}

fn refused<T: std::fmt::Debug>(result: pcp_collector::Result<T>) -> Error {
    match result {
        Err(pcp_collector::Error::Agent(e)) => e,
        other => panic!("not refused: {other:?}"),
    }
}

/// Starts the agent at the other end of a socket.
fn over_a_socket(startup: Startup) -> (std::thread::JoinHandle<()>, Collector<Stream>) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let agent = std::thread::spawn(move || {
        let mut session = Session::open(ours.try_clone().unwrap(), ours, Stage::WANTS).unwrap();
        let mut engine = Engine::<Stage>::builder().domain(domain()).config(Config::new(b"", [])).build().unwrap();
        session.serve(&mut engine, startup).unwrap();
    });
    let input = OwnedFd::from(theirs.try_clone().unwrap());
    (agent, Collector::connect(Stream::new(input, theirs.into()).unwrap()).unwrap())
}

#[test]
fn in_the_same_process() {
    let mut agent = Collector::new(Local::<Stage>::new().unwrap());
    conformance(&mut agent);
    // This host cannot notify pmcd that the agent is ready again.
    agent.store(pmid(NOT_READY), None, Atom::U32(3_600_000)).unwrap();
    assert_eq!(refused(agent.desc(pmid(UID))), Error::AGAIN);
}

#[test]
fn over_a_session() {
    let (thread, mut agent) = over_a_socket(Startup::Ready);
    conformance(&mut agent);
    drop(agent);
    thread.join().unwrap();
}

#[test]
fn as_a_process() {
    let mut command = Command::new(example("stage"));
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("stage.log");
    command.arg("-l").arg(&log);
    let mut agent = Launch::pipe(command).start().unwrap();
    conformance(&mut agent);
    // The agent's output does not get between the PDUs.
    agent.value(pmid(PRINT)).unwrap();
    agent.close();
    let log = std::fs::read_to_string(log).unwrap();
    assert!(log.lines().any(|line| line == "the agent prints"), "{log}");
    let panics: Vec<&str> = log.lines().filter(|line| line.contains("panic")).collect();
    assert_eq!(panics.len(), 1, "{log}");
    let (start, end) =
        (") Error: stage.panic (401.3.0): the fetch panicked at ", ": as the test wants it; this metric has no value");
    assert!(panics[0].contains(start) && panics[0].contains(end), "{log}");
    assert!(log.trim_end().lines().last().is_some_and(|line| line.starts_with("Log finished ")), "{log}");
}

#[test]
fn a_panic_at_the_start_ends_the_agent_and_its_log() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("stage.log");
    let mut command = Command::new(example("stage"));
    command.arg("-l").arg(&log).env("STAGE_FAILS", "").stdin(Stdio::piped()).stdout(Stdio::null());
    let mut agent = command.spawn().unwrap();
    let _input = agent.stdin.take();
    let status = agent.wait().unwrap();
    assert_eq!(status.code(), Some(1));
    let log = std::fs::read_to_string(log).unwrap();
    let lines: Vec<&str> = log.lines().filter(|line| !line.is_empty()).collect();
    assert!(matches!(lines[..], [_, _, _, end] if end.starts_with("Log finished ")), "{log}");
    assert!(lines[1].contains(") Error: panic at ") && lines[1].ends_with(": as the test wants it"), "{log}");
    assert!(lines[2].contains(") Critical: the agent panicked"), "{log}");
}

#[test]
fn as_a_shared_object() {
    let library = example("libpmda_stage.so");
    // SAFETY: it is an agent of this workspace.
    let mut agent = unsafe { SharedObject::collector(&library, "stage_init", domain()) }.unwrap();
    conformance(&mut agent);
    agent.store(pmid(NOT_READY), None, Atom::U32(3_600_000)).unwrap();
    assert_eq!(refused(agent.desc(pmid(UID))), Error::AGAIN);
}

fn conformance(agent: &mut Collector<impl Channel>) {
    events_for_each_client(agent);
    events_of_instances(agent);
    clients_are_known_and_forgotten(agent);
    panics_are_errors(agent);
    errors_that_pmcd_takes_for_its_own(agent);
    an_instance_has_one_value(agent);
    done_comes_after_the_answer(agent);
    types(agent);
}

/// Returns the events that a client gets: seconds, flags or the number of missed events, and the event's number.
fn events(agent: &mut Collector<impl Channel>, item: Item, inst: Option<u32>) -> Vec<(i64, u32, Option<u64>)> {
    let fetched = agent.fetch(&[pmid(item)]).unwrap();
    let set = fetched.sets().next().unwrap();
    let ty = if item == HIGHRES { Type::HighResEvent } else { Type::Event };
    let mut values = set.values().filter(|(i, _)| i.map(Inst::word) == inst);
    let Some((_, raw)) = values.next() else { return Vec::new() };
    let (payload, layout) = match raw.atom(ty).unwrap() {
        Atom::Event(payload) => (payload, Layout::Micro),
        Atom::HighResEvent(payload) => (payload, Layout::Nano),
        other => panic!("{other:?}"),
    };
    let records = event::records(payload, layout).unwrap();
    let row = |record: event::Record<'_>| {
        if record.flags.contains(EventFlags::MISSED) {
            return (record.time.seconds, record.missed, None);
        }
        // The other layout has microseconds.
        assert_eq!(record.time.nanoseconds, if layout == Layout::Nano { 2_000_003 } else { 2_000_000 });
        let params: Vec<_> = record.params().collect();
        let [(Some(number), Atom::U64(n)), (Some(text), Atom::String(b"stored"))] = params[..] else {
            panic!("{params:?}")
        };
        assert_eq!((number, text), (pmid(P_U64), pmid(P_STRING)));
        (record.time.seconds, record.flags.bits(), Some(n))
    };
    records.map(row).collect()
}

fn add(agent: &mut Collector<impl Channel>, numbers: impl IntoIterator<Item = u32>) {
    numbers.into_iter().for_each(|n| agent.store(pmid(ADD), None, Atom::U32(n)).unwrap());
}

fn number(agent: &mut Collector<impl Channel>, item: Item) -> u64 {
    match agent.value(pmid(item)).unwrap() {
        Atom::U64(n) => n,
        Atom::U32(n) => n.into(),
        other => panic!("{other:?}"),
    }
}

/// Sends an attribute of a client, as pmcd does to an agent that has asked for it.
fn tell(agent: &mut Collector<impl Channel>, attribute: Attribute, value: &str) {
    agent.send_raw(|out, from| Attr { attribute, value: value.as_bytes() }.encode(out, from)).unwrap();
}

fn row(n: u32) -> (i64, u32, Option<u64>) {
    (1000 + i64::from(n), 1, Some(n.into()))
}

fn events_for_each_client(agent: &mut Collector<impl Channel>) {
    add(agent, [1]);
    assert_eq!(events(agent.as_client(1), RECORDS, None), []);
    assert_eq!(events(agent.as_client(2), RECORDS, None), []);
    add(agent, [2, 3]);
    assert_eq!(events(agent.as_client(1), RECORDS, None), [row(2), row(3)]);
    assert_eq!(events(agent.as_client(1), RECORDS, None), []);
    add(agent, [4]);
    assert_eq!(events(agent.as_client(2), RECORDS, None), [row(2), row(3), row(4)]);
    let [count, bytes, memory, clients] = STATISTICS.map(|item| number(agent, item));
    assert_eq!((count, clients), (4, 2));
    assert!(memory > 0 && bytes == 4 * memory);
    // The queue holds 4096 bytes, however many events are added and not read.
    add(agent, 5..200);
    let found = events(agent.as_client(1), RECORDS, None);
    let kept = found.len() as u32 - 1;
    assert!((20..80).contains(&kept), "{kept}");
    let missed = 199 - 3 - kept;
    // The record of missed events has the time of the next event.
    assert_eq!(found[0], (1000 + i64::from(200 - kept), missed, None));
    assert!(found[1..].iter().copied().eq((200 - kept..200).map(row)));
    assert_eq!(agent.value(pmid(STATISTICS[3])).unwrap(), Atom::U64(2));
    agent.as_client(2).end_client().unwrap();
    agent.as_client(1);
    assert_eq!(agent.value(pmid(STATISTICS[3])).unwrap(), Atom::U64(1));
    assert_eq!(agent.value(pmid(STATISTICS[2])).unwrap(), Atom::U64(0));
    // A filter gives access to this queue.
    let fetch = |agent: &mut Collector<_>| agent.fetch(&[pmid(FILTERED)]).unwrap().sets().next().unwrap().error;
    assert_eq!(fetch(agent.as_client(1)), Some(Error::PERMISSION));
    assert_eq!(refused(agent.as_client(2).store(pmid(FILTERED), None, Atom::from("all"))), Error::CONV);
    agent.store(pmid(FILTERED), None, Atom::from("777")).unwrap();
    assert_eq!(events(agent, FILTERED, None), []);
    add(agent, [776, 777, 778]);
    assert_eq!(events(agent.as_client(2), FILTERED, None), [row(777)]);
    agent.end_client().unwrap();
    // A queue that keeps events returns the latest ones to a new client, here with nanoseconds.
    let past = events(agent.as_client(2), HIGHRES, None);
    assert_eq!(past.last(), Some(&row(778)));
    assert_eq!(events(agent.as_client(2), HIGHRES, None), []);
    agent.end_client().unwrap();
    assert_eq!(fetch(agent.as_client(2)), Some(Error::PERMISSION));
    // Parameters are metrics without values, and metrics of other types hold no events.
    let fetched = agent.as_client(0).fetch(&[P_STRING, MISFIT].map(pmid)).unwrap();
    assert!(fetched.sets().map(|set| (set.error, set.len())).eq([(None, 0), (Some(Error::TYPE), 0)]));
    assert_eq!(agent.desc(pmid(P_STRING)).unwrap().ty, Type::String);
}

fn events_of_instances(agent: &mut Collector<impl Channel>) {
    agent.as_client(5);
    assert!(!events(agent, BY_INST, Some(1)).is_empty());
    add(agent, [9]);
    let both = agent.values(pmid(BY_INST)).unwrap();
    assert_eq!(both.len(), 2);
    add(agent, [10]);
    assert_eq!(events(agent, BY_INST, Some(1)), [row(10)]);
    agent.end_client().unwrap();
    agent.as_client(0);
}

fn clients_are_known_and_forgotten(agent: &mut Collector<impl Channel>) {
    let no_value = |agent: &mut Collector<_>, item| {
        agent.fetch(&[pmid(item)]).unwrap().sets().next().unwrap().error == Some(Error::VALUE)
    };
    assert!(no_value(agent.as_client(7), UID));
    tell(agent, Attribute::USERID, "1000");
    tell(agent, Attribute::GROUPID, "100");
    tell(agent, Attribute::PROCESSID, "4711");
    tell(agent, Attribute::CONTAINER, "web");
    assert_eq!([UID, GID, PID].map(|item| number(agent, item)), [1000, 100, 4711]);
    assert_eq!(agent.value(pmid(CONTAINER)).unwrap(), Atom::from("web"));
    tell(agent, Attribute::CONTAINER, "");
    assert_eq!(agent.value(pmid(CONTAINER)).unwrap(), Atom::from("none"));
    assert!(no_value(agent.as_client(8), UID));
    // Only root may store.
    let secret = Atom::U32(5);
    assert_eq!(refused(agent.as_client(7).store(pmid(SECRET), None, secret)), Error::PERMISSION);
    assert_eq!(refused(agent.as_client(8).store(pmid(SECRET), None, secret)), Error::PERMISSION);
    tell(agent.as_client(9), Attribute::USERID, "0");
    agent.store(pmid(SECRET), None, secret).unwrap();
    assert_eq!(agent.value(pmid(SECRET)).unwrap(), secret);
    for (client, visits) in [(7, 1), (7, 2), (8, 1), (7, 3)] {
        assert_eq!(agent.as_client(client).value(pmid(VISITS)).unwrap(), Atom::U32(visits));
    }
    for client in [7, 9] {
        agent.as_client(client).end_client().unwrap();
        // The next client with this number has no known user.
        assert!(no_value(agent, UID));
    }
    assert_eq!(agent.value(pmid(VISITORS)).unwrap(), Atom::U64(1));
    assert_eq!(refused(agent.store(pmid(SECRET), None, secret)), Error::PERMISSION);
    assert_eq!(agent.as_client(7).value(pmid(VISITS)).unwrap(), Atom::U32(1));
    agent.as_client(0);
}

fn panics_are_errors(agent: &mut Collector<impl Channel>) {
    let before = agent.fetch(&[UID, PANIC, AGGREGATE].map(pmid)).unwrap().sets().map(|set| set.len()).sum::<usize>();
    agent.store(pmid(PANIC), None, Atom::U32(1)).unwrap();
    // The panic happens in the middle of the result.
    let fetched = agent.fetch(&[UID, AGGREGATE, PANIC, AGGREGATE].map(pmid)).unwrap();
    let sets: Vec<_> = fetched.sets().map(|set| (set.error, set.len())).collect();
    assert_eq!(sets[1..], [(None, 1), (Some(Error::GENERIC), 0), (None, 1)]);
    assert_eq!(agent.value(pmid(PANIC)).unwrap(), Atom::U32(1));
    let after = agent.fetch(&[UID, PANIC, AGGREGATE].map(pmid)).unwrap().sets().map(|set| set.len()).sum::<usize>();
    assert_eq!(before, after);
}

fn errors_that_pmcd_takes_for_its_own(agent: &mut Collector<impl Channel>) {
    let mut store = |e: Error| refused(agent.store(pmid(ERROR), None, Atom::I32(e.code())));
    for e in [Error::IPC, Error::TIMEOUT, Error::from_errno(32), Error::PMDAREADY] {
        assert_eq!(store(e), Error::AGAIN);
    }
    for e in [Error::PERMISSION, Error::from_errno(2), Error::NOAGENT] {
        assert_eq!(store(e), e);
    }
}

fn an_instance_has_one_value(agent: &mut Collector<impl Channel>) {
    let fetched = agent.fetch(&[TWICE, TWICE_SINGULAR].map(pmid)).unwrap();
    for set in fetched.sets() {
        assert_eq!((set.len(), set.error), (0, Some(Error::INST)), "{:?}", set.pmid);
    }
}

fn done_comes_after_the_answer(agent: &mut Collector<impl Channel>) {
    agent.as_client(3).desc(pmid(UID)).unwrap();
    assert_eq!(refused(agent.text(Subject::Metric(pmid(UID)), TextKind::Help)), Error::TEXT);
    let labels = LabelTarget::Instances(Some(InDom::new(domain(), TWO)));
    assert_eq!(agent.labels(labels).unwrap().len(), 2);
    let done = agent.as_client(4).value(pmid(DONE)).unwrap();
    let Atom::String(text) = done else { panic!("{done:?}") };
    let text = String::from_utf8_lossy(text);
    // The last request was for the descriptor of this metric.
    assert_eq!(text, format!("Text/3 InstanceLabels({TWO:?})/3 Desc({DONE:?})/4"));
    agent.as_client(0);
}

fn types(agent: &mut Collector<impl Channel>) {
    let expected =
        [Atom::U32(255), Atom::I32(-128), Atom::U64(65535), Atom::I64(-32768), Atom::U32(1), Atom::U64(u64::MAX)];
    for (i, value) in (0..).zip(expected) {
        assert_eq!(agent.value(pmid(Item::new(4, i))).unwrap(), value);
    }
    assert_eq!(agent.desc(pmid(NO_SUPPORT)).unwrap().ty, Type::NoSupport);
    let fetched = agent.fetch(&[NO_SUPPORT, AGGREGATE_STATIC, AGGREGATE].map(pmid)).unwrap();
    let mut sets = fetched.sets();
    assert_eq!(sets.next().unwrap().error, Some(Error::APPVERSION));
    for (set, ty) in sets.zip([Type::AggregateStatic, Type::Aggregate]) {
        assert_eq!(set.values().next().unwrap().1.atom(ty), Ok(Atom::Aggregate(b"\x01\x02\x03")));
    }
}

#[test]
fn an_agent_that_is_not_ready_says_so_and_when_it_is() {
    let (thread, mut agent) = over_a_socket(Startup::Ready);
    assert!(agent.as_client(7).attribute(Attribute::USERID, "0").unwrap());
    assert_eq!(agent.value(pmid(UID)).unwrap(), Atom::U32(0));
    assert_eq!(agent.value(pmid(VISITS)).unwrap(), Atom::U32(1));
    agent.store(pmid(NOT_READY), None, Atom::U32(50)).unwrap();
    // pmcd ignores this error in answers about names.
    assert!(matches!(agent.children("stage"), Err(pcp_collector::Error::Agent(Error::AGAIN))));
    assert_eq!(agent.state(), AgentState::Ready);
    assert!(matches!(agent.value(pmid(UID)), Err(pcp_collector::Error::NotReady)));
    assert_eq!(agent.state(), AgentState::NotReady);
    assert!(agent.wait_ready(None).unwrap());
    // pmcd has not reported which clients have connected or disconnected, so no client is known.
    assert_eq!(agent.fetch(&[pmid(UID)]).unwrap().sets().next().unwrap().error, Some(Error::VALUE));
    assert_eq!(agent.value(pmid(VISITS)).unwrap(), Atom::U32(1));
    assert_eq!(agent.value(pmid(PANIC)).unwrap(), Atom::U32(0));
    drop(agent);
    thread.join().unwrap();
}

#[test]
fn an_agent_that_pmcd_waits_for_says_when_it_is_ready() {
    let (thread, mut agent) = over_a_socket(Startup::NotReady);
    agent.set_not_ready();
    assert!(agent.wait_ready(None).unwrap());
    assert_eq!(agent.value(pmid(PANIC)).unwrap(), Atom::U32(0));
    drop(agent);
    thread.join().unwrap();
}
