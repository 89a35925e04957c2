//! Methods of a context other than fetches: reconnect, sort, unpack events, record.
#![allow(clippy::panic, clippy::unwrap_used, unsafe_code)]

use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use pcp_context::{
    Context, EVENT_FLAGS, EVENT_MISSED, FetchGroup, GroupError, HostRole, LocalAgents, RecordError, RecordSetup,
    Replay, Value, unpack_events,
};
use pcp_pdu::result::Changes;
use pmapi::{Config, Error, Inst, LabelSet, Type};
use testkit::{Pcp, wait_for};

#[test]
#[ignore = "needs PCP"]
fn a_pmcd_that_restarts() {
    let mut pmcd = Pcp::required().pmcd().start();
    let mut context = Context::connect(&pmcd.host()).unwrap();
    let pmid = context.lookup_name("pmcd.numagents").unwrap();
    let indom = pmapi::InDom::from_word(2 << 22 | 1).unwrap();
    context.profile_mut().add(indom, &[Inst::new(3)]);
    context.add_derived("twice", "pmcd.numagents * 2").unwrap();
    pmcd.restart();
    assert_eq!(context.fetch(&[pmid]).unwrap_err().code(), Error::IPC);
    assert!(!context.host().unwrap().is_connected());
    wait_for("a connection to pmcd", || context.host().unwrap().reconnect().is_ok());
    assert!(context.profile().includes(indom, Inst::new(3)) && !context.profile().includes(indom, Inst::new(4)));
    let twice = context.lookup_name("twice").unwrap();
    assert_eq!(context.fetch(&[pmid, twice]).unwrap().len(), 2);
    let copy = context.duplicate().unwrap();
    assert_eq!(copy.profile(), context.profile());
}

#[test]
#[ignore = "needs PCP"]
fn events_of_an_archive() {
    let dir = Pcp::required().testsuite().join("archives");
    let mut context = Context::open_archive(dir.join("eventrec")).unwrap();
    assert_eq!(context.lookup_name("event.flags"), Ok(EVENT_FLAGS));
    assert_eq!(context.lookup_name("event.missed"), Ok(EVENT_MISSED));
    assert_eq!(context.name_id(EVENT_FLAGS).as_deref(), Ok("event.flags"));
    let desc = context.lookup_desc(EVENT_MISSED).unwrap();
    assert_eq!((desc.ty, desc.indom), (Type::U32, None));
    let pmid = context.lookup_name("sample.event.records").unwrap();
    let (mut records, mut flags, mut missed) = (0, 0, 0);
    while let Ok(sample) = context.fetch(&[pmid]) {
        for (_, value) in sample.set(0).unwrap().values() {
            for record in unpack_events(value.atom(Type::Event).unwrap()).unwrap() {
                records += 1;
                flags += record.parameters.iter().filter(|(pmid, _)| *pmid == Some(EVENT_FLAGS)).count();
                missed += record.parameters.iter().filter(|(pmid, _)| *pmid == Some(EVENT_MISSED)).count();
            }
        }
    }
    assert!(records > 5 && flags > 0 && missed > 0, "{records} {flags} {missed}");
}

#[test]
#[ignore = "needs PCP"]
fn labels_merge_from_host_to_metric() {
    let pmcd = Pcp::required().pmcd().start();
    let mut context = Context::connect(&pmcd.host()).unwrap();
    let pmid = context.lookup_name("pmcd.numagents").unwrap();
    let sets = context.lookup_labels(pmid).unwrap();
    let merged = context.merged_labels(pmid).unwrap();
    assert_eq!(LabelSet::merge_all(&sets).unwrap(), merged);
    assert!(merged.value("hostname").is_some() && merged.value("agent") == Some("\"pmcd\""), "{merged}");
    assert_eq!(context.host().unwrap().merged_labels(pmid).unwrap(), merged);
}

