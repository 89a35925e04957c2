//! Metrics whose values come from the getters at their declarations, and tables.

use std::time::Duration;

use pcp_collector::{Collector, Local};
use pmapi::{Config, Domain, InDom, PmId, Semantics};
use pmda::Mistake;
use pmda::host::{Engine, Schema};
use pmda::prelude::*;

const DISK: Serial = Serial::new(0);

/// An agent with a metric for each kind of value.
struct Meter {
    name: String,
    disks: Table<Disk>,
    /// Rows that the next refresh reads; `None` for an error.
    source: Option<Vec<(&'static str, Disk)>>,
    reads: u32,
}

#[derive(Clone)]
struct Disk {
    model: String,
    busy: Duration,
    reads: Option<u64>,
    state: std::result::Result<u32, Error>,
}

fn disk(reads: u64) -> Disk {
    Disk { model: format!("WD{reads}"), busy: Duration::from_millis(reads), reads: Some(reads), state: Ok(1) }
}

impl Agent for Meter {
    const NAME: &'static str = "meter";
    const DOMAIN: u16 = 400;

    fn new(setup: &mut Setup) -> Result<Self, BoxError> {
        let metric = |name: &str, item, ty| MetricDef::new(format!("meter.{name}"), Item::new(0, item), ty).clone();
        setup.counter("meter.counter", Item::new(0, 0), |_: &Meter| 7_u64).units(Units::COUNT);
        setup.gauge("meter.time", Item::new(0, 1), |_: &Meter| Duration::from_millis(1500)).units(Units::MILLISECONDS);
        setup.discrete("meter.missing", Item::new(0, 2), |_: &Meter| None::<i8>);
        setup.gauge("meter.failing", Item::new(0, 3), |_: &Meter| Err::<f32, _>(Error::AGAIN));
        setup.string("meter.name", Item::new(0, 4), |meter: &Meter| &meter.name);
        setup.add(metric("converted", 5, Type::U32).getter(|meter: &Meter| meter.name.len()));
        setup.add(metric("fetched", 6, Type::U32).semantics(Semantics::Counter));
        setup.extend(
            (7..9)
                .map(|item| metric(&format!("captured{item}"), item, Type::U32).getter(move |_: &Meter| item).clone()),
        );
        // The declaration of a table does not stand in the way of others.
        let mut disks = setup.table(DISK, |meter: &Meter| &meter.disks).whole_names();
        setup.add(metric("narrow", 9, Type::U32).getter(|_: &Meter| u64::MAX));
        disks.help("Disks", "By their models.");
        disks.counter("meter.disk.reads", Item::new(1, 0), |disk| disk.reads).units(Units::COUNT);
        disks.gauge("meter.disk.busy", Item::new(1, 1), |disk| disk.busy).units(Units::SECONDS);
        disks.gauge("meter.disk.state", Item::new(1, 2), |disk| disk.state);
        disks.string("meter.disk.model", Item::new(1, 3), |disk| &disk.model);
        disks.column("meter.disk.narrow", Item::new(1, 4), Type::U32, |disk| disk.reads);
        disks.total("meter.disks", Item::new(2, 0), |disks| disks.active_len());
        let disks = disks.finish(setup);
        Ok(Meter { name: "gas".into(), disks, source: Some(vec![("a b", disk(5)), ("a c", disk(6))]), reads: 0 })
    }

    fn refresh(&mut self, request: Request<'_>, _: Client) -> Result {
        let Meter { disks, source, reads, .. } = self;
        disks.refresh(request, |rows| {
            *reads += 1;
            for (name, disk) in source.as_ref().ok_or(Error::TIMEOUT)? {
                rows.add(name, disk.clone());
            }
            Ok(())
        });
        Ok(())
    }

