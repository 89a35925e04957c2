//! Compares agent `trivial` with PCP's C agent, and with the time that pipes alone take. Run it with
//! `cargo bench -p pmda-trivial`.

#[path = "../../../pmda/benches/driver/mod.rs"]
mod driver;

use driver::{Contest, Goal, Home, Requests, Shape};
use pcp_pdu::metadata::TextKind;

fn main() {
    if !driver::begin("agent trivial") {
        return;
    }
    let home = Home::new();
    let c = Home::c_agent("trivial");
    let pmdas = c.as_ref().map_or_else(|| home.path("pmdas"), |c| c.pmdas_dir().to_owned());
    let c = c.map(|c| home.agent("C", &c.binary(), &pmdas));
    let ours = home.agent("Rust", env!("CARGO_BIN_EXE_pmdatrivial").as_ref(), &pmdas);

    let requests = Requests::of(250);
    let time = (0, 0);
    let fetch = [requests.fetch(&[time])];
    let text = [TextKind::OneLine, TextKind::Help].map(|kind| requests.text(time, kind));
    let shape = Shape { blocks: 40, rounds: 500 };
    let mut contest = Contest::new(&home, c, ours, fetch[0].clone());
    contest.run("fetch of 1 metric", &fetch, shape, Some(Goal::Time(0.90)));
    contest.run("desc", &[requests.desc(time)], shape, None);
    contest.run("text", &text, shape, None);
    contest.calls("fetch of 1 metric", &fetch);
    contest.starts(100, Goal::Time(0.40));
}
