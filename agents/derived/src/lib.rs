//! An agent that evaluates derived metrics once, for everybody: what libpcp's clients do each for itself
//! (pmRegisterDerived(3)) becomes ordinary metrics below `derived`.

mod config;
mod options;
mod sampler;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use pmapi::{InDom, Semantics};
use pmda::clap::Command;
use pmda::prelude::*;
use tracing::{error, warn};

use options::Options;
use sampler::{Metrics, Sampler, Shared, Snapshot};

/// Cluster of the metrics about the agent itself.
const CONTROL: u16 = 0;
const SAMPLES: Item = Item::new(CONTROL, 0);
const ERRORS: Item = Item::new(CONTROL, 1);
const EVALUATION: Item = Item::new(CONTROL, 2);
const AGE: Item = Item::new(CONTROL, 3);
const INTERVAL: Item = Item::new(CONTROL, 4);
const GOOD: Item = Item::new(CONTROL, 5);
const MESSAGE: Item = Item::new(CONTROL, 6);
const RELOAD: Item = Item::new(CONTROL, 7);

/// What is wrong with definitions, one instance for each.
const MESSAGES: Serial = Serial::new(0);
/// Files of numbers that stay the same: those of metrics, and those of instance domains.
const ITEMS: Serial = Serial::new(Serial::MAX);
const SERIALS: Serial = Serial::new(Serial::MAX - 1);

const ROOT: &str = "derived";

/// Agent derived.
#[derive(Debug)]
pub struct Derived {
    options: Option<Options>,
    domain: pmapi::Domain,
    shared: Arc<Shared>,
    /// From [`Agent::open`] on.
    source: Option<Background<Snapshot>>,
    dynamic: Dynamic,
    /// The last snapshot that there was.
    snapshot: Option<Arc<Snapshot>>,
    /// Places in the snapshot.
    places: HashMap<Item, usize>,
    /// The operands' domains that ours stand for.
    indoms: HashMap<Serial, InDom>,
    items: Cache<()>,
    serials: Cache<()>,
}

impl Agent for Derived {
    const NAME: &'static str = "derived";
    const DOMAIN: u16 = 404;

    fn options(command: Command) -> Command {
        options::augment(command)
    }

    fn new(setup: &mut Setup) -> Start<Self> {
        let mut dynamic = setup.dynamic([ROOT]);
        control_metrics().iter().try_for_each(|metric| dynamic.insert(metric))?;
        Ok(Derived {
            options: Options::new(setup),
            domain: setup.indom_id(MESSAGES).domain(),
            shared: Arc::default(),
            source: None,
            dynamic,
            snapshot: None,
            places: HashMap::new(),
            indoms: HashMap::new(),
            items: Cache::open(setup.indom_id(ITEMS), setup.config()),
            serials: Cache::open(setup.indom_id(SERIALS), setup.config()),
        })
    }

    fn open(&mut self) -> Start<()> {
        let Some(options) = &self.options else { return Err("no options".into()) };
        let mut sampler = Sampler {
            path: options.path.clone(),
            host: options.host.clone(),
            own: self.domain,
            shared: Arc::clone(&self.shared),
            started: Instant::now(),
            config: config::Config::load(&options.path, &options.host, &config::NameSpace::installed(self.domain)),
            live: None,
            bound: None,
            metrics: None,
            known: HashMap::new(),
        };
        self.source = Some(Background::spawn(options.interval, move || sampler.sample())?);
        Ok(())
    }

    fn is_ready(&self) -> bool {
        self.source.as_ref().is_some_and(Background::is_ready)
    }

    fn sources<'a>(&'a self, set: &mut PollSet<'a>) {
        self.source.iter().for_each(|source| set.first(source));
    }

    fn refresh(&mut self, _: Request, _: Client) -> Result {
        if let Some(Ok(snapshot)) = self.source.as_ref().map(Background::latest) {
            let same = |old: &Arc<Snapshot>| Arc::ptr_eq(&old.metrics, &snapshot.metrics);
            if !self.snapshot.as_ref().is_some_and(same) {
                self.take_over(&snapshot.metrics);
            }
            self.snapshot = Some(snapshot);
        }
        Ok(())
    }

    fn dynamic(&self) -> Option<&Dynamic> {
        Some(&self.dynamic)
    }

    fn instances(&self, indom: Serial) -> Option<&dyn Instances> {
        Some(&**self.snapshot.as_ref()?.indoms.get(self.indoms.get(&indom)?)?)
    }

    fn fetch(&mut self, item: Item, out: &mut Values<'_>) -> Result {
        if item.cluster() == CONTROL {
            return self.control(item, out);
        }
        // While there is an error, it stands in place of old values.
        let snapshot = self.source.as_ref().ok_or(Error::AGAIN)?.latest()?;
        let place = self.places.get(&item).ok_or(Error::PMID)?;
        let values = snapshot.values.get(*place).ok_or(Error::PMID)?.as_ref().map_err(|e| *e)?;
        for (inst, value) in values.iter() {
            match inst {
                None => out.put(value)?,
                Some(inst) if out.wants(inst) => out.put_inst(inst, value)?,
                Some(_) => {}
            }
        }
        Ok(())
    }

    fn store(&mut self, item: Item, _: Option<Inst>, _: Atom<'_>, _: Client) -> Result {
        if item != RELOAD {
            return Err(Error::PERMISSION);
        }
        self.shared.reload.store(true, Relaxed);
        self.source.iter().for_each(Background::ask);
        Ok(())
    }
}