#[test]
#[ignore = "needs PCP"]
fn a_recording() {
    let pcp = Pcp::required();
    let pmcd = pcp.pmcd().start();
    let dir = tempfile::tempdir().unwrap();
    let folio = dir.path().join("folio");
    let mut setup = RecordSetup::new(&folio, "pmval", Replay::Possible).unwrap();
    assert!(matches!(RecordSetup::new(&folio, "pmval", Replay::None), Err(RecordError::Exists(_))));
    setup.replay().unwrap().write_all(b"pmcd.numagents\n").unwrap();
    let name = format!("127.0.0.1:{}", pmcd.port());
    let host = setup.add_host(&name, HostRole::Named).unwrap();
    let default = setup.add_host(&name, HostRole::Default).unwrap();
    assert!(matches!(setup.add_host(&name, HostRole::Default), Err(RecordError::Default(_))));
    for host in [host, default] {
        setup.config(host).unwrap().write_all(b"log mandatory on 100 msec { pmcd.numagents }\n").unwrap();
    }
    // By default, pmlogger would wait for more data than one metric produces.
    setup.argument(None, "-u");
    let (archive, first) = (setup.archive(host).unwrap(), setup.archive(default).unwrap());
    let log = setup.log(default).unwrap();
    let mut recording = setup.start().unwrap();
    let said = || std::fs::read_to_string(&log).unwrap_or_default();
    let has_records = |base: &std::path::Path| {
        let Ok(mut context) = Context::open_archive(base) else { return false };
        let Ok(pmid) = context.lookup_name("pmcd.numagents") else { return false };
        (0..3).all(|_| context.fetch(&[pmid]).is_ok())
    };
    wait_for("records of two pmloggers", || {
        let ended = recording.ended();
        assert_eq!(ended, [None, None], "{}", said());
        has_records(&archive) && has_records(&first)
    });
    // A dialog needs a display. Without one, pmlogger writes to its log.
    recording.status(Some(default)).unwrap();
    wait_for("the report of a pmlogger", || said().contains("has been in progress"));
    recording.stop_host(host).unwrap();
    let [Some(status), None] = recording.ended()[..] else { panic!("{:?}", recording.ended()) };
    assert!(status.success(), "{status}");
    for error in [recording.stop_host(host), recording.detach_host(host), recording.status(Some(host))] {
        assert!(matches!(error, Err(RecordError::Ended(_))), "{error:?}");
    }
    assert!(recording.status(None).is_err());
    let size = || std::fs::metadata(format!("{}.0", first.display())).unwrap().len();
    let before = size();
    wait_for("the pmlogger of the other host", || size() > before);
    recording.stop().unwrap();
    let checked = pcp.run("pmlogcheck", [&first]);
    assert!(checked.status.success(), "{checked:?}");
    // PCP's own command reads the folio. Its exit code is that of its last command, so it is not checked.
    let list = pcp.run("pmafm", [folio.to_str().unwrap(), "list"]).text;
    let names: Vec<&str> = list.lines().filter(|line| line.contains(&name)).collect();
    let base = |path: &std::path::Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    assert!(names.len() == 2 && names[0].ends_with(&base(&first)) && names[1].ends_with(&base(&archive)), "{list}");
    assert!(list.contains("Creator: pmval "), "{list}");
    let dumped = pcp.run("pmafm", [folio.to_str().unwrap(), "repeat", "pmdumplog", "-l"]).text;
    assert_eq!(dumped.matches("Log Label").count(), 2, "{dumped}");
}

