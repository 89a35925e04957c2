//! Wanted metrics, and their instances' values that have been read.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use hashbrown::HashMap;
use pcp_pdu::event::Stamp;
use pcp_pdu::profile::Profile;
use pcp_pdu::result::{ValueSet, ValueSets};
use pmapi::{Error, InDom, Inst, OptionWord as _, PmId, Type};

use super::clock::seconds_between;
use super::datum::{Datum, Kind, is_number};
use super::{Interpolation, Rule};
use crate::cursor::Direction;
use crate::meta::{Lifetime, Metadata};

/// Wanted metrics and instances.
///
/// An instance enters the table when its first value is read: an archive may have a million combinations of metrics and
/// instances, few of them with values.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) metrics: Vec<Metric>,
    by_pmid: HashMap<u32, usize>,
    domains: Vec<Domain>,
    pub(super) series: Vec<Series>,
    /// Instances whose first value has been read, each with its time, in the order of reading.
    pub(super) upcoming: VecDeque<(f64, u32)>,
    /// Number of instances that are searched for.
    pub(super) pending: usize,
    /// Metrics that a record has, and the offsets of their value sets.
    places: Vec<(usize, usize)>,
}

/// Wanted metric.
#[derive(Debug)]
pub(super) struct Metric {
    pub(super) pmid: PmId,
    pub(super) ty: Type,
    pub(super) kind: Kind,
    /// Whether a value between two records depends on the later one.
    pub(super) needs_next: bool,
    /// Error in place of values, in any fetch.
    pub(super) refusal: Option<Error>,
    /// Index of the instance domain. `None` for a metric without values.
    domain: Option<usize>,
    is_singular: bool,
    /// Instances in the table.
    found: HashMap<u32, u32>,
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
    /// Whether the instance is active, or about to become active.
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

/// Instance of a domain, and when it exists.
#[derive(Clone, Copy, Debug)]
struct Life {
    inst: u32,
    birth: f64,
    death: f64,
}

/// Instances of a domain that the profile includes.
#[derive(Debug)]
struct Domain {
    lives: Vec<Life>,
    places: HashMap<u32, usize>,
}

/// Births and deaths of instances are tracked only for domains with this many instances at some time, as in libpcp.
const FEW: usize = 16;

/// Largest number of instances of metrics in the table. Each needs some 200 bytes.
const MOST: usize = 1 << 22;

impl Domain {
    fn new(meta: &Metadata, start: Stamp, indom: InDom, profile: &Profile) -> Domain {
        let (most, lives) = meta.lifetimes(indom).unwrap_or_default();
        let selection = profile.selection(indom);
        let lives = lives.into_iter().filter(|life| selection.includes(Inst::new(life.inst)));
        let life = |life: Lifetime| match most < FEW {
            true => Life { inst: life.inst, birth: f64::NEG_INFINITY, death: f64::INFINITY },
            false => {
                let death = life.death.map_or(f64::INFINITY, |time| seconds_between(start, time));
                Life { inst: life.inst, birth: seconds_between(start, life.birth), death }
            }
        };
        Domain::of(lives.map(life).collect())
    }

    /// Returns the domain of a singular metric.
    fn singular() -> Domain {
        Domain::of(vec![Life { inst: u32::MAX, birth: f64::NEG_INFINITY, death: f64::INFINITY }])
    }

    fn of(lives: Vec<Life>) -> Domain {
        let places = lives.iter().enumerate().map(|(at, life)| (life.inst, at)).collect();
        Domain { lives, places }
    }
}

impl Series {
    fn new(life: Life, metric: usize) -> Series {
        Series {
            inst: Inst::from_word(life.inst),
            metric: metric as u32,
            birth: life.birth,
            death: life.death,
            events: VecDeque::new(),
            is_queued: false,
            is_pending: false,
        }
    }

