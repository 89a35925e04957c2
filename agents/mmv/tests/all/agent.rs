//! Tests of the agent within this process, with the requests of pmcd; they need no PCP.
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use mmv::{Counter, Family, Gauge, Registry};
use pcp_collector::{Collector, Local};
use pcp_pdu::metadata::{Subject, TextKind};
use pcp_pdu::result::Changes;
use pmapi::{Atom, Domain, Error, InDom, Item, PmId, Serial};
use pmda::host::Engine;
use pmda::pmapi::Config;
use pmda_mmv::{Mmv, PmProxy};
use tempfile::TempDir;

use crate::raw;

type Asked<A> = Collector<Local<A>>;

/// Creates an agent with this directory as `$PCP_TMP_DIR`.
fn agent<A: pmda::Agent>(tmp: &TempDir) -> Asked<A> {
    agent_of(b"", tmp)
}

/// Creates an agent with this `pcp.conf`.
fn agent_of<A: pmda::Agent>(conf: &[u8], tmp: &TempDir) -> Asked<A> {
    let tmp = tmp.path().as_os_str().to_owned();
    let config = Config::new(conf, [("PCP_TMP_DIR".into(), tmp)]);
    Collector::new(Local::start(Engine::builder().domain(Domain::new(A::DOMAIN).unwrap()).config(config)).unwrap())
}

fn scene() -> (TempDir, std::path::PathBuf) {
    let tmp = tempfile::tempdir().unwrap();
    let files = tmp.path().join("mmv");
    fs::create_dir(&files).unwrap();
    (tmp, files)
}

fn registry(files: &Path, name: &str) -> Registry {
    let registry = Registry::builder(name).directory(files).build().unwrap();
    registry.try_start().unwrap();
    registry
}

fn control(item: u16) -> PmId {
    PmId::new(Domain::new(70).unwrap(), Item::new(0, item))
}

fn changes(agent: &mut Asked<Mmv>) -> Changes {
    agent.fetch(&[control(2)]).unwrap().changes()
}

/// Returns whether something becomes true within a minute.
fn in_time(mut is_true: impl FnMut() -> bool) -> bool {
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(60) {
        if is_true() {
            return true;
        }
    }
    false
}

#[test]
fn clients_that_look_on_are_told_of_names() {
    let (tmp, files) = scene();
    let mut mmv = agent::<Mmv>(&tmp);
    assert_eq!(changes(&mut mmv), Changes::default());
    let registry = registry(&files, "a");
    assert!(in_time(|| changes(&mut mmv) == Changes::NAMES));
    let counter: Counter = registry.counter("x").register().unwrap();
    // The file changes, and not the directory: a request for names, or for the file's metrics, sees it.
    assert!(in_time(|| mmv.pmid("mmv.a.x").is_ok() && changes(&mut mmv) == Changes::NAMES));
    assert!(in_time(|| changes(&mut mmv) == Changes::default()));
    counter.inc();
    assert_eq!(changes(&mut mmv), Changes::default(), "a value is no name");
    let x = mmv.pmid("mmv.a.x").unwrap();
    assert_eq!(mmv.value(x).unwrap(), Atom::U64(1));
    drop(registry);
    assert!(in_time(|| changes(&mut mmv) == Changes::NAMES));
    assert_eq!(mmv.pmid("mmv.a.x").unwrap_err().code(), Error::NAME);
    assert_eq!(mmv.desc(x).unwrap_err().code(), Error::PMID);
}

