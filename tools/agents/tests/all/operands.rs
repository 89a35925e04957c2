//! Agent `derived` over other agents of this repository, which it starts itself. No PCP is needed.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use mmv::{Counter, Gauge, Registry};
use nix::unistd::{User, geteuid};
use pcp_collector::{Collector, LabelTarget, Launch, Process};
use pcp_pdu::Header;
use pcp_pdu::metadata::encode_fetch;
use pcp_pdu::result::{RawValue, ValueSet};
use pmapi::{Atom, Config, Domain, Error, InDom, Inst, PmId, Serial, Type};
use pmda::Agent as _;
use pmda::host::Engine;
use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_pcp-agents");

fn user() -> String {
    User::from_uid(geteuid()).unwrap().unwrap().name
}

/// Writes a configuration of metrics over agent `name` with domain `domain`.
fn configure(dir: &Path, name: &str, domain: u16, interval: &str, metrics: &str) {
    fs::create_dir_all(dir.join("config/pmda")).unwrap();
    fs::create_dir_all(dir.join("tmp/mmv")).unwrap();
    let files = dir.join("files");
    let mut write = Command::new(BINARY);
    assert!(write.args(["agent", name, "--write-pmda"]).arg(&files).status().unwrap().success());
    // PCP's file with all domains may not be installed.
    let names = format!("#include \"domain.h\"\nroot {{\n\t{name}\n}}\n#include \"pmns\"\n");
    fs::write(files.join("names"), names).unwrap();
    // Agent `mmv` resolves all its names itself.
    let pmns = if name == "mmv" { "" } else { "pmns = \"files/names\", " };
    let user = user();
    // A JSON array of strings is valid TOML.
    let command = serde_json::json!([BINARY, "agent", name, "-l", "-", "--username", user]);
    let group = format!(
        "[group.test]
         interval = \"{interval}\"
         agent = {{ domain = {domain}, {pmns}command = {command} }}
         [group.test.metric]
         {metrics}
        "
    );
    fs::write(dir.join("conf.toml"), group).unwrap();
}

/// Values of a metric with their instances.
type Answer = Result<Vec<(Option<Inst>, f64)>, Error>;

struct Derived {
    dir: TempDir,
    agent: Collector<Process>,
}

impl Derived {
    /// Starts agent `derived` with metrics over agent `name`, whose domain is `domain`.
    fn over(name: &str, domain: u16, interval: &str, metrics: &str) -> Derived {
        Derived::start(tempfile::tempdir().unwrap(), name, domain, interval, metrics)
    }

    fn start(dir: TempDir, name: &str, domain: u16, interval: &str, metrics: &str) -> Derived {
        configure(dir.path(), name, domain, interval, metrics);
        let mut command = Command::new(BINARY);
        command.args(["agent", "derived", "-c"]).arg(dir.path().join("conf.toml")).args(["-l", "log"]);
        command.args(["--username", &user()]).current_dir(dir.path());
        command.env("PCP_CONF", "/nonexistent").env("PCP_VAR_DIR", dir.path());
        command.env("PCP_TMP_DIR", dir.path().join("tmp"));
        Derived { agent: Launch::pipe(command).start().unwrap(), dir }
    }

    #[track_caller]
    fn pmid(&mut self, name: &str) -> PmId {
        let log = self.dir.path().join("log");
        let log = || fs::read_to_string(log).unwrap();
        self.agent.pmid(name).unwrap_or_else(|e| panic!("{name}: {e}\n{}", log()))
    }

    /// Fetches several metrics at once.
    fn fetch(&mut self, pmids: &[PmId], ty: Type) -> Vec<Answer> {
        let fetched = self.agent.fetch(pmids).unwrap();
        let values = |set: ValueSet<'_>| match set.error {
            Some(e) => Err(e),
            None => Ok(set.values().map(|(inst, value)| (inst, number(value.atom(ty).unwrap()))).collect()),
        };
        fetched.sets().map(values).collect()
    }
}

fn number(atom: Atom<'_>) -> f64 {
    match atom {
        Atom::U32(v) => v.into(),
        Atom::I64(v) => v as f64,
        Atom::U64(v) => v as f64,
        Atom::Double(v) => v,
        other => panic!("{other:?}"),
    }
}