    pub(super) fn is_alive(&self, at: f64) -> bool {
        self.birth <= at && at <= self.death
    }
}

impl Table {
    pub(super) fn new(
        meta: &Metadata,
        start: Stamp,
        pmids: &[PmId],
        profile: &Profile,
        rules: &Interpolation,
    ) -> Table {
        let (mut metrics, mut by_pmid) = (Vec::new(), HashMap::new());
        let (mut domains, mut indexes) = (Vec::new(), BTreeMap::new());
        for pmid in pmids {
            if by_pmid.contains_key(&pmid.word()) {
                continue;
            }
            by_pmid.insert(pmid.word(), metrics.len());
            let desc = meta.raw_desc(*pmid).ok();
            let ty = desc.map_or(Ok(Type::NoSupport), |desc| Type::from_code(desc.ty));
            let indom = desc.and_then(|desc| desc.indom);
            // libpcp has no values of an unknown type, and treats `PM_TYPE_NOSUPPORT` as a missing descriptor.
            let domain = ty.is_ok_and(|ty| ty != Type::NoSupport).then(|| {
                *indexes.entry(indom).or_insert_with(|| {
                    let new = indom.map_or_else(Domain::singular, |indom| Domain::new(meta, start, indom, profile));
                    domains.push(new);
                    domains.len() - 1
                })
            });
            let kind = Kind::new(desc.map_or(0, |desc| desc.semantics));
            let is_nearer = rules.rule == Rule::Since632 && ty.is_ok_and(is_number);
            metrics.push(Metric {
                pmid: *pmid,
                ty: ty.unwrap_or(Type::NoSupport),
                kind,
                needs_next: kind != Kind::Discrete || is_nearer,
                refusal: (ty == Ok(Type::NoSupport)).then_some(Error::PMID_LOG),
                domain,
                is_singular: indom.is_none(),
                found: HashMap::new(),
                had_values: false,
                values: 0..0,
                failure: None,
            });
        }
        Table {
            metrics,
            by_pmid,
            domains,
            series: Vec::new(),
            upcoming: VecDeque::new(),
            pending: 0,
            places: Vec::new(),
        }
    }

    /// Returns the index of a metric.
    pub(super) fn metric(&self, pmid: PmId) -> Option<usize> {
        self.by_word(pmid.word())
    }

