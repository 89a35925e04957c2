//! The services under load, with PCP's agents and ours, seen by PCP's clients. Our agents are those in `target/debug`.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use testkit::{Agent, Pcp, Pmcd, free_port};

struct Service(Child);

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the path of an agent of this repository.
fn ours(agent: &str) -> PathBuf {
    let binary = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/debug").join(agent);
    assert!(binary.exists(), "cargo build --workspace makes {}", binary.display());
    binary
}

fn traced(port: u16, run: &Path) -> Service {
    let mut command = Command::new(env!("CARGO_BIN_EXE_traced_service"));
    command.arg("--load").env("PCP_TRACE_PORT", port.to_string()).env("PCP_RUN_DIR", run).stdout(Stdio::null());
    Service(command.spawn().unwrap())
}

/// Tries until a condition holds, for a minute.
fn wait_for(what: impl Fn() -> bool) {
    let start = Instant::now();
    while !what() {
        assert!(start.elapsed() < Duration::from_secs(60), "not seen in time");
        sleep(Duration::from_millis(20));
    }
}

fn count(pmcd: &Pmcd, metric: &str, tag: &str) -> u64 {
    let text = pmcd.run("pminfo", ["-f", metric]).text;
    let line = text.lines().find(|line| line.contains(&format!("\"{tag}\"")));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0)
}

/// Waits until the service's trace events are counted, and until pmval shows a rate.
fn is_seen(pmcd: &Pmcd) {
    wait_for(|| {
        count(pmcd, "trace.transact.count", "look up") >= 500 && count(pmcd, "trace.point.count", "no such item") >= 50
    });
    wait_for(|| {
        let text = pmcd.run("pmval", ["-s", "3", "-t", "0.3", "trace.transact.count"]).ok();
        let rate = text.lines().last().and_then(|line| line.split_whitespace().last()?.parse::<f64>().ok());
        rate.is_some_and(|rate| rate > 0.0)
    });
}

#[test]
#[ignore = "needs PCP"]
fn a_service_under_load_is_seen_through_pcps_agent() {
    let pcp = Pcp::required();
    let c = pcp.c_agent("trace");
    let port = free_port("127.0.0.1");
    let pmcd = pcp.pmcd().pmdas_dir(c.pmdas_dir()).agent(c.agent().args(["-I", &port.to_string()])).start();
    // The agent has shaken hands with pmcd before it listens. It listens when it answers a fetch.
    pmcd.run("pminfo", ["-f", "trace.control.port"]).ok();
    let _service = traced(port, &pmcd.dir().join("run"));
    is_seen(&pmcd);
}

#[test]
#[ignore = "needs PCP"]
fn a_service_under_load_is_seen_through_shared_memory() {
    let binary = ours("pmdatrace");
    let dir = tempfile::tempdir().unwrap();
    let written = Command::new(&binary).arg("--write-pmda").arg(dir.path()).status();
    assert!(written.unwrap().success());
    let port = free_port("127.0.0.1");
    let user = nix::unistd::User::from_uid(nix::unistd::geteuid()).unwrap().unwrap().name;
    let agent = Agent::new("trace", 10, binary).pmns(&dir.path().join("pmns"));
    let pmcd = Pcp::required().pmcd().agent(agent.args(["-M", &user, "-I", &port.to_string()])).start();
    pmcd.run("pminfo", ["-f", "trace.control.port"]).ok();
    let service = traced(port, &pmcd.dir().join("run"));
    is_seen(&pmcd);
    let shown = |metric: &str| pmcd.run("pminfo", ["-f", metric]).text;
    assert!(
        shown("trace.shared_memory.processes").contains("value 1\n")
            && shown("trace.shared_memory.missed").contains("value 0\n")
    );
    let text = pmcd.run("pmval", ["-s", "1", "-x", "tag=look up; id~.", "trace.event.records"]).ok();
    assert!(text.contains("(end,id,parent) ---") && text.contains("trace.event.field.id \""), "{text}");
    // After the service is killed, all its trace events are counted, and its file is removed.
    drop(service);
    wait_for(|| shown("trace.shared_memory.processes").contains("value 0\n"));
    let files = fs::read_to_string(pmcd.dir().join(format!("run/trace/{port}/agent"))).unwrap();
    assert_eq!(fs::read_dir(files).unwrap().count(), 0);
}

#[test]
#[ignore = "needs PCP"]
fn a_service_under_load_is_seen_through_mmv() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("mmv")).unwrap();
    let mut service = Command::new(env!("CARGO_BIN_EXE_service"));
    service.arg("--load").env("PCP_TMP_DIR", dir.path()).stdout(Stdio::null());
    let _service = Service(service.spawn().unwrap());
    let pcp = Pcp::required();
    for binary in [pcp.path("PCP_PMDASADM_DIR").join("mmv/pmdammv"), ours("pmdammv")] {
        let agent = Agent::new("mmv", 70, binary).names("root {\n    mmv MMV:*:*\n}\n").args(["-U", "root"]);
        let pmcd = pcp.pmcd().env("PCP_TMP_DIR", dir.path()).agent(agent).start();
        let parts = [
            "method=GET+status=404\"] value",
            "\"method\":\"GET\",\"status\":\"404\"",
            "Semantics: counter",
            "Units: sec",
            "mmv.shop.http_request_duration",
        ];
        wait_for(|| {
            let text = pmcd.run("pminfo", ["-dfl", "mmv.shop"]).text;
            parts.iter().all(|part| text.contains(part))
        });
        wait_for(|| {
            let rates = pmcd.run("pmval", ["-s", "3", "-t", "0.2", "mmv.shop.http_requests_total"]).ok();
            rates.split_whitespace().filter_map(|word| word.parse::<f64>().ok()).any(|rate| rate > 100.0)
        });
    }
}
