//! Subjects of requests, which an agent gets before the request is answered.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use pcp_collector::{self as collector, Collector, Local, Stream};
use pmapi::PmId;
use pmda::host::{Engine, Session, Startup};
use pmda::limits::FixedLimit;
use pmda::prelude::*;

#[derive(Debug)]
struct Told {
    names: Dynamic,
    named: Vec<Item>,
    log: String,
}

const ITEMS: [Item; 3] = [Item::new(0, 0), Item::new(0, 1), Item::new(0, 2)];
const DECLARED: Item = Item::new(1, 0);

impl Agent for Told {
    const NAME: &'static str = "told";
    const DOMAIN: u16 = 400;

    fn new(setup: &mut Setup) -> Result<Self, BoxError> {
        setup.metric("told.declared", DECLARED, Type::U32);
        let mut names = setup.dynamic(["told.dynamic"]);
        for (item, name) in ITEMS.into_iter().zip(["a", "b.c", "b.d"]) {
            names.insert(&MetricDef::new(format!("told.dynamic.{name}"), item, Type::U32))?;
        }
        Ok(Told { names, named: Vec::new(), log: String::new() })
    }

    fn catalogs(&self) -> impl IntoIterator<Item = &dyn Catalog> {
        [&self.names as &dyn Catalog]
    }

    fn refresh(&mut self, request: Request<'_>, client: Client) -> Result {
        self.log.push('r');
        match request {
            Request::Fetch(items) => self.named = items.iter().collect(),
            Request::Names(Some(name)) => self.named = self.names.items_below(name).collect(),
            _ => self.named.clear(),
        }
        if client.number() == 7 { Err(Error::PERMISSION) } else { Ok(()) }
    }

    fn fetch(&mut self, _: Item, out: &mut Values<'_>) -> Result {
        self.log.push('f');
        out.put(7)
    }
}

fn named(agent: &mut Collector<Local<Told>>) -> Vec<Item> {
    std::mem::take(&mut agent.agent_mut().named)
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
    let pmid = |domain, item| PmId::new(pmapi::Domain::new(domain).unwrap(), item);
    // The agent gets metrics of its own domain, known or not, but not those of other domains.
    let unknown = Item::new(9, 9);
    let pmids =
        [pmid(400, ITEMS[1]), pmid(400, DECLARED), pmid(401, DECLARED), pmid(400, ITEMS[1]), pmid(400, unknown)];
    let fetched = agent.fetch(&pmids).unwrap();
    let errors: Vec<_> = fetched.sets().map(|set| set.error).collect();
    assert_eq!(errors, [None, None, Some(Error::PMID), None, Some(Error::PMID)]);
    assert_eq!(named(&mut agent), [ITEMS[1], DECLARED, ITEMS[1], unknown]);
    assert_eq!(agent.agent().log, "rfff");

    let refused = agent.as_client(7).fetch(&pmids).unwrap_err();
    assert_eq!(refused.code(), Error::PERMISSION);
    assert_eq!(agent.agent().log, "rfffr");
}

#[test]
fn a_list_that_is_fetched_again_has_the_metrics_of_now() {
    let mut agent = Local::<Told>::collector().unwrap();
    let domain = agent.channel().engine().schema().domain();
    let later = Item::new(0, 3);
    let pmids = [ITEMS[0], later, DECLARED].map(|item| PmId::new(domain, item));
    let errors = |agent: &mut Collector<Local<Told>>| {
        let errors = [(); 2].map(|()| agent.fetch(&pmids).unwrap().sets().map(|set| set.error).collect::<Vec<_>>());
        assert_eq!(errors[0], errors[1]);
        errors[0].clone()
    };
    assert_eq!(errors(&mut agent), [None, Some(Error::PMID), None]);
    let names = &mut agent.agent_mut().names;
    names.insert(&MetricDef::new("told.dynamic.later", later, Type::U32)).unwrap();
    assert_eq!(errors(&mut agent), [None, None, None]);
    agent.agent_mut().names.remove("told.dynamic.a");
    assert_eq!(errors(&mut agent), [Some(Error::PMID), None, None]);
}

/// An agent with large values.
struct Large(String);

impl Agent for Large {
    const NAME: &'static str = "large";
    const DOMAIN: u16 = 401;

    fn new(setup: &mut Setup) -> Result<Self, BoxError> {
        (0..10).for_each(|n| _ = setup.metric(format!("large.text{n}"), Item::new(0, n), Type::String));
        Ok(Large("x".repeat(12 << 20)))
    }

    fn fetch(&mut self, _: Item, out: &mut Values<'_>) -> Result {
        out.put(&self.0)
    }
}

#[test]
fn a_fetch_of_too_much_is_refused_and_counted() {
    let mut agent = Local::<Large>::collector().unwrap();
    let texts = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9].map(|n| agent.metric(&format!("large.text{n}")).unwrap());
    assert!(agent.fetch(&texts[..2]).is_ok());
    let before = FixedLimit::Pdus.exceeded();
    assert_eq!(agent.fetch(&texts).unwrap_err().code(), Error::TOOBIG);
    assert!(FixedLimit::Pdus.exceeded() > before);
}

/// An agent whose data source fails for requests about names.
struct Fickle(Dynamic);

impl Agent for Fickle {
    const NAME: &'static str = "fickle";
    const DOMAIN: u16 = 402;

    fn new(setup: &mut Setup) -> Result<Self, BoxError> {
        Ok(Fickle(setup.dynamic(["fickle"])))
    }

    fn catalogs(&self) -> impl IntoIterator<Item = &dyn Catalog> {
        [&self.0 as &dyn Catalog]
    }

    fn refresh(&mut self, request: Request<'_>, _: Client) -> Result {
        if let Request::Names(_) = request { Err(Error::PMDANOTREADY) } else { Ok(()) }
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
        let mut engine =
            Engine::<Fickle>::builder().domain(domain).config(pmapi::Config::new(b"", [])).build().unwrap();
        session.serve(&mut engine, Startup::Ready).unwrap();
    });
    let input = OwnedFd::from(theirs.try_clone().unwrap());
    let mut pmcd = Collector::connect(Stream::new(input, theirs.into()).unwrap()).unwrap();
    for _ in 0..3 {
        // pmcd would mistake the notification that the agent is ready again for the next answer.
        let refused = pmcd.children("fickle").unwrap_err();
        assert!(matches!(refused, collector::Error::Agent(Error::AGAIN)), "{refused}");
        assert!(pmcd.fetch(&[PmId::new(pmapi::Domain::new(402).unwrap(), DECLARED)]).is_ok());
    }
    drop(pmcd);
    agent.join().unwrap();
}
