//! A sampler over a pmcd with agent `sample`, over a hostile one, and without one.

use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};

use allocation_counter::measure;
use pcp_pdu::codec::Writer;
use pcp_pdu::metadata::DescPdu;
use pcp_pdu::names::encode_ids;
use pcp_pdu::result::Changes;
use pcp_pdu::{Frames, PduType};
use pmapi::{Desc, Domain, Item, PmId, Semantics, Type, Units};
use testkit::Pcp;

use pmda::Background;

use super::*;
use crate::config::{Config, NameSpace};
use crate::operands::pmcd::Pmcd;

const CONFIG: &str = "\
plus = sample.long.one + sample.long.hundred
bins = sample.bin * 2 - sample.long.ten
some = matchinst(/bin-[12]00/, sample.bin)
one = sample.bin[bin-500]
utilised = rate(sample.milliseconds)
step = delta(sample.milliseconds)
speed = rate(sample.bin * instant(sample.milliseconds))
words = sample.string.hullo
highest = max(sample.bin) > 800 ? bins : novalue()
";

type Parts = (Arc<Mutex<Orders>>, Background<Published>, Sampler);

/// Returns a sampler, with what an agent has of it.
fn sampler(group: GroupConfig, source: Box<dyn Source>, interval: u64) -> Parts {
    let orders = Arc::new(Mutex::new(Orders::new(Duration::from_secs(interval), Instant::now())));
    let (publisher, published) = Background::channel().unwrap();
    (Arc::clone(&orders), published, Sampler::new(group, source, orders, publisher))
}

/// A sampler without a pmcd does not keep the agent waiting, and ends when the agent no longer needs it.
#[test]
fn without_a_pmcd_no_sample_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("conf"), "one = sample.long.one\n").unwrap();
    let host = format!("unix://{}/none", dir.path().display()).parse().unwrap();
    let own = Domain::new(404).unwrap();
    let mut config = Config::load(dir.path().to_str().unwrap(), &host, &NameSpace::new(pmns::Tree::new(), own));
    let (orders, source, sampler) = sampler(config.groups.remove(0), Box::new(Pmcd::new(host, own)), 3600);
    sampler.spawn().unwrap();
    // After some failures the agent no longer waits for the first snapshot.
    let end = Instant::now() + Duration::from_secs(60);
    let published = source.wait(end, Result::is_ok).unwrap();
    assert_eq!(published.outcome, Err(Error::AGAIN));
    assert!(published.figures.errors >= FAILURES.into());
    drop(source);
    while Arc::strong_count(&orders) > 1 {
        assert!(Instant::now() < end, "the thread does not end");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Sampler that the test calls, over a pmcd with agent `sample`.
struct Scene {
    sampler: Sampler,
    published: Background<Published>,
    _pmcd: testkit::Pmcd,
}

impl Scene {
    fn new(definitions: &str) -> Scene {
        let pcp = Pcp::required();
        let sample = pcp.c_agent("sample");
        let pmcd = pcp.pmcd().pmdas_dir(sample.pmdas_dir()).agent(sample.agent()).start();
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("conf"), definitions).unwrap();
        let (host, own) = (pmcd.host().parse().unwrap(), Domain::new(404).unwrap());
        let mut config = Config::load(dir.path().to_str().unwrap(), &host, &NameSpace::installed(own));
        assert_eq!(config.problems, []);
        let (_, published, sampler) = sampler(config.groups.remove(0), Box::new(Pmcd::new(host, own)), 1);
        Scene { sampler, published, _pmcd: pmcd }
    }

    fn sample(&mut self) -> Arc<Published> {
        self.sampler.attempt(Kind::Full);
        self.published.latest().unwrap()
    }
}

#[test]
#[ignore = "needs PCP"]
fn a_steady_tick_allocates_no_values() {
    let mut scene = Scene::new(CONFIG);
    let snapshot = scene.sample().snapshot.clone().unwrap();
    assert_eq!(snapshot.metrics.bad, []);
    let count = snapshot.slots.len();
    assert_eq!(count, CONFIG.lines().count());
    drop(snapshot);
    (0..5).for_each(|_| scene.sampler.attempt(Kind::Full));
    let allocated = measure(|| (0..10).for_each(|_| scene.sampler.attempt(Kind::Full)));
    // What is published is a few words around the values, which are in the memory of earlier ones.
    assert!(allocated.count_total <= 40 && allocated.bytes_total <= 40 * 512, "{allocated:?}");
    let published = scene.published.latest().unwrap();
    let snapshot = published.snapshot.as_ref().unwrap();
    for (slot, metric) in snapshot.slots.iter().zip(&snapshot.metrics.good) {
        assert!(slot.values.as_ref().is_ok_and(|values| !values.is_empty()), "{}: {slot:?}", metric.name);
    }
    assert_eq!((published.figures.samples, published.figures.errors), (16, 0));
}

