//! One suite of requests for each host of an agent: in this process, a session over a socket, a process over a pipe,
//! and a shared object.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;

use crate::zoo::{self, CACHED, FAILING, FIXED, GUEST, GUESTS, LEVEL, MANY, MISFIT, PARTLY, STORED, TYPES, Zoo};
use pcp_collector::{Channel, Collector, LabelTarget, Launch, Local, SharedObject, Stream};
use pcp_pdu::handshake::{Attribute, Features};
use pcp_pdu::metadata::{Subject, TextKind};
use pcp_pdu::names::Node;
use pcp_pdu::profile::{Profile, ProfileState};
use pcp_pdu::result::Changes;
use pmapi::{Atom, Config, Domain, Error, InDom, Inst, Item, PmId, Semantics, Serial, Type, Units};
use pmda::Agent;
use pmda::host::{Engine, Session};

fn domain() -> Domain {
    Domain::new(zoo::DOMAIN).unwrap()
}

fn pmid(item: Item) -> PmId {
    PmId::new(domain(), item)
}

fn indom(serial: Serial) -> InDom {
    InDom::new(domain(), serial)
}

fn refused<T: std::fmt::Debug>(result: pcp_collector::Result<T>) -> Error {
    match result {
        Err(pcp_collector::Error::Agent(e)) => e,
        other => panic!("not refused: {other:?}"),
    }
}

fn inst(id: u32) -> Option<Inst> {
    Some(Inst::new(id))
}

#[test]
fn in_the_same_process() {
    conformance(&mut Collector::new(Local::<Zoo>::new().unwrap()));
}

#[test]
fn over_a_socket() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let agent = std::thread::spawn(move || {
        let mut session = Session::open(ours.try_clone().unwrap(), ours, Zoo::WANTS).unwrap();
        let mut engine = Engine::<Zoo>::builder().domain(domain()).config(Config::new(b"", [])).build().unwrap();
        session.run(&mut engine).unwrap();
        engine.agent_mut().told.clone()
    });
    let input = OwnedFd::from(theirs.try_clone().unwrap());
    let mut collector = Collector::connect(Stream::new(input, theirs.into()).unwrap()).unwrap();
    assert_eq!(collector.features(), Features::AUTHORIZE);
    conformance(&mut collector);
    assert!(collector.as_client(3).attribute(Attribute::USERID, "1000").unwrap());
    assert!(collector.end_client().unwrap());
    drop(collector);
    // The end of file ends the session after everything has arrived in order.
    let told = agent.join().unwrap();
    assert_eq!(told[told.len() - 2..], ["3: UserId(1000), uid Some(1000)", "close 3"]);
}

/// Returns the path of an example that Cargo has built.
fn example(name: &str) -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    let path = exe.ancestors().nth(2).unwrap().join("examples").join(name);
    assert!(path.exists(), "{}: cargo build --examples makes it", path.display());
    path
}

#[test]
fn as_a_process() {
    let var = tempfile::tempdir().unwrap();
    let mut command = Command::new(example("zoo"));
    command.arg("-l").arg(var.path().join("zoo.log")).env("PCP_VAR_DIR", var.path());
    let mut agent = Launch::pipe(command).start().unwrap();
    assert_eq!(agent.features(), Features::AUTHORIZE);
    conformance(&mut agent);
}

#[test]
fn as_a_shared_object() {
    // SAFETY: it is an agent of this workspace.
    let mut agent = unsafe { SharedObject::collector(&example("libpmda_zoo.so"), "zoo_init", domain()) }.unwrap();
    assert_eq!((agent.channel().interface(), agent.features()), (7, Features::AUTHORIZE));
    conformance(&mut agent);
    assert!(agent.as_client(3).attribute(Attribute::USERID, "1000").unwrap());
    assert!(agent.end_client().unwrap());
}

fn conformance(agent: &mut Collector<impl Channel>) {
    values_of_every_type(agent);
    errors_stay_with_their_metric(agent);
    profiles(agent);
    instances(agent);
    descriptors_and_texts(agent);
    labels(agent);
    stores(agent);
    a_failing_refresh_fails_the_request(agent);
    dynamic_names(agent);
    dynamic_metrics_are_as_others(agent);
}