/// The operand counts its fetches: once in each interval, for all definitions together, whatever clients do.
#[test]
fn one_fetch_for_all_definitions_and_none_for_a_client() {
    let mut derived = Derived::over(
        "showcase",
        402,
        "1hour",
        "once = 'showcase.counter.fetches'\ntwice = 'showcase.counter.fetches * 2'\nmore = 'sum(showcase.bin.size) + 1'",
    );
    let pmids = ["once", "twice"].map(|name| derived.pmid(&format!("derived.{name}")));
    for _ in 0..5 {
        let values = derived.fetch(&[pmids[0], pmids[1], pmids[0]], Type::U32);
        assert_eq!(values, [1.0, 2.0, 1.0].map(|value| Ok(vec![(None, value)])));
        for pmid in pmids {
            derived.agent.desc(pmid).unwrap();
        }
    }
}

/// Each sample has different towers of the mirage. Values of one reply are of one sample.
#[test]
fn instances_come_and_go() {
    let mut derived = Derived::over(
        "showcase",
        402,
        "20msec",
        "height = 'showcase.mirage.height + 1'\nsame = 'count(showcase.mirage.height) - showcase.mirage.count'\n\
         named = 'matchinst(/tower-[ab]/, showcase.mirage.height)'\nsecond = 'showcase.mirage.height[tower-b]'",
    );
    let pmids = ["height", "same", "named", "second"].map(|name| derived.pmid(&format!("derived.{name}")));
    let indom = derived.agent.desc(pmids[0]).unwrap().indom.unwrap();
    let mut seen = Vec::new();
    let end = Instant::now() + Duration::from_secs(60);
    while (seen.iter().min(), seen.iter().max()) != (Some(&1), Some(&6)) {
        assert!(Instant::now() < end, "{seen:?}");
        let [height, same, named, second] = derived.fetch(&pmids, Type::U32).try_into().unwrap();
        assert_eq!(same, Ok(vec![(None, 0.0)]));
        let height = height.unwrap();
        let towers = derived.agent.instances(indom).unwrap();
        // The towers are those of this sample or of a later one.
        assert!(towers.iter().zip('a'..).all(|((_, name), letter)| *name == format!("tower-{letter}")), "{towers:?}");
        let common = height.iter().zip(&towers);
        assert!(common.clone().all(|((inst, _), tower)| *inst == Some(tower.0)), "{height:?} {towers:?}");
        let lower = |(inst, height): &(Option<Inst>, f64)| (*inst, height - 1.0);
        assert_eq!(named.unwrap(), height.iter().take(2).map(lower).collect::<Vec<_>>());
        assert_eq!(second.unwrap(), height.iter().skip(1).take(1).map(lower).collect::<Vec<_>>());
        seen.push(height.len());
        sleep(Duration::from_millis(5));
    }
}

#[test]
fn labels_of_instances() {
    let mut derived = Derived::over("showcase", 402, "10msec", "size = 'showcase.bin.size * 2'");
    let size = derived.pmid("derived.size");
    let indom = derived.agent.desc(size).unwrap().indom.unwrap();
    let mut showcase = Command::new(BINARY);
    showcase.args(["agent", "showcase", "-l", "showcase.log", "--username", &user()]).current_dir(derived.dir.path());
    let mut showcase = Launch::pipe(showcase).start().unwrap();
    let theirs = InDom::new(Domain::new(402).unwrap(), Serial::new(2));
    let labels = showcase.labels(LabelTarget::Instances(Some(theirs))).unwrap();
    assert!(labels.len() == 9 && labels.iter().all(|(_, labels)| !labels.as_ref().unwrap().is_empty()), "{labels:?}");
    assert_eq!(derived.agent.labels(LabelTarget::Instances(Some(indom))).unwrap(), labels);
}

/// Differences are between samples of the agent. However often clients fetch, samples are never close together.
#[test]
fn clients_share_rates() {
    let mut derived = Derived::over(
        "showcase",
        402,
        "100msec",
        "step = 'delta(showcase.counter.u64)'\ntime = 'rate(showcase.counter.double)'",
    );
    let (step, time) = (derived.pmid("derived.step"), derived.pmid("derived.time"));
    let (mut steps, mut times) = (0, Vec::new());
    let end = Instant::now() + Duration::from_secs(2);
    for round in 0.. {
        // One client fetches without a pause, the other one now and then.
        derived.agent.as_client(if round % 50 == 0 { 2 } else { 1 });
        let [step, time] = derived.fetch(&[step, time], Type::Double).try_into().unwrap();
        // The counter grows by a gigabyte with each fetch.
        for (_, value) in step.unwrap() {
            assert_eq!(value, f64::from(1 << 30));
            steps += 1;
        }
        times.extend(time.unwrap().into_iter().map(|(_, value)| value));
        if Instant::now() > end {
            break;
        }
        sleep(Duration::from_millis(1));
    }
    assert!(steps > 20, "{steps}");
    // The rate of time is 1, apart from the time that agents wait for a processor.
    times.sort_by(f64::total_cmp);
    let middle = times[times.len() / 2];
    assert!((0.5..2.0).contains(&middle), "{times:?}");
}

