//! A panic in the fetch of one metric does not affect other metrics, and log lines name the metric. The test is a
//! separate program, because tracing decides for the whole process whether to record an event.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use pcp_collector::{Collector, Local};
use pmapi::{Config, Domain, PmId};
use pmda::host::Engine;
use pmda::prelude::*;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

/// Texts of warnings and errors.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

struct Text<'a>(&'a mut Vec<String>);

impl Visit for Text<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.0.push(format!("{value:?}"));
        }
    }
}

impl<S: Subscriber> Layer<S> for Log {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if *event.metadata().level() <= Level::WARN {
            event.record(&mut Text(&mut self.0.lock().unwrap()));
        }
    }
}

const FIRST: Item = Item::new(0, 0);
const PANICS: Item = Item::new(0, 1);
const PARTLY: Item = Item::new(0, 2);
const LAST: Item = Item::new(0, 3);
const MISFIT: Item = Item::new(0, 4);
const SIGN: Item = Item::new(0, 5);
const WIDE: Item = Item::new(0, 6);
const TWICE: Item = Item::new(0, 7);
const BROKEN: Item = Item::new(0, 8);
const GUEST: Item = Item::new(1, 0);
const TWO: Serial = Serial::new(0);

#[derive(Debug)]
struct Bad(Dynamic);

impl Agent for Bad {
    const NAME: &'static str = "bad";
    const DOMAIN: u16 = 400;

    fn new(setup: &mut Setup) -> Result<Self, BoxError> {
        setup.indom(TWO).instances([(0, "zero"), (1, "one")]);
        setup.metric("bad.first", FIRST, Type::U32);
        setup.metric("bad.panics", PANICS, Type::U32);
        setup.metric("bad.partly", PARTLY, Type::String).indom(TWO);
        setup.metric("bad.last", LAST, Type::String);
        setup.metric("bad.misfit", MISFIT, Type::U64);
        setup.metric("bad.sign", SIGN, Type::U32).indom(TWO);
        setup.metric("bad.wide", WIDE, Type::U32);
        setup.metric("bad.twice", TWICE, Type::U32);
        setup.metric("bad.broken", BROKEN, Type::U32);
        let mut names = setup.dynamic(["bad.dynamic"]);
        names.insert(&MetricDef::new("bad.dynamic.guest", GUEST, Type::U32))?;
        Ok(Bad(names))
    }

    fn catalogs(&self) -> impl IntoIterator<Item = &dyn Catalog> {
        [&self.0 as &dyn Catalog]
    }

    fn fetch(&mut self, item: Item, out: &mut Values<'_>) -> Result {
        match item {
            PANICS | GUEST => panic!("as the test wants it"),
            PARTLY => {
                out.put_inst(Inst::new(0), "lost")?;
                out.fail_inst(Inst::new(1), Error::INST);
                panic!("in the middle")
            }
            MISFIT => out.put("seven"),
            SIGN => out.put_inst(Inst::new(1), -1),
            WIDE => out.put(5_000_000_000_u64),
            TWICE => out.put(1).and(out.put(2)),
            BROKEN => Err(Error::from_errno(5)),
            LAST => out.put("last"),
            _ => out.put(1),
        }
    }
}

#[test]
fn other_metrics_have_their_values() {
    let log = Log::default();
    tracing_subscriber::registry().with(log.clone()).init();
    let domain = Domain::new(400).unwrap();
    let mut agent =
        Collector::new(Local::<Bad>::start(Engine::builder().domain(domain).config(Config::new(b"", []))).unwrap());
    let mut fetch = |items: &[Item]| -> Vec<(Option<Error>, usize)> {
        let pmids: Vec<_> = items.iter().map(|item| PmId::new(domain, *item)).collect();
        let fetched = agent.fetch(&pmids).unwrap();
        assert!(fetched.sets().map(|set| set.pmid).eq(pmids.iter().copied().map(Some)));
        for set in fetched.sets().filter(|set| set.pmid == Some(pmids[0])) {
            let values: Vec<_> = set.values().map(|(_, raw)| raw.atom(Type::U32)).collect();
            assert!(items[0] != FIRST || values == [Ok(Atom::U32(1))], "{values:?}");
        }
        fetched.sets().map(|set| (set.error, set.len())).collect()
    };
    let (good, panicked) = ((None, 1), (Some(Error::GENERIC), 0));
    assert_eq!(fetch(&[FIRST, PANICS, LAST]), [good, panicked, good]);
    assert_eq!(fetch(&[PANICS]), [panicked]);
    let items = [FIRST, PARTLY, PANICS, GUEST, LAST, FIRST, PANICS, Item::new(9, 9), PARTLY];
    let expected = [good, panicked, panicked, panicked, good, good, panicked, (Some(Error::PMID), 0), panicked];
    assert_eq!(fetch(&items), expected);
    // A fetch of more metrics than a plan can have.
    let many: Vec<Item> = (0..2500).map(|i| if i % 500 == 499 { PANICS } else { FIRST }).collect();
    let sets = fetch(&many);
    assert!(sets.chunks(500).all(|sets| sets[..499].iter().all(|set| *set == good) && sets[499] == panicked));
    let lines = std::mem::take(&mut *log.0.lock().unwrap());
    for text in [
        "bad.panics (400.0.1): the fetch panicked: as the test wants it; this metric has no value",
        "bad.partly (400.0.2): the fetch panicked: in the middle; this metric",
        "bad.dynamic.guest (400.1.0): the fetch panicked: as the test",
    ] {
        assert!(lines.iter().any(|line| line.contains(text)), "{text:?} is not in {lines:#?}");
    }
    assert!(!lines.iter().any(|line| line.contains("not handled")), "an error before a panic is of no interest");

    let failed = |e| (Some(e), 0);
    assert_eq!(
        fetch(&[MISFIT, SIGN, WIDE, TWICE, BROKEN]),
        [Error::TYPE, Error::SIGN, Error::TRUNC, Error::INST, Error::from_errno(5)].map(failed)
    );
    let lines = log.0.lock().unwrap();
    let expected = [
        "bad.misfit (400.0.4): a value of type STRING does not convert to the declared type U64: ",
        "bad.sign (400.0.5): a value of type I32 (-1) for instance 1 does not convert to the declared type U32: ",
        "bad.wide (400.0.6): a value of type U64 (5000000000) does not convert to the declared type U32: ",
        "bad.twice (400.0.7): the value was put twice; the metric has no values",
        "pmdaFetch: Fetch callback error from metric PMID 400.0.8[-1]: Input/output error (bad.broken)",
    ];
    assert_eq!(lines.len(), expected.len(), "{lines:#?}");
    for (line, expected) in lines.iter().zip(expected) {
        assert!(line.starts_with(expected), "{line}\n{expected}");
    }
}
