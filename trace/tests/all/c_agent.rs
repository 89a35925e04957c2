//! The library with PCP's agent `pmdatrace`.

use std::thread;
use std::time::Duration;

use pcp_trace::{Failure, Options, State, Tag, Trace};
use testkit::{Pcp, Pmcd, free_port};

/// Starts a pmcd with PCP's agent. Returns it with options for this agent.
fn agent(args: &[&str]) -> (Pmcd, Options) {
    let pcp = Pcp::required();
    let c = pcp.c_agent("trace");
    let port = free_port("127.0.0.1");
    let agent = c.agent().args(["-I", &port.to_string()]).args(args);
    let pmcd = pcp.pmcd().pmdas_dir(c.pmdas_dir()).agent(agent).start();
    // The agent has shaken hands with pmcd before it listens. It listens when it answers a fetch.
    pmcd.run("pminfo", ["-f", "trace.control.port"]).ok();
    (pmcd, Options::default().host("127.0.0.1").port(port))
}

fn value(pmcd: &Pmcd, metric: &str, instance: &str) -> Option<f64> {
    let text = pmcd.run("pminfo", ["-f", metric]).ok();
    let line = text.lines().find(|line| line.contains(&format!(" or \"{instance}\"]")))?;
    line.rsplit(' ').next()?.parse().ok()
}

fn trace_all(trace: &Trace) {
    let [order, point, size, bytes] = ["order", "point", "size", "bytes"].map(|name| Tag::new(name).unwrap());
    for _ in 0..3 {
        let transaction = trace.begin(&order);
        thread::sleep(Duration::from_millis(2));
        transaction.end();
    }
    trace.begin(&order).abort();
    drop(trace.begin(&order));
    for i in 0..5 {
        trace.point(&point);
        trace.observe(&size, f64::from(i) * 0.5);
        trace.counter(&bytes, f64::from(i) * 100.0);
    }
}

fn check(pmcd: &Pmcd) {
    assert_eq!(value(pmcd, "trace.transact.count", "order"), Some(3.0));
    let total = value(pmcd, "trace.transact.total_time", "order").unwrap();
    assert!((0.006..5.0).contains(&total), "{total}");
    assert_eq!(value(pmcd, "trace.point.count", "point"), Some(5.0));
    assert_eq!(value(pmcd, "trace.observe.count", "size"), Some(5.0));
    assert_eq!(value(pmcd, "trace.observe.value", "size"), Some(2.0));
    assert_eq!(value(pmcd, "trace.counter.count", "bytes"), Some(5.0));
    assert_eq!(value(pmcd, "trace.counter.value", "bytes"), Some(400.0));
}

#[test]
#[ignore = "needs PCP"]
fn both_protocols_are_counted() {
    let (pmcd, options) = agent(&[]);
    let trace = Trace::new(options.clone());
    trace_all(&trace);
    check(&pmcd);
    let status = trace.status();
    assert!(status.connected && status.failure.is_none());
    assert_eq!((status.sent, status.missed), (18, 0));

    pmcd.run("pmstore", ["trace.control.reset", "1"]).ok();
    let trace = Trace::new(options.state(State::ASYNC));
    trace_all(&trace);
    assert!(trace.flush(Duration::from_secs(20)));
    assert_eq!((trace.status().sent, trace.status().missed), (18, 0));
    // "Sent" does not mean "counted": the agent processes PDUs later.
    while value(&pmcd, "trace.counter.value", "bytes") != Some(400.0) {
        thread::sleep(Duration::from_millis(10));
    }
    check(&pmcd);
}

#[test]
#[ignore = "needs PCP"]
fn threads_are_counted_exactly() {
    let (pmcd, options) = agent(&[]);
    for (state, tag) in [(State::empty(), "sync"), (State::ASYNC, "async")] {
        let trace = Trace::new(options.clone().state(state));
        let tag_of = Tag::new(tag).unwrap();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..250).for_each(|_| trace.point(&tag_of)));
            }
        });
        assert!(trace.flush(Duration::from_secs(20)));
        assert_eq!((trace.status().sent, trace.status().missed), (1000, 0));
        while state == State::ASYNC && value(&pmcd, "trace.point.count", tag) != Some(1000.0) {
            thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(value(&pmcd, "trace.point.count", tag), Some(1000.0));
    }
}

#[test]
#[ignore = "needs PCP"]
fn an_agent_that_comes_back_is_found() {
    let (mut pmcd, options) = agent(&[]);
    let options = options.reconnect([Duration::from_millis(50)]);
    let asynchronous = options.clone().state(State::ASYNC);
    let tag = Tag::new("here").unwrap();
    for trace in [Trace::new(options), Trace::new(asynchronous)] {
        trace.point(&tag);
        assert!(trace.flush(Duration::from_secs(20)));
        assert_eq!(trace.status().sent, 1);
        pmcd.restart();
        let counted = || value(&pmcd, "trace.point.count", "here").is_some();
        while !counted() {
            trace.point(&tag);
            thread::sleep(Duration::from_millis(10));
        }
        assert!(trace.status().connected && trace.status().sent > 1);
    }
}

#[test]
#[ignore = "needs PCP"]
fn refusals_are_told() {
    let tag = Tag::new("tag").unwrap();
    let (_pmcd, options) = agent(&["-A", "disallow:localhost"]);
    let trace = Trace::new(options);
    trace.point(&tag);
    // C's agent resets the connection right after its answer, so that the client may not be able to read it.
    assert!(matches!(trace.status().failure, Some(Failure::Permission | Failure::Io(_))), "{:?}", trace.status());
    assert_eq!((trace.status().connected, trace.status().missed), (false, 1));

    // C's agent counts a connection once for each address family of the host's name.
    let (pmcd, options) = agent(&["-A", "allow:localhost:3"]);
    let [first, second] = [Trace::new(options.clone()), Trace::new(options)];
    first.point(&tag);
    second.point(&tag);
    assert!(first.status().connected);
    assert!(matches!(second.status().failure, Some(Failure::ConnLimit | Failure::Io(_))), "{:?}", second.status());
    assert_eq!(value(&pmcd, "trace.point.count", "tag"), Some(1.0));
}
