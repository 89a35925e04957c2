//! The collector with agents of the C library.

use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use pcp_pdu::event;
use pcp_pdu::handshake::Attribute;
use pcp_pdu::metadata::{Subject, TextKind};
use pcp_pdu::names::Node;
use pcp_pdu::profile::{Profile, ProfileState};
use pcp_pdu::{Pdu, PduType};
use pmapi::{Atom, Domain, InDom, Inst, Item, PmId, Semantics, Serial, Type};
use testkit::{CAgent, Pcp, free_port};

use crate::{Address, AgentState, Collector, End, Error, LabelTarget, Launch, Process};

fn pmid(cluster: u16, item: u16) -> PmId {
    PmId::new(Domain::new(253).unwrap(), Item::new(cluster, item))
}

fn indom(serial: u32) -> InDom {
    InDom::new(Domain::new(253).unwrap(), Serial::new(serial))
}

fn simple() -> CAgent {
    Pcp::required().c_agent("simple")
}

fn command(agent: &CAgent, arguments: &[&str]) -> Command {
    let mut command = Command::new(agent.binary());
    command.args(["-d", "253", "-l"]).arg(log("simple")).args(arguments).env("PCP_PMDAS_DIR", agent.pmdas_dir());
    command
}

/// Returns the path of a log under `target`. An agent that runs as root would replace `/dev/null` by a file.
fn log(agent: &str) -> PathBuf {
    simple().dir().join(format!("{agent}.log"))
}

/// Sends every request that the agent simple can answer.
fn ask_simple(agent: &mut Collector<Process>) {
    let desc = agent.desc(pmid(0, 1)).unwrap();
    assert_eq!((desc.ty, desc.semantics, desc.indom), (Type::I32, Semantics::Instant, Some(indom(0))));
    assert!(matches!(agent.desc(pmid(9, 9)), Err(Error::Agent(pmapi::Error::PMID))));

    let instances = agent.instances(indom(0)).unwrap();
    assert_eq!(instances, [(0, "red"), (1, "green"), (2, "blue")].map(|(i, n)| (Inst::new(i), n.to_owned())));
    assert_eq!(agent.instance_of(indom(0), "green").unwrap(), Inst::new(1));
    assert_eq!(agent.instance_name(indom(0), Inst::new(2)).unwrap(), "blue");
    assert!(matches!(agent.instance_of(indom(0), "grey"), Err(Error::Agent(pmapi::Error::INST))));
    assert!(matches!(agent.instances(indom(77)), Err(Error::Agent(pmapi::Error::INDOM))));

    let text = agent.text(Subject::Metric(pmid(0, 0)), TextKind::OneLine).unwrap();
    assert!(!text.is_empty() && !text.contains('\n'));
    assert!(agent.text(Subject::InDom(indom(0)), TextKind::Help).unwrap().len() > 20);
    assert!(matches!(agent.text(Subject::Metric(pmid(9, 9)), TextKind::Help), Err(Error::Agent(pmapi::Error::TEXT))));

    assert_eq!(agent.values(pmid(0, 1)).unwrap().len(), 3);
    let mut profile = Profile::default();
    profile.set(indom(0), ProfileState::Exclude, &[Inst::new(1)]);
    agent.set_profile(profile);
    let ids: Vec<_> = agent.values(pmid(0, 1)).unwrap().iter().map(|(inst, _)| inst).collect();
    assert_eq!(ids, [Some(Inst::new(1))]);
    agent.set_profile(Profile::default());

    agent.store(pmid(0, 0), None, Atom::U32(41)).unwrap();
    assert_eq!(agent.value(pmid(0, 0)).unwrap(), Atom::U32(42));
    assert!(matches!(agent.store(pmid(1, 2), None, Atom::Double(0.0)), Err(Error::Agent(pmapi::Error::PERMISSION))));
    assert!(matches!(agent.store(pmid(9, 9), None, Atom::U32(0)), Err(Error::Agent(pmapi::Error::PMID))));

    assert!(matches!(agent.value(pmid(1, 2)).unwrap(), Atom::Double(_)));
    assert!(matches!(agent.values(pmid(9, 9)).err(), Some(Error::Agent(pmapi::Error::PMID))));

    let (_, labels) = agent.labels(LabelTarget::Domain(Domain::new(253).unwrap())).unwrap().remove(0);
    assert_eq!(labels.unwrap().value("role"), Some("\"testing\""));
    let (_, labels) = agent.labels(LabelTarget::InDom(indom(0))).unwrap().remove(0);
    assert_eq!(labels.unwrap().value("model"), Some("\"RGB\""));
    let colors = agent.labels(LabelTarget::Instances(Some(indom(0)))).unwrap();
    assert_eq!(colors.iter().map(|(inst, _)| *inst).collect::<Vec<_>>(), [0, 1, 2].map(|i| Some(Inst::new(i))));

    assert!(!agent.attribute(Attribute::USERID, "0").unwrap());
    assert!(agent.end_client().unwrap());
    assert_eq!(agent.state(), AgentState::Ready);
}

#[test]
#[ignore = "needs PCP"]
fn simple_over_a_pipe() {
    let mut agent = Launch::pipe(command(&simple(), &[])).start().unwrap();
    ask_simple(&mut agent);
    assert!(matches!(agent.close_within(Duration::from_secs(60)), End::Exited(status) if status.success()));
}