#[test]
fn only_the_controls_can_be_stored() {
    let (tmp, files) = scene();
    let _registry = registry(&files, "a");
    let _: Counter = _registry.counter("x").register().unwrap();
    let mut mmv = agent::<Mmv>(&tmp);
    let x = mmv.pmid("mmv.a.x").unwrap();
    for (pmid, value) in [(x, Atom::U64(1)), (control(2), Atom::I32(1))] {
        assert_eq!(mmv.store(pmid, None, value).unwrap_err().code(), Error::PERMISSION);
    }
    assert_eq!(changes(&mut mmv), Changes::default());
    mmv.store(control(0), None, Atom::I32(1)).unwrap();
    assert!(in_time(|| changes(&mut mmv) == Changes::NAMES), "everything is read again");
    assert_eq!(mmv.value(control(0)).unwrap(), Atom::I32(0));
    // One bit for each of the options of -D.
    mmv.store(control(1), None, Atom::I32(1 << 11)).unwrap();
    assert_eq!(mmv.value(control(1)).unwrap(), Atom::I32(1 << 11));
    assert_eq!(pmda::log::debug_options().to_string(), "appl0");
    assert_eq!(mmv.value(control(2)).unwrap(), Atom::I32(1));
    assert_eq!(mmv.desc(control(3)).unwrap_err().code(), Error::PMID);

    // PCP 7 accepts options by name, and has one more metric.
    let mut newer = agent_of::<Mmv>(b"PCP_VERSION=7.2.1\n", &tmp);
    assert_eq!(newer.value(control(1)).unwrap(), Atom::String(b"appl0"));
    newer.store(control(1), None, Atom::String(b"fetch,libpmda")).unwrap();
    assert_eq!(newer.value(control(1)).unwrap(), Atom::String(b"fetch,libpmda"));
    let refused = newer.store(control(1), None, Atom::String(b"nonsense")).unwrap_err();
    assert_eq!((refused.code(), newer.value(control(1)).unwrap()), (Error::CONV, Atom::String(b"fetch,libpmda")));
    let metrics = mmv.traverse("mmv").unwrap().len() - 3;
    assert_eq!(newer.value(control(3)).unwrap(), Atom::I32(metrics as i32));
    assert_eq!(newer.pmid("mmv.control.metrics").unwrap(), control(3));
}

#[test]
fn help_is_there_or_not_line_by_line() {
    let (tmp, files) = scene();
    let registry = registry(&files, "a");
    let indom = registry.indom("i").serial(5).help("things").instances(["one"]).register().unwrap();
    let _: Family<Gauge> = registry.metric("both").help("line").long_help("text").over(&indom).unwrap();
    let _: Counter = registry.counter("short").help("line").register().unwrap();
    let _: Counter = registry.counter("long").long_help("text").register().unwrap();
    let _: Counter = registry.counter("none").register().unwrap();
    let mut mmv = agent::<Mmv>(&tmp);
    let texts = |mmv: &mut Asked<Mmv>, of| {
        [TextKind::OneLine, TextKind::Help].map(|kind| mmv.text(of, kind).map_err(|e| e.code()))
    };
    let (line, text, none) = (|| Ok("line".to_owned()), || Ok("text".to_owned()), || Err(Error::TEXT));
    for (name, expected) in [
        ("both", [line(), text()]),
        ("short", [line(), none()]),
        ("long", [none(), text()]),
        ("none", [none(), none()]),
    ] {
        let pmid = mmv.pmid(&format!("mmv.a.{name}")).unwrap();
        assert_eq!(texts(&mut mmv, Subject::Metric(pmid)), expected, "{name}");
    }
    let both = mmv.pmid("mmv.a.both").unwrap();
    let indom = mmv.desc(both).unwrap().indom.unwrap();
    assert_eq!(texts(&mut mmv, Subject::InDom(indom)), [Ok("things".into()), none()]);
    let other = InDom::new(Domain::new(70).unwrap(), Serial::new(1));
    assert!(texts(&mut mmv, Subject::InDom(other)).iter().all(Result::is_err));
}

#[test]
fn an_instance_is_found_by_its_name_up_to_the_first_space() {
    let (tmp, files) = scene();
    let registry = registry(&files, "a");
    let indom = registry.indom("i").numbered([(3, "1 minute"), (4, "5 minute")]).register().unwrap();
    let _: Family<Gauge> = registry.metric("load").over(&indom).unwrap();
    let mut mmv = agent::<Mmv>(&tmp);
    let load = mmv.pmid("mmv.a.load").unwrap();
    let indom = mmv.desc(load).unwrap().indom.unwrap();
    for name in ["5", "5 minute"] {
        assert_eq!(mmv.instance_of(indom, name).unwrap().word(), 4);
    }
    for name in ["minute", "5 min", "15"] {
        assert_eq!(mmv.instance_of(indom, name).unwrap_err().code(), Error::INST, "{name}");
    }
}

#[test]
fn files_of_pmproxy_are_in_their_own_directory() {
    let (tmp, _) = scene();
    let files = tmp.path().join("pmproxy");
    fs::create_dir(&files).unwrap();
    let _registry = registry(&files, "web");
    let _: Counter = _registry.counter("hits").register().unwrap();
    let mut pmproxy = agent::<PmProxy>(&tmp);
    assert_eq!(pmproxy.pmid("pmproxy.web.hits").unwrap().domain().get(), 4);
    let names = ["web.hits", "control.files", "control.debug", "control.reload"].map(|name| format!("pmproxy.{name}"));
    assert_eq!(pmproxy.traverse("pmproxy").unwrap(), names);
}

