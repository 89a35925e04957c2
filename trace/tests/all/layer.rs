//! Spans and events of `tracing`, with PCP's agent.

use std::time::{Duration, Instant};

use pcp_trace::{Options, State, Trace, layer::TraceLayer};
use testkit::{Pcp, Pmcd, free_port};
use tracing_subscriber::layer::SubscriberExt as _;

/// Starts a pmcd with PCP's agent. Returns it with the agent's port.
fn agent() -> (Pmcd, u16) {
    let pcp = Pcp::required();
    let c = pcp.c_agent("trace");
    let port = free_port("127.0.0.1");
    let agent = c.agent().args(["-I", &port.to_string()]);
    let pmcd = pcp.pmcd().pmdas_dir(c.pmdas_dir()).agent(agent).start();
    // The agent has shaken hands with pmcd before it listens. It listens when it answers a fetch.
    pmcd.run("pminfo", ["-f", "trace.control.port"]).ok();
    (pmcd, port)
}

#[test]
#[ignore = "needs PCP"]
fn spans_are_transactions_and_events_points() {
    let (pmcd, port) = agent();
    let trace = Trace::new(Options::default().host("127.0.0.1").port(port).state(State::ASYNC));
    let subscriber = tracing_subscriber::registry().with(TraceLayer::new(trace.clone()));
    tracing::subscriber::with_default(subscriber, || {
        for id in 0..20 {
            let span = tracing::info_span!("look up", id);
            let _entered = span.enter();
            std::thread::sleep(Duration::from_millis(1));
            if id % 10 == 0 {
                tracing::warn!(name: "no such item", id, "nothing has this number");
            }
        }
        tracing::info!(target: "shop::orders", "order {}", 7);
    });
    assert!(trace.flush(Duration::from_secs(20)));
    assert_eq!((trace.status().sent, trace.status().missed), (23, 0));

    let shown = |metric: &str| pmcd.run("pminfo", ["-f", metric]).ok();
    let start = Instant::now();
    while !shown("trace.point.count").contains("\"shop::orders\"] value 1\n") {
        assert!(start.elapsed() < Duration::from_secs(30), "{}", shown("trace.point.count"));
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(shown("trace.point.count").contains("\"no such item\"] value 2\n"));
    assert!(shown("trace.transact.count").contains("\"look up\"] value 20\n"));
    let total = shown("trace.transact.total_time");
    let seconds: f64 = total.trim_end().rsplit(' ').next().unwrap().parse().unwrap();
    assert!((0.02..10.0).contains(&seconds), "{total}");
}
