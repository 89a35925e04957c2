//! Agent `replay` serves a recorded host under a live pmcd: dashboards, alarms and rules of pmie(1) can be rehearsed
//! with last week's incident.
//!
//! All recorded metrics are below `replay`, in one domain; or, with `--original`, a process serves one recorded domain
//! with the names, numbers, instance domains, labels and help that it had. `clock` maps the time of this host to that
//! of the archive, `recording` has the values as of a time: each metric keeps its value until the next record that has
//! one. `control` exports metrics that show and change position and speed.

mod clock;
mod control;
mod install;
mod metrics;
mod options;
mod recording;

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::Instant;

use pcp_archive::{Archive, LabelRecord};
use pcp_pdu::event::Stamp;
use pmapi::{Domain, InDom, LabelLevel};
use pmda::clap::{Args as _, Command, FromArgMatches as _};
use pmda::prelude::*;
use pmda::tracing::warn;
use pmda::{Features, LabelSubject};

use clock::Clock;
use metrics::Metrics;
use options::Options;
use recording::Recording;

pub use install::main;

/// Agent `replay`.
#[derive(Debug)]
pub struct Replay {
    metrics: Metrics,
    recording: Recording,
    clock: Clock,
    /// Domain that is served with its own numbers; `None` for all domains.
    original: Option<Domain>,
    /// Why the archive could not be read at the last position.
    failure: Option<Error>,
    /// Labels of the instances that were requested last.
    instance_labels: RefCell<Option<InstanceLabels>>,
}

/// Labels of the instances of a domain from a time on.
#[derive(Debug)]
struct InstanceLabels {
    indom: InDom,
    time: Stamp,
    by_inst: HashMap<u32, LabelSet>,
}

impl Agent for Replay {
    const NAME: &'static str = "replay";
    const DOMAIN: u16 = options::DOMAIN;
    // The replay is shared by all clients, so the users who may store are restricted.
    const WANTS: Features = Features::AUTHORIZE;

    fn options(command: Command) -> Command {
        Options::augment_args(command)
    }

    fn new(setup: &mut Setup) -> Result<Self, BoxError> {
        options::ask(setup);
        let options = Options::from_arg_matches(setup.options())?;
        let path = options.archives().ok_or("no archive: name one with option -a")?;
        // Cursors borrow the archive, which the process needs until it ends.
        let archive: &'static Archive = Box::leak(Box::new(Archive::open(&path)?));
        warn_skipped(archive);
        let meta = archive.metadata();
        let original = Some(setup.domain()).filter(|_| options.original);
        let control = match original {
            Some(domain) => format!("{}.domain{}", setup.name(), domain.get()),
            None => format!("{}.control", setup.name()),
        };
        let metrics = match original {
            Some(domain) => Metrics::original(meta, domain, &control),
            None => Metrics::all(meta, setup.name(), &control),
        };
        if metrics.by_pmid.is_empty() {
            let mut domains: Vec<u16> = meta.descs().map(|(pmid, _)| pmid.domain().get()).collect();
            domains.dedup();
            return Err(format!(
                "{}: the archive has no metrics to serve; its domains are {domains:?}",
                path.display()
            )
            .into());
        }
        metrics.declare(meta, setup);
        control::declare(setup, &control, metrics.control);
        let recording = Recording::new(archive, &metrics)?;
        let (now, length, offset) = (Instant::now(), recording.length(), options.start.unwrap_or_default());
        if offset > length {
            warn!(
                "--start is after the end of the recording, which is {length:?} long: the values at its end are shown"
            );
        }
        let mut clock = Clock::new(length, now);
        clock.set_offset(offset, now);
        clock.set_speed(options.speed, now);
        if options.repeat {
            clock.repeat(now);
        }
        Ok(Replay { metrics, recording, clock, original, failure: None, instance_labels: RefCell::new(None) })
    }

    fn refresh(&mut self, request: Request<'_>, _: Client) -> Result {
        match request {
            Request::Fetch(_) => self.go(),
            Request::Instance(serial) | Request::InDomLabels(serial) | Request::InstanceLabels(serial) => {
                self.go();
                if let Some(indom) = self.metrics.indom(serial) {
                    self.recording.update_instances(indom);
                }
            }
            _ => {}
        }
        if let Request::Fetch(items) = request {
            for item in items.iter() {
                let desc = self.metrics.by_item.get(&item).and_then(|pmid| self.metrics.by_pmid.get(pmid));
                if let Some(indom) = desc.and_then(|served| served.desc.indom) {
                    self.recording.update_instances(indom);
                }
            }
        }
        Ok(())
    }