fn dynamic_names(agent: &mut Collector<impl Channel>) {
    // pmcd answers for the names of declared metrics itself.
    assert_eq!(refused(agent.pmid("zoo.stored")), Error::NAME);
    assert_eq!(refused(agent.names(pmid(STORED))), Error::PMID);
    assert_eq!(agent.pmid("zoo.dyn.guest").unwrap(), pmid(GUEST));
    assert_eq!(agent.pmid("zoo.more.guests").unwrap(), pmid(GUESTS));
    for name in [".", "zoo", "zoo.dyn", "zoo.dyn.", "zoo.dyn.house", "zoo.dyn.guest.x", "zoo.dyn.gues", "dyn.guest"] {
        assert_eq!(refused(agent.pmid(name)), Error::NAME, "{name:?}");
    }
    // The newest name is the first, as with pmdaTreeName and pmdaTreeChildren.
    assert_eq!(agent.names(pmid(GUESTS)).unwrap(), ["zoo.more.guests", "zoo.dyn.house.guests"]);
    let foreign = PmId::new(Domain::new(9).unwrap(), GUEST);
    assert_eq!(refused(agent.names(foreign)), Error::PMID);
    agent.store(pmid(zoo::HERD), None, Atom::U32(11)).unwrap();
    assert_eq!(agent.children("zoo").unwrap(), ["more", "dyn"]);
    let nodes = agent.children_status("zoo.dyn").unwrap();
    let nodes: Vec<_> = nodes.iter().map(|(name, node)| (name.as_str(), *node)).collect();
    assert_eq!(nodes, [("herd", Node::NonLeaf), ("house", Node::NonLeaf), ("guest", Node::Leaf)]);
    assert_eq!(agent.children("zoo.dyn.guest").unwrap(), [""; 0]);
    assert_eq!(agent.traverse("zoo.dyn.guest").unwrap(), ["zoo.dyn.guest"]);
    assert_eq!(agent.traverse("zoo.dyn.herd.a0").unwrap(), ["zoo.dyn.herd.a0.n10", "zoo.dyn.herd.a0.n0"]);
    assert_eq!(agent.traverse("zoo").unwrap().len(), 14);
    for name in ["", "zo", "zoo.stored", "zoo.dyn.herd."] {
        assert_eq!(refused(agent.children(name)), Error::NAME, "{name:?}");
        assert_eq!(refused(agent.traverse(name)), Error::NAME, "{name:?}");
    }
    // Clients are notified once, with the next values.
    let mut changes = || agent.fetch(&[pmid(LEVEL)]).unwrap().changes();
    assert_eq!([changes(), changes()], [Changes::NAMES, Changes::default()]);
    agent.store(pmid(zoo::HERD), None, Atom::U32(0)).unwrap();
    agent.store(pmid(zoo::GUEST_LABELS), None, Atom::from(r#"{"new":1}"#)).unwrap();
    assert_eq!(agent.fetch(&[pmid(LEVEL)]).unwrap().changes(), Changes::NAMES | Changes::LABELS);
    assert_eq!(refused(agent.traverse("zoo.dyn.herd")), Error::NAME);
    assert_eq!(agent.traverse("zoo.dyn").unwrap(), ["zoo.dyn.house.guests", "zoo.dyn.guest"]);
}

fn dynamic_metrics_are_as_others(agent: &mut Collector<impl Channel>) {
    assert_eq!(agent.value(pmid(GUEST)).unwrap(), Atom::U32(5));
    assert_eq!(agent.values(pmid(GUESTS)).unwrap().len(), 2);
    let desc = agent.desc(pmid(GUEST)).unwrap();
    assert_eq!((desc.semantics, desc.units), (Semantics::Counter, Units::BYTES));
    assert_eq!(agent.text(Subject::Metric(pmid(GUEST)), TextKind::OneLine).unwrap(), "A guest");
    assert_eq!(agent.text(Subject::InDom(indom(zoo::VISITORS)), TextKind::Help).unwrap(), "Who came.");
    assert_eq!(refused(agent.text(Subject::Metric(pmid(GUESTS)), TextKind::Help)), Error::TEXT);
    agent.store(pmid(GUEST), None, Atom::U32(1)).unwrap();
    assert_eq!(refused(agent.store(pmid(GUESTS), inst(1), Atom::U64(1))), Error::PERMISSION);
    assert_eq!(agent.instance_of(indom(zoo::VISITORS), "first").unwrap(), Inst::new(1));
    assert_eq!(agent.instances(indom(zoo::STRANGERS)).unwrap(), [(Inst::new(0), "nobody".into())]);
    assert_eq!(agent.labels(LabelTarget::Instances(Some(indom(zoo::STRANGERS)))).unwrap().len(), 1);
    agent.store(pmid(zoo::HERD), None, Atom::U32(1)).unwrap();
    let herd = agent.pmid("zoo.dyn.herd.a0.n0").unwrap();
    assert_eq!(agent.value(herd).unwrap(), Atom::U32(0));
    agent.store(pmid(zoo::HERD), None, Atom::U32(0)).unwrap();
    assert_eq!(refused(agent.desc(herd)), Error::PMID);
    assert_eq!(agent.fetch(&[herd]).unwrap().sets().next().unwrap().error, Some(Error::PMID));
}

fn values_of_every_type(agent: &mut Collector<impl Channel>) {
    for (i, ty) in (0..).zip(TYPES) {
        assert_eq!(agent.value(pmid(Item::new(0, i))).unwrap(), zoo::value(ty, 7));
        let values = agent.values(pmid(Item::new(1, i))).unwrap();
        let expected = (0..10).filter(|n| *n != 4).map(|n| (inst(n), zoo::value(ty, n.into())));
        assert!(values.iter().eq(expected), "{ty:?}");
    }
    // One request for all makes the blocks of several metrics follow each other.
    let all: Vec<PmId> = (0..8).flat_map(|i| [pmid(Item::new(0, i)), pmid(Item::new(1, i))]).collect();
    let fetched = agent.fetch(&all).unwrap();
    for (set, wanted) in fetched.sets().zip(&all) {
        assert_eq!(set.pmid, Some(*wanted));
        let ty = TYPES[usize::from(wanted.item().item())];
        for (inst, raw) in set.values() {
            let n = if wanted.item().cluster() == 0 { 7 } else { inst.unwrap().word().into() };
            assert_eq!(raw.atom(ty), Ok(zoo::value(ty, n)));
        }
    }
}

fn errors_stay_with_their_metric(agent: &mut Collector<impl Channel>) {
    let items = [LEVEL, FAILING, Item::new(9, 9), MISFIT, PARTLY, LEVEL];
    let fetched = agent.fetch(&items.map(pmid)).unwrap();
    let found: Vec<(Option<Error>, usize)> = fetched.sets().map(|set| (set.error, set.len())).collect();
    let failed = |e| (Some(e), 0);
    assert_eq!(
        found,
        [(None, 2), failed(Error::AGAIN), failed(Error::PMID), failed(Error::TYPE), (None, 1), (None, 2)]
    );
    let last: Vec<_> = fetched.sets().last().unwrap().values().map(|(_, raw)| raw.atom(Type::I64)).collect();
    assert_eq!(last, [Ok(Atom::I64(10)), Ok(Atom::I64(20))]);
    // A metric with instances gets a value without one, and a singular metric a value with one.
    let fetched = agent.fetch(&[zoo::ONE_FOR_ALL, zoo::INST_OF_NONE].map(pmid)).unwrap();
    assert!(fetched.sets().all(|set| set.error == Some(Error::INST)));
    // The agent does not know metrics of another agent.
    let foreign = PmId::new(Domain::new(1).unwrap(), LEVEL);
    assert_eq!(agent.fetch(&[foreign]).unwrap().sets().next().unwrap().error, Some(Error::PMID));
}

fn profiles(agent: &mut Collector<impl Channel>) {
    let mut profile = Profile::default();
    profile.set(indom(CACHED), ProfileState::Exclude, &[8, 2, 4, 99].map(Inst::new));
    profile.set(indom(FIXED), ProfileState::Include, &[Inst::new(5)]);
    agent.set_profile(profile);
    let insts = |agent: &mut Collector<_>, item| -> Vec<u32> {
        let values = agent.values(pmid(item)).unwrap();
        values.iter().map(|(inst, _)| inst.unwrap().word()).collect()
    };
    // Instance 4 is hidden, and 99 does not exist.
    assert_eq!(insts(agent, Item::new(1, 3)), [2, 8]);
    assert_eq!(insts(agent, MANY), [2, 8]);
    assert_eq!(insts(agent, LEVEL), [3]);
    // The only selected instance has no value, so its error is returned.
    let fetched = agent.fetch(&[pmid(PARTLY)]).unwrap();
    assert_eq!(fetched.sets().next().unwrap().error, Some(Error::VALUE));
    agent.set_profile(Profile::new(ProfileState::Exclude));
    // An instance outside of the profile does not fail either.
    let fetched = agent.fetch(&[LEVEL, STORED, PARTLY].map(pmid)).unwrap();
    assert!(fetched.sets().map(|set| (set.error, set.len())).eq([(None, 0), (None, 1), (None, 0)]));
    agent.set_profile(Profile::default());
    assert_eq!(insts(agent, MANY).len(), 9);
}

fn instances(agent: &mut Collector<impl Channel>) {
    let all = agent.instances(indom(FIXED)).unwrap();
    assert_eq!(all, [(Inst::new(3), "one instance".into()), (Inst::new(5), "another".into())]);
    assert_eq!(agent.instances(indom(CACHED)).unwrap().len(), 9);
    for (serial, name, id) in
        [(FIXED, "one", 3), (FIXED, "one instance", 3), (CACHED, "i9", 9), (CACHED, "i9 of nine", 9)]
    {
        assert_eq!(agent.instance_of(indom(serial), name).unwrap(), Inst::new(id));
    }
    for (serial, name) in [(FIXED, "one i"), (FIXED, "instance"), (CACHED, "i4"), (CACHED, "i4 of ten"), (CACHED, " ")]
    {
        assert_eq!(refused(agent.instance_of(indom(serial), name)), Error::INST, "{name:?}");
    }
    assert_eq!(agent.instance_name(indom(CACHED), Inst::new(0)).unwrap(), "i0 of ten");
    assert_eq!(refused(agent.instance_name(indom(CACHED), Inst::new(4))), Error::INST);
    assert_eq!(refused(agent.instances(indom(Serial::new(1)))), Error::INDOM);
    assert_eq!(refused(agent.instances(InDom::new(Domain::new(9).unwrap(), FIXED))), Error::INDOM);
}

fn descriptors_and_texts(agent: &mut Collector<impl Channel>) {
    let desc = agent.desc(pmid(FAILING)).unwrap();
    assert_eq!(
        (desc.ty, desc.indom, desc.semantics, desc.units),
        (Type::U64, Some(indom(FIXED)), Semantics::Counter, Units::BYTES)
    );
    let desc = agent.desc(pmid(STORED)).unwrap();
    assert_eq!(
        (desc.ty, desc.indom, desc.semantics, desc.units),
        (Type::String, None, Semantics::Discrete, Units::NONE)
    );
    assert_eq!(refused(agent.desc(pmid(Item::new(0, 99)))), Error::PMID);
    let metric = Subject::Metric(pmid(Item::new(0, 3)));
    assert_eq!(agent.text(metric, TextKind::OneLine).unwrap(), "Type 3");
    assert_eq!(agent.text(Subject::InDom(indom(FIXED)), TextKind::Help).unwrap(), "Two instances.");
    assert_eq!(refused(agent.text(Subject::Metric(pmid(STORED)), TextKind::OneLine)), Error::TEXT);
}

fn labels(agent: &mut Collector<impl Channel>) {
    let mut json = |target| -> Vec<(Option<Inst>, Result<String, Error>)> {
        let sets = agent.labels(target).unwrap();
        sets.into_iter().map(|(inst, set)| (inst, set.map(|set| set.json().to_owned()))).collect()
    };
    let one = |text: &str| vec![(None, Ok(text.to_owned()))];
    assert_eq!(json(LabelTarget::Domain(domain())), one(r#"{"kind":"test","size.x":1}"#));
    assert_eq!(json(LabelTarget::Cluster(pmid(STORED))), one(r#"{"writable":true}"#));
    assert_eq!(json(LabelTarget::Item(pmid(LEVEL))), one(r#"{"unit":"m"}"#));
    assert_eq!(json(LabelTarget::InDom(indom(CACHED))), one(r#"{"cached":true}"#));
    assert_eq!(json(LabelTarget::Item(pmid(STORED))), []);
    assert_eq!(json(LabelTarget::Item(pmid(GUEST))), one(r#"{"by":"chance","guest.since":1}"#));
    assert_eq!(json(LabelTarget::InDom(indom(zoo::VISITORS))), one(r#"{"came":true}"#));
    let sets = json(LabelTarget::Instances(Some(indom(FIXED))));
    assert_eq!(sets, [(inst(3), Ok(r#"{"n":3}"#.to_owned())), (inst(5), Err(Error::AGAIN))]);
    assert_eq!(json(LabelTarget::Instances(Some(indom(CACHED)))).len(), 9);
    let mut profile = Profile::default();
    profile.set(indom(CACHED), ProfileState::Exclude, &[Inst::new(2), Inst::new(4)]);
    agent.set_profile(profile);
    // The profile is sent with the next fetch.
    agent.fetch(&[pmid(LEVEL)]).unwrap();
    let sets = agent.labels(LabelTarget::Instances(Some(indom(CACHED)))).unwrap();
    assert!(sets.iter().map(|(inst, _)| *inst).eq([inst(2)]));
    agent.set_profile(Profile::default());
    agent.fetch(&[pmid(LEVEL)]).unwrap();
}

fn a_failing_refresh_fails_the_request(agent: &mut Collector<impl Channel>) {
    agent.store(pmid(STORED), None, Atom::from(zoo::OUT_OF_ORDER)).unwrap();
    assert_eq!(refused(agent.fetch(&[pmid(LEVEL)])), Error::AGAIN);
    assert_eq!(refused(agent.desc(pmid(LEVEL))), Error::AGAIN);
    assert_eq!(refused(agent.instances(indom(FIXED))), Error::AGAIN);
    assert_eq!(refused(agent.text(Subject::Metric(pmid(LEVEL)), TextKind::Help)), Error::AGAIN);
    assert_eq!(refused(agent.labels(LabelTarget::Domain(domain()))), Error::AGAIN);
    assert_eq!(refused(agent.labels(LabelTarget::Instances(Some(indom(FIXED))))), Error::AGAIN);
    agent.store(pmid(STORED), None, Atom::from("mended")).unwrap();
    assert_eq!(agent.value(pmid(STORED)).unwrap(), Atom::from("mended"));
}

fn stores(agent: &mut Collector<impl Channel>) {
    agent.store(pmid(STORED), None, Atom::from("something else")).unwrap();
    assert_eq!(agent.value(pmid(STORED)).unwrap(), Atom::from("something else"));
    agent.store_values(&[(pmid(LEVEL), inst(3), Atom::I64(-1)), (pmid(LEVEL), inst(5), Atom::I64(i64::MAX))]).unwrap();
    assert!(agent.values(pmid(LEVEL)).unwrap().iter().map(|v| v.1).eq([Atom::I64(-1), Atom::I64(i64::MAX)]));
    assert_eq!(refused(agent.store(pmid(LEVEL), inst(4), Atom::I64(1))), Error::INST);
    assert_eq!(refused(agent.store(pmid(LEVEL), None, Atom::I64(1))), Error::INST);
    assert_eq!(refused(agent.store(pmid(STORED), inst(0), Atom::from("x"))), Error::INST);
    assert_eq!(refused(agent.store(pmid(LEVEL), inst(3), Atom::I32(1))), Error::CONV);
    assert_eq!(refused(agent.store(pmid(STORED), None, Atom::U32(1))), Error::CONV);
    assert_eq!(refused(agent.store(pmid(PARTLY), inst(3), Atom::U32(1))), Error::PERMISSION);
    assert_eq!(refused(agent.store(pmid(Item::new(9, 9)), None, Atom::U32(1))), Error::PMID);
    // A refused value ends the request; the values before it stay stored.
    let values = [
        (pmid(LEVEL), inst(3), Atom::I64(5)),
        (pmid(LEVEL), inst(9), Atom::I64(6)),
        (pmid(LEVEL), inst(5), Atom::I64(7)),
    ];
    assert_eq!(refused(agent.store_values(&values)), Error::INST);
    assert!(agent.values(pmid(LEVEL)).unwrap().iter().map(|v| v.1).eq([Atom::I64(5), Atom::I64(i64::MAX)]));
    let values = [(pmid(LEVEL), inst(9), Atom::I64(6)), (pmid(STORED), None, Atom::from("too late"))];
    assert_eq!(refused(agent.store_values(&values)), Error::INST);
    assert_eq!(agent.value(pmid(STORED)).unwrap(), Atom::from("something else"));
}
