//! An agent with 100,000 instances beside the same one on libpcp_pmda: `cargo bench -p pcp-pmda`.
//!
//! Both have the same metrics with the same values: a domain that a cache keeps, a domain that is known from the
//! start, and a thousand singular metrics.

#![allow(clippy::expect_used)]

mod agent;
#[path = "../driver/mod.rs"]
mod driver;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use driver::{Contest, Goal, Home, Program, Requests, Shape};
use pmapi::Inst;
use pmapi::pdu::profile::{Profile, State};

const INSTANCES: u32 = 100_000;
/// Makes this program the agent, with that many instances.
const AGENT: &str = "PMDA_BENCH_INSTANCES";

const TYPES: [(u16, &str, f64); 4] =
    [(0, "u32", 0.22), (1, "u64", 0.18), (2, "double", 0.18), (3, "string of 16", 0.27)];

fn main() -> ExitCode {
    if std::env::var_os(AGENT).is_some() {
        return pmda::main::<agent::Large>();
    }
    if driver::begin(&format!("{INSTANCES} instances")) {
        compare();
    }
    ExitCode::SUCCESS
}

fn compare() {
    let home = Home::new();
    let c = match compile(&home) {
        Ok(peer) => Some(program(&home, "C", &peer)),
        Err(e) => {
            driver::no_peer(&e);
            None
        }
    };
    let ours = program(&home, "Rust", &std::env::current_exe().expect("the path of this bench"));
    let requests = Requests::of(agent::DOMAIN);
    let few = Shape { blocks: 20, rounds: 4 };
    let mut contest = Contest::new(&home, c, ours, requests.fetch(&[(1, 0)]));

    let fetch = |cluster, item| [requests.fetch(&[(cluster, item)])];
    for (item, name, goal) in TYPES {
        contest.agree(&fetch(0, item));
        contest.run(&format!("cached domain, {name}"), &fetch(0, item), few, Some(Goal::Cpu(goal)));
    }
    for (item, name, _) in TYPES {
        contest.agree(&fetch(2, item));
        contest.run(&format!("fixed domain, {name}"), &fetch(2, item), few, Some(Goal::Cpu(0.40)));
    }
    let instances = [requests.instances(0)];
    contest.agree(&instances);
    contest.run("instances of the cached domain", &instances, few, Some(Goal::Cpu(0.22)));
    let singular: Vec<(u16, u16)> = (0..1000).map(|item| (1, item)).collect();
    let singular = [requests.fetch(&singular)];
    let many = Shape { blocks: 20, rounds: 100 };
    contest.agree(&singular);
    contest.run("1,000 singular metrics", &singular, many, Some(Goal::Cpu(0.36)));

    let ten: Vec<Inst> = (0..10).map(|i| Inst::new(i * (INSTANCES / 10) + 7)).collect();
    let mut profile = Profile::default();
    profile.set(requests.indom(0), State::Exclude, &ten);
    contest.profile(driver::encode(|out| profile.encode(out, 0, 0)));
    contest.agree(&fetch(0, 0));
    contest.run("cached domain, u32, profile of 10", &fetch(0, 0), few, Some(Goal::Cpu(0.01)));
}

fn program(home: &Home, label: &'static str, binary: &Path) -> Program {
    home.agent(label, binary, &home.path("pmdas")).env(AGENT, INSTANCES.to_string())
}

/// The C peer, if libpcp_pmda can be compiled with; if not, why.
fn compile(home: &Home) -> Result<PathBuf, String> {
    let peer = home.path("peer");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/large/peer.c");
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-o"]).arg(&peer).args([source, "-lpcp_pmda", "-lpcp"]);
    let output = cc.output().map_err(|e| format!("cc: {e}"))?;
    if output.status.success() {
        Ok(peer)
    } else {
        let text = String::from_utf8_lossy(&output.stderr);
        Err(format!("peer.c: {}", text.lines().find(|line| line.contains("error")).unwrap_or("cc failed")))
    }
}