    fn instances(&self, serial: Serial) -> Option<&dyn Instances> {
        let named = self.recording.instances(self.metrics.indom(serial)?)?;
        Some(named as &dyn Instances)
    }

    fn labels(&self, of: LabelSubject) -> Result<Option<LabelSet>> {
        let meta = self.recording.archive().metadata();
        let time = self.recording.time(self.clock.position(Instant::now()));
        let subject = match of {
            LabelSubject::Agent => self.original.map(|domain| (LabelLevel::Domain, domain.get().into())),
            LabelSubject::Cluster(cluster) => {
                self.original.and_then(|domain| Some((LabelLevel::Cluster, self.metrics.cluster(cluster, domain)?)))
            }
            LabelSubject::InDom(serial) => self.metrics.indom(serial).map(|indom| (LabelLevel::InDom, indom.word())),
            LabelSubject::Item(item) => self.metrics.by_item.get(&item).map(|pmid| (LabelLevel::Item, pmid.word())),
            _ => None,
        };
        let Some((level, ident)) = subject else { return Ok(None) };
        let record: Option<LabelRecord<'_>> = meta.labels(level, ident, time).ok().flatten();
        Ok(record.and_then(|record| record.sets().next()?.label_set().ok()))
    }

    fn instance_labels(&self, serial: Serial, inst: Inst) -> Result<LabelSet> {
        let Some(indom) = self.metrics.indom(serial) else { return Ok(LabelSet::new()) };
        let time = self.recording.time(self.clock.position(Instant::now()));
        let meta = self.recording.archive().metadata();
        let record = meta.labels(LabelLevel::Instances, indom.word(), time).ok().flatten();
        let Some(record) = record else { return Ok(LabelSet::new()) };
        let mut kept = self.instance_labels.borrow_mut();
        // A search for each instance would be slow in a large domain.
        let kept = match kept.take() {
            Some(known) if (known.indom, known.time) == (indom, record.time) => kept.insert(known),
            _ => {
                let mut by_inst = HashMap::new();
                for set in record.sets() {
                    by_inst.entry(set.inst).or_insert_with(|| set.label_set().unwrap_or_default());
                }
                kept.insert(InstanceLabels { indom, time: record.time, by_inst })
            }
        };
        Ok(kept.by_inst.get(&inst.word()).cloned().unwrap_or_default())
    }

    fn fetch(&mut self, item: Item, out: &mut Values<'_>) -> Result {
        if item.cluster() == self.metrics.control && !self.metrics.by_item.contains_key(&item) {
            return control::fetch(item, &self.clock, &self.recording, out);
        }
        let pmid = *self.metrics.by_item.get(&item).ok_or(Error::PMID)?;
        let served = self.metrics.by_pmid.get(&pmid).ok_or(Error::PMID)?;
        if let Some(failure) = self.failure.filter(|_| !self.recording.has(pmid)) {
            return Err(failure);
        }
        let mut has_value = false;
        // An archive may have any instances, and values of any encoding: one of them must not cost the others.
        self.recording.values(pmid, served.desc.ty, |inst, atom| match (inst, served.desc.indom) {
            (Some(inst), Some(_)) => match atom {
                Ok(atom) => out.put_inst(inst, atom),
                Err(e) => {
                    out.fail_inst(inst, e);
                    Ok(())
                }
            },
            (_, None) if !std::mem::replace(&mut has_value, true) => out.put(atom?),
            _ => Ok(()),
        })
    }

    fn store(&mut self, item: Item, _: Option<Inst>, value: Atom<'_>, _: Client) -> Result {
        control::store(item, value, &mut self.clock, Instant::now())
    }
}

/// Warns of archives, and parts of them, that are left out because of damage.
fn warn_skipped(archive: &Archive) {
    archive.take_skipped().iter().for_each(|skipped| warn!("{skipped}"));
}

impl Replay {
    /// Moves to the present position. After a failure to read, metrics have no values, but requests are answered.
    fn go(&mut self) {
        let position = self.clock.position(Instant::now());
        let gone = self.recording.go(position);
        warn_skipped(self.recording.archive());
        let Err(e) = gone else {
            self.failure = None;
            return;
        };
        if self.failure.is_none() {
            warn!("{e}: metrics have no values until the next record that has one");
        }
        self.failure = Some(match e.code() {
            // pmcd would take these codes for failures of this agent.
            Error::IPC | Error::TIMEOUT => Error::AGAIN,
            code => code,
        });
    }
}
