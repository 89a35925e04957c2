//! The agent over a pipe and under a real pmcd, with archives of PCP's tests.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pcp_archive::{Archive, Create};
use pcp_collector::{Collector, LabelTarget, Launch, Process};
use pcp_pdu::event::Stamp;
use pcp_pdu::metadata::{Subject, TextKind};
use pcp_pdu::result_writer::ResultWriter;
use pmapi::{Atom, Desc, InDom, Inst, LabelLevel, LabelSet, PmId, Semantics, Type, Units};
use testkit::{Agent, Pcp};

#[path = "../../../tools/agents/tests/all/common/rules.rs"]
mod rules;

const BINARY: &str = env!("CARGO_BIN_EXE_pmdareplay");

fn pmid(domain: u32, item: u32) -> PmId {
    PmId::from_word(domain << 22 | item).unwrap()
}

fn indom() -> InDom {
    InDom::from_word(60 << 22 | 3).unwrap()
}

fn desc(pmid: PmId, ty: Type, indom: Option<InDom>) -> Desc {
    let semantics = if ty == Type::U64 { Semantics::Counter } else { Semantics::Instant };
    Desc { pmid, ty, indom, semantics, units: Units::KBYTES }
}

/// Writes two domains, with a value for each second.
fn write(base: &Path) {
    let mut writer = Create::new("recorded").create(base).unwrap();
    let descs = [
        (desc(pmid(60, 5), Type::U64, Some(indom())), "disk.bytes"),
        (desc(pmid(60, 6), Type::String, None), "disk.text"),
        (desc(pmid(61, 6), Type::I32, None), "other.number"),
    ];
    let mut values = ResultWriter::new();
    for second in 0..=100_u32 {
        let time = Stamp { seconds: 1_700_000_000 + i64::from(second), nanoseconds: 0 };
        for (desc, name) in &descs {
            writer.metric(&(*desc).into(), &[name.as_bytes()]).unwrap();
            writer.text(Subject::Metric(desc.pmid), TextKind::OneLine, b"One line").unwrap();
        }
        writer.text(Subject::InDom(indom()), TextKind::OneLine, b"Disks").unwrap();
        writer.instances(time, indom(), &[(Inst::new(3), b"sda"), (Inst::new(8), b"sdb")]).unwrap();
        let labels = LabelSet::single("disk", "all").unwrap();
        writer.labels(time, (LabelLevel::Item, pmid(60, 5).word()), &[(None, &labels)]).unwrap();
        values.begin();
        let text = second.to_string();
        for (desc, _) in &descs {
            values.begin_set(Some(desc.pmid));
            match desc.ty {
                Type::U64 => {
                    for inst in [3, 8] {
                        values.push(Some(Inst::new(inst)), Type::U64, Atom::U64(u64::from(second * inst))).unwrap();
                    }
                }
                Type::String => values.push(None, Type::String, Atom::String(text.as_bytes())).unwrap(),
                _ => values.push(None, Type::I32, Atom::I32(-(second as i32))).unwrap(),
            }
            values.end_set(Ok(()));
        }
        writer.values(time, &mut values).unwrap();
    }
    writer.finish().unwrap();
}

fn start(base: &Path, args: &[&str]) -> Collector<Process> {
    let mut command = Command::new(BINARY);
    command.args(["-l", "-", "-a"]).arg(base).args(args).env("PCP_CONF", "/nonexistent/pcp.conf");
    Launch::pipe(command).start().unwrap()
}

#[test]
fn no_rule_is_broken() {
    let subject = rules::Subject { binary: BINARY, object: None };
    subject.breaks_no_rule(|dir| {
        write(&dir.join("archive"));
        ((), vec!["-a", "archive"])
    });
}