/// The text needs 28 bytes: 12 for its characters, and 16 for the value and its instance. The numbers need 16 each.
#[test]
#[ignore = "needs PCP"]
fn a_sample_has_limited_memory() {
    let mut scene =
        Scene::new("one = sample.long.one\nspeed = rate(sample.milliseconds)\nwords = sample.string.hullo\n");
    scene.sample();
    // Returns the number of values of each metric, or its error.
    let mut counts = |limit| {
        scene.sampler.limits.values = limit;
        let published = scene.sample();
        assert_eq!(published.outcome, Ok(()));
        let counts: Vec<_> = (published.snapshot.as_ref().unwrap().slots.iter())
            .map(|slot| slot.values.as_ref().map(|values| values.len()).map_err(|e| *e))
            .collect();
        (counts, published.figures.large_samples)
    };
    assert_eq!(counts(64), (vec![Ok(1), Ok(1), Ok(1)], 0));
    // The largest metric is left out, and the others are not affected.
    assert_eq!(counts(44), (vec![Ok(1), Ok(1), Err(Error::TOOBIG)], 1));
    assert_eq!(counts(20), (vec![Ok(1), Err(Error::TOOBIG), Err(Error::TOOBIG)], 2));
    // The rate begins again, so that it is not over a sample without it.
    assert_eq!(counts(64), (vec![Ok(1), Ok(0), Ok(1)], 2));
    assert_eq!(counts(64), (vec![Ok(1), Ok(1), Ok(1)], 2));
}

#[test]
#[ignore = "needs PCP"]
fn instance_lists_have_limited_memory() {
    let mut scene = Scene::new("bins = sample.bin\ncolours = sample.colour\n");
    // Room for the smaller one of the two lists.
    scene.sampler.limits.lists = 300;
    let published = scene.sample();
    let snapshot = published.snapshot.as_ref().unwrap();
    let lengths: Vec<usize> = snapshot.lists.iter().map(|known| known.list.len()).collect();
    assert_eq!(lengths, [3, 0]);
    assert_eq!(published.figures.large_lists, 1);
    // The list that has been left out is not asked for again.
    assert_eq!(scene.sample().figures.large_lists, 1);
    assert!(snapshot.slots.iter().all(|slot| slot.values.as_ref().is_ok_and(|values| !values.is_empty())));
}

/// Serves a client as a pmcd with one metric. It reports before each sample that an agent has been restarted. Returns
/// the number of samples.
fn restless(mut stream: UnixStream) -> usize {
    let pmid = PmId::new(Domain::new(60).unwrap(), Item::new(0, 0));
    let (ty, semantics, units) = (Type::U32, Semantics::Instant, Units::NONE);
    let (mut frames, mut out, mut samples) = (Frames::new(), Vec::new(), 0);
    let mut greeting = Writer::new(&mut out, PduType::ERROR, 0);
    greeting.i32(0).u32(0x0201_0000);
    greeting.finish().unwrap();
    loop {
        if stream.write_all(&out).is_err() {
            return samples;
        }
        out.clear();
        let Ok(n @ 1..) = stream.read(frames.space()) else { return samples };
        frames.filled(n);
        while let Ok(Some((header, _))) = frames.next_pdu() {
            match header.pdu {
                PduType::PMNS_NAMES => encode_ids(&mut out, 0, 1, &[Some(pmid)]).unwrap(),
                PduType::DESC_REQ => {
                    DescPdu { desc: Desc { pmid, ty, indom: None, semantics, units } }.encode(&mut out, 0).unwrap();
                }
                PduType::FETCH => {
                    samples += 1;
                    let mut change = Writer::new(&mut out, PduType::ERROR, 0);
                    change.i32(Changes::AGENT_RESTARTED.bits().into());
                    change.finish().unwrap();
                    let mut result = Writer::new(&mut out, PduType::RESULT, 0);
                    result.i32(1).i32(0).count(1).u32(pmid.word()).count(1).u32(0).u32(u32::MAX).u32(7);
                    result.finish().unwrap();
                }
                _ => {}
            }
        }
    }
}

#[test]
fn a_pmcd_that_always_reports_changes_costs_a_limited_number_of_samples() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("conf"), "one = only.metric + 1\n").unwrap();
    let listener = UnixListener::bind(dir.path().join("socket")).unwrap();
    let host = format!("unix://{}/socket", dir.path().display()).parse().unwrap();
    let own = Domain::new(404).unwrap();
    let config = dir.path().join("conf");
    let mut config = Config::load(config.to_str().unwrap(), &host, &NameSpace::new(pmns::Tree::new(), own));
    let (_, _published, mut sampler) = sampler(config.groups.remove(0), Box::new(Pmcd::new(host, own)), 1);
    let pmcd = thread::spawn(move || restless(listener.accept().unwrap().0));
    sampler.attempt(Kind::Full);
    assert_eq!(sampler.now.outcome, Err(Error::AGAIN));
    assert!(matches!(sampler.state, State::Failed));
    drop(sampler);
    assert_eq!(pmcd.join().unwrap(), BINDINGS as usize);
}
