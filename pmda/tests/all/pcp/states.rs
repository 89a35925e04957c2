//! Agents that fail or cannot answer, under the real pmcd.

use testkit::{Pcp, Pmcd};

use super::stage;

const AGAIN: &str = "Try again. Information not currently available";

fn probe(pmcd: &Pmcd, metric: &str) -> String {
    pmcd.run("pmprobe", ["-v", metric]).text
}

fn until_ready(pmcd: &Pmcd) {
    loop {
        let text = probe(pmcd, "stage.panic");
        if text == "stage.panic 1 0\n" {
            return;
        }
        assert!(text.contains(AGAIN), "{text}");
    }
}

#[test]
#[ignore = "needs PCP"]
// Slow: clients of PCP ask until the agent is ready.
fn pmcd_waits_for_an_agent_that_is_not_ready() {
    let pmcd = Pcp::required().pmcd().agent(stage()).start();
    let pid = pmcd.agent_pid("stage");
    for _ in 0..2 {
        // pmstore fetches, stores, and sends no more requests.
        pmcd.run("pmstore", ["stage.not_ready", "1500"]).ok();
        let text = probe(&pmcd, "stage.panic");
        assert!(text.contains(AGAIN), "{text}");
        // pmcd answers by itself until the agent is ready.
        until_ready(&pmcd);
    }
    // An agent that refuses a single request in this way is ready again at once.
    for _ in 0..20 {
        let text = pmcd.run("pmstore", ["--", "stage.error", "-13394"]).failed();
        assert!(text.contains(AGAIN), "{text}");
        until_ready(&pmcd);
    }
    assert_eq!((pmcd.agent_status("stage"), pmcd.agent_pid("stage")), (0, pid));
}

#[test]
#[ignore = "needs PCP"]
fn pmcd_may_wait_from_the_start() {
    let pmcd = Pcp::required().pmcd().agent(stage().not_ready().args(["--notready"])).start();
    until_ready(&pmcd);
    assert_eq!(pmcd.agent_status("stage"), 0);
}

#[test]
#[ignore = "needs PCP"]
fn no_failure_of_a_request_ends_the_agent() {
    let pmcd = Pcp::required().pmcd().agent(stage()).start();
    let pid = pmcd.agent_pid("stage");
    pmcd.run("pmstore", ["stage.panic", "1"]).ok();
    let text = probe(&pmcd, "stage.panic");
    assert!(text.contains("Generic error, already reported above"), "{text}");
    assert_eq!(probe(&pmcd, "stage.panic"), "stage.panic 1 1\n");
    // Other metrics of the same fetch have their values.
    pmcd.run("pmstore", ["stage.panic", "1"]).ok();
    let text = pmcd.run("pminfo", ["-f", "stage.error", "stage.panic", "stage.small.u8"]).text;
    assert_eq!(text.matches("\n    value ").count(), 2, "{text}");
    assert!(text.contains("stage.panic\nError: Generic error, already reported above"), "{text}");
    // These are PM_ERR_IPC, PM_ERR_TIMEOUT, PM_ERR_PMDAREADY and -EPIPE, with which pmcd would drop the agent.
    for code in ["-12366", "-12353", "-13393", "-32"] {
        let text = pmcd.run("pmstore", ["--", "stage.error", code]).failed();
        assert!(text.contains(AGAIN), "{code}: {text}");
    }
    assert_eq!(probe(&pmcd, "stage.print"), "stage.print 1 1\n");
    assert_eq!((pmcd.agent_status("stage"), pmcd.agent_pid("stage")), (0, pid));
    let log = pmcd.log("stage");
    assert!(
        log.contains("Error: stage.panic (401.3.0): the fetch panicked at ")
            && !log.contains("Error: panic at ")
            && log.contains("\nthe agent prints\n"),
        "{log}"
    );
}

#[test]
#[ignore = "needs PCP"]
fn types_as_pcp_shows_them() {
    let pcp = Pcp::required();
    let sample = pcp.c_agent("sample");
    let pmcd = pcp.pmcd().pmdas_dir(sample.pmdas_dir()).agent(sample.agent()).agent(stage()).start();
    for (metric, value) in [
        ("small.u8", "1 255"),
        ("small.i8", "1 -128"),
        ("small.u16", "1 65535"),
        ("small.i16", "1 -32768"),
        ("small.bool", "1 1"),
        ("small.usize", "1 18446744073709551615"),
        ("type.aggregate", "1 [010203]"),
        ("type.aggregate_static", "1 [010203]"),
    ] {
        let metric = format!("stage.{metric}");
        assert_eq!(probe(&pmcd, &metric), format!("{metric} {value}\n"));
    }
    // The output equals that for the C agent's metric, which has no semantics.
    let said = |metric: &str| pmcd.run("pminfo", ["-d", "-f", metric]).text.replace(metric, "METRIC");
    assert_eq!(said("stage.type.no_support"), said("sample.bad.nosupport").replace("??? (0)", "instant"));
}
