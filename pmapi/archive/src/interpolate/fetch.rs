//! Fetches of interpolated values.

use pcp_pdu::event::Stamp;
use pcp_pdu::profile::Profile;
use pmapi::{Error, OptionWord as _, PmId};

use super::Interpolation;
use super::datum::{Datum, Kind, between, is_number};
use super::reach::Reach;
use super::sample::Interpolated;
use super::table::{Event, Metric, Series, Table};
use crate::archive::Archive;
use crate::cursor::{Cursor, Direction};
use crate::error::{ArchiveError, Result};

/// Reader of the values of metrics at given times (pmFetch(3) in mode `PM_MODE_INTERP`).
///
/// ```no_run
/// use pcp_archive::{Archive, Interpolation};
/// use pcp_pdu::profile::Profile;
///
/// let archive = Archive::open("/var/log/pcp/pmlogger/host/20260101")?;
/// let load = archive.metadata().names().pmid(b"kernel.all.load")?;
/// let mut values = archive.interpolator(&[load], &Profile::default(), Interpolation::new());
/// // Every 10 seconds from the start.
/// values.seek(archive.label().start, 10_000_000_000);
/// while let Some(sample) = values.fetch()? {
///     println!("{:?} {} instances", sample.time, sample.sets().map(|set| set.values().len()).sum::<usize>());
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Interpolator<'a> {
    reach: Reach<'a>,
    table: Table,
    rules: Interpolation,
    /// For each requested metric, its index in the table.
    order: Vec<usize>,
    origin: Stamp,
    step: i64,
    /// Whether the table has the values around the last time.
    is_placed: bool,
    /// Whether the last fetch was one step before, forward. If there are several values at the time, libpcp then has
    /// the first one, and has not passed a `<mark>` of this time. It has the last one otherwise.
    is_continued: bool,
    /// End of the archive at the last check.
    end: Option<f64>,
    /// Instances that may have a value, in their order.
    active: Vec<u32>,
    /// Instances that become active when reading backward, those with the earliest deaths first.
    buried: Vec<u32>,
    values: Vec<(u32, Datum)>,
}

/// libpcp's slack at both ends of an archive, in seconds.
const SLACK: f64 = 0.001;

impl Archive {
    /// Returns an interpolator for the metrics' instances in a profile. It begins at the start of the archive, with a
    /// step of one second.
    pub fn interpolator(&self, pmids: &[PmId], profile: &Profile, rules: Interpolation) -> Interpolator<'_> {
        Interpolator::new(self.cursor(), pmids, profile, rules)
    }
}

impl<'a> Interpolator<'a> {
    /// Returns an interpolator for the archive of a cursor: [`Archive::interpolator`] for a shared archive.
    pub fn new(cursor: Cursor<'a>, pmids: &[PmId], profile: &Profile, rules: Interpolation) -> Interpolator<'a> {
        let origin = cursor.archive().label().start;
        let table = Table::new(cursor.archive().metadata(), origin, pmids, profile, &rules);
        Interpolator {
            reach: Reach::new(cursor, rules.marks),
            rules,
            order: pmids.iter().filter_map(|pmid| table.metric(*pmid)).collect(),
            table,
            origin,
            step: 1_000_000_000,
            is_placed: false,
            is_continued: false,
            end: None,
            active: Vec::new(),
            buried: Vec::new(),
            values: Vec::new(),
        }
    }

    /// Sets the time of the next fetch, and the step between fetches in nanoseconds (pmSetMode(3)). A step that is
    /// negative or 0 means backward.
    pub fn seek(&mut self, origin: Stamp, step: i64) {
        (self.origin, self.step, self.is_placed, self.end) = (origin, step, false, None);
        self.table.metrics.iter_mut().for_each(|metric| metric.had_values = false);
    }

    /// Returns the time of the next fetch.
    pub fn origin(&self) -> Stamp {
        self.origin
    }

    fn direction(&self) -> Direction {
        if self.step > 0 { Direction::Forward } else { Direction::Backward }
    }

    /// Returns the values at the origin, and moves the origin by the step. Returns `None` outside of the archive. If
    /// the archive grows, a later call may return values.
    ///
    /// # Errors
    /// Errors of [`Cursor::forward`]; `PM_ERR_LOGREC` for a damaged value of a wanted metric. The origin does not move
    /// then.
    pub fn fetch(&mut self) -> Result<Option<Interpolated<'_>>> {
        let time = self.origin;
        let at = self.reach.seconds(time);
        if self.is_outside(at)? {
            self.origin = moved(time, self.step);
            return Ok(None);
        }
        if let Err(e) = self.read(time, at) {
            self.is_placed = false;
            return Err(e);
        }
        self.collect(at);
        self.trim(at);
        self.origin = moved(time, self.step);
        Ok(Some(Interpolated { time, table: &self.table, order: &self.order, values: &self.values }))
    }

