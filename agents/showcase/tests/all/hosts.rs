//! The agent's features in this process, in a daemon, and in a shared object.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::HashMap;
use std::process::Command;
use std::time::Duration;

use dbpmda::check::{Limits, check};
use pcp_collector::{Channel, Collector, LabelTarget, Launch, Local, SharedObject};
use pcp_pdu::event;
use pcp_pdu::handshake::Attribute;
use pcp_pdu::metadata::{Subject, TextKind};
use pcp_pdu::result::Changes;
use pmapi::{Atom, Domain, Error, InDom, Inst, PmId, Serial, Type};
use pmda::Agent as _;
use pmda::host::Schema;
use pmda_showcase::Showcase;
use testkit::built;

/// Agent whose metrics are requested by name.
struct Asker<C> {
    agent: Collector<C>,
    names: HashMap<String, PmId>,
}

impl<C: Channel> Asker<C> {
    fn new(agent: Collector<C>) -> Self {
        let schema = Schema::of::<Showcase>().unwrap();
        let pmid = |metric: &pmda::MetricDef| metric.desc(schema.domain()).pmid;
        let names = schema.metrics().iter().map(|metric| (metric.name().to_owned(), pmid(metric)));
        Asker { agent, names: names.collect() }
    }

    fn pmid(&self, name: &str) -> PmId {
        *self.names.get(&format!("showcase.{name}")).unwrap_or_else(|| panic!("there is no showcase.{name}"))
    }

    fn value(&mut self, name: &str) -> Atom<'_> {
        let pmid = self.pmid(name);
        self.agent.value(pmid).unwrap()
    }

    fn values(&mut self, name: &str) -> Vec<(u32, String)> {
        let pmid = self.pmid(name);
        let values = self.agent.values(pmid).unwrap();
        values.iter().map(|(inst, value)| (inst.unwrap().word(), format!("{value:?}"))).collect()
    }

    fn error(&mut self, name: &str) -> Option<Error> {
        let pmid = self.pmid(name);
        self.agent.fetch(&[pmid]).unwrap().sets().next().unwrap().error
    }

    fn changes(&mut self) -> Changes {
        let pmid = self.pmid("constant.u32.zero");
        self.agent.fetch(&[pmid]).unwrap().changes()
    }

    fn store(&mut self, name: &str, value: Atom<'_>) -> Result<(), Error> {
        self.store_inst(name, None, value)
    }

    fn store_inst(&mut self, name: &str, inst: Option<u32>, value: Atom<'_>) -> Result<(), Error> {
        let pmid = self.pmid(name);
        match self.agent.store(pmid, inst.map(Inst::new), value) {
            Ok(()) => Ok(()),
            Err(pcp_collector::Error::Agent(e)) => Err(e),
            Err(e) => panic!("{e}"),
        }
    }

    fn instances(&mut self, serial: u32) -> Vec<(u32, String)> {
        let indom = indom(serial);
        let instances = self.agent.instances(indom).unwrap();
        instances.into_iter().map(|(inst, name)| (inst.word(), name)).collect()
    }
}

fn domain() -> Domain {
    Domain::new(Showcase::DOMAIN).unwrap()
}

fn indom(serial: u32) -> InDom {
    InDom::new(domain(), Serial::new(serial))
}

#[test]
fn in_the_same_process() {
    features(Local::<Showcase>::collector().unwrap());
}

#[test]
fn as_a_process() {
    let var = tempfile::tempdir().unwrap();
    let user = nix::unistd::User::from_uid(nix::unistd::geteuid()).unwrap().unwrap().name;
    let mut command = Command::new(env!("CARGO_BIN_EXE_pmdashowcase"));
    command.args(["-U", &user, "-l"]).arg(var.path().join("showcase.log")).env("PCP_VAR_DIR", var.path());
    let mut agent = Launch::pipe(command).start().unwrap();
    not_ready(&mut agent);
    features(agent);
}

