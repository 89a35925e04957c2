//! Answering a fetch allocates nothing. A test in `src/sampler/tests.rs` shows that samples reuse their memory.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "all/scene.rs"]
mod scene;

use std::thread::sleep;
use std::time::Duration;

use allocation_counter::measure;
use pcp_pdu::{Header, metadata};
use pmapi::{Config, PmId};
use pmda::Agent as _;
use pmda::host::Engine;
use pmda_derived::Derived;
use scene::Scene;

const CONFIG: &str = "plus = sample.long.one + 100\nbins = sample.bin * 2\nwords = sample.string.hullo\n";

/// Handles a fetch. Returns the length of the reply in bytes.
fn fetch(engine: &mut Engine<Derived>, request: &[u8]) -> usize {
    engine.handle(Header::parse(request).unwrap().unwrap(), request, |reply| reply.len())
}

#[test]
#[ignore = "needs PCP"]
fn a_fetch_allocates_nothing() {
    let scene = Scene::new(CONFIG);
    let pmcd = scene.pmcd().agent(scene.sample.agent()).start();
    let command = Derived::options(pmda::clap::Command::new("derived"));
    let config = scene.config().to_str().unwrap().to_owned();
    let options = command.get_matches_from(["derived", "-c", &config, "--host", &pmcd.host(), "-t", "100msec"]);
    let variables = [("PCP_VAR_DIR".into(), pmcd.dir().join("var").into_os_string())];
    let mut engine = Engine::<Derived>::builder().config(Config::new(b"", variables)).options(options).build().unwrap();
    let domain = engine.schema().domain();
    engine.agent_mut().open().unwrap();

    let names = ["derived.plus", "derived.bins", "derived.words", "derived.control.samples"];
    let mut request = Vec::new();
    let mut all_there = || {
        let item = |name: &&str| engine.agent().metrics().item(name);
        let Some(items) = names.iter().map(item).collect::<Option<Vec<_>>>() else {
            // An empty fetch makes the agent apply pending changes.
            metadata::encode_fetch(&mut request, 0, 0, [None].into_iter()).unwrap();
            fetch(&mut engine, &request);
            request.clear();
            return false;
        };
        request.clear();
        let pmids = items.iter().map(|item| Some(PmId::new(domain, *item)));
        metadata::encode_fetch(&mut request, 0, 0, pmids).unwrap();
        // The reply has two words for each of the nine instances, and at least as many bytes of names and values.
        fetch(&mut engine, &request) > 150
    };
    while !all_there() {
        sleep(Duration::from_millis(10));
    }
    // The agent adopts samples that are taken in the meantime.
    for _ in 0..10 {
        let allocated = measure(|| assert!(fetch(&mut engine, &request) > 150));
        assert_eq!((allocated.count_total, allocated.bytes_total), (0, 0));
        sleep(Duration::from_millis(50));
    }
}