    fn fetch(&mut self, item: Item, out: &mut Values<'_>) -> Result {
        assert_eq!(item, Item::new(0, 6), "this metric has a getter");
        out.put(self.reads)
    }
}

type Meters = Collector<Local<Meter>>;

fn start() -> Meters {
    Local::<Meter>::collector().unwrap()
}

fn agent(meter: &mut Meters) -> &mut Meter {
    meter.agent_mut()
}

/// Returns the values of a metric as text, or its error.
fn values(meter: &mut Meters, name: &str) -> std::result::Result<Vec<(Option<u32>, String)>, Error> {
    let metric = meter.metric(name).unwrap();
    let ty = meter.desc(metric).unwrap().ty;
    let fetched = meter.fetch(&[metric]).unwrap();
    let set = fetched.sets().next().unwrap();
    match set.error {
        Some(e) => Err(e),
        None => {
            Ok(set.values().map(|(inst, value)| (inst.map(Inst::word), value.atom(ty).unwrap().to_string())).collect())
        }
    }
}

fn value(meter: &mut Meters, name: &str) -> String {
    match &values(meter, name).unwrap()[..] {
        [(None, value)] => value.clone(),
        values => panic!("{name}: {values:?}"),
    }
}

#[test]
fn the_type_of_a_metric_is_that_of_its_getter() {
    let schema = Schema::of::<Meter>().unwrap();
    let described = |name: &str| {
        let metric = schema.metrics().iter().find(|metric| metric.name() == name).unwrap();
        let desc = metric.desc(schema.domain());
        (desc.ty, desc.semantics, desc.indom.is_some())
    };
    assert_eq!(described("meter.counter"), (Type::U64, Semantics::Counter, false));
    assert_eq!(described("meter.time"), (Type::Double, Semantics::Instant, false));
    assert_eq!(described("meter.missing"), (Type::I32, Semantics::Discrete, false));
    assert_eq!(described("meter.failing"), (Type::Float, Semantics::Instant, false));
    assert_eq!(described("meter.name"), (Type::String, Semantics::Discrete, false));
    assert_eq!(described("meter.fetched"), (Type::U32, Semantics::Counter, false));
    assert_eq!(described("meter.disk.reads"), (Type::U64, Semantics::Counter, true));
    assert_eq!(described("meter.disk.busy"), (Type::Double, Semantics::Instant, true));
    assert_eq!(described("meter.disk.model"), (Type::String, Semantics::Discrete, true));
    assert_eq!(described("meter.disks"), (Type::U64, Semantics::Instant, false));
}

#[test]
fn values_come_from_getters_and_else_from_fetch() {
    let mut meter = start();
    assert_eq!(value(&mut meter, "meter.counter"), "7");
    assert_eq!(value(&mut meter, "meter.time"), "1.500000e+03");
    assert_eq!(values(&mut meter, "meter.missing"), Ok(vec![]));
    assert_eq!(values(&mut meter, "meter.failing"), Err(Error::AGAIN));
    assert_eq!(value(&mut meter, "meter.name"), "\"gas\"");
    assert_eq!(value(&mut meter, "meter.converted"), "3");
    assert_eq!(value(&mut meter, "meter.captured7"), "7");
    assert_eq!(value(&mut meter, "meter.captured8"), "8");
    assert_eq!(value(&mut meter, "meter.fetched"), "0");
    assert_eq!(values(&mut meter, "meter.narrow"), Err(Error::TRUNC));
}

#[test]
fn a_table_has_instances_and_columns() {
    let mut meter = start();
    assert_eq!(values(&mut meter, "meter.disk.reads"), Ok(vec![(Some(0), "5".into()), (Some(1), "6".into())]));
    assert_eq!(values(&mut meter, "meter.disk.model").unwrap()[1], (Some(1), "\"WD6\"".into()));
    assert_eq!(values(&mut meter, "meter.disk.busy").unwrap()[0], (Some(0), "5.000000e-03".into()));
    assert_eq!(value(&mut meter, "meter.disks"), "2");
    // A row without a value, and one with an error, do not affect the other one.
    let odd = Disk { reads: None, state: Err(Error::NOTHOST), ..disk(1 << 40) };
    agent(&mut meter).source = Some(vec![("a c", disk(8)), ("odd", odd), ("no\nname", disk(9))]);
    assert_eq!(values(&mut meter, "meter.disk.reads"), Ok(vec![(Some(1), "8".into())]));
    assert_eq!(values(&mut meter, "meter.disk.state"), Ok(vec![(Some(1), "1".into())]));
    assert_eq!(value(&mut meter, "meter.disks"), "2");
    // As long as one has a value: otherwise the metric has the error.
    agent(&mut meter).source = Some(vec![("odd", Disk { state: Err(Error::NOTHOST), ..disk(1) })]);
    assert_eq!(values(&mut meter, "meter.disk.state"), Err(Error::NOTHOST));
    // A value that does not convert is a mistake of the agent.
    agent(&mut meter).source = Some(vec![("a", disk(1)), ("b", disk(1 << 40))]);
    assert_eq!(values(&mut meter, "meter.disk.narrow"), Err(Error::TRUNC));
}

#[test]
fn a_table_is_read_when_a_request_needs_it() {
    let mut meter = start();
    let indom = InDom::new(Domain::new(Meter::DOMAIN).unwrap(), DISK);
    let names = |meter: &mut Meters| meter.instances(indom).unwrap().len();
    value(&mut meter, "meter.counter");
    assert_eq!(agent(&mut meter).reads, 0);
    assert_eq!((names(&mut meter), agent(&mut meter).reads), (2, 1));
    // A client asks for the names after the values.
    value(&mut meter, "meter.disks");
    agent(&mut meter).source = Some(vec![]);
    assert_eq!((names(&mut meter), agent(&mut meter).reads), (2, 2));
    values(&mut meter, "meter.disk.model").unwrap();
    assert_eq!((names(&mut meter), agent(&mut meter).reads), (0, 3));
}

#[test]
fn an_error_of_a_table_is_that_of_its_metrics_alone() {
    let mut meter = start();
    let source = agent(&mut meter).source.take();
    let pmids = ["meter.disk.reads", "meter.disks", "meter.counter"].map(|name| meter.metric(name).unwrap());
    let errors = |meter: &mut Meters, pmids: &[PmId]| -> Vec<_> {
        meter.fetch(pmids).unwrap().sets().map(|set| set.error).collect()
    };
    assert_eq!(errors(&mut meter, &pmids), [Some(Error::TIMEOUT), Some(Error::TIMEOUT), None]);
    agent(&mut meter).source = source;
    assert_eq!(errors(&mut meter, &pmids), [None; 3]);
}

/// An agent with the getter of another one.
struct Mixed(Dynamic);

impl Agent for Mixed {
    const NAME: &'static str = "mixed";
    const DOMAIN: u16 = 400;