#[test]
fn bad_files_are_in_the_way_of_no_good_one() {
    let (tmp, files) = scene();
    for (name, bytes) in raw::bad_files() {
        fs::write(files.join(name), bytes.0).unwrap();
    }
    fs::write(files.join("text"), "not one of ours").unwrap();
    let registry = registry(&files, "good");
    let _: Counter = registry.counter("x").register().unwrap();
    let mut mmv = agent::<Mmv>(&tmp);
    let x = mmv.pmid("mmv.good.x").unwrap();
    assert_eq!(mmv.value(x).unwrap(), Atom::U64(0));
    // Every request is possible for every metric.
    for name in mmv.traverse("mmv").unwrap() {
        let pmid = mmv.pmid(&name).unwrap();
        mmv.desc(pmid).unwrap();
        mmv.fetch(&[pmid]).unwrap();
        _ = mmv.text(Subject::Metric(pmid), TextKind::Help);
    }
}

#[test]
// Slow: that many values are written and read.
fn a_hundred_thousand_values_in_a_thousand_files() {
    pmda_mmv::allow_many_files();
    let (tmp, files) = scene();
    let instances: Vec<String> = (0..10).map(|i| format!("i{i}")).collect();
    let registries: Vec<Registry> = (1..=1000u16)
        .map(|number| {
            let registry = Registry::builder(&format!("f{number}")).directory(&files).cluster(number).build().unwrap();
            let indom = registry.indom("i").serial(1).numbered((0..).zip(instances.iter().map(String::as_str)));
            let indom = indom.register().unwrap();
            for metric in 0..10 {
                let name = format!("m{metric}");
                let family: Family<Counter> = registry.counter(&name).item(metric).over(&indom).unwrap();
                for (name, i) in instances.iter().zip(0..) {
                    family.instance(name).unwrap().add(u64::from(number) * 100 + u64::from(metric) * 10 + i);
                }
            }
            registry.try_start().unwrap();
            registry
        })
        .collect();
    let mut mmv = agent::<Mmv>(&tmp);
    assert_eq!(mmv.traverse("mmv").unwrap().len(), 10_003);
    assert_eq!(mmv.value(control(2)).unwrap(), Atom::I32(1000));
    let domain = Domain::new(70).unwrap();
    let metrics = (1..=1000).flat_map(|cluster| (0..10).map(move |item| PmId::new(domain, Item::new(cluster, item))));
    let pmids: Vec<PmId> = metrics.collect();
    let fetched = mmv.fetch(&pmids).unwrap();
    let mut expected = 100u64;
    for set in fetched.sets() {
        for (inst, value) in set.values() {
            assert_eq!(inst.unwrap().word() as u64, expected % 10);
            assert_eq!(value.atom(pmapi::Type::U64).unwrap(), Atom::U64(expected));
            expected += 1;
        }
    }
    assert_eq!(expected, 100_100);
    // One of the files grows.
    let _: Counter = registries[500].counter("more").register().unwrap();
    // A thread reads it. On a busy machine a request may not wait long enough for it.
    assert!(in_time(|| mmv.fetch(&pmids).unwrap().changes() == Changes::NAMES));
    assert!(mmv.pmid("mmv.f501.more").is_ok());
}

/// The newest first.
const LIMITS: [&str; 8] = ["pdus", "clients", "log_cut", "log_debug", "log_lines", "values", "memory", "files"];

