//! A hundred thousand dynamic metrics, compared with `pmdaTree`: `cargo bench -p pcp-pmda --bench dynamic`.
//!
//! The Rust figures are for whole requests, a PDU in and a PDU out. The C figures are for calls of `libpcp_pmda`
//! without PDUs.

#![allow(clippy::expect_used)]

#[path = "../driver/mod.rs"]
mod driver;

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Instant;

use driver::Home;
use pcp_pdu::names::{Child, Node, Statuses, Traverse, encode_ids, encode_names};
use pcp_pdu::{Header, metadata};
use pmapi::{Domain, PmId};
use pmda::host::Engine;
use pmda::prelude::*;

const METRICS: u32 = 100_000;
const GROUPS: u32 = 10;
const SOME: u32 = 1_000;

struct Bench {
    dynamic: Dynamic,
}

impl Agent for Bench {
    const NAME: &'static str = "bench";
    const DOMAIN: u16 = 400;

    fn new(setup: &mut Setup) -> Result<Self, BoxError> {
        Ok(Bench { dynamic: setup.dynamic(["bench"]) })
    }

    fn catalogs(&self) -> impl IntoIterator<Item = &dyn Catalog> {
        [&self.dynamic as &dyn Catalog]
    }

    fn fetch(&mut self, item: Item, out: &mut Values<'_>) -> Result {
        out.put(item.index())
    }
}

fn main() -> ExitCode {
    if driver::begin(&format!("{METRICS} dynamic metrics in {GROUPS} groups; nanoseconds")) {
        compare();
    }
    ExitCode::SUCCESS
}

fn name(i: u32) -> String {
    format!("bench.g{}.metric{i}", i % GROUPS)
}

fn item(i: u32) -> Item {
    Item::new((i / 1024) as u16, (i % 1024) as u16)
}

fn compare() {
    let home = Home::new();
    let c = peer(&home).inspect_err(|e| driver::no_peer(e)).unwrap_or_default();
    let of_c = |label: &str| c.lines().filter_map(|line| line.split_once('\t')).find(|(l, _)| *l == label);
    println!("\n{:<30} {:>12} {:>12}", "", "C", "Rust");
    let show = |label: &str, n: u32, start: Instant| {
        let ours = start.elapsed().as_secs_f64() * 1e9 / f64::from(n);
        println!("{label:<30} {:>12} {ours:>12.1}", of_c(label).map_or("", |(_, ns)| ns));
    };

    let domain = Domain::new(Bench::DOMAIN).expect("a domain");
    let mut engine = Engine::<Bench>::builder().domain(domain).build().expect("an agent");
    let dynamic = &mut engine.agent_mut().dynamic;
    let start = Instant::now();
    for i in 0..METRICS {
        dynamic.insert(&MetricDef::new(name(i), item(i), Type::U32)).expect("a free name");
    }
    show("insert", METRICS, start);

    let mut pdu = Vec::new();
    let mut ask = |encode: &dyn Fn(&mut Vec<u8>) -> Result| {
        pdu.clear();
        encode(&mut pdu).expect("a request");
        let header = Header::parse(&pdu).expect("a header").expect("a request");
        engine.handle(header, &pdu, |reply| reply.len())
    };
    let some = || (0..SOME).scan(0, |at, _| Some(std::mem::replace(at, (*at + 61_195) % METRICS)));
    let start = Instant::now();
    for name in some().map(name) {
        let names = [(Node::Leaf, name.as_bytes())].into_iter();
        assert_eq!(ask(&|out| encode_names(out, 0, Statuses::Omitted, names.clone())), 24);
    }
    show("PMID of a name", SOME, start);
    let pmid = |i| Some(PmId::new(domain, item(i)));
    let start = Instant::now();
    some().for_each(|i| assert!(ask(&|out| encode_ids(out, 0, 0, &[pmid(i)])) > 30));
    show("name of a PMID", SOME, start);
    let start = Instant::now();
    assert!(ask(&|out| Child { statuses: Statuses::Included, name: b"bench.g0" }.encode(out, 0)) > 100_000);
    show("children of a group", 1, start);
    let start = Instant::now();
    assert!(ask(&|out| Traverse { name: b"bench" }.encode(out, 0)) > 1_000_000);
    show("all names", 1, start);
    let start = Instant::now();
    some().for_each(|i| assert_eq!(ask(&|out| metadata::encode_fetch(out, 0, 0, [pmid(i)].into_iter())), 44));
    show("fetch of one", SOME, start);
    let dynamic = &mut engine.agent_mut().dynamic;
    let start = Instant::now();
    (0..METRICS / 2).for_each(|i| assert_eq!(dynamic.remove(&name(i)), 1));
    show("remove", METRICS / 2, start);
    let start = Instant::now();
    assert_eq!(dynamic.remove("bench"), (METRICS / 2) as usize);
    show("remove all below a name", METRICS / 2, start);
}

/// Compiles and runs the C peer, and returns its output. The error is the reason why `libpcp_pmda` cannot be used.
fn peer(home: &Home) -> std::result::Result<String, String> {
    let peer: PathBuf = home.path("peer");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/dynamic/peer.c");
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-o"]).arg(&peer).args([source, "-lpcp_pmda", "-lpcp"]);
    let output = cc.output().map_err(|e| format!("cc: {e}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let output = Command::new(&peer).args([METRICS, GROUPS].map(|n| n.to_string())).output();
    Ok(String::from_utf8_lossy(&output.map_err(|e| format!("peer: {e}"))?.stdout).into_owned())
}