#[test]
#[ignore = "needs PCP"]
fn a_detached_pmlogger() {
    let pmcd = Pcp::required().pmcd().start();
    let dir = tempfile::tempdir().unwrap();
    let mut setup = RecordSetup::new(dir.path().join("folio"), "me", Replay::None).unwrap();
    let name = format!("127.0.0.1:{}", pmcd.port());
    let hosts = [HostRole::Default, HostRole::Named].map(|role| setup.add_host(&name, role).unwrap());
    for host in hosts {
        setup.config(host).unwrap().write_all(b"log mandatory on 100 msec { pmcd.numagents }\n").unwrap();
    }
    setup.argument(None, "-u");
    let archives = hosts.map(|host| format!("{}.0", setup.archive(host).unwrap().display()));
    let mut recording = setup.start().unwrap();
    let size = |at: usize| std::fs::metadata(&archives[at]).map_or(0, |file| file.len());
    wait_for("records of two pmloggers", || size(0) > 300 && size(1) > 300);
    let [ended, detached] = hosts.map(|host| recording.process(host).unwrap());
    recording.detach_host(hosts[1]).unwrap();
    assert!(matches!(recording.stop_host(hosts[1]), Err(RecordError::Ended(_))));
    recording.stop().unwrap();
    assert!(!Path::new(&format!("/proc/{ended}")).exists());
    let before = size(1);
    wait_for("the detached pmlogger", || size(1) > before);
    // It is a child of this process, whose parent no longer waits for it.
    let state = || std::fs::read_to_string(format!("/proc/{detached}/stat")).unwrap_or_default();
    assert!(Command::new("kill").arg(detached.to_string()).status().unwrap().success());
    wait_for("the end of the detached pmlogger", || state().contains(") Z "));
}

#[test]
fn recordings_without_sense() {
    let dir = tempfile::tempdir().unwrap();
    let folio = |name: &str| dir.path().join(name);
    let sentence = |e: RecordError| {
        assert_eq!(e.to_string().lines().count(), 1, "{e}");
        e
    };
    for creator in ["", "a b", "a\nb", "a/b"] {
        let error = sentence(RecordSetup::new(folio("x"), creator, Replay::None).unwrap_err());
        assert!(matches!(error, RecordError::Name(_)), "{error}");
        assert!(!folio("x").exists());
    }
    let error = sentence(RecordSetup::new(folio("no/such/x"), "me", Replay::None).unwrap_err());
    assert!(matches!(error, RecordError::File { .. }), "{error}");
    let mut setup = RecordSetup::new(folio("x"), "me", Replay::None).unwrap();
    assert!(setup.replay().is_none());
    for host in ["", "a b", "unix:/tmp/socket"] {
        sentence(setup.add_host(host, HostRole::Named).unwrap_err());
    }
    for _ in 0..27 {
        setup.add_host("host", HostRole::Named).unwrap();
    }
    assert!(matches!(sentence(setup.add_host("host", HostRole::Named).unwrap_err()), RecordError::TooOften(_)));
    let empty = RecordSetup::new(folio("y"), "me", Replay::None).unwrap();
    assert!(matches!(sentence(empty.start().unwrap_err()), RecordError::NoHost));
}

#[test]
fn a_local_context_without_names_or_agents() {
    let dir = tempfile::tempdir().unwrap();
    let config = Config::new(format!("PCP_VAR_DIR={}\n", dir.path().display()).as_bytes(), []);
    let mut agents = LocalAgents::empty(&config);
    // SAFETY: no file can be loaded, here and below.
    let open = |agents| unsafe { Context::open_local(agents) };
    let error = open(agents.clone()).unwrap_err().to_string();
    assert!(error.contains("pmns/root") && error.lines().count() == 1, "{error}");
    let root = dir.path().join("root");
    std::fs::write(&root, "root { x 250:0:0 y 250:*:* }\n").unwrap();
    agents.set_names(&root);
    agents.specify("add,250,no/such,init").unwrap();
    let mut context = open(agents.clone()).unwrap();
    assert_eq!(context.local_failures().len(), 1);
    assert!(context.local_failures()[0].starts_with("agent of domain 250: "), "{:?}", context.local_failures());
    let second = open(agents).unwrap_err().to_string();
    assert_eq!(second, "this process has a local context already");
    let mut copy = context.duplicate().unwrap();
    let pmid = copy.lookup_name("x").unwrap();
    assert_eq!(copy.lookup_desc(pmid), Err(Error::NOAGENT));
    assert_eq!(context.fetch(&[pmid]).unwrap().set(0).unwrap().error, Some(Error::NOAGENT));
    assert_eq!(context.traverse("").as_deref(), Ok(&["x".to_owned()][..]));
    assert_eq!(context.lookup_name("y.z"), Err(Error::NOAGENT));
    assert!(!context.host_name().unwrap().is_empty());
}