    fn is_outside(&mut self, at: f64) -> Result<bool> {
        if at < -SLACK {
            return Ok(true);
        }
        // As in libpcp, the end is checked without slack when it is read.
        if self.end.is_none_or(|end| at > end + SLACK) {
            let end = self.reach.seconds(self.reach.cursor().archive().end()?);
            if self.end.is_some_and(|old| end > old) {
                self.reach.has_grown();
            }
            self.end = Some(end);
            return Ok(at > end);
        }
        Ok(false)
    }

    /// Reads the records that the values at a time depend on.
    fn read(&mut self, time: Stamp, at: f64) -> Result {
        let direction = self.direction();
        let is_first = !self.is_placed;
        self.is_continued = direction == Direction::Forward && !is_first;
        if is_first {
            self.place(time)?;
            // Reading forward includes the records of exactly this time.
            while direction == Direction::Backward && !self.reach.is_beyond(at, Direction::Forward) {
                self.reach.read(Direction::Forward, Some(at), &mut self.table)?;
            }
        }
        while !self.reach.is_beyond(at, direction) {
            self.reach.read(direction, None, &mut self.table)?;
        }
        if is_first {
            self.look_back(at)?;
        }
        self.activate(at, is_first);
        self.look_on(at)
    }

    /// Discards all that was read, and starts at a time.
    fn place(&mut self, time: Stamp) -> Result {
        self.table.clear();
        self.reach.seek(time, self.direction())?;
        self.active.clear();
        self.buried.clear();
        self.is_placed = true;
        if self.direction() == Direction::Forward {
            return Ok(());
        }
        // A discrete value does not need a value after it.
        for nth in 0..self.table.metrics.len() {
            if self.table.metrics.get(nth).is_some_and(|metric| metric.kind == Kind::Discrete) {
                let path = self.reach.cursor().archive().first().meta_path();
                let all = self.table.add_all(nth).map_err(|reason| ArchiveError::file(path, Error::TOOBIG, reason))?;
                self.buried.extend(all);
            }
        }
        self.table.series.iter_mut().for_each(|series| series.is_queued = true);
        let death = |at: &u32| self.table.series.get(*at as usize).map_or(0.0, |series| series.death);
        self.buried.sort_unstable_by(|a, b| death(a).total_cmp(&death(b)));
        Ok(())
    }

    /// Finds the first values before a time, with respect to the direction.
    fn look_back(&mut self, at: f64) -> Result {
        let direction = self.direction();
        let is_wanted = |metric: &Metric| direction == Direction::Forward || metric.needs_next;
        let known = self
            .table
            .series
            .iter()
            .filter(|series| {
                let nearest = match direction {
                    Direction::Forward => series.events.front().is_some_and(|event| event.time <= at),
                    Direction::Backward => series.events.back().is_some_and(|event| event.time >= at),
                };
                nearest && series.is_alive(at) && self.table.metric_of(series).is_some_and(is_wanted)
            })
            .count();
        self.table.pending = self.table.alive(at, is_wanted).saturating_sub(known);
        let against = direction.opposite();
        while self.table.pending > 0 && !self.reach.is_done(against) && !self.reach.has_mark(at, against) {
            self.reach.read(against, Some(at), &mut self.table)?;
        }
        self.table.pending = 0;
        Ok(())
    }

