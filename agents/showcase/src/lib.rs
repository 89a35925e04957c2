//! Agent with every feature of the framework, to copy from. A module for each feature declares its metrics, returns
//! their values, and names the C functions that it corresponds to.
//!
//! | module | feature |
//! |---|---|
//! | `constants` | values of every type |
//! | `counters` | counters, rates, a counter that wraps |
//! | `bins` | a fixed instance domain; stores, labels and errors of single instances |
//! | `mirage` | a domain that grows and shrinks |
//! | `many` | a domain whose number of instances clients store |
//! | `written` | stores of every type |
//! | `events` | event records, and filters of clients |
//! | `names` | metrics that come and go |
//! | `failures` | errors, no values, a panic |
//! | `source` | a source that hangs |
//! | `readiness` | an agent that is not ready |
//! | `clients` | state for each client, its user, stores that only root may do |
//! | `labels` | labels of every level, notes, labels that change |
//! | `large` | metrics for benches |
//!
//! This file combines the modules. Each module has its own cluster, and the agent's methods call the module whose
//! cluster a request is for.

mod bins;
mod clients;
mod constants;
mod counters;
mod events;
mod failures;
mod labels;
mod large;
mod many;
mod mirage;
mod names;
mod readiness;
mod source;
mod written;

use pmda::prelude::*;
use pmda::{Changes, ClientAttribute, Features, LabelSubject, PollSet, Wake, clap::Command};

/// Agent `showcase`.
#[derive(Debug)]
pub struct Showcase {
    large: Option<large::Large>,
    counters: counters::Counters,
    bins: bins::Bins,
    mirage: mirage::Mirage,
    many: many::Many,
    written: written::Written,
    events: events::Events,
    names: names::Names,
    failures: failures::Failures,
    source: source::Source,
    readiness: readiness::Readiness,
    people: clients::People,
    labels: labels::Labels,
}

impl Showcase {
    /// Writes the values of all metrics except the thousand singular ones of `-n N`. This is a separate function, so
    /// that [`Agent::fetch`] need not save and restore registers.
    #[inline(never)]
    fn fetch_other(&mut self, item: Item, out: &mut Values<'_>) -> Result {
        match item.cluster() {
            large::CACHED_CLUSTER | large::FIXED_CLUSTER => self.large.as_ref().ok_or(Error::PMID)?.fetch(item, out),
            constants::CLUSTER => constants::fetch(item, out),
            counters::CLUSTER => self.counters.fetch(item, out),
            bins::CLUSTER => self.bins.fetch(item, out),
            many::CLUSTER => self.many.fetch(item, out),
            written::CLUSTER => self.written.fetch(item, out),
            events::CLUSTER => self.events.fetch(item, out),
            names::CLUSTER | names::DYNAMIC => self.names.fetch(item, out),
            failures::CLUSTER => self.failures.fetch(item, out),
            source::CLUSTER => self.source.fetch(item, out),
            readiness::CLUSTER => self.readiness.fetch(item, out),
            clients::CLUSTER => self.people.fetch(item, out),
            labels::CLUSTER => self.labels.fetch(item, out),
            _ => Err(Error::PMID),
        }
    }
}

impl Agent for Showcase {
    const NAME: &'static str = "showcase";
    const DOMAIN: u16 = 402;
    const WANTS: Features = clients::People::WANTS;

    fn options(command: Command) -> Command {
        large::options(command)
    }

    fn new(setup: &mut Setup) -> Result<Self, BoxError> {
        constants::declare(setup);
        Ok(Showcase {
            large: large::Large::new(setup)?,
            counters: counters::Counters::new(setup),
            bins: bins::Bins::new(setup),
            mirage: mirage::Mirage::new(setup),
            many: many::Many::new(setup)?,
            written: written::Written::new(setup),
            events: events::Events::new(setup),
            names: names::Names::new(setup)?,
            failures: failures::Failures::new(setup),
            source: source::Source::new(setup)?,
            readiness: readiness::Readiness::new(setup),
            people: clients::People::new(setup),
            labels: labels::Labels::new(setup),
        })
    }

    fn refresh(&mut self, request: Request<'_>, _: Client) -> Result {
        if let Request::Fetch(_) = request {
            self.counters.step();
            self.mirage.step()?;
            self.large.as_mut().map(large::Large::step);
        }
        Ok(())
    }

    fn instances(&self, indom: Serial) -> Option<&dyn Instances> {
        match indom {
            large::CACHED => Some(&self.large.as_ref()?.rows),
            many::INDOM => Some(&self.many.instances),
            _ => None,
        }
    }

    fn fetch(&mut self, item: Item, out: &mut Values<'_>) -> Result {
        match item.cluster() {
            large::SINGLE_CLUSTER => self.large.as_ref().ok_or(Error::PMID)?.single(item, out),
            _ => self.fetch_other(item, out),
        }
    }

    fn store(&mut self, item: Item, inst: Option<Inst>, value: Atom<'_>, client: Client) -> Result {
        match item.cluster() {
            // Filters are not events.
            events::CLUSTER => return self.events.store(item, value, client),
            counters::CLUSTER => self.counters.store(value),
            bins::CLUSTER => self.bins.store(item, inst, value),
            many::CLUSTER => self.many.store(value),
            written::CLUSTER => self.written.store(item, value),
            names::CLUSTER => self.names.store(item, value, client),
            failures::CLUSTER => self.failures.store(item, value),
            source::CLUSTER => self.source.store(item, value),
            readiness::CLUSTER => self.readiness.store(value),
            clients::CLUSTER => self.people.store(value, client),
            labels::CLUSTER => self.labels.store(value),
            _ => Err(Error::PERMISSION),
        }?;
        self.events.stored(item, inst, client)
    }

    fn catalogs(&self) -> impl IntoIterator<Item = &dyn Catalog> {
        [&self.names.dynamic as &dyn Catalog]
    }

    fn labels(&self, of: LabelSubject) -> Result<Option<LabelSet>> {
        match of {
            LabelSubject::Item(item) => self.labels.of(item),
            _ => Ok(None),
        }
    }

    fn instance_labels(&self, indom: Serial, inst: Inst) -> Result<LabelSet> {
        if indom == bins::INDOM { bins::Bins::labels(inst) } else { Ok(LabelSet::new()) }
    }

    fn changes(&mut self) -> Changes {
        self.labels.changes()
    }

    fn attribute(&mut self, client: Client, attribute: ClientAttribute<'_>) -> Result {
        self.people.attribute(client, attribute);
        Ok(())
    }

    fn is_ready(&self) -> bool {
        self.readiness.is_ready()
    }

    fn sources<'a>(&'a self, set: &mut PollSet<'a>) {
        self.readiness.sources(set);
    }

    fn wake(&mut self, _: Wake) {
        self.readiness.wake();
    }
}

pmda::dso!(showcase_init, Showcase);