#[test]
#[ignore = "needs PCP"]
fn rates_of_a_live_pmcd() {
    let pmcd = Pcp::required().pmcd().start();
    let mut group = FetchGroup::new(Context::connect(&pmcd.host()).unwrap());
    assert_eq!(group.fetch().unwrap_err().code(), Error::TOOSMALL);
    let rate = group.item("pmcd.pdu_in.fetch", None, None, Type::Double).err();
    assert!(matches!(rate, None | Some(GroupError::NoInstance { .. } | GroupError::Metric { .. })), "{rate:?}");
    let rate = group.item("pmcd.pdu_in.total", None, Some("rate"), Type::Double).unwrap();
    let count = group.item("pmcd.pdu_in.total", None, Some("instant"), Type::U64).unwrap();
    let mut counts = Vec::new();
    for nth in 0..3 {
        group.fetch().unwrap();
        counts.push((group.time().unwrap(), group.value(count).unwrap().clone()));
        match (nth, group.value(rate)) {
            (0, found) => assert_eq!(found, Err(Error::AGAIN)),
            (_, Ok(Value::Double(rate))) => {
                let [(before, Value::U64(less)), (now, Value::U64(more))] = &counts[nth - 1..] else { panic!() };
                let nano = (now.seconds - before.seconds) * 1_000_000_000 + i64::from(now.nanoseconds)
                    - i64::from(before.nanoseconds);
                let wanted = (more - less) as f64 / (nano as f64 / 1e9);
                assert!((rate / wanted - 1.0).abs() < 1e-9 && *rate > 0.0, "{rate} {wanted}");
            }
            other => panic!("{other:?}"),
        }
    }
    group.clear();
    assert_eq!(group.value(rate), Err(Error::VALUE));
    assert!(group.into_context().host().is_some());
}

/// pmcd reports changes once to each connection, so every fetch has a connection of its own.
#[test]
#[ignore = "needs PCP"]
fn changes_beside_derived_metrics() {
    let pcp = Pcp::required();
    let simple = pcp.c_agent("simple");
    let mut pmcd = pcp.pmcd().pmdas_dir(simple.pmdas_dir()).agent(simple.agent()).start();
    let connect = || {
        let mut context = Context::connect(&pmcd.host()).unwrap();
        context.add_derived("twice", "pmcd.numagents * 2").unwrap();
        let pmids = ["pmcd.numagents", "twice"].map(|name| context.lookup_name(name).unwrap());
        context.fetch(&pmids).unwrap();
        (context, pmids)
    };
    let (mut plain, mut derived, mut both) = (connect(), connect(), connect());
    let (context, [_, twice]) = connect();
    let mut group = FetchGroup::new(context);
    assert_eq!(group.context().name_id(twice).as_deref(), Ok("twice"));
    group.item("twice", None, None, Type::U32).unwrap();
    assert_eq!(group.fetch(), Ok(Changes::empty()));
    for (agents, wanted) in [(Vec::new(), Changes::AGENT_DROPPED), (vec![simple.agent()], Changes::AGENT_ADDED)] {
        pmcd.set_agents(agents);
        pmcd.sighup();
        for nth in 0..2 {
            let wanted = if nth == 0 { wanted } else { Changes::empty() };
            let (context, [operand, _]) = &mut plain;
            assert_eq!(context.fetch(&[*operand]).unwrap().changes(), wanted);
            let (context, [_, twice]) = &mut derived;
            assert_eq!(context.fetch(&[*twice]).unwrap().changes(), wanted);
            let (context, pmids) = &mut both;
            assert_eq!(context.fetch(pmids).unwrap().changes(), wanted);
            assert_eq!(group.fetch(), Ok(wanted));
        }
    }
}