    /// Makes those instances active whose time has been reached.
    fn activate(&mut self, at: f64, is_first: bool) {
        let direction = self.direction();
        let is_due = |time: f64| match direction {
            Direction::Forward => time <= at,
            Direction::Backward => time >= at,
        };
        let before = self.active.len();
        let Interpolator { table, active, .. } = self;
        if is_first {
            // Both directions were read, so `upcoming` has instances before and after the time.
            let Table { upcoming, series, .. } = table;
            upcoming.retain(|(_, nth)| {
                let events = series.get(*nth as usize).map(|series| &series.events);
                let nearest = events.and_then(|events| match direction {
                    Direction::Forward => events.front(),
                    Direction::Backward => events.back(),
                });
                let is_due = nearest.is_some_and(|event| is_due(event.time));
                if is_due {
                    active.push(*nth);
                }
                !is_due
            });
        }
        while let Some((_, series)) = table.upcoming.front().filter(|(time, _)| is_due(*time)) {
            active.push(*series);
            table.upcoming.pop_front();
        }
        while let Some(last) = self.buried.last() {
            if self.table.series.get(*last as usize).is_some_and(|series| series.death < at) {
                break;
            }
            self.active.extend(self.buried.pop());
        }
        if self.active.len() > before {
            let series = &self.table.series;
            self.active.sort_unstable_by_key(|nth| {
                series.get(*nth as usize).map(|series| (series.metric, series.inst.word()))
            });
        }
    }

    /// Reads on in the direction until each active instance has a value beyond the time, or cannot have one.
    fn look_on(&mut self, at: f64) -> Result {
        let (direction, around) = (self.direction(), self.around(at));
        let is_done = self.reach.is_done(direction);
        // An instance has values only during its life.
        let (mut earliest, mut latest) = (f64::INFINITY, f64::NEG_INFINITY);
        let Interpolator { table, active, .. } = self;
        active.retain(|nth| {
            let Some(series) = table.series.get_mut(*nth as usize) else { return false };
            let Some(metric) = table.metrics.get(series.metric as usize) else { return false };
            match series.outlook(at, around, direction, metric) {
                Outlook::Known => true,
                Outlook::Gone => {
                    series.retire(direction);
                    false
                }
                Outlook::Open if is_done => {
                    let is_kept = direction == Direction::Forward && metric.kind == Kind::Discrete;
                    if !is_kept {
                        series.is_queued = false;
                    }
                    is_kept
                }
                Outlook::Open => {
                    (earliest, latest) = (earliest.min(series.birth), latest.max(series.death));
                    series.is_pending = true;
                    table.pending += 1;
                    true
                }
            }
        });
        let limit = if direction == Direction::Forward { latest } else { earliest };
        while self.table.pending > 0 && !self.reach.is_beyond(limit, direction) && !self.reach.has_mark(at, direction) {
            self.reach.read(direction, None, &mut self.table)?;
        }
        self.table.end_search(&self.active);
        Ok(())
    }

    fn around(&self, at: f64) -> Around {
        Around { epoch: self.reach.epoch(at, self.is_continued), is_first: self.is_continued }
    }

    /// Computes the values at a time.
    fn collect(&mut self, at: f64) {
        let around = self.around(at);
        let has_passed = self.reach.passes_mark(at, self.direction(), self.is_continued);
        self.values.clear();
        for metric in &mut self.table.metrics {
            (metric.values, metric.failure) = (0..0, metric.refusal);
        }
        for nth in &self.active {
            let Some(series) = self.table.series.get(*nth as usize).filter(|series| series.is_alive(at)) else {
                continue;
            };
            let Some(metric) = self.table.metrics.get_mut(series.metric as usize) else { continue };
            let (prior, next) = series.around(at, around);
            let Some(prior) = prior else { continue };
            let next = next.map(|event| (event.time, &event.datum));
            let prior = (prior.time, &prior.datum);
            let Some(datum) = between(at, prior, next, (metric.ty, metric.kind), &self.rules) else { continue };
            if metric.kind.is_counter() && !is_number(metric.ty) {
                metric.failure = Some(Error::TYPE);
                continue;
            }
            // Clients must not compute a rate from the values before and after a gap.
            if metric.kind.is_counter() && has_passed && metric.had_values {
                continue;
            }
            if metric.values.is_empty() {
                metric.values = self.values.len()..self.values.len();
            }
            metric.values.end += 1;
            self.values.push((*nth, datum));
        }
        for metric in &mut self.table.metrics {
            metric.had_values = !metric.values.is_empty() && metric.failure.is_none();
        }
    }

