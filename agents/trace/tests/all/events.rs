//! Event records in the real pmcd, read with PCP's clients. The application is instrumented with `tracing`.

use std::fs;
use std::process::Command;

use testkit::{Agent, Pcp, Pmcd, free_port};
use trace::layer::TraceLayer;
use trace::{Options, State, Trace, Transport};
use tracing_subscriber::layer::SubscriberExt as _;

/// Starts a pmcd with the agent and the agent's own pmns. Returns it with options for an application.
fn start() -> (Pmcd, Options) {
    let pcp = Pcp::required();
    let dir = tempfile::tempdir().unwrap();
    let binary = env!("CARGO_BIN_EXE_pmdatrace");
    let written = Command::new(binary).arg("--write-pmda").arg(dir.path()).status().unwrap();
    assert!(written.success());
    let port = free_port("127.0.0.1");
    let agent = Agent::new("trace", 10, binary).pmns(&dir.path().join("pmns"));
    let user = nix::unistd::User::from_uid(nix::unistd::geteuid()).unwrap().unwrap().name;
    let pmcd = pcp.pmcd().agent(agent.args(["-M", &user, "-I", &port.to_string()])).start();
    pmcd.run("pminfo", ["-f", "trace.control.port"]).ok();
    let directory = pmcd.dir().join(format!("run/trace/{port}"));
    (pmcd, Options::default().port(port).directory(directory).state(State::ASYNC))
}

fn serve(id: u32) {
    let _request = tracing::info_span!("request", method = "GET").entered();
    let _look_up = tracing::info_span!("look up", id, found = tracing::field::Empty).entered();
    if id % 10 == 0 {
        tracing::warn!(name: "no such item", id, "nothing has this number");
    }
    tracing::Span::current().record("found", id % 10 != 0);
}

#[test]
#[ignore = "needs PCP"]
fn pminfo_and_pmval_show_what_a_service_does() {
    let (pmcd, options) = start();
    let trace = Trace::new(options);
    let subscriber = tracing_subscriber::registry().with(TraceLayer::new(trace.clone()));
    tracing::subscriber::with_default(subscriber, || (9..=10).for_each(serve));
    assert_eq!((trace.status().sent, trace.status().missed), (5, 0));
    assert!(trace.status().connected);

    let shown =
        pmcd.run("pminfo", ["-f", "trace.transact.count", "trace.point.count", "trace.shared_memory.processes"]).ok();
    for part in ["\"request\"] value 2", "\"look up\"] value 2", "\"no such item\"] value 1", "processes\n    value 1"]
    {
        assert!(shown.contains(part), "{part} is not in\n{shown}");
    }
    let text = pmcd.run("pminfo", ["-x", "trace.event.records"]).ok();
    assert!(text.contains("value [9 event records timestamps "), "{text}");
    let id = |n: u64| u64::from(std::process::id()) << 42 | n;
    for part in [
        "flags 0xa (start,id)".to_owned(),
        "flags 0x1a (start,id,parent)".to_owned(),
        "flags 0x1c (end,id,parent)".to_owned(),
        "flags 0x11 (point,parent)".to_owned(),
        "flags 0xc (end,id)".to_owned(),
        format!("trace.event.param.id (10.1.14)\n        value {}\n", id(2)),
        format!("trace.event.param.parent (10.1.15)\n        value {}\n", id(1)),
        "trace.event.param.tag (10.1.10)\n        value \"no such item\"\n".to_owned(),
        "trace.event.param.kind (10.1.11)\n        value \"transact\"\n".to_owned(),
        format!("trace.event.param.process (10.1.16)\n        value {}\n", std::process::id()),
        "trace.event.field.method (10.2.2)\n        value \"GET\"\n".to_owned(),
        "trace.event.field.found (10.2.1)\n        value \"false\"\n".to_owned(),
        "trace.event.field.message (10.2.3)\n        value \"nothing has this number\"\n".to_owned(),
    ] {
        assert!(text.contains(&part), "{part} is not in\n{text}");
    }
    let names = pmcd.run("pminfo", ["trace.event.field"]).ok();
    assert_eq!(names.lines().count(), 4, "{names}");
    let text = pmcd.run("pminfo", ["-x", "trace.event.highres_records"]).ok();
    assert!(text.contains("value [9 event records timestamps "), "{text}");

    // Each pmval is another client with its own filter.
    for (filter, count) in [("tag=no such item", 1), ("id=9", 1), ("found~true|false; kind=transact", 2)] {
        let text = pmcd.run("pmval", ["-x", filter, "-s", "1", "trace.event.records"]).ok();
        assert!(text.contains(&format!("{count} event records")), "{filter}: {text}");
    }
    let text = pmcd.run("pmval", ["-x", "tag", "-s", "1", "trace.event.records"]).text;
    assert!(text.contains("Bad input to pmstore"), "{text}");
    assert!(pmcd.log("trace").contains("filter of uid 0: tag: = or ~ is missing"), "{}", pmcd.log("trace"));
    fs::metadata(pmcd.dir().join("run/trace")).unwrap();
}

#[test]
#[ignore = "needs PCP"]
fn pminfo_shows_how_many_were_missed() {
    let (pmcd, options) = start();
    let trace = Trace::new(options.ring_len(4096).transport(Transport::SharedMemory));
    let tag = trace::Tag::new("tag").unwrap();
    trace.point(&tag);
    pmcd.run("pminfo", ["-f", "trace.point.count"]).ok();
    // The ring has 63 cells, of which the 16 oldest are not read.
    (0..1000).for_each(|_| trace.point(&tag));
    let text = pmcd.run("pminfo", ["-x", "trace.event.records"]).ok();
    assert!(text.contains("==> 953 missed event records\n"), "{text}");
    assert_eq!(text.matches("flags 0x1 (point)").count(), 48, "{text}");
    let text = pmcd.run("pminfo", ["-f", "trace.event.missed", "trace.event.count", "trace.point.count"]).ok();
    for part in ["missed\n    value 953", "event.count\n    value 48", "value 1001"] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
}