    fn new(setup: &mut Setup) -> Result<Self, BoxError> {
        setup.gauge("mixed.up", Item::new(0, 0), |_: &Mixed| 1);
        setup.string("mixed.name", Item::new(0, 1), |meter: &Meter| &meter.name);
        let mut disks = setup.table(DISK, |meter: &Meter| &meter.disks);
        disks.gauge("mixed.disk", Item::new(0, 2), |disk| disk.reads);
        drop(disks.finish(setup));
        let mut dynamic = setup.dynamic(["mixed.files"]);
        let metric = MetricDef::new("mixed.files.a", Item::new(1, 1), Type::U32).getter(|_: &Mixed| 1).clone();
        assert_eq!(dynamic.insert(&metric), Err(Mistake::DynamicGetter("mixed.files.a".into())));
        Ok(Mixed(dynamic))
    }

    fn catalogs(&self) -> impl IntoIterator<Item = &dyn Catalog> {
        [&self.0 as &dyn Catalog]
    }
}

#[test]
fn a_getter_of_another_agent_is_a_mistake() {
    let e = Engine::<Mixed>::builder().config(Config::new(b"", [])).build().err().unwrap().to_string();
    let mistakes: Vec<&str> = e.split("; ").collect();
    assert_eq!(mistakes.len(), 3, "{e}");
    for (mistake, of) in mistakes.iter().zip(["metric mixed.name", "metric mixed.disk", "instance domain 0"]) {
        let start = format!("{of}: the getter takes a ");
        assert!(mistake.starts_with(&start) && mistake.contains("::Meter, but the agent is a "), "{mistake}");
    }
}

#[test]
fn rows_keep_their_numbers_over_restarts() {
    struct Kept(Table<u32>, Vec<&'static str>);

    impl Agent for Kept {
        const NAME: &'static str = "kept";
        const DOMAIN: u16 = 400;

        fn new(setup: &mut Setup) -> Result<Self, BoxError> {
            let mut rows = setup.table(DISK, |kept: &Kept| &kept.0).persistent().whole_names();
            rows.gauge("kept.row", Item::new(0, 0), |row| *row);
            Ok(Kept(rows.finish(setup), vec!["one x", "one y"]))
        }

        fn refresh(&mut self, request: Request<'_>, _: Client) -> Result {
            self.0.refresh(request, |rows| self.1.iter().try_for_each(|name| Ok(rows.store(name, 1).map(drop)?)));
            Ok(())
        }
    }

    let dir = tempfile::tempdir().unwrap();
    let numbers = |names: Vec<&'static str>| -> Vec<_> {
        let config = Config::new(b"", [("PCP_VAR_DIR".into(), dir.path().into())]);
        let builder = Engine::<Kept>::builder().config(config);
        let mut kept = Collector::new(Local::start(builder).unwrap());
        kept.agent_mut().1 = names;
        let row = kept.metric("kept.row").unwrap();
        kept.values(row).unwrap().iter().map(|(inst, _)| inst.map(Inst::word)).collect()
    };
    assert_eq!(numbers(vec!["one x", "one y"]), [Some(0), Some(1)]);
    assert_eq!(numbers(vec!["one z", "one y"]), [Some(1), Some(2)]);
}