fn registry(dir: &Path) -> Registry {
    let registry = Registry::builder("app").directory(dir.join("tmp/mmv")).build().unwrap();
    registry.try_start().unwrap();
    registry
}

/// The type of an operand changes, because an application starts again with another type.
#[test]
fn an_operand_that_is_another_one_now() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("tmp/mmv")).unwrap();
    let first = registry(dir.path());
    let counter: Counter = first.counter("x").register().unwrap();
    counter.add(41);
    let mut derived = Derived::start(dir, "mmv", 70, "10msec", "x = 'instant(mmv.app.x) + 1'\nn = 'count(mmv.app.x)'");
    let x = derived.pmid("derived.x");
    assert_eq!(derived.agent.desc(x).unwrap().ty, Type::U64);
    assert_eq!(derived.fetch(&[x], Type::U64), [Ok(vec![(None, 42.0)])]);

    drop((counter, first));
    let second = registry(derived.dir.path());
    let gauge: Gauge<f64> = second.gauge("x").register().unwrap();
    gauge.set(1.5);
    let end = Instant::now() + Duration::from_secs(60);
    // Until the agent has noticed the change, the value is the last one or an error, never a wrong number.
    while derived.agent.desc(x).unwrap().ty != Type::Double {
        let fetched = derived.agent.fetch(&[x]).unwrap();
        let set = fetched.sets().next().unwrap();
        let is_right = |value: RawValue<'_>| {
            let (before, now) = (value.atom(Type::U64), value.atom(Type::Double));
            before == Ok(Atom::U64(42)) || [Ok(Atom::Double(1.0)), Ok(Atom::Double(2.5))].contains(&now)
        };
        assert!([None, Some(Error::AGAIN)].contains(&set.error) && set.values().all(|(_, value)| is_right(value)));
        assert!(Instant::now() < end);
        sleep(Duration::from_millis(5));
    }
    while derived.fetch(&[x], Type::Double) != [Ok(vec![(None, 2.5)])] {
        assert!(Instant::now() < end);
        sleep(Duration::from_millis(5));
    }
    assert_eq!(derived.pmid("derived.x"), x);
    assert_eq!(derived.fetch(&[x], Type::Double), [Ok(vec![(None, 2.5)])]);
}

#[test]
fn a_fetch_allocates_nothing() {
    let dir = tempfile::tempdir().unwrap();
    configure(
        dir.path(),
        "showcase",
        402,
        "1msec",
        "one = 'showcase.counter.u64'\nbins = 'showcase.bin.size * 2'\nrate = 'rate(showcase.counter.u64)'",
    );
    let command = pmda_derived::Derived::options(pmda::clap::Command::new("derived"));
    let options =
        command.get_matches_from([OsStr::new("derived"), OsStr::new("-c"), dir.path().join("conf.toml").as_os_str()]);
    let variables = [("PCP_VAR_DIR".into(), dir.path().as_os_str().to_owned())];
    let mut engine = Engine::builder().config(Config::new(b"", variables)).options(options).build().unwrap();
    let domain = engine.schema().domain();
    let derived: &mut pmda_derived::Derived = engine.agent_mut();
    derived.open().unwrap();
    let names = ["derived.one", "derived.bins", "derived.rate"];
    let items = names.map(|name| derived.metrics().item(name).unwrap());
    let mut request = Vec::new();
    let pmids = items.map(|item| Some(PmId::new(domain, item)));
    encode_fetch(&mut request, 0, 0, pmids.into_iter()).unwrap();
    let header = Header::parse(&request).unwrap().unwrap();
    let mut fetch = || engine.handle(header, &request, |reply| reply.len());
    // The first sample has no rate, and the reply is then shorter.
    let mut full = 0;
    for _ in 0..50 {
        full = fetch().max(full);
        sleep(Duration::from_millis(2));
    }
    for _ in 0..10 {
        let allocated = allocation_counter::measure(|| assert_eq!(fetch(), full));
        assert_eq!((allocated.count_total, allocated.bytes_total), (0, 0));
        sleep(Duration::from_millis(2));
    }
}
