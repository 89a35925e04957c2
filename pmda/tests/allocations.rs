//! A steady flow of requests allocates nothing.

#![allow(clippy::unwrap_used, clippy::panic)]

mod stage;
mod zoo;

use std::time::Duration;

use allocation_counter::measure;
use pcp_pdu::instance::InstanceReq;
use pcp_pdu::metadata::{self, DescReq, Subject, TextKind, TextReq};
use pcp_pdu::names::{self, Node};
use pcp_pdu::profile::{Profile, ProfileState};
use pcp_pdu::{Frames, Header};
use pmapi::{Config, Domain, InDom, PmId};
use pmda::host::Engine;
use pmda::prelude::*;
use stage::Stage;
use zoo::Zoo;

#[test]
fn steady_requests_allocate_nothing() {
    let domain = Domain::new(zoo::DOMAIN).unwrap();
    let pmid = |item| PmId::new(domain, item);
    let indom = InDom::new(domain, zoo::CACHED);
    let items = (0..8).flat_map(|i| [Item::new(0, i), Item::new(1, i)]);
    let fetched: Vec<_> = items
        .chain([zoo::FAILING, Item::new(9, 9), zoo::PARTLY, zoo::GUEST, zoo::GUESTS])
        .map(|item| Some(pmid(item)))
        .collect();
    let mut profile = Profile::new(ProfileState::Exclude);
    profile.set(indom, ProfileState::Exclude, &[1, 5, 9].map(Inst::new));

    let mut requests: Vec<(&str, Vec<u8>)> = Vec::new();
    let mut add = |name, encode: &dyn Fn(&mut Vec<u8>) -> pmapi::Result| {
        let mut bytes = Vec::new();
        encode(&mut bytes).unwrap();
        requests.push((name, bytes));
    };
    add("fetch", &|out| metadata::encode_fetch(out, 0, 0, fetched.iter().copied()));
    add("profile", &|out| profile.encode(out, 0, 0));
    add("fetch with a profile", &|out| metadata::encode_fetch(out, 0, 0, fetched.iter().copied()));
    add("profile of all", &|out| Profile::default().encode(out, 0, 0));
    add("desc", &|out| DescReq { pmid: Some(pmid(zoo::STORED)) }.encode(out, 0));
    add("desc of nothing", &|out| DescReq { pmid: None }.encode(out, 0));
    add("instance", &|out| InstanceReq { indom: Some(indom), inst: None, name: None }.encode(out, 0));
    add("instance by name", &|out| InstanceReq { indom: Some(indom), inst: None, name: Some(b"i3") }.encode(out, 0));
    add("instance by number", &|out| {
        InstanceReq { indom: Some(indom), inst: Some(Inst::new(3)), name: None }.encode(out, 0)
    });
    let subject = Subject::Metric(pmid(Item::new(0, 3)));
    add("one line", &|out| TextReq::new(subject, TextKind::OneLine).encode(out, 0));
    add("help", &|out| TextReq::new(Subject::InDom(InDom::new(domain, zoo::FIXED)), TextKind::Help).encode(out, 0));

    // Requests for dynamic metrics.
    add("name", &|out| names::encode_names(out, 0, names::Statuses::Omitted, [(Node::Leaf, &b"zoo.dyn.guest"[..])]));
    add("names", &|out| names::encode_ids(out, 0, 0, &[Some(pmid(zoo::GUESTS))]));
    add("text", &|out| TextReq::new(Subject::Metric(pmid(zoo::GUEST)), TextKind::Help).encode(out, 0));

    let mut engine = Engine::<Zoo>::builder().domain(domain).config(Config::new(b"", [])).build().unwrap();
    let mut frames = Frames::new();
    let mut exchange = |bytes: &[u8]| {
        frames.space()[..bytes.len()].copy_from_slice(bytes);
        frames.filled(bytes.len());
        let (header, pdu) = frames.next_pdu().unwrap().unwrap();
        engine.handle(header, pdu, |reply| reply.len())
    };
    // The first rounds grow the buffers.
    for _ in 0..3 {
        requests.iter().for_each(|(_, bytes)| _ = exchange(bytes));
    }
    for (name, bytes) in &requests {
        let allocated = measure(|| (0..100).for_each(|_| _ = exchange(bytes)));
        assert_eq!(allocated.count_total, 0, "{name}");
    }
}

#[test]
fn events_take_no_memory_but_their_own() {
    let domain = Domain::new(stage::DOMAIN).unwrap();
    let mut engine = Engine::<Stage>::builder().domain(domain).config(Config::new(b"", [])).build().unwrap();
    let mut request = Vec::new();
    // After each fetch the agent adds 100 events without parameters.
    let pmids = [stage::FLOOD, stage::VISITS].map(|item| Some(PmId::new(domain, item)));
    metadata::encode_fetch(&mut request, 7, 0, pmids.into_iter()).unwrap();
    let header = Header::parse(&request).unwrap().unwrap();
    let mut fetch = || engine.handle(header, &request, |reply| reply.len());
    (0..3).for_each(|_| _ = fetch());
    let allocated = measure(|| (0..100).for_each(|_| assert!(fetch() > 1000)));
    assert_eq!(allocated.count_total, 0);
}

/// An agent with getters and a table.
struct Meter {
    name: String,
    rows: Table<u64>,
}

impl Agent for Meter {
    const NAME: &'static str = "meter";
    const DOMAIN: u16 = 400;

    fn new(setup: &mut Setup) -> Result<Self, BoxError> {
        setup.counter("meter.number", Item::new(0, 0), |_: &Self| 7_u64);
        setup.string("meter.name", Item::new(0, 1), |meter: &Self| &meter.name);
        setup.gauge("meter.time", Item::new(0, 2), |_: &Self| Some(Duration::from_secs(1))).units(Units::SECONDS);
        let mut rows = setup.table(Serial::new(0), |meter: &Self| &meter.rows);
        rows.gauge("meter.row", Item::new(0, 3), |row| Some(*row));
        rows.total("meter.rows", Item::new(0, 4), |rows| rows.active_len());
        Ok(Meter { name: "gas".into(), rows: rows.finish(setup) })
    }

    fn refresh(&mut self, request: Request<'_>, _: Client) -> Result {
        self.rows.refresh(request, |rows| {
            (0..100).zip(["one", "two", "three"]).for_each(|(number, name)| _ = rows.add(name, number));
            Ok(())
        });
        Ok(())
    }
}

#[test]
fn getters_and_tables_allocate_nothing() {
    let domain = Domain::new(Meter::DOMAIN).unwrap();
    let mut engine = Engine::<Meter>::builder().config(Config::new(b"", [])).build().unwrap();
    let mut request = Vec::new();
    metadata::encode_fetch(&mut request, 7, 0, (0..5).map(|item| Some(PmId::new(domain, Item::new(0, item))))).unwrap();
    let header = Header::parse(&request).unwrap().unwrap();
    let mut fetch = || engine.handle(header, &request, |reply| reply.len());
    (0..3).for_each(|_| _ = fetch());
    let allocated = measure(|| (0..100).for_each(|_| assert!(fetch() > 100)));
    assert_eq!(allocated.count_total, 0);
}

/// Checks that the counter counts, because the tests above expect zero.
#[test]
fn an_allocation_is_counted() {
    assert_eq!(measure(|| drop(std::hint::black_box(vec![1u8; 100]))).count_total, 1);
}