#[test]
#[ignore = "needs PCP"]
fn simple_over_sockets() {
    let simple = simple();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("simple.socket");
    let (inet, ipv6) = (free_port("127.0.0.1"), free_port("::1"));
    for address in [Address::Inet(inet), Address::Ipv6(ipv6), Address::Unix(path)] {
        let mut simple = command(&simple, &[]);
        simple.args(address.option());
        let mut agent = Launch::socket(address.clone()).command(simple).start().unwrap();
        ask_simple(&mut agent);
        assert!(matches!(agent.close_within(Duration::from_secs(60)), End::Exited(_)), "{address}");
    }
}

#[test]
#[ignore = "needs PCP"]
fn an_agent_that_runs_already() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("simple.socket");
    let mut child = command(&simple(), &["-u", path.to_str().unwrap()]).spawn().unwrap();
    let mut agent = loop {
        match Launch::socket(Address::Unix(path.clone())).start() {
            Err(Error::Connect { .. }) => thread::sleep(Duration::from_millis(10)),
            other => break other.unwrap(),
        }
    };
    ask_simple(&mut agent);
    assert_eq!(agent.pid(), None);
    assert_eq!(agent.close(), End::NotStarted);
    assert!(child.wait().unwrap().success());
}

/// Starts PCP's sample agent, which has dynamic names, events and a value of every type.
fn sample() -> Collector<Process> {
    let binary: PathBuf = Pcp::required().path("PCP_PMDASADM_DIR").join("sample/pmdasample");
    let mut command = Command::new(binary);
    command.args(["-d", "29", "-l"]).arg(log("sample"));
    Launch::pipe(command).start().unwrap()
}

fn sample_pmid(item: u16) -> PmId {
    PmId::new(Domain::new(29).unwrap(), Item::new(0, item))
}

#[test]
#[ignore = "needs PCP"]
fn dynamic_names_of_sample() {
    let mut agent = sample();
    let children = agent.children_status("sample.secret").unwrap();
    assert!(children.contains(&("bar".to_owned(), Node::Leaf)), "{children:?}");
    assert!(children.contains(&("foo".to_owned(), Node::NonLeaf)), "{children:?}");
    let names: Vec<_> = children.into_iter().map(|(name, _)| name).collect();
    assert_eq!(agent.children("sample.secret").unwrap(), names);

    let leaves = agent.traverse("sample.secret").unwrap();
    assert!(leaves.len() > names.len());
    for name in leaves {
        let pmid = agent.pmid(&name).unwrap();
        assert!(agent.names(pmid).unwrap().contains(&name), "{name}");
    }
    assert!(matches!(agent.pmid("sample.secret.nothing"), Err(Error::Agent(pmapi::Error::NAME))));
    assert!(matches!(agent.names(sample_pmid(1023)), Err(Error::Agent(pmapi::Error::PMID))));
    assert!(agent.traverse("sample.no").unwrap().is_empty());
}

#[test]
#[ignore = "needs PCP"]
fn values_of_sample() {
    let mut agent = sample();
    // These are sample.string.hullo, .ulonglong.million, .float.one, .aggregate.hullo and .event.records.
    assert_eq!(agent.value(sample_pmid(31)).unwrap(), Atom::String(b"hullo world!"));
    assert_eq!(agent.value(sample_pmid(101)).unwrap(), Atom::U64(1_000_000));
    assert_eq!(agent.value(sample_pmid(15)).unwrap(), Atom::Float(1.0));
    assert_eq!(agent.value(sample_pmid(34)).unwrap(), Atom::Aggregate(b"hullo world!"));
    let mut records = 0;
    for _ in 0..4 {
        for (_, value) in agent.values(sample_pmid(136)).unwrap().iter() {
            let Atom::Event(payload) = value else { panic!("{value:?}") };
            records += event::records(payload, event::Layout::Micro).unwrap().count();
        }
    }
    assert!(records > 0);
}

#[test]
#[ignore = "needs PCP"]
fn raw_pdus() {
    let mut agent = Launch::pipe(command(&simple(), &[])).start().unwrap();
    agent.send_bytes(&[0, 0, 0, 16, 0, 0, 0x70, 4, 0, 0, 0, 0, 0x3f, 0x40, 0, 0]).unwrap();
    let (header, pdu) = agent.receive_raw().unwrap();
    assert_eq!(header.pdu, PduType::DESC);
    assert!(matches!(pdu, Pdu::Desc(d) if d.desc.pmid == pmid(0, 0)));
}

#[test]
#[ignore = "needs PCP"]
fn sample_not_ready() {
    // A store to sample.not_ready makes the agent not ready for that number of seconds.
    let mut agent = sample();
    agent.store(sample_pmid(56), None, Atom::I32(1)).unwrap();
    let error = agent.desc(sample_pmid(0)).unwrap_err();
    assert!(matches!(error, Error::NotReady), "{error}");
    assert_eq!(agent.state(), AgentState::NotReady);
    assert!(agent.wait_ready(Some(Duration::from_secs(30))).unwrap());
    agent.desc(sample_pmid(0)).unwrap();
}
