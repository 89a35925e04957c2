//! Compares fetches from a C agent that pmcd loads, from the same agent as a daemon, and from the agent behind
//! `pmda-host`. Run it with `cargo bench -p pcp-pmda-host`; it needs PCP and root.
//!
//! Each of the three has its own pmcd, whose client makes the measurement. All processes share one CPU: across cores
//! the wake-up of a process takes longer than the agent's work. Blocks of fetches go forwards and backwards (A B C, C B
//! A), so that a machine that slows down in between affects all of them.

#![allow(clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use pcp_client::{Context, Sample};
use pmapi::{Domain, Item, PmId};
use testkit::{Agent, Pcp, Pmcd, one_word};

const LABELS: [&str; 3] = ["pmcd loads it", "daemon in C", "pmda-host"];

fn main() {
    if !std::env::args().any(|argument| argument == "--bench") {
        println!("pmda-host: measures with cargo bench only");
        return;
    }
    let pcp = match Pcp::locate() {
        Ok(pcp) => pcp,
        Err(missing) => return println!("pmda-host: nothing to compare with: {missing}"),
    };
    share_one_cpu();
    let dir = tempfile::tempdir().expect("a temporary directory");
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .expect("a directory for all");

    let jbd2 = pcp.path("PCP_PMDAS_DIR").join("jbd2");
    let names = std::fs::read_to_string(jbd2.join("root_jbd2")).expect("the names of jbd2");
    let metrics: Vec<(u16, u16)> = (0..14).map(|item| (0, item)).collect();
    contest(
        &pcp,
        "jbd2",
        122,
        &names,
        &jbd2.join("pmda_jbd2.so"),
        &jbd2.join("pmdajbd2"),
        &[("14 metrics", &metrics)],
        400,
    );

    let (object, daemon) = (dir.path().join("pmda_big.so"), dir.path().join("pmdabig"));
    compile(&object, &["-fPIC", "-shared"]);
    compile(&daemon, &[]);
    let names = "big {\n u32 400:0:0\n u64 400:0:1\n double 400:0:2\n string 400:0:3\n}\n";
    let all: [(&str, &[(u16, u16)]); 4] = [
        ("10,000 values of type U32", &[(0, 0)]),
        ("10,000 values of type U64", &[(0, 1)]),
        ("10,000 values of type double", &[(0, 2)]),
        ("10,000 strings", &[(0, 3)]),
    ];
    contest(&pcp, "big", 400, names, &object, &daemon, &all, 10);
}

fn compile(file: &Path, options: &[&str]) {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/big.c");
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-o"]).arg(file).args(options).args([source, "-lpcp_pmda", "-lpcp"]);
    let output = gcc.output().expect("gcc");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Binds this process and the processes that it starts to one CPU.
fn share_one_cpu() {
    let allowed = sched_getaffinity(Pid::from_raw(0)).expect("the CPUs of this process");
    let first = (0..CpuSet::count()).find(|&cpu| allowed.is_set(cpu).unwrap_or(false)).expect("a CPU");
    let mut one = CpuSet::new();
    one.set(first).expect("a CPU of the set");
    sched_setaffinity(Pid::from_raw(0), &one).expect("one CPU for this process");
}

#[allow(clippy::too_many_arguments)]
fn contest(
    pcp: &Pcp,
    name: &str,
    domain: u16,
    names: &str,
    object: &Path,
    daemon: &Path,
    fetches: &[(&str, &[(u16, u16)])],
    rounds: usize,
) {
    let host: PathBuf = one_word(env!("CARGO_BIN_EXE_pmda-host"));
    let agents = [
        Agent::new(name, domain, one_word(object)).dso(&format!("{name}_init")),
        Agent::new(name, domain, one_word(daemon)),
        Agent::new(name, domain, host).args(["--so".as_ref(), object.as_os_str()]),
    ];
    let pmcds: Vec<Pmcd> = agents.map(|agent| pcp.pmcd().agent(agent.names(names)).start()).into_iter().collect();
    let mut clients: Vec<Context> =
        pmcds.iter().map(|pmcd| Context::connect(&pmcd.host()).expect("a connection")).collect();
    let domain = Domain::new(domain).expect("a domain");
    for (title, items) in fetches {
        let pmids: Vec<PmId> =
            items.iter().map(|&(cluster, item)| PmId::new(domain, Item::new(cluster, item))).collect();
        let samples: Vec<Sample> =
            clients.iter_mut().map(|client| client.fetch(&pmids).expect("a first fetch")).collect();
        let counts: Vec<usize> = samples.iter().map(|sample| sample.sets().map(|set| set.len()).sum()).collect();
        assert!(counts.windows(2).all(|two| two[0] == two[1]), "{title}: {counts:?} values");
        measure(&format!("{name}, {title}, {} values", counts[0]), &mut clients, &pmids, rounds);
    }
}

fn measure(title: &str, clients: &mut [Context], pmids: &[PmId], rounds: usize) {
    let mut times: Vec<Vec<Duration>> = vec![Vec::new(); clients.len()];
    let mut order: Vec<usize> = (0..clients.len()).collect();
    // The first block warms up caches and buffers.
    for block in 0..=40 {
        for &at in &order {
            for _ in 0..rounds {
                let begin = Instant::now();
                clients[at].fetch(pmids).expect("values");
                if block > 0 {
                    times[at].push(begin.elapsed());
                }
            }
        }
        order.reverse();
    }
    let medians: Vec<f64> = times
        .iter_mut()
        .map(|times| {
            times.sort();
            times[times.len() / 2].as_secs_f64() * 1e6
        })
        .collect();
    println!("\n{title}: fetch of a client of pmcd, median");
    for (label, median) in LABELS.iter().zip(&medians) {
        println!("  {label:<16} {median:>9.1} us  {:.2} of the daemon's", median / medians[1]);
    }
    let ratio = medians[2] / medians[0];
    let goal = if ratio <= 2.0 { "met" } else { "MISSED" };
    println!("  goal: pmda-host at most 2.00 of what pmcd loads: {ratio:.2}  {goal}");
}
