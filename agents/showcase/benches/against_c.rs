//! Compares agent `showcase` with the same agent in C, which is `peer.c`, and with the time that pipes alone take. Run
//! it with `cargo bench -p pmda-showcase`.
//!
//! Both agents have the same metrics with the same values: a domain in a cache, a fixed domain, and a thousand singular
//! metrics. Replies are checked to be equal before they are measured.

#![allow(clippy::expect_used)]

#[path = "../../../pmda/benches/driver/mod.rs"]
mod driver;

use std::path::{Path, PathBuf};
use std::process::Command;

use driver::{Contest, Goal, Home, Program, Requests, Shape};
use pcp_pdu::profile::{Profile, ProfileState};
use pmapi::Inst;

const DOMAIN: u16 = 400;
const CACHED: u16 = 0;
const SINGLE: u16 = 1;
const FIXED: u16 = 2;
const TYPES: [(u16, &str, f64); 4] =
    [(0, "u32", 0.15), (1, "u64", 0.13), (2, "double", 0.13), (3, "string of 16", 0.20)];

fn main() {
    if !driver::begin("agent showcase") {
        return;
    }
    let home = Home::new();
    let peer = compile(&home).map_err(|e| driver::no_peer(&e)).ok();
    let agents = |instances: u32| {
        let program = |label, path: &Path| program(&home, label, path, instances);
        (peer.as_ref().map(|peer| program("C", peer)), program("Rust", env!("CARGO_BIN_EXE_pmdashowcase").as_ref()))
    };
    let contest = |instances| {
        let (c, ours) = agents(instances);
        Contest::new(&home, c, ours, Requests::of(DOMAIN).fetch(&[(SINGLE, 0)]))
    };
    singular(contest(1));
    for instances in [10_000, 100_000] {
        domains(contest(instances), instances);
    }
    million(contest(1_000_000));
}

fn fetch(cluster: u16, item: u16) -> [Vec<u8>; 1] {
    [Requests::of(DOMAIN).fetch(&[(cluster, item)])]
}

fn singular(mut contest: Contest<'_>) {
    let all: Vec<(u16, u16)> = (0..1000).map(|item| (SINGLE, item)).collect();
    let all = [Requests::of(DOMAIN).fetch(&all)];
    contest.agree(&all);
    contest.run("1,000 singular metrics", &all, Shape { blocks: 20, rounds: 200 }, Some(Goal::Cpu(0.20)));
}

fn domains(mut contest: Contest<'_>, instances: u32) {
    println!("\n{instances} instances");
    let requests = Requests::of(DOMAIN);
    let shape = Shape { blocks: 20, rounds: (400_000 / instances).try_into().expect("a few") };
    for (item, name, goal) in TYPES {
        contest.agree(&fetch(CACHED, item));
        contest.run(&format!("cached domain, {name}"), &fetch(CACHED, item), shape, Some(Goal::Cpu(goal)));
    }
    for (item, name, _) in TYPES {
        contest.agree(&fetch(FIXED, item));
        contest.run(&format!("fixed domain, {name}"), &fetch(FIXED, item), shape, Some(Goal::Cpu(0.28)));
    }
    contest.run_apart("cached domain, u32, from another core", &fetch(CACHED, 0), shape, Some(Goal::Time(0.40)));
    let list = [requests.instances(0)];
    contest.agree(&list);
    contest.run("instances of the cached domain", &list, shape, Some(Goal::Cpu(0.19)));

    let ten: Vec<Inst> = (0..10).map(|i| Inst::new(i * (instances / 10) + 7)).collect();
    let mut profile = Profile::default();
    profile.set(requests.indom(0), ProfileState::Exclude, &ten);
    contest.profile(driver::encode(|out| profile.encode(out, 0, 0)));
    contest.agree(&fetch(CACHED, 0));
    // The time that C takes grows with the domain.
    let goal = if instances < 100_000 { None } else { Some(Goal::Cpu(0.01)) };
    contest.run("cached domain, u32, profile of 10", &fetch(CACHED, 0), shape, goal);
}

fn million(mut contest: Contest<'_>) {
    println!("\n1,000,000 instances: at most 30 ms of CPU, and no more memory than C");
    contest.agree(&fetch(CACHED, 0));
    contest.run("cached domain, u32", &fetch(CACHED, 0), Shape { blocks: 6, rounds: 3 }, None);
    contest.memory(1_000_000);
}

fn program(home: &Home, label: &'static str, binary: &Path, instances: u32) -> Program {
    let program = home.agent(label, binary, &home.path("pmdas"));
    program.arg("-d").arg(DOMAIN.to_string()).arg("-n").arg(instances.to_string())
}

/// Compiles the C peer. Returns an error if there is no compiler or no `libpcp_pmda`.
fn compile(home: &Home) -> Result<PathBuf, String> {
    let peer = home.path("peer");
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-o"]).arg(&peer).arg(concat!(env!("CARGO_MANIFEST_DIR"), "/benches/peer.c"));
    let output = cc.args(["-lpcp_pmda", "-lpcp"]).output().map_err(|e| format!("cc: {e}"))?;
    if output.status.success() {
        return Ok(peer);
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(format!("peer.c: {}", text.lines().find(|line| line.contains("error")).unwrap_or("cc failed")))
}