#[test]
fn one_domain_with_its_own_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().join("a");
    write(&base);
    let mut agent = start(&base, &["-d", "60", "--original", "--open-control"]);
    let bytes = desc(pmid(60, 5), Type::U64, Some(indom()));
    assert_eq!(agent.desc(bytes.pmid).unwrap(), bytes);
    assert_eq!(agent.text(Subject::Metric(bytes.pmid), TextKind::OneLine).unwrap(), "One line");
    let labels = agent.labels(LabelTarget::Item(bytes.pmid)).unwrap();
    assert_eq!(labels[0].1.as_ref().unwrap().json(), "{\"disk\":\"all\"}");
    assert!(agent.desc(pmid(61, 6)).is_err());
    let control = |item: u32| pmid(60, 4095 << 10 | item);
    agent.store(control(2), None, Atom::U32(1)).unwrap();
    for second in [40_u32, 7, 100] {
        agent.store(control(0), None, Atom::Double(second.into())).unwrap();
        assert_eq!(agent.value(pmid(60, 6)).unwrap(), Atom::String(second.to_string().as_bytes()));
        let values = agent.values(bytes.pmid).unwrap();
        let values: Vec<_> = values.iter().map(|(inst, value)| (inst.unwrap().word(), value)).collect();
        assert_eq!(values, [(3, Atom::U64(u64::from(3 * second))), (8, Atom::U64(u64::from(8 * second)))]);
        assert_eq!(agent.value(control(4)).unwrap(), Atom::Double(1_700_000_000.0 + f64::from(second)));
    }
    let named = agent.instances(indom()).unwrap();
    assert_eq!(named, [(Inst::new(3), "sda".to_owned()), (Inst::new(8), "sdb".to_owned())]);
    let mut closed = start(&base, &["-d", "60", "--original"]);
    assert!(closed.store(control(2), None, Atom::U32(1)).is_err(), "an unknown client");
    for (item, value) in [(1, Atom::Double(0.0)), (0, Atom::Double(-1.0)), (2, Atom::U32(2))] {
        assert!(agent.store(control(item), None, value).is_err(), "{item}");
    }
}

#[test]
fn all_domains_below_a_name() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().join("a");
    write(&base);
    let mut agent = start(&base, &["--start", "1min", "--speed", "0.000001", "--loop"]);
    let item = |at: u32| PmId::from_word(405 << 22 | 1 << 10 | at).unwrap();
    assert_eq!(agent.desc(item(0)).unwrap().ty, Type::U64);
    assert_eq!(agent.value(item(1)).unwrap(), Atom::String(b"60"));
    assert_eq!(agent.value(item(2)).unwrap(), Atom::I32(-60));
    let control = |item: u32| pmid(405, item);
    assert_eq!(agent.value(control(1)).unwrap(), Atom::Double(0.000001));
    assert_eq!(agent.value(control(3)).unwrap(), Atom::U32(1));
    assert_eq!(agent.value(control(5)).unwrap(), Atom::Double(100.0));
}

/// A damaged record makes values missing, but not wrong. The control metrics keep their values.
#[test]
fn a_damaged_record_leaves_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().join("a");
    write(&base);
    let volume = dir.path().join("a.0");
    let mut bytes = std::fs::read(&volume).unwrap();
    // A record has its length at both ends, and its time after the first length.
    let mut records = vec![0];
    while let Some(len) = bytes.get(records[records.len() - 1]..).and_then(|rest| rest.first_chunk()) {
        records.push(records[records.len() - 1] + u32::from_be_bytes(*len) as usize);
    }
    let middle = records.len() / 2;
    bytes[records[middle] + 16..records[middle + 1] - 4].fill(0xff);
    std::fs::write(&volume, bytes).unwrap();
    let mut agent = start(&base, &["-d", "60", "--original", "--open-control"]);
    let control = |item: u32| pmid(60, 4095 << 10 | item);
    agent.store(control(2), None, Atom::U32(1)).unwrap();
    let mut lost = Vec::new();
    for second in [10_u32, 90, 47, 48, 49, 50, 51, 52, 10, 51, 50, 49, 48, 20] {
        agent.store(control(0), None, Atom::Double(second.into())).unwrap();
        assert_eq!(agent.value(control(0)).unwrap(), Atom::Double(second.into()));
        let text = second.to_string();
        match agent.value(pmid(60, 6)) {
            Ok(value) => assert_eq!(value, Atom::String(text.as_bytes()), "{second}"),
            Err(e) => {
                assert_eq!(e.code(), pmapi::Error::LOGREC, "{second}");
                lost.push(second);
            }
        }
    }
    assert!(!lost.is_empty() && lost.iter().all(|second| (48..=52).contains(second)), "{lost:?}");
    // The agent has the files open.
    std::fs::remove_file(volume).unwrap();
    agent.store(control(0), None, Atom::Double(30.0)).unwrap();
    assert_eq!(agent.value(pmid(60, 6)).unwrap(), Atom::String(b"30"));
}

