//! Wanted metrics, and what has been read of their instances.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use hashbrown::HashMap;
use pcp_pdu::event::Stamp;
use pcp_pdu::profile::Profile;
use pcp_pdu::result::{ValueSet, ValueSets};
use pmapi::{Error, InDom, Inst, OptionWord as _, PmId, Type};

use super::clock::seconds_between;
use super::datum::{Datum, Kind};
use crate::cursor::Direction;
use crate::meta::Metadata;

/// Wanted metrics and instances.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) metrics: Vec<Metric>,
    by_pmid: HashMap<PmId, usize>,
    /// Instances, by metric and number.
    pub(super) series: Vec<Series>,
    /// Instances that have got a first value, each with its time, in the order of reading.
    pub(super) upcoming: VecDeque<(f64, u32)>,
    /// Number of instances that are searched for.
    pub(super) pending: usize,
}

/// Wanted metric.
#[derive(Debug)]
pub(super) struct Metric {
    pub(super) pmid: PmId,
    pub(super) ty: Type,
    pub(super) kind: Kind,
    /// Error in place of values, in any fetch.
    pub(super) refusal: Option<Error>,
    /// Instances in the table.
    pub(super) series: Range<usize>,
    is_singular: bool,
    /// Positions of the instances within the range.
    places: Arc<HashMap<u32, u32>>,
    /// Whether the last fetch returned values.
    pub(super) had_values: bool,
    /// Values in the last result.
    pub(super) values: Range<usize>,
    /// Error in place of values in the last result.
    pub(super) failure: Option<Error>,
}

/// Instance of a metric, and its values that have been read.
#[derive(Debug)]
pub(super) struct Series {
    pub(super) inst: Option<Inst>,
    pub(super) metric: u32,
    /// Seconds since the start of the archive.
    pub(super) birth: f64,
    pub(super) death: f64,
    /// Values in the order of time.
    pub(super) events: VecDeque<Event>,
    /// Whether the instance is among the active ones, or about to be.
    pub(super) is_queued: bool,
    /// Whether a value is searched for.
    pub(super) is_pending: bool,
}

/// Recorded value.
#[derive(Debug)]
pub(super) struct Event {
    pub(super) time: f64,
    /// Number of the part of the archive between two `<mark>`s.
    pub(super) epoch: i64,
    pub(super) datum: Datum,
}

/// Instances of a domain that the profile includes.
struct Domain {
    /// Instance, birth and death.
    lives: Vec<(u32, f64, f64)>,
    places: Arc<HashMap<u32, u32>>,
}

/// Instance domains with fewer instances at any time have neither births nor deaths, as in libpcp.
const FEW: usize = 16;

impl Domain {
    fn new(meta: &Metadata, start: Stamp, indom: InDom, profile: &Profile) -> Domain {
        let (most, lives) = meta.lifetimes(indom).unwrap_or_default();
        let selection = profile.selection(indom);
        let lives = lives.into_iter().filter(|life| selection.includes(Inst::new(life.inst)));
        let lives: Vec<_> = lives
            .map(|life| match most < FEW {
                true => (life.inst, f64::NEG_INFINITY, f64::INFINITY),
                false => {
                    let death = life.death.map_or(f64::INFINITY, |time| seconds_between(start, time));
                    (life.inst, seconds_between(start, life.birth), death)
                }
            })
            .collect();
        let places = lives.iter().zip(0..).map(|((inst, ..), at)| (*inst, at)).collect();
        Domain { lives, places: Arc::new(places) }
    }
}

impl Table {
    pub(super) fn new(meta: &Metadata, start: Stamp, pmids: &[PmId], profile: &Profile) -> Table {
        let (mut metrics, mut by_pmid, mut series) = (Vec::new(), HashMap::new(), Vec::new());
        let mut domains = BTreeMap::new();
        let singular =
            Domain { lives: vec![(u32::MAX, f64::NEG_INFINITY, f64::INFINITY)], places: Arc::new(HashMap::new()) };
        for pmid in pmids {
            if by_pmid.contains_key(pmid) {
                continue;
            }
            by_pmid.insert(*pmid, metrics.len());
            let desc = meta.raw_desc(*pmid).ok();
            let ty = desc.map_or(Ok(Type::NoSupport), |desc| Type::from_code(desc.ty));
            let indom = desc.and_then(|desc| desc.indom);
            let domain = match indom {
                Some(indom) => &*domains.entry(indom).or_insert_with(|| Domain::new(meta, start, indom, profile)),
                None => &singular,
            };
            let first = series.len();
            // libpcp has no values of an unknown type, and takes `PM_TYPE_NOSUPPORT` for a missing descriptor.
            if ty.is_ok_and(|ty| ty != Type::NoSupport) {
                let metric = metrics.len() as u32;
                series.extend(domain.lives.iter().map(|(inst, birth, death)| Series {
                    inst: Inst::from_word(*inst),
                    metric,
                    birth: *birth,
                    death: *death,
                    events: VecDeque::new(),
                    is_queued: false,
                    is_pending: false,
                }));
            }
            metrics.push(Metric {
                pmid: *pmid,
                ty: ty.unwrap_or(Type::NoSupport),
                kind: Kind::new(desc.map_or(0, |desc| desc.semantics)),
                refusal: (ty == Ok(Type::NoSupport)).then_some(Error::PMID_LOG),
                series: first..series.len(),
                is_singular: indom.is_none(),
                places: Arc::clone(&domain.places),
                had_values: false,
                values: 0..0,
                failure: None,
            });
        }
        Table { metrics, by_pmid, series, upcoming: VecDeque::new(), pending: 0 }
    }