#[test]
fn what_limits_leave_out_is_counted() {
    let (tmp, files) = scene();
    let registry = registry(&files, "honest");
    let honest: Counter = registry.counter("x").register().unwrap();
    let mut mmv = agent::<Mmv>(&tmp);
    let names = LIMITS.map(|limit| format!("mmv.control.limits.{limit}"));
    // The metrics of limits can be looked up. They are listed only once they count something, because PCP's tests
    // compare the list.
    let controls = ["mmv.control.files", "mmv.control.debug", "mmv.control.reload"];
    assert_eq!(mmv.traverse("mmv.control").unwrap(), controls);
    assert_eq!(mmv.traverse("mmv.control.limits").unwrap(), names);
    assert_eq!(mmv.traverse(&names[2]).unwrap(), names[2..3]);
    for name in &names {
        let pmid = mmv.pmid(name).unwrap();
        assert_eq!(mmv.value(pmid).unwrap(), Atom::U64(0));
        assert_eq!(mmv.desc(pmid).unwrap().pmid, pmid);
        assert!(mmv.text(Subject::Metric(pmid), TextKind::Help).is_ok());
    }
    assert_eq!(mmv.desc(control(19)).unwrap_err().code(), Error::PMID);
    for i in 0..1300 {
        fs::write(files.join(format!("a{i}")), "MMV").unwrap();
    }
    honest.inc();
    // A slow machine may leave the names to a later request.
    assert!(in_time(|| changes(&mut mmv) == Changes::NAMES));
    let left_out = mmv.pmid(&names[7]).unwrap();
    assert!(in_time(|| mmv.value(left_out).unwrap() == Atom::U64(1301 - 1250)));
    let mut all = mmv.traverse("mmv.control").unwrap();
    all.sort_unstable();
    let mut expected: Vec<String> = controls.iter().map(|name| (*name).to_owned()).chain(names).collect();
    expected.sort_unstable();
    assert_eq!(all, expected);
    let x = mmv.pmid("mmv.honest.x").unwrap();
    assert_eq!(mmv.value(x).unwrap(), Atom::U64(1));
}

#[test]
#[ignore = "needs root"]
fn what_one_user_has_takes_nothing_from_another() {
    use std::os::unix::fs::{chown, lchown, symlink};
    let (tmp, files) = scene();
    let secret = tmp.path().join("secret");
    fs::write(&secret, raw::one_metric("secret").0).unwrap();
    for i in 0..1500 {
        let path = files.join(format!("a{i:04}"));
        fs::write(&path, raw::one_metric("x").0).unwrap();
        chown(&path, Some(2001), None).unwrap();
    }
    // A user's links to a file that the user cannot read and to one that it can, and a link of root.
    symlink(&secret, files.join("a_link")).unwrap();
    symlink(files.join("a0000"), files.join("a_own")).unwrap();
    symlink(&secret, files.join("z_link")).unwrap();
    for link in ["a_link", "a_own"] {
        lchown(files.join(link), Some(2001), None).unwrap();
    }
    let registry = registry(&files, "honest");
    let _: Counter = registry.counter("x").register().unwrap();
    chown(files.join("honest"), Some(2002), None).unwrap();
    let mut mmv = agent::<Mmv>(&tmp);
    let names = mmv.traverse("mmv").unwrap();
    let has = |file: &str| names.iter().any(|name| name.starts_with(&format!("mmv.{file}.")));
    assert_eq!(["honest", "a_link", "z_link"].map(has), [true, false, true]);
    let x = mmv.pmid("mmv.honest.x").unwrap();
    // The other user's renamed, removed and added files change no identifier.
    for i in 0..20 {
        fs::remove_file(files.join(format!("a{i:04}"))).unwrap();
        _ = changes(&mut mmv);
        assert_eq!(mmv.pmid("mmv.honest.x").unwrap(), x);
    }
}

#[test]
fn names_that_are_too_many_for_a_tree_are_all_given() {
    let (tmp, files) = scene();
    // 9,000 metrics below one name that all files have. The metrics of a node are not adjacent.
    let registries: Vec<Registry> = (0..9)
        .map(|file| {
            let registry = Registry::builder(&format!("f{file}")).directory(&files).no_prefix().build().unwrap();
            let batch = registry.batch();
            for n in 0..1000 {
                let _: Counter = registry.counter(&format!("all.n{}.f{file}.m{n}", n % 7)).register().unwrap();
            }
            drop(batch);
            registry.try_start().unwrap();
            registry
        })
        .collect();
    let mut mmv = agent::<Mmv>(&tmp);
    for (name, expected) in [("mmv.all", 9000), ("mmv.all.n6", 9 * 142), ("mmv.all.n0.f3", 143)] {
        let mut names = mmv.traverse(name).unwrap();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!((count, names.len()), (expected, expected), "{name}");
        assert!(names.iter().all(|found| found.starts_with(&format!("{name}."))));
    }
    let all = mmv.traverse("mmv").unwrap();
    assert_eq!(all.iter().filter(|name| name.starts_with("mmv.all.")).count(), 9000);
    drop(registries);
}