/// Damage in one of several archives is no reason not to replay the others, and the log names it.
#[test]
fn a_damaged_archive_among_others() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("folder");
    std::fs::create_dir(&folder).unwrap();
    write(&folder.join("a"));
    for suffix in ["meta", "0"] {
        std::fs::write(folder.join(format!("b.{suffix}")), b"").unwrap();
    }
    let mut agent = start(&folder, &["-d", "60", "--original", "--start", "5", "--speed", "0.000001"]);
    assert_eq!(agent.value(pmid(60, 6)).unwrap(), Atom::String(b"5"));
    let (base, folder) = (folder.join("a"), folder.to_str().unwrap());
    let bad = format!("{folder}/b");
    let list = format!("{},{bad}", base.display());
    for args in [&["-a", folder][..], &["-a", &list], &["-a", base.to_str().unwrap(), "-a", &bad]] {
        // pmcd closes the pipe at once.
        let mut command = Command::new(BINARY);
        command.args(["-l", "-"]).args(args).env("PCP_CONF", "/nonexistent/pcp.conf");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // The agent has started when it begins the version exchange.
        let mut first = [0];
        child.stdout.take().unwrap().read_exact(&mut first).unwrap();
        let said = String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap();
        let warnings: Vec<&str> = said.lines().filter(|line| line.contains("Warning: ")).collect();
        assert_eq!(warnings.len(), 1, "{said}");
        assert!(
            warnings[0].contains("/b.0: ") && warnings[0].ends_with("the file is empty; the archive is skipped"),
            "{said}"
        );
    }
    std::fs::write(base.with_extension("meta"), b"").unwrap();
    let said = written(&["-a", folder], &dir.path().join("pmda"));
    assert!(said.contains("none of the 2 archives can be opened"), "{said}");
}

/// Metrics below another metric, names of control metrics, and instances that the domain does not have.
#[test]
fn archives_with_any_names_and_instances() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().join("a");
    let mut writer = Create::new("recorded").create(&base).unwrap();
    let time = Stamp { seconds: 1_700_000_000, nanoseconds: 0 };
    let named = [("a", None), ("a.b", Some(indom())), ("control.speed", None), ("c", None)];
    let descs: Vec<_> = (0..).zip(named).map(|(at, (_, indom))| desc(pmid(60, at), Type::U32, indom)).collect();
    for (desc, (name, _)) in descs.iter().zip(named) {
        writer.metric(&(*desc).into(), &[name.as_bytes()]).unwrap();
    }
    writer.instances(time, indom(), &[(Inst::new(3), b"sda"), (Inst::new(4), b"sdb")]).unwrap();
    let labels = LabelSet::single("disk", "three").unwrap();
    writer.labels(time, (LabelLevel::Instances, indom().word()), &[(Some(Inst::new(3)), &labels)]).unwrap();
    let mut values = ResultWriter::new();
    values.begin();
    for desc in &descs {
        values.begin_set(Some(desc.pmid));
        for (inst, value) in [(Some(3), 1), (None, 2), (Some(9), 3)] {
            values.push(inst.map(Inst::new), Type::U32, Atom::U32(value)).unwrap();
        }
        values.end_set(Ok(()));
    }
    writer.values(time, &mut values).unwrap();
    writer.finish().unwrap();
    let mut agent = start(&base, &[]);
    let item = |at: u32| PmId::from_word(405 << 22 | 1 << 10 | at).unwrap();
    let found = agent.values(item(0)).unwrap();
    let found: Vec<_> = found.iter().map(|(inst, value)| (inst.unwrap().word(), value)).collect();
    assert_eq!(found, [(3, Atom::U32(1)), (9, Atom::U32(3))]);
    let labels = agent.labels(LabelTarget::Instances(InDom::from_word(405 << 22))).unwrap();
    let labels: Vec<_> = labels.iter().map(|(_, set)| set.as_ref().unwrap().json()).collect();
    assert_eq!(labels[0], "{\"disk\":\"three\"}");
    assert!(labels.get(1).is_none_or(|set| !set.contains("disk")), "{labels:?}");
    assert_eq!(agent.value(item(1)).unwrap(), Atom::U32(1));
    assert!(agent.desc(item(2)).is_err());
    assert_eq!(agent.value(pmid(405, 1)).unwrap(), Atom::Double(1.0));
}

