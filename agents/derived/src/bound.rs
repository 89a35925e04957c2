//! Definitions that are bound to the metrics of a pmcd, and what is computed of them in a sample.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pcp_derive::{Evaluator, Operand, Plan, Values};
use pcp_derive::{Live, Names};
use pmapi::{Error, InDom, Result};
use tracing::debug;

use crate::demand::Demand;
use crate::link::{Known, Snapshot};
use crate::metrics::Metrics;
use crate::operands::pmcd::Pmcd;
use crate::sampler::Kind;

/// How often the operands of definitions that mean nothing are looked for, when pmcd has no news.
const AGAIN: Duration = Duration::from_secs(10);

/// How long the names of instances are taken for what they were while nobody asks for values.
const LASTING: Duration = Duration::from_secs(60);

/// What becomes of a metric's values in a sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    /// There are none.
    None,
    /// Those that there were stay.
    Stays,
    Computed,
}

#[derive(Debug)]
pub(crate) struct Bound {
    names: Names,
    evaluator: Evaluator,
    metrics: Arc<Metrics>,
    demand: Arc<Demand>,
    /// What somebody has asked for.
    wanted: Vec<bool>,
    /// What regular samples compute.
    regular: (Vec<bool>, Plan),
    /// What extra samples have computed since the last regular one, and what the last of them computes.
    extra: (Vec<bool>, Plan),
    /// The sample that is under way.
    kind: Kind,
    parts: Vec<Part>,
    /// Sorted by domain.
    lists: Vec<Known>,
    /// Labels are other than in the snapshot before.
    relabelled: bool,
    /// Domains whose instances have to be asked for, and those that are as before.
    asked: Vec<InDom>,
    same: Vec<InDom>,
    /// Something in pmcd is other than when this was bound.
    stale: bool,
    looked_up: Instant,
}

impl Bound {
    pub(crate) fn new(names: Names, evaluator: Evaluator, metrics: Arc<Metrics>, demand: Arc<Demand>) -> Bound {
        let none = vec![false; metrics.good.len()];
        Bound {
            names,
            evaluator,
            demand,
            wanted: none.clone(),
            regular: (none.clone(), Plan::default()),
            extra: (none, Plan::default()),
            kind: Kind::Regular,
            parts: vec![Part::None; metrics.good.len()],
            metrics,
            lists: Vec::new(),
            relabelled: false,
            asked: Vec::new(),
            same: Vec::new(),
            stale: false,
            looked_up: Instant::now(),
        }
    }

    /// Whether operands have to be looked up again.
    pub(crate) fn is_stale(&self) -> bool {
        self.stale || !self.metrics.bad.is_empty() && self.looked_up.elapsed() >= AGAIN
    }

    /// The operands.
    pub(crate) fn into_names(self) -> Names {
        self.names
    }

    pub(crate) fn set_stale(&mut self) {
        self.stale = true;
    }

    /// Takes note that operands have been looked up again; whether they are what they were.
    pub(crate) fn is_same(&mut self, names: &Names) -> bool {
        (self.stale, self.looked_up) = (false, Instant::now());
        self.names == *names
    }

    /// Whether nobody asks for anything.
    pub(crate) fn is_idle(&self) -> bool {
        !self.wanted.contains(&true)
    }

    /// Makes `delta` and `rate` begin anew.
    pub(crate) fn forget(&mut self) {
        self.evaluator.forget(&self.regular.1);
    }

    /// Decides what to compute. In a regular sample `delta` and `rate` of what is new begin anew, and in an extra one
    /// they have nothing before them: differences are over the time between two regular samples only.
    pub(crate) fn choose(&mut self, kind: Kind) {
        self.demand.update(&mut self.wanted);
        let numbers = |places: &[bool]| -> Vec<usize> {
            self.metrics
                .good
                .iter()
                .zip(places)
                .filter(|(_, wanted)| **wanted)
                .map(|(metric, _)| metric.number)
                .collect()
        };
        self.kind = kind;
        let (regular, plan) = &mut self.regular;
        match kind {
            Kind::Regular => {
                if *regular != self.wanted {
                    let wanted = numbers(&self.wanted);
                    self.evaluator.forget(&self.evaluator.plan_beyond(plan, wanted.iter().copied()));
                    *plan = self.evaluator.plan(wanted);
                    regular.clone_from(&self.wanted);
                }
                self.extra.0.fill(false);
                let part = |wanted: &bool| if *wanted { Part::Computed } else { Part::None };
                self.parts.clear();
                self.parts.extend(self.wanted.iter().map(part));
            }
            Kind::Extra => {
                let there = regular.iter().zip(&self.extra.0).map(|(regular, extra)| *regular || *extra);
                let part = |(wanted, there): (&bool, bool)| match (wanted, there) {
                    (true, true) => Part::Stays,
                    (true, false) => Part::Computed,
                    (false, _) => Part::None,
                };
                self.parts.clear();
                self.parts.extend(self.wanted.iter().zip(there).map(part));
                let new: Vec<bool> = self.parts.iter().map(|part| *part == Part::Computed).collect();
                self.extra.1 = self.evaluator.plan_beyond(plan, numbers(&new));
                self.evaluator.forget(&self.extra.1);
                self.extra.0.iter_mut().zip(new).for_each(|(extra, new)| *extra |= new);
            }
        }
    }