#[test]
fn as_a_shared_object() {
    // SAFETY: it is an agent of this workspace.
    features(unsafe { SharedObject::collector(&built("pmda_showcase"), "showcase_init", domain()) }.unwrap());
}

#[test]
fn no_rule_is_broken() {
    let agent = Local::<Showcase>::collector().unwrap();
    let schema = agent.channel().engine().schema();
    let names = schema.metrics().iter().map(|metric| (metric.name().to_owned(), metric.desc(schema.domain()).pmid));
    let names: Vec<(String, PmId)> = names.collect();
    // The time of replies depends on the machine.
    let limits = Limits { answer: Duration::MAX, timeout: Duration::MAX, stores: true };
    let findings = check(agent, &names, limits);
    assert!(findings.findings.is_empty(), "{findings:?}");
}

fn features(agent: Collector<impl Channel>) {
    let mut agent = Asker::new(agent);
    everything_has_help(&mut agent);
    constants(&mut agent);
    counters(&mut agent);
    bins(&mut agent);
    mirage(&mut agent);
    many(&mut agent);
    stores(&mut agent);
    events(&mut agent);
    names(&mut agent);
    failures(&mut agent);
    source(&mut agent);
    clients(&mut agent);
    labels(&mut agent);
}

fn everything_has_help(agent: &mut Asker<impl Channel>) {
    let metrics: Vec<PmId> = agent.names.values().copied().collect();
    let subjects = metrics.into_iter().map(Subject::Metric).chain((2..5).map(|serial| Subject::InDom(indom(serial))));
    for subject in subjects {
        let text = agent.agent.text(subject, TextKind::OneLine).unwrap();
        assert!(!text.is_empty() && !text.ends_with('.'), "{subject:?}: {text}");
        agent.agent.text(subject, TextKind::Help).unwrap();
    }
}

fn constants(agent: &mut Asker<impl Channel>) {
    assert_eq!(agent.value("constant.i32.million"), Atom::I32(1_000_000));
    assert_eq!(agent.value("constant.u32.zero"), Atom::U32(0));
    assert_eq!(agent.value("constant.i64.ten"), Atom::I64(10));
    assert_eq!(agent.value("constant.u64.hundred"), Atom::U64(100));
    assert_eq!(agent.value("constant.float.one"), Atom::Float(1.0));
    assert_eq!(agent.value("constant.double.million"), Atom::Double(1e6));
    assert_eq!(agent.value("constant.string.empty"), Atom::from(""));
    assert_eq!(agent.value("constant.string.hello"), Atom::from("hello, world"));
    for name in ["constant.aggregate", "constant.aggregate_static"] {
        assert_eq!(agent.value(name), Atom::Aggregate(&[1, 2, 3]));
    }
    assert_eq!(agent.error("constant.no_support"), Some(Error::APPVERSION));
}

fn counters(agent: &mut Asker<impl Channel>) {
    agent.store("counter.fetches", Atom::U32(100)).unwrap();
    assert_eq!(agent.value("counter.fetches"), Atom::U32(101));
    assert_eq!(agent.value("counter.i32"), Atom::I32(204));
    assert_eq!(agent.value("counter.i64"), Atom::I64(103 << 10));
    assert_eq!(agent.value("counter.u64"), Atom::U64(104 << 30));
    assert_eq!(agent.value("counter.float"), Atom::Float(1050.0));
    assert_eq!(agent.value("counter.wrap"), Atom::U32((106 % 16) << 28));
    assert!(matches!(agent.value("counter.double"), Atom::Double(seconds) if seconds > 0.0));
    assert_eq!(agent.store("counter.wrap", Atom::U32(0)), Err(Error::PERMISSION));
}