fn control_metrics() -> Vec<Metric> {
    let metric = |name: &str, item, ty| Metric::new(format!("{ROOT}.control.{name}"), item, ty);
    let mut samples = metric("samples", SAMPLES, Type::U64);
    samples.counter().units(Units::COUNT).help("Samples of operands that were tried", "");
    let mut errors = metric("errors", ERRORS, Type::U64);
    errors
        .counter()
        .units(Units::COUNT)
        .help("Samples that failed", "The metrics have an error in place of values then.");
    let mut evaluation = metric("evaluation", EVALUATION, Type::Double);
    evaluation.units(Units::SECONDS).help("Time that the last evaluation took", "Without that for the operands.");
    let mut age = metric("age", AGE, Type::Double);
    age.units(Units::SECONDS).help("Time since the last sample", "");
    let mut interval = metric("interval", INTERVAL, Type::Double);
    interval.discrete().units(Units::SECONDS).help("Time between samples", "Option -t.");
    let mut good = metric("definitions", GOOD, Type::U32);
    good.discrete().units(Units::COUNT).help("Definitions that are metrics", "");
    let mut message = metric("message", MESSAGE, Type::String);
    message.indom(MESSAGES).discrete().help("What is wrong with the other definitions", "One instance for each.");
    let mut reload = metric("reload", RELOAD, Type::U32);
    reload.discrete().storable().help("Any value stored here loads the configuration again", "Its value is always 0.");
    vec![samples, errors, evaluation, age, interval, good, message, reload]
}

impl Derived {
    fn control(&self, item: Item, out: &mut Values<'_>) -> Result {
        let metrics = self.snapshot.as_ref().map(|snapshot| &snapshot.metrics);
        match item {
            SAMPLES => out.put(self.shared.samples.load(Relaxed)),
            ERRORS => out.put(self.shared.errors.load(Relaxed)),
            EVALUATION => out.put(sampler::evaluation(&self.shared).as_secs_f64()),
            AGE => {
                let age = self.source.as_ref().and_then(Background::age).ok_or(Error::AGAIN)?;
                out.put(age.as_secs_f64())
            }
            INTERVAL => out.put(self.options.as_ref().ok_or(Error::VALUE)?.interval.as_secs_f64()),
            GOOD => out.put(metrics.map_or(0, |metrics| metrics.good.len() as u32)),
            MESSAGE => {
                let messages = metrics.map_or(&[][..], |metrics| &metrics.messages);
                let mut messages = (0..).map(Inst::new).zip(messages);
                messages.try_for_each(|(inst, message)| out.put_inst(inst, message))
            }
            RELOAD => out.put(0u32),
            _ => Err(Error::PMID),
        }
    }

    /// Shows other metrics than before, each with the number that it has always had.
    fn take_over(&mut self, metrics: &Metrics) {
        let others: Vec<Item> = self.dynamic.items().filter(|item| item.cluster() != CONTROL).collect();
        for item in others {
            let names: Vec<String> = self.dynamic.names(item).map(str::to_owned).collect();
            for name in &names {
                self.dynamic.remove(name);
            }
        }
        self.places.clear();
        self.indoms.clear();
        let numbers = metrics.messages.iter().enumerate().map(|(at, _)| (at as u32, at.to_string()));
        let mut messages = Indom::new(MESSAGES);
        messages.instances(numbers).help("Definitions that are no metrics", "In the order of the configuration.");
        self.dynamic.insert_indom(&messages).unwrap_or_else(|e| error!("{e}"));
        for (place, metric) in metrics.good.iter().enumerate() {
            if let Err(e) = self.show(place, metric) {
                warn!("{}: {e}", metric.name);
            }
        }
        for cache in [&mut self.items, &mut self.serials] {
            cache.save().unwrap_or_else(|e| error!("{e}"));
        }
    }

    fn show(&mut self, place: usize, derived: &sampler::Metric) -> Start<()> {
        let number = self.items.store(&derived.name, ())?.word();
        let (cluster, item) = (number / 1024 + 1, number % 1024);
        let item = u16::try_from(cluster).ok().and_then(|cluster| Item::try_new(cluster, item as u16));
        let item = item.ok_or("no number is left")?;
        let mut metric = Metric::new(format!("{ROOT}.{}", derived.name), item, derived.desc.ty);
        metric.units(derived.desc.units).help(derived.oneline.as_str(), derived.help.as_str());
        match derived.desc.semantics {
            Semantics::Counter => _ = metric.counter(),
            Semantics::Discrete => _ = metric.discrete(),
            Semantics::Instant => {}
        }
        if let Some(operand) = derived.desc.indom {
            let number = self.serials.store(&operand.to_string(), ())?.word() + MESSAGES.get() + 1;
            let serial = Serial::try_new(number).ok_or("no instance domain is left")?;
            let mut indom = Indom::new(serial);
            indom.help(format!("The instances of {operand}"), "");
            self.dynamic.insert_indom(&indom)?;
            self.indoms.insert(serial, operand);
            metric.indom(serial);
        }
        self.dynamic.insert(&metric)?;
        self.places.insert(item, place);
        Ok(())
    }
}
