//! Instance caches compared with pmdaCache(3) in one run: `cargo bench -p pcp-pmda --bench cache`.
//!
//! The rounds of both alternate on one CPU. The result is the best time of each operation.

#![allow(clippy::expect_used)]

#[path = "../driver/mod.rs"]
mod driver;

use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use driver::Home;
use pmapi::{Config, Domain, InDom, Inst, Serial};
use pmda::Cache;

const INSTANCES: usize = 100_000;
/// Number of instances for operations that take quadratic time in C.
const FEW: usize = 5_000;
const ROUNDS: usize = 5;
/// Distance between the instances that are looked up, coprime with [`INSTANCES`].
const STEP: usize = 611_953;

type Times = BTreeMap<String, f64>;

fn main() -> ExitCode {
    if driver::begin(&format!("a cache of {INSTANCES} instances, {FEW} of keys; nanoseconds")) {
        compare();
    }
    ExitCode::SUCCESS
}

fn compare() {
    let home = Home::new();
    let peer = compile(&home).inspect_err(|e| driver::no_peer(e)).ok();
    let (mut c, mut ours) = (Times::new(), Times::new());
    let mut order = Vec::new();
    for _ in 0..ROUNDS {
        if let Some(peer) = &peer {
            run_peer(peer, &home.path("c"), &mut c);
        }
        order = run_ours(&home.path("rust"), &mut ours);
    }
    println!("\n{:<30} {:>10} {:>10} {:>8}", "", "C", "Rust", "ratio");
    for label in order {
        let (c, ours) = (c.get(&label).copied().unwrap_or(f64::NAN), ours[&label]);
        println!("{label:<30} {c:>10.1} {ours:>10.1} {:>8.3}", ours / c);
    }
}

fn keep_best(times: &mut Times, label: &str, ns: f64) {
    let best = times.entry(label.to_owned()).or_insert(ns);
    *best = best.min(ns);
}

fn run_peer(peer: &Path, var: &Path, times: &mut Times) {
    std::fs::create_dir_all(var.join("config/pmda")).expect("a directory");
    for more in [None, Some("load")] {
        let mut peer = Command::new(peer);
        peer.args([INSTANCES, FEW].map(|n| n.to_string())).args(more).env("PCP_VAR_DIR", var);
        let text = String::from_utf8(peer.output().expect("the peer").stdout).expect("text");
        for (label, ns) in text.lines().filter_map(|line| line.split_once('\t')) {
            keep_best(times, label, ns.parse().expect("a number"));
        }
    }
}

/// Runs the operations in order, and keeps times that are better than the best so far. Returns the order of the labels.
fn run_ours(var: &Path, times: &mut Times) -> Vec<String> {
    std::fs::create_dir_all(var.join("config/pmda")).expect("a directory");
    let config = Config::new(b"", [("PCP_VAR_DIR".into(), var.into())]);
    let indom = |serial| InDom::new(Domain::new(400).expect("a domain"), Serial::new(serial));
    let names: Vec<String> = (0..INSTANCES).map(|i| format!("inst-{:010}", i * 7919 % INSTANCES)).collect();
    let mut order = Vec::new();
    let mut time = |label: &str, n: usize, what: &mut dyn FnMut()| {
        let start = Instant::now();
        what();
        keep_best(times, label, start.elapsed().as_secs_f64() * 1e9 / n as f64);
        order.push(label.to_owned());
    };
    let scattered = |n: usize| (0..n).scan(0, |at, _| Some(std::mem::replace(at, (*at + STEP) % INSTANCES)));
    let inst = |at: usize| Inst::new(at as u32);

    let _ = std::fs::remove_file(var.join("config/pmda/400.5"));
    let mut cache = Cache::new(indom(5), &config).persistent();
    let before = resident();
    time("store, new", INSTANCES, &mut || {
        names.iter().for_each(|name| _ = cache.store(name, name.as_ptr() as usize));
    });
    let bytes = (resident() - before) / INSTANCES as f64;
    time("store, again", INSTANCES, &mut || {
        scattered(INSTANCES).for_each(|at| _ = cache.store(&names[at], at));
    });
    time("look up by name", INSTANCES, &mut || {
        scattered(INSTANCES).for_each(|at| _ = black_box(cache.named(&names[at])));
    });
    time("look up by number", INSTANCES, &mut || {
        scattered(INSTANCES).for_each(|at| _ = black_box(cache.instance(inst(at))));
    });
    time("walk, with name and value", INSTANCES, &mut || cache.active().for_each(|instance| _ = black_box(instance)));
    time("number of active instances", 1, &mut || _ = black_box(cache.active_len()));
    time("save", INSTANCES, &mut || cache.save().expect("a file"));
    time("hide all", INSTANCES, &mut || cache.hide_all());
    time("activate all", INSTANCES, &mut || _ = cache.activate_all());
    time("cull half", INSTANCES / 2, &mut || {
        scattered(INSTANCES / 2).for_each(|at| _ = black_box(cache.cull(inst(at))));
    });
    let key = |i: usize| i.to_ne_bytes();
    let mut keyed = Cache::new(indom(6), &config);
    time("store by key", FEW, &mut || {
        (0..FEW).for_each(|i| _ = keyed.store_key(&names[i], &key(i), ()));
    });
    time("look up by key", FEW / 10, &mut || {
        (0..FEW / 10).for_each(|i| _ = black_box(keyed.keyed(&key(i))));
    });
    let mut lowest = Cache::new(indom(7), &config);
    lowest.reuse_numbers();
    time("store, lowest free number", FEW, &mut || {
        names[..FEW].iter().for_each(|name| _ = lowest.store(name, ()));
    });
    let mut loaded = Cache::<()>::new(indom(5), &config);
    time("load", INSTANCES, &mut || loaded = Cache::new(indom(5), &config).persistent());
    assert_eq!(loaded.len(), INSTANCES);
    // Later rounds reuse memory freed by earlier rounds.
    times.entry("bytes an instance".into()).or_insert(bytes);
    order.push("bytes an instance".into());
    order
}

/// Returns the bytes of memory in use.
fn resident() -> f64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split_whitespace().nth(1).and_then(|pages| pages.parse::<f64>().ok()).map_or(0.0, |pages| pages * 4096.0)
}

/// Compiles the C peer. The error is the reason why `libpcp_pmda` cannot be used.
fn compile(home: &Home) -> Result<PathBuf, String> {
    let peer = home.path("peer");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/cache/peer.c");
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-o"]).arg(&peer).args([source, "-lpcp_pmda", "-lpcp"]);
    let output = cc.output().map_err(|e| format!("cc: {e}"))?;
    if output.status.success() { Ok(peer) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}