    /// Forgets values that later times do not depend on.
    fn trim(&mut self, at: f64) {
        let direction = self.direction();
        for nth in &self.active {
            if let Some(series) = self.table.series.get_mut(*nth as usize) {
                series.trim(at, direction);
            }
        }
    }
}

/// Which values around a time are wanted.
#[derive(Clone, Copy)]
struct Around {
    /// Part of the archive, between two `<mark>`s, that the time is in.
    epoch: i64,
    /// Whether the first of several values at the time counts, or the last.
    is_first: bool,
}

/// Whether the value of an active instance at the requested time is known.
enum Outlook {
    /// The value, or its absence, is known.
    Known,
    /// The value depends on records that have not been read.
    Open,
    /// The instance has no value at this time or beyond, unless a later record has one.
    Gone,
}

impl Series {
    /// Returns the last value at or before a time and the first one at or after it, unless a `<mark>` is between.
    fn around(&self, at: f64, Around { epoch, is_first }: Around) -> (Option<&Event>, Option<&Event>) {
        let is_near = |event: &&Event| event.epoch == epoch;
        if is_first {
            let first = self.events.iter().find(|event| event.time == at && event.epoch == epoch);
            if first.is_some() {
                return (first, first);
            }
        }
        let is_after = |event: &Event| event.time > at || event.epoch > epoch;
        let after = self.events.iter().position(is_after).unwrap_or(self.events.len());
        let prior = after.checked_sub(1).and_then(|nth| self.events.get(nth)).filter(is_near);
        let next = self.events.get(after).filter(is_near);
        (prior, prior.filter(|event| event.time == at).or(next))
    }

    fn outlook(&self, at: f64, around: Around, direction: Direction, metric: &Metric) -> Outlook {
        let (prior, next) = self.around(at, around);
        match direction {
            Direction::Forward => {
                let has_later = self.events.back().is_some_and(|event| event.time > at || event.epoch > around.epoch);
                match (prior, next) {
                    _ if at > self.death || prior.is_none() => {
                        if has_later {
                            Outlook::Known
                        } else {
                            Outlook::Gone
                        }
                    }
                    (Some(prior), None) if prior.time != at && !has_later && metric.needs_next => Outlook::Open,
                    _ => Outlook::Known,
                }
            }
            Direction::Backward => {
                let has_earlier = self.events.front().is_some_and(|event| event.time <= at);
                match next {
                    _ if at < self.birth => Outlook::Gone,
                    _ if has_earlier => Outlook::Known,
                    None if metric.kind != Kind::Discrete => Outlook::Gone,
                    _ if at > self.death => Outlook::Known,
                    _ => Outlook::Open,
                }
            }
        }
    }

    /// Makes an instance inactive until another value of it is read.
    fn retire(&mut self, direction: Direction) {
        self.is_queued = false;
        if direction == Direction::Forward {
            self.events.clear();
        }
    }

    fn trim(&mut self, at: f64, direction: Direction) {
        let len = self.events.len();
        match direction {
            Direction::Forward => {
                let after = self.events.iter().position(|event| event.time > at).unwrap_or(len);
                self.events.drain(..after.saturating_sub(1));
            }
            Direction::Backward => {
                let before = self.events.iter().rposition(|event| event.time < at).map_or(0, |nth| nth + 1);
                self.events.truncate(before + 1);
            }
        }
    }
}

/// Returns a time moved by nanoseconds.
fn moved(time: Stamp, step: i64) -> Stamp {
    const NANO: i64 = 1_000_000_000;
    let nanoseconds = i64::from(time.nanoseconds) + step % NANO;
    let seconds = time.seconds.saturating_add(step / NANO).saturating_add(nanoseconds.div_euclid(NANO));
    Stamp { seconds, nanoseconds: nanoseconds.rem_euclid(NANO) as u32 }
}