    fn by_word(&self, word: u32) -> Option<usize> {
        match self.metrics.len() {
            // A walk is faster than a hash.
            0..=4 => self.metrics.iter().position(|metric| metric.pmid.word() == word),
            _ => self.by_pmid.get(&word).copied(),
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
        self.series.clear();
        for metric in &mut self.metrics {
            metric.found.clear();
            metric.had_values = false;
        }
    }

    /// Puts all instances of a metric into the table, and returns their indexes.
    ///
    /// # Errors
    /// The reason, if the table would exceed [`MOST`].
    pub(super) fn add_all(&mut self, nth: usize) -> Result<Range<u32>, String> {
        let first = self.series.len() as u32;
        let Some(metric) = self.metrics.get_mut(nth) else { return Ok(first..first) };
        let lives = metric.domain.and_then(|domain| self.domains.get(domain)).map_or(&[][..], |domain| &domain.lives);
        if self.series.len() + lives.len() > MOST {
            return Err(too_many());
        }
        for life in lives {
            metric.found.insert(life.inst, self.series.len() as u32);
            self.series.push(Series::new(*life, nth));
        }
        Ok(first..self.series.len() as u32)
    }

    /// Counts the instances that exist at a time, of the metrics for which `is_wanted` returns true.
    pub(super) fn alive(&self, at: f64, is_wanted: impl Fn(&Metric) -> bool) -> usize {
        let counts: Vec<usize> = self
            .domains
            .iter()
            .map(|domain| domain.lives.iter().filter(|life| life.birth <= at && at <= life.death).count())
            .collect();
        let wanted = self.metrics.iter().filter(|metric| is_wanted(metric));
        wanted.filter_map(|metric| counts.get(metric.domain?)).sum()
    }

    /// Ends the search for instances.
    pub(super) fn end_search(&mut self, all: &[u32]) {
        if self.pending > 0 {
            for at in all {
                if let Some(series) = self.series.get_mut(*at as usize) {
                    series.is_pending = false;
                }
            }
            self.pending = 0;
        }
    }

    /// Adds the values of a record whose value sets [`Table::take`] has located.
    ///
    /// # Errors
    /// The reason why the record is damaged, or the table too large.
    pub(super) fn add(&mut self, sets: ValueSets<'_>, place: &Place) -> Result<(), String> {
        let places = std::mem::take(&mut self.places);
        let added = places.iter().try_for_each(|(metric, at)| {
            let set = ValueSet::at(sets.pdu(), *at).map(|(set, _)| set);
            set.map_or(Ok(()), |set| self.add_set(*metric, set, place))
        });
        self.places = places;
        added
    }

    /// Clears the positions of the previous record's value sets.
    pub(super) fn begin(&mut self) {
        self.places.clear();
    }

    /// If the metric with a PMID is wanted, stores the position of its value set. Returns whether it is wanted.
    pub(super) fn take(&mut self, word: u32, at: usize) -> bool {
        let metric = self.by_word(word);
        self.places.extend(metric.map(|metric| (metric, at)));
        metric.is_some()
    }

    fn add_set(&mut self, nth: usize, set: ValueSet<'_>, place: &Place) -> Result<(), String> {
        let Table { metrics, domains, series, upcoming, pending, .. } = self;
        let Some(metric) = metrics.get_mut(nth) else { return Ok(()) };
        let Some(domain) = metric.domain.and_then(|domain| domains.get(domain)) else { return Ok(()) };
        let (mut next, mut count) = (0, 0);
        for (inst, raw) in set.values() {
            count += 1;
            let inst = if metric.is_singular { None } else { inst };
            // Most records have their instances in the same order as the record before.
            let at = match series.get(next) {
                Some(guess) if guess.inst == inst && guess.metric as usize == nth => next,
                _ => match (metric.found.get(&inst.word()), domain.places.get(&inst.word())) {
                    (Some(at), _) => *at as usize,
                    (None, None) => continue,
                    (None, Some(at)) => {
                        let Some(life) = domain.lives.get(*at).filter(|_| series.len() < MOST) else {
                            return Err(too_many());
                        };
                        metric.found.insert(life.inst, series.len() as u32);
                        series.push(Series::new(*life, nth));
                        series.len() - 1
                    }
                },
            };
            next = at + 1;
            let Some(found) = series.get_mut(at) else { continue };
            let datum = Datum::copy(raw, metric.ty).ok_or_else(|| {
                format!("a value of metric {} is not encoded as its type, {:?}, is", metric.pmid, metric.ty)
            })?;
            let is_new = place.add(found, datum);
            // Against the direction, all existing instances are searched for, otherwise only single ones.
            let is_found = match place.limit {
                Some(limit) => {
                    let is_wanted = place.direction == Direction::Backward || metric.needs_next;
                    is_new && is_wanted && found.is_alive(limit)
                }
                None => std::mem::take(&mut found.is_pending),
            };
            *pending = pending.saturating_sub(usize::from(is_found));
            if is_new && !std::mem::replace(&mut found.is_queued, true) {
                upcoming.push_back((place.time, at as u32));
            }
            if metric.is_singular {
                return Ok(());
            }
        }
        if count == set.len() {
            Ok(())
        } else {
            Err(format!("value {} of {} of metric {} is damaged", count + 1, set.len(), metric.pmid))
        }
    }
}

fn too_many() -> String {
    format!("the wanted metrics have more than {MOST} instances")
}

/// Where values of a record belong.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) time: f64,
    pub(super) epoch: i64,
    /// Direction of reading.
    pub(super) direction: Direction,
    /// Time beyond which one value is enough.
    pub(super) limit: Option<f64>,
}

impl Place {
    /// Adds a value to an instance; returns whether it was needed.
    fn add(&self, series: &mut Series, datum: Datum) -> bool {
        let event = Event { time: self.time, epoch: self.epoch, datum };
        match self.direction {
            Direction::Forward => {
                let is_known = self.limit.is_some_and(|limit| series.events.back().is_some_and(|e| e.time >= limit));
                // Of several values at the time of the limit, the last one counts.
                if !is_known || self.limit == Some(self.time) {
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
