//! The subject of a request that an agent gets before it answers.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use pcp_collector::{self as collector, Collector, Local, Stream};
use pmapi::PmId;
use pmda::Engine;
use pmda::limits::FixedLimit;
use pmda::prelude::*;
use pmda::session::Session;

#[derive(Debug)]
struct Told {
    names: Dynamic,
    named: RefCell<Vec<Item>>,
    prepared: Vec<Item>,
    fetched: usize,
}

const ITEMS: [Item; 3] = [Item::new(0, 0), Item::new(0, 1), Item::new(0, 2)];
const DECLARED: Item = Item::new(1, 0);

impl Agent for Told {
    const NAME: &'static str = "told";
    const DOMAIN: u16 = 400;

    fn new(setup: &mut Setup) -> Start<Self> {
        setup.metric("told.declared", DECLARED, Type::U32);
        let mut names = setup.dynamic(["told.dynamic"]);
        for (item, name) in ITEMS.into_iter().zip(["a", "b.c", "b.d"]) {
            names.insert(&Metric::new(format!("told.dynamic.{name}"), item, Type::U32))?;
        }
        Ok(Told { names, named: RefCell::default(), prepared: Vec::new(), fetched: 0 })
    }

    fn dynamic(&self) -> Option<&Dynamic> {
        Some(&self.names)
    }

    fn named(&self, items: &mut dyn Iterator<Item = Item>) {
        self.named.borrow_mut().extend(items);
    }

    fn prepare(&mut self, items: &mut dyn Iterator<Item = Item>, _: Client) -> Result {
        assert_eq!(self.fetched, 0);
        self.prepared = items.collect();
        if self.prepared.len() > 3 { Err(Error::TOOBIG) } else { Ok(()) }
    }

    fn fetch(&mut self, _: Item, out: &mut Values<'_>) -> Result {
        self.fetched += 1;
        out.put(7)
    }
}

fn named(agent: &mut Collector<Local<Told>>) -> Vec<Item> {
    agent.channel_mut().engine_mut().agent_mut().named.take()
}

#[test]
fn metrics_that_are_looked_up_by_name() {
    let mut agent = Local::<Told>::collector().unwrap();
    agent.pmid("told.dynamic.b.d").unwrap();
    assert_eq!(named(&mut agent), [ITEMS[2]]);
    agent.traverse("told.dynamic.b").unwrap();
    assert_eq!(named(&mut agent), [ITEMS[1], ITEMS[2]]);
    agent.traverse("told.dynamic.a").unwrap();
    assert_eq!(named(&mut agent), [ITEMS[0]]);
    // A request for the children of a name looks up no metric.
    agent.children("told.dynamic").unwrap();
    assert!(agent.pmid("told.dynamic.no").is_err());
    assert_eq!(named(&mut agent), []);
}

#[test]
fn the_metrics_of_a_fetch() {
    let mut agent = Local::<Told>::collector().unwrap();
    let items = [ITEMS[1], DECLARED, ITEMS[1]];
    let domain = agent.channel().engine().schema().domain();
    let pmids = items.map(|item| PmId::new(domain, item));
    agent.fetch(&pmids).unwrap();
    assert_eq!(agent.channel().engine().agent().prepared, items);
    assert_eq!(agent.channel().engine().agent().fetched, 3);
    agent.channel_mut().engine_mut().agent_mut().fetched = 0;
    assert!(agent.fetch(&[pmids[0]; 4]).is_err());
    assert_eq!(agent.channel().engine().agent().fetched, 0);
}

/// An agent with one large value.
struct Large(String);

impl Agent for Large {
    const NAME: &'static str = "large";
    const DOMAIN: u16 = 401;

    fn new(setup: &mut Setup) -> Start<Self> {
        setup.metric("large.text", DECLARED, Type::String);
        Ok(Large("x".repeat(12 << 20)))
    }

    fn fetch(&mut self, _: Item, out: &mut Values<'_>) -> Result {
        out.put(&self.0)
    }
}

#[test]
fn a_fetch_of_too_much_is_refused_and_counted() {
    let mut agent = Local::<Large>::collector().unwrap();
    let text = agent.metric("large.text").unwrap();
    assert!(agent.fetch(&[text; 2]).is_ok());
    let before = FixedLimit::Pdus.exceeded();
    assert_eq!(agent.fetch(&[text; 100]).unwrap_err().code(), Error::TOOBIG);
    assert!(FixedLimit::Pdus.exceeded() > before);
}

/// An agent whose data source fails for requests about names.
struct Fickle(Dynamic);

impl Agent for Fickle {
    const NAME: &'static str = "fickle";
    const DOMAIN: u16 = 402;

    fn new(setup: &mut Setup) -> Start<Self> {
        Ok(Fickle(setup.dynamic(["fickle"])))
    }

    fn dynamic(&self) -> Option<&Dynamic> {
        Some(&self.0)
    }

    fn refresh(&mut self, request: Request, _: Client) -> Result {
        if request == Request::Names { Err(Error::PMDANOTREADY) } else { Ok(()) }
    }

    fn fetch(&mut self, _: Item, _: &mut Values<'_>) -> Result {
        Err(Error::PMID)
    }
}

#[test]
fn a_request_about_names_never_makes_pmcd_wait() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let agent = std::thread::spawn(move || {
        let mut session = Session::open(ours.try_clone().unwrap(), ours, Fickle::WANTS).unwrap();
        let domain = pmapi::Domain::new(Fickle::DOMAIN).unwrap();
        let mut engine = Engine::<Fickle>::new(domain, pmapi::Config::new(b"", [])).unwrap();
        session.serve(&mut engine, false).unwrap();
    });
    let input = OwnedFd::from(theirs.try_clone().unwrap());
    let mut pmcd = Collector::connect(Stream::new(input, theirs.into()).unwrap()).unwrap();
    for _ in 0..3 {
        // pmcd would take the notification that the agent is ready again for the next answer.
        let refused = pmcd.children("fickle").unwrap_err();
        assert!(matches!(refused, collector::Error::Agent(Error::AGAIN)), "{refused}");
        assert!(pmcd.fetch(&[PmId::new(pmapi::Domain::new(402).unwrap(), DECLARED)]).is_ok());
    }
    drop(pmcd);
    agent.join().unwrap();
}