    /// Returns the index of a metric.
    pub(super) fn metric(&self, pmid: PmId) -> Option<usize> {
        match self.metrics.len() {
            // A walk is faster than a hash.
            0..=4 => self.metrics.iter().position(|metric| metric.pmid == pmid),
            _ => self.by_pmid.get(&pmid).copied(),
        }
    }

    /// Returns the metric of an instance in the table.
    pub(super) fn metric_of(&self, series: &Series) -> Option<&Metric> {
        self.metrics.get(series.metric as usize)
    }

    /// Forgets all values.
    pub(super) fn clear(&mut self) {
        self.upcoming.clear();
        self.pending = 0;
        for series in &mut self.series {
            series.events.clear();
            (series.is_queued, series.is_pending) = (false, false);
        }
        self.metrics.iter_mut().for_each(|metric| metric.had_values = false);
    }

    /// Marks an instance as one that is searched for.
    pub(super) fn search(&mut self, at: usize) {
        if let Some(series) = self.series.get_mut(at).filter(|series| !series.is_pending) {
            series.is_pending = true;
            self.pending += 1;
        }
    }

    /// Ends the search.
    pub(super) fn end_search(&mut self, all: impl Iterator<Item = u32>) {
        if self.pending > 0 {
            for at in all {
                if let Some(series) = self.series.get_mut(at as usize) {
                    series.is_pending = false;
                }
            }
            self.pending = 0;
        }
    }

    /// Adds the values of a record that has been read in a direction. With a `limit`, an instance with a value on the
    /// far side of it needs no other.
    ///
    /// # Errors
    /// The reason why the record is damaged.
    pub(super) fn add(&mut self, sets: ValueSets<'_>, place: &Place) -> Result<(), String> {
        let (mut count, mut left) = (0, self.metrics.len());
        for set in sets.iter() {
            count += 1;
            let Some(metric) = set.pmid.and_then(|pmid| self.metric(pmid)) else { continue };
            self.add_set(metric, set, place)?;
            left = left.saturating_sub(1);
            if left == 0 {
                return Ok(());
            }
        }
        match count == sets.len() {
            true => Ok(()),
            false => Err(format!("value set {} of {} is damaged", count + 1, sets.len())),
        }
    }

    fn add_set(&mut self, metric: usize, set: ValueSet<'_>, place: &Place) -> Result<(), String> {
        let Table { metrics, series, upcoming, pending, .. } = self;
        let Some(metric) = metrics.get(metric).filter(|metric| !metric.series.is_empty()) else { return Ok(()) };
        let Some(series) = series.get_mut(metric.series.clone()) else { return Ok(()) };
        let (mut next, mut count) = (0, 0);
        for (inst, raw) in set.values() {
            count += 1;
            // Most records have the instances in their order.
            let at = match series.get(next) {
                _ if metric.is_singular => 0,
                Some(guess) if guess.inst == inst => next,
                _ => match metric.places.get(&inst.word()) {
                    Some(at) => *at as usize,
                    None => continue,
                },
            };
            next = at + 1;
            let Some(found) = series.get_mut(at) else { continue };
            let datum = Datum::copy(raw, metric.ty).ok_or_else(|| {
                format!("a value of metric {} is not encoded as its type, {:?}, is", metric.pmid, metric.ty)
            })?;
            if std::mem::take(&mut found.is_pending) {
                *pending = pending.saturating_sub(1);
            }
            if place.add(found, datum) && !std::mem::replace(&mut found.is_queued, true) {
                upcoming.push_back((place.time, (metric.series.start + at) as u32));
            }
            if metric.is_singular {
                count = set.len();
                break;
            }
        }
        match count == set.len() {
            true => Ok(()),
            false => Err(format!("value {} of {} of metric {} is damaged", count + 1, set.len(), metric.pmid)),
        }
    }
}

/// Where values of a record belong.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) time: f64,
    pub(super) epoch: i64,
    /// Direction of reading.
    pub(super) direction: Direction,
    /// Time on whose far side one value is enough.
    pub(super) limit: Option<f64>,
}

impl Place {
    /// Adds a value to an instance; returns whether it was needed.
    fn add(&self, series: &mut Series, datum: Datum) -> bool {
        let event = Event { time: self.time, epoch: self.epoch, datum };
        match self.direction {
            Direction::Forward => {
                let is_known = self.limit.is_some_and(|limit| series.events.back().is_some_and(|e| e.time >= limit));
                if !is_known {
                    series.events.push_back(event);
                }
                !is_known
            }
            Direction::Backward => {
                let is_known = self.limit.is_some_and(|limit| series.events.front().is_some_and(|e| e.time <= limit));
                if !is_known {
                    series.events.push_front(event);
                }
                !is_known
            }
        }
    }
}
