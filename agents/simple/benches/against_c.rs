//! Compares agent `simple` with PCP's C agent, and with the time that pipes alone take. Run it with
//! `cargo bench -p pmda-simple`.

#![allow(clippy::expect_used)]

#[path = "../../../pmda/benches/driver/mod.rs"]
mod driver;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use driver::{Contest, Goal, Home, Requests, Shape};
use pcp_pdu::metadata::TextKind;
use testkit::CAgent;

fn main() {
    if !driver::begin("agent simple") {
        return;
    }
    let home = Home::new();
    let c = Home::c_agent("simple");
    let pmdas = c.as_ref().map_or_else(|| home.path("pmdas"), |c| c.pmdas_dir().to_owned());
    if c.is_none() {
        configure(&pmdas.join("simple"));
    }
    let object = c.as_ref().map(|c| objects(&home, c));
    let c = c.map(|c| home.agent("C", &c.binary(), &pmdas));
    let ours = home.agent("Rust", env!("CARGO_BIN_EXE_pmdasimple").as_ref(), &pmdas);

    let requests = Requests::of(253);
    let metrics = [(0, 0), (0, 1), (1, 2), (1, 3), (2, 4)];
    let fetch = [requests.fetch(&metrics)];
    let desc = metrics.map(|metric| requests.desc(metric));
    let instances = [requests.instances(0), requests.instances(1)];
    let text =
        [TextKind::OneLine, TextKind::Help].map(|kind| metrics.map(|metric| requests.text(metric, kind))).concat();
    let shape = Shape { blocks: 40, rounds: 500 };
    let mut contest = Contest::new(&home, c, ours, fetch[0].clone());
    contest.run("fetch of 5 metrics, 9 values", &fetch, shape, Some(Goal::Time(0.70)));
    contest.run("desc", &desc, shape, None);
    contest.run("instances of a domain", &instances, shape, None);
    contest.run("text", &text, shape, None);
    contest.calls("fetch of 5 metrics", &fetch);
    contest.calls("instances", &instances);
    contest.starts(100, Goal::Time(0.33));
    if let Some(object) = object {
        println!("\n{object}");
    }
}

/// Measures a fetch of both shared objects with `objects.c`.
fn objects(home: &Home, c: &CAgent) -> String {
    let (program, source) = (home.path("objects"), concat!(env!("CARGO_MANIFEST_DIR"), "/benches/objects.c"));
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-o"]).arg(&program).args([source, "-lpcp_pmda", "-lpcp", "-ldl"]);
    match cc.output() {
        Ok(output) if output.status.success() => {}
        Ok(output) => return format!("shared object: objects.c: {}", String::from_utf8_lossy(&output.stderr)),
        Err(e) => return format!("shared object: cc: {e}"),
    }
    let ours: PathBuf = testkit::built("pmda_simple");
    let mut objects = Command::new(program);
    objects.args(["simple_init", "253"]).arg(c.shared_object()).arg(ours).args(["0.0", "0.1", "1.2", "1.3", "2.4"]);
    let output = objects.env("PCP_PMDAS_DIR", c.pmdas_dir()).env("PCP_VAR_DIR", home.path("")).output();
    let output = output.expect("the program that was compiled");
    let figures = String::from_utf8_lossy(&output.stdout);
    let Some([theirs, ours, ratio]) = figures.split_whitespace().collect::<Vec<_>>().first_chunk::<3>().copied() else {
        return format!("shared object: {}", String::from_utf8_lossy(&output.stderr));
    };
    let met = if ratio.parse::<f64>().is_ok_and(|ratio| ratio <= 1.0) { "met" } else { "MISSED" };
    format!("shared object, fetch of 5 metrics: C {theirs} ns, Rust {ours} ns, Rust / C {ratio}  goal 1.00 {met}")
}

/// Writes the configuration that PCP installs for the agent.
fn configure(dir: &Path) {
    fs::create_dir_all(dir).expect("a directory for the agent");
    fs::write(dir.join("simple.conf"), "sec,min,hour\n").expect("the agent's configuration");
}