    fn plan(&self) -> &Plan {
        if self.kind == Kind::Regular { &self.regular.1 } else { &self.extra.1 }
    }

    /// The metrics that the sample needs.
    pub(crate) fn operands(&self) -> impl Iterator<Item = &Operand> {
        self.evaluator.operands_of(self.plan())
    }

    /// Computes the sample; `stamp` is when its operands are from.
    pub(crate) fn evaluate(&mut self, stamp: Duration, live: &mut Live) {
        let plan = if self.kind == Kind::Regular { &self.regular.1 } else { &self.extra.1 };
        self.evaluator.evaluate(plan, stamp, live);
    }

    /// What has been computed, with the places.
    fn computed(&self) -> impl Iterator<Item = (usize, Option<InDom>, Result<&Values>)> {
        let of = self.metrics.good.iter().zip(&self.parts).enumerate();
        of.filter(|(_, (_, part))| **part == Part::Computed)
            .map(|(place, (metric, _))| (place, metric.desc.indom, self.evaluator.values(metric.number)))
    }

    /// Asks for the names of instances, where there are others than in the snapshot before, or where somebody asks.
    /// False when a number is that of another instance now: then nothing is to be remembered of it.
    pub(crate) fn ask_instances(&mut self, pmcd: &mut Pmcd, before: Option<&Snapshot>, taken: Instant) -> Result<bool> {
        let before = before.filter(|before| Arc::ptr_eq(&before.metrics, &self.metrics));
        let (mut asked, mut same) = (std::mem::take(&mut self.asked), std::mem::take(&mut self.same));
        asked.extend(self.demand.take_indoms());
        for (place, indom, values) in self.computed() {
            let (Some(indom), Ok(values)) = (indom, values) else { continue };
            let known = self.lists.binary_search_by_key(&indom.word(), |known| known.indom.word());
            let known = known.ok().and_then(|at| self.lists.get(at));
            let slot = before.and_then(|before| before.slots.get(place)).filter(|slot| slot.taken.is_some());
            let unchanged = known.is_some_and(|known| match slot {
                Some(slot) => slot.values.same_instances(values),
                None => known.taken.elapsed() <= LASTING && known.list.is_of(values),
            });
            let list = if unchanged { &mut same } else { &mut asked };
            if list.last() != Some(&indom) {
                list.push(indom);
            }
        }
        for known in self.lists.iter_mut().filter(|known| same.contains(&known.indom)) {
            known.taken = taken;
        }
        asked.sort_unstable_by_key(|indom| indom.word());
        asked.dedup();
        for indom in asked.drain(..) {
            let list = match pmcd.instances(indom, self.demand.wants_labels(indom)) {
                Ok(list) => Arc::new(list),
                Err(e) if pmcd.is_connected() => {
                    debug!("instance domain {indom}: {e}");
                    continue;
                }
                Err(e) => return Err(e),
            };
            let known = Known { indom, list, taken };
            match self.lists.binary_search_by_key(&indom.word(), |known| known.indom.word()) {
                Ok(at) if known.list.renames(&self.lists[at].list) => return Ok(false),
                Ok(at) => {
                    self.relabelled |= known.list.labels() != self.lists[at].list.labels();
                    self.lists[at] = known;
                }
                Err(at) => self.lists.insert(at, known),
            }
        }
        same.clear();
        (self.asked, self.same) = (asked, same);
        Ok(true)
    }

    /// The snapshot that is to be shown, in the memory of another one that nobody looks at any more.
    pub(crate) fn snapshot(
        &mut self,
        memory: Option<Arc<Snapshot>>,
        before: Option<&Snapshot>,
        taken: Instant,
    ) -> Arc<Snapshot> {
        let mut snapshot = memory.unwrap_or_default();
        if Arc::get_mut(&mut snapshot).is_none() {
            snapshot = Arc::default();
        }
        let Some(to) = Arc::get_mut(&mut snapshot) else { return snapshot };
        if !Arc::ptr_eq(&to.metrics, &self.metrics) {
            (to.metrics, to.demand) = (Arc::clone(&self.metrics), Arc::clone(&self.demand));
            to.slots.clear();
            to.slots.resize_with(self.parts.len(), Default::default);
        }
        to.lists.clone_from(&self.lists);
        let relabelled = u64::from(std::mem::take(&mut self.relabelled));
        to.labels = before.map_or(0, |before| before.labels) + relabelled;
        let before = before.filter(|before| Arc::ptr_eq(&before.metrics, &self.metrics));
        for (place, (slot, part)) in to.slots.iter_mut().zip(&self.parts).enumerate() {
            match part {
                Part::None => slot.clear(),
                Part::Stays => match before.and_then(|before| before.slots.get(place)) {
                    Some(before) => slot.copy_from(before),
                    None => slot.clear(),
                },
                Part::Computed => {
                    let values = self.metrics.good.get(place).ok_or(Error::PMID);
                    let values = values.and_then(|metric| self.evaluator.values(metric.number));
                    // The operand may be of another type now.
                    self.stale |= values.err() == Some(Error::CONV);
                    slot.assign(values, taken);
                }
            }
        }
        snapshot
    }
}