fn bins(agent: &mut Asker<impl Channel>) {
    assert_eq!(agent.instances(2)[8], (900, "bin-900".into()));
    assert_eq!(agent.values("bin.size")[2], (300, "U32(300)".into()));
    agent.store_inst("bin.level", Some(300), Atom::Double(0.25)).unwrap();
    assert_eq!(agent.values("bin.level")[1..3], [(200, "Double(0.0)".into()), (300, "Double(0.25)".into())]);
    assert_eq!(agent.store_inst("bin.level", Some(300), Atom::Double(1.25)), Err(Error::BADSTORE));
    assert_eq!(agent.store_inst("bin.level", Some(301), Atom::Double(0.25)), Err(Error::INST));
    assert!(agent.values("bin.odd").iter().map(|(inst, _)| *inst).eq([100, 300, 500, 700, 900]));
    let sets = agent.agent.labels(LabelTarget::Instances(Some(indom(2)))).unwrap();
    assert_eq!(sets[0].1.as_ref().unwrap().json(), r#"{"bin":100}"#);
}

fn mirage(agent: &mut Asker<impl Channel>) {
    let mut seen = Vec::new();
    for _ in 0..11 {
        let values = agent.values("mirage.height");
        assert_eq!(agent.instances(3).len(), values.len());
        assert!(values.iter().all(|(inst, height)| *height == format!("U32({})", 10 * inst + 10)));
        seen.push(values.len());
    }
    assert!(seen.windows(2).all(|two| two[0].abs_diff(two[1]) == 1), "{seen:?}");
    assert_eq!((seen.iter().min(), seen.iter().max()), (Some(&1), Some(&6)));
}

fn many(agent: &mut Asker<impl Channel>) {
    for count in [1, 100_000, 3, 5] {
        agent.store("many.count", Atom::U32(count)).unwrap();
        assert_eq!(agent.value("many.count"), Atom::U32(count));
        let values = agent.values("many.number");
        assert!(values.into_iter().eq((0..count).map(|n| (n, format!("U32({n})")))));
        assert!(agent.instances(4).into_iter().eq((0..count).map(|n| (n, format!("i-{n}")))));
    }
    for count in [0, 100_001] {
        assert_eq!(agent.store("many.count", Atom::U32(count)), Err(Error::BADSTORE));
    }
}

fn stores(agent: &mut Asker<impl Channel>) {
    for (name, value) in [
        ("i32", Atom::I32(i32::MIN)),
        ("u32", Atom::U32(u32::MAX)),
        ("i64", Atom::I64(i64::MIN)),
        ("u64", Atom::U64(u64::MAX)),
        ("float", Atom::Float(-0.5)),
        ("double", Atom::Double(1e300)),
        ("string", Atom::from("three")),
        ("aggregate", Atom::Aggregate(&[0, 255, 0, 1])),
    ] {
        let name = format!("write.{name}");
        agent.store(&name, value).unwrap();
        assert_eq!(agent.value(&name), value);
    }
}

fn events(agent: &mut Asker<impl Channel>) {
    // The queue has kept the stores above, and no client has read them.
    let Atom::U64(count) = agent.value("event.count") else { panic!("no number") };
    assert_eq!(new_events(agent).len() as u64, count);
    assert!(new_events(agent).is_empty());
    agent.store_inst("bin.level", Some(100), Atom::Double(0.5)).unwrap();
    let events = new_events(agent);
    let [event] = &events[..] else { panic!("{events:?}") };
    assert!(event.starts_with("402.9.10=U32(5) 402.9.11=U32(1) 402.9.12=U32(100) 402.9.13="), "{event}");
    // With a filter, the client sees only the stores to one cluster.
    agent.store("event.records", Atom::from("4")).unwrap();
    agent.store_inst("bin.level", Some(100), Atom::Double(0.5)).unwrap();
    agent.store("counter.fetches", Atom::U32(1)).unwrap();
    let events = new_events(agent);
    assert!(events.len() == 1 && events[0].starts_with("402.9.10=U32(4) 402.9.11=U32(0) 402.9.13="), "{events:?}");
    assert_eq!(agent.store("event.records", Atom::from("four")), Err(Error::CONV));
}

/// Returns the parameters of each event that this client has not read.
fn new_events(agent: &mut Asker<impl Channel>) -> Vec<String> {
    let pmid = agent.pmid("event.records");
    let values = agent.agent.values(pmid).unwrap();
    let Some((_, Atom::Event(payload))) = values.iter().next() else { return Vec::new() };
    let param = |(pmid, value): (Option<PmId>, Atom<'_>)| format!("{}={value:?}", pmid.unwrap());
    let records = event::records(payload, event::Layout::Micro).unwrap();
    records.map(|record| record.params().map(param).collect::<Vec<_>>().join(" ")).collect()
}

fn names(agent: &mut Asker<impl Channel>) {
    let _ = agent.changes();
    assert_eq!(agent.agent.traverse("showcase.dynamic").unwrap(), ["showcase.dynamic.first"]);
    agent.store("names.add", Atom::from("disk.reads")).unwrap();
    assert_eq!(agent.changes(), Changes::NAMES);
    let pmid = agent.agent.pmid("showcase.dynamic.disk.reads").unwrap();
    assert_eq!(agent.agent.value(pmid).unwrap(), Atom::U64(1));
    assert_eq!(agent.agent.value(pmid).unwrap(), Atom::U64(2));
    assert_eq!(agent.agent.desc(pmid).unwrap().ty, Type::U64);
    assert_eq!(agent.value("names.count"), Atom::U32(2));
    for name in ["disk.reads", "disk", "1-st", "", "a..b"] {
        assert_eq!(agent.store("names.add", Atom::from(name)), Err(Error::BADSTORE), "{name:?}");
    }
    assert_eq!(agent.store("names.remove", Atom::from("tape")), Err(Error::BADSTORE));
    agent.store("names.remove", Atom::from("disk")).unwrap();
    assert_eq!(agent.value("names.remove"), Atom::from("disk"));
    assert_eq!(agent.value("names.count"), Atom::U32(1));
    assert!(matches!(agent.agent.desc(pmid), Err(pcp_collector::Error::Agent(Error::PMID))));
}

fn failures(agent: &mut Asker<impl Channel>) {
    assert_eq!(agent.value("fail.on_demand"), Atom::U32(1));
    for error in [Error::VALUE, Error::AGAIN, Error::GENERIC] {
        agent.store("fail.code", Atom::I32(error.code())).unwrap();
        assert_eq!(agent.error("fail.on_demand"), Some(error));
    }
    assert_eq!(agent.store("fail.code", Atom::I32(1)), Err(Error::BADSTORE));
    agent.store("fail.code", Atom::I32(0)).unwrap();
    assert_eq!(agent.value("fail.on_demand"), Atom::U32(1));
    let no_values = agent.pmid("fail.no_values");
    assert!(agent.agent.values(no_values).unwrap().is_empty() && agent.error("fail.no_values").is_none());
    assert_eq!(agent.store("fail.panic", Atom::U32(1)), Err(Error::GENERIC));
    assert_eq!(agent.value("fail.panic"), Atom::U32(0));
}

fn source(agent: &mut Asker<impl Channel>) {
    let pmid = agent.pmid("source.readings");
    let readings = |agent: &mut Asker<_>| match agent.agent.value(pmid) {
        Ok(Atom::U64(n)) => Ok(n),
        Err(pcp_collector::Error::Agent(e)) => Err(e),
        other => panic!("{other:?}"),
    };
    let wait = |agent: &mut Asker<_>, for_: &dyn Fn(Result<u64, Error>) -> bool| {
        while !for_(readings(agent)) {
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    wait(agent, &|readings| readings.is_ok());
    agent.store("source.fails", Atom::I32(Error::NOAGENT.code())).unwrap();
    wait(agent, &|readings| readings == Err(Error::NOAGENT));
    agent.store("source.fails", Atom::I32(0)).unwrap();
    wait(agent, &|readings| readings.is_ok());
    // The next reading, which begins at once, takes an hour. Nothing else is delayed.
    agent.store("source.takes", Atom::U32(3_600_000)).unwrap();
    let before = readings(agent).unwrap();
    assert!(matches!(agent.value("source.age"), Atom::Double(age) if age >= 0.0));
    assert!(readings(agent).unwrap() <= before + 1);
}

fn clients(agent: &mut Asker<impl Channel>) {
    assert_eq!(agent.error("client.uid"), Some(Error::VALUE));
    assert_eq!(agent.store("client.of_root", Atom::U32(1)), Err(Error::PERMISSION));
    if agent.agent.features() != Showcase::WANTS {
        // Without a pipe or a socket, no client attributes are sent.
        return;
    }
    for (client, uid) in [(7, 1000), (8, 0)] {
        agent.agent.as_client(client);
        assert!(agent.agent.attribute(Attribute::USERID, &uid.to_string()).unwrap());
        assert_eq!(agent.value("client.uid"), Atom::U32(uid));
        let stored = agent.store("client.of_root", Atom::U32(1));
        assert_eq!(stored, if uid == 0 { Ok(()) } else { Err(Error::PERMISSION) });
        assert_eq!(agent.value("client.fetches"), Atom::U64(1));
        assert_eq!(agent.value("client.fetches"), Atom::U64(2));
        assert_eq!(agent.value("client.container"), Atom::from(""));
    }
    assert_eq!(agent.value("client.count"), Atom::U32(2));
    assert!(agent.agent.end_client().unwrap());
    agent.agent.as_client(7);
    assert_eq!(agent.value("client.count"), Atom::U32(1));
    assert!(agent.agent.attribute(Attribute::CONTAINER, "web").unwrap());
    assert_eq!(agent.value("client.container"), Atom::from("web"));
    assert!(agent.agent.end_client().unwrap());
    agent.agent.as_client(0);
}

fn labels(agent: &mut Asker<impl Channel>) {
    let of = |agent: &mut Asker<_>, target| {
        let sets = agent.agent.labels(target).unwrap();
        sets.into_iter().map(|(_, set)| set.unwrap().json().to_owned()).collect::<Vec<_>>()
    };
    let levels = agent.pmid("label.levels");
    assert_eq!(
        of(agent, LabelTarget::Domain(domain())),
        [r#"{"agent":"showcase","language":"Rust","role":"example"}"#]
    );
    assert_eq!(
        of(agent, LabelTarget::Cluster(levels)),
        [r#"{"feature":"labels","origin.room":"attic","origin.shelf":3}"#]
    );
    assert_eq!(
        of(agent, LabelTarget::Item(levels)),
        [r#"{"level":"item","remark":"notes do not distinguish metrics"}"#]
    );
    assert_eq!(of(agent, LabelTarget::InDom(indom(2))), [r#"{"indom_name":"bin"}"#]);
    let _ = agent.changes();
    agent.store("label.changing", Atom::from("merry")).unwrap();
    assert_eq!([agent.changes(), agent.changes()], [Changes::LABELS, Changes::default()]);
    let changing = agent.pmid("label.changing");
    assert_eq!(of(agent, LabelTarget::Item(changing)), [r#"{"mood":"merry"}"#]);
}

/// Only a daemon can notify pmcd by itself that it is ready again.
fn not_ready(agent: &mut Collector<impl Channel>) {
    let not_ready = PmId::new(domain(), pmapi::Item::new(14, 0));
    agent.store(not_ready, None, Atom::U32(50)).unwrap();
    assert!(agent.fetch(&[not_ready]).is_err());
    assert!(agent.wait_ready(Some(Duration::from_secs(30))).unwrap());
    assert_eq!(agent.value(not_ready).unwrap(), Atom::U32(0));
}
