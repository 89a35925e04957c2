//! Definitions bound to the metrics of a pmcd, and the evaluation of samples.

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

/// Time between lookups of the operands of invalid definitions, while pmcd reports no changes.
const AGAIN: Duration = Duration::from_secs(10);

/// How long cached instance names stay valid while a metric is not sampled.
const LASTING: Duration = Duration::from_secs(60);

/// Source of a metric's values in a sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    /// The sample has no values.
    None,
    /// The values of the previous snapshot.
    Stays,
    Computed,
}

#[derive(Debug)]
pub(crate) struct Bound {
    names: Names,
    evaluator: Evaluator,
    metrics: Arc<Metrics>,
    demand: Arc<Demand>,
    /// Whether clients want each metric, by place.
    wanted: Vec<bool>,
    /// Regular samples: the places that are computed, and the plan.
    regular: (Vec<bool>, Plan),
    /// Extra samples: the places computed since the last regular sample, and the plan of the last extra sample.
    extra: (Vec<bool>, Plan),
    /// Kind of the current sample.
    kind: Kind,
    parts: Vec<Part>,
    /// Instance lists, sorted by domain.
    lists: Vec<Known>,
    /// Whether labels differ from those in the previous snapshot.
    relabelled: bool,
    /// Buffers of [`Bound::ask_instances`]: domains to ask for, and domains with the same instances as before.
    asked: Vec<InDom>,
    same: Vec<InDom>,
    /// Whether operands may have changed since they were looked up.
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

    /// Returns whether the operands have to be looked up again.
    pub(crate) fn is_stale(&self) -> bool {
        self.stale || !self.metrics.bad.is_empty() && self.looked_up.elapsed() >= AGAIN
    }

    /// Returns the descriptors of the operands.
    pub(crate) fn into_names(self) -> Names {
        self.names
    }

    pub(crate) fn set_stale(&mut self) {
        self.stale = true;
    }

    /// Records that the operands have been looked up again. Returns whether `names` equals the previous descriptors.
    pub(crate) fn is_same(&mut self, names: &Names) -> bool {
        (self.stale, self.looked_up) = (false, Instant::now());
        self.names == *names
    }

    /// Returns whether clients want no metric.
    pub(crate) fn is_idle(&self) -> bool {
        !self.wanted.contains(&true)
    }

    /// Discards the history of `delta` and `rate`.
    pub(crate) fn forget(&mut self) {
        self.evaluator.forget(&self.regular.1);
    }

    /// Decides what the next sample computes. Differences are always over the time between two regular samples. So
    /// `delta` and `rate` of metrics that are new in a regular sample start without history, and in an extra sample
    /// they have no values.
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

    /// Returns the operands that the sample needs.
    pub(crate) fn operands(&self) -> impl Iterator<Item = &Operand> {
        self.evaluator.operands_of(self.plan())
    }

    /// Evaluates the sample. `stamp` is the time of the operands' values since the sampler's start.
    pub(crate) fn evaluate(&mut self, stamp: Duration, live: &mut Live) {
        let plan = if self.kind == Kind::Regular { &self.regular.1 } else { &self.extra.1 };
        self.evaluator.evaluate(plan, stamp, live);
    }

    /// Returns the metrics that have been computed: place, instance domain and values.
    fn computed(&self) -> impl Iterator<Item = (usize, Option<InDom>, Result<&Values>)> {
        let of = self.metrics.good.iter().zip(&self.parts).enumerate();
        of.filter(|(_, (_, part))| **part == Part::Computed)
            .map(|(place, (metric, _))| (place, metric.desc.indom, self.evaluator.values(metric.number)))
    }

    /// Asks pmcd for instance names: of domains that clients have requested, and where the instances differ from the
    /// previous snapshot's. Returns false if an identifier belongs to another instance now: then history must be
    /// discarded.
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
                    debug!("no instance names of domain {indom}: {e}");
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

    /// Builds the snapshot to publish, in the memory of an old one that no other thread uses any more.
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
                    // The operand may have changed its type.
                    self.stale |= values.err() == Some(Error::CONV);
                    slot.assign(values, taken);
                }
            }
        }
        snapshot
    }
}