fn written(args: &[&str], dir: &Path) -> String {
    let output = Command::new(BINARY).args(args).arg("--write-pmda").arg(dir).output().unwrap();
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn what_it_cannot_serve() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().join("a");
    write(&base);
    let archive = base.to_str().unwrap();
    let to = dir.path().join("pmda");
    for (args, reason) in [
        (&[][..], "no archive: name one with option -a"),
        (&["-a", "/nonexistent/x"], "No such file or directory"),
        (&["-a", archive, "--original", "-d", "62"], "the archive has no metrics to serve; its domains are [60, 61]"),
        (&["-a", archive, "--speed", "0"], "not a number above 0"),
        (&["-a", archive, "--speed", "-1"], "not a number above 0"),
        (&["-a", archive, "--start", "-1"], "not a time such as 2hours"),
        (&["-a", archive, "--start", "yesterday"], "not a time such as 2hours"),
    ] {
        let said = written(args, &to);
        assert!(said.contains(reason), "{args:?}: {said}");
    }
    assert_eq!(written(&["-a", archive, "-d", "60", "--original"], &to), "");
}

/// Files of the agent for a domain of an archive.
fn names(archive: &Path, domain: u16, dir: &Path) -> PathBuf {
    let to = dir.join(format!("pmda{domain}"));
    let domain = domain.to_string();
    assert_eq!(written(&["-a", archive.to_str().unwrap(), "-d", &domain, "--original"], &to), "");
    to.join("pmns")
}

/// A dashboard sees the recorded host: descriptors, texts and values are those that PCP's tools read from the archive.
#[test]
#[ignore = "needs PCP"]
fn an_archive_of_the_testsuite_under_pmcd() {
    let pcp = Pcp::required();
    let dir = tempfile::tempdir().unwrap();
    let archive = pcp.testsuite().join("archives/omnibus_v3");
    let mut builder = pcp.pmcd();
    let recorded = Archive::open(&archive).unwrap();
    // Domain 2 is pmcd itself.
    let descs = || recorded.metadata().descs().filter(|(pmid, _)| pmid.domain().get() != 2);
    let mut domains: Vec<u16> = descs().map(|(pmid, _)| pmid.domain().get()).collect();
    domains.dedup();
    for domain in &domains {
        let path = testkit::one_word(&archive);
        let arguments = ["-a", path.to_str().unwrap(), "--original", "--start", "1000hours", "-l", "replay.log"];
        let agent = Agent::new(&format!("replay{domain}"), *domain, BINARY);
        builder = builder.agent(agent.pmns(&names(&archive, *domain, dir.path())).args(arguments));
    }
    let pmcd = builder.start();
    // Of several names, the agent has the shortest one.
    let all =
        recorded.metadata().descs().map(|(pmid, _)| recorded.metadata().names().names(pmid).min_by_key(|n| n.len()));
    let names: Vec<String> = all.map(|name| String::from_utf8(name.unwrap().to_vec()).unwrap()).collect();
    assert!(names.len() > 10, "{names:?}");
    let metadata = |from: &str, name: &str| {
        let options = ["-d", "-m", "-t"];
        match from {
            "live" => pmcd.run("pminfo", options.into_iter().chain([name])).ok(),
            _ => pcp.run("pminfo", options.into_iter().chain(["-a", archive.to_str().unwrap(), name])).ok(),
        }
    };
    let mut values = 0;
    for name in &names {
        let pmid = recorded.metadata().names().pmid(name.as_bytes()).unwrap();
        let line = recorded.metadata().text(pmid, TextKind::OneLine).is_ok();
        let (live, archived) = (metadata("live", name), metadata("archive", name));
        // If there is no text, pminfo prints the reason.
        let desc =
            |text: &str| text.lines().filter(|l| line || !l.contains(name)).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(desc(&live), desc(&archived));
        values += usize::from(pmcd.run("pminfo", ["-f", name]).ok().contains("value"));
    }
    assert!(values > 10, "{values} metrics have values");
    let position = format!("replay.domain{}.position", domains[0]);
    let stored = pmcd.run("pmstore", [position.as_str(), "0"]).ok();
    assert!(stored.contains("new value=0"), "{stored}");
}
