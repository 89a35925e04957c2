//! A tag: totals, and the last buckets of time.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use trace::light::Change;
use trace::protocol::Kind;

use crate::limits::Account;
use crate::names::shown;

/// Longest time of a transaction, in seconds: 366 days. A longer one would make totals useless that others share.
const LONGEST: f64 = 366.0 * 24.0 * 3600.0;
/// Most marks that a process can have made of a tag between two looks at its file, and before the first one.
const MOST_MARKS: [u64; 2] = [1 << 40, 1 << 53];

/// A tag with what has come since the start, or the last reset.
#[derive(Debug)]
pub(crate) struct Tag {
    pub(crate) number: u32,
    /// The bytes that clients send.
    pub(crate) bytes: Box<[u8]>,
    /// The name for clients of pmcd, if it differs from these.
    shown: Option<Box<str>>,
    /// Who pays for the name.
    pub(crate) account: Account,
    /// Something has come.
    pub(crate) active: bool,
    /// When something has come last, in seconds since the agent's start.
    pub(crate) used: u32,
    pub(crate) count: u64,
    /// Seconds of all transactions.
    pub(crate) total: f64,
    /// The last value of an observation or a counter.
    pub(crate) last: f64,
    /// When the last value was marked that a process has put into its file.
    when: u64,
    /// Those in which something has come, of those that are looked at and the one that is being filled.
    pub(super) buckets: VecDeque<Bucket>,
}

/// What has come in a part of the period.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    number: u64,
    pub(crate) count: u64,
    /// Seconds of transactions: the shortest, the longest, and all.
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) sum: f64,
}

/// The period over which rates are calculated, in equal parts. The parts have numbers, so that nothing
/// has to be done when one begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    start: Instant,
    pub(crate) period: Duration,
    pub(crate) buckets: u32,
    /// The bucket that is being filled.
    now: u64,
}

impl Window {
    pub(crate) fn new(period: Duration, buckets: u32) -> Window {
        Window { start: Instant::now(), period, buckets, now: 0 }
    }

    /// Begins again.
    pub(crate) fn restart(&mut self) {
        (self.start, self.now) = (Instant::now(), 0);
    }

    /// How long a bucket is.
    pub(crate) fn interval(&self) -> Duration {
        self.period / self.buckets
    }

    pub(crate) fn advance(&mut self, now: Instant) {
        self.now = self.number(now);
    }

    pub(crate) fn number(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.start).as_nanos();
        u64::try_from(since / self.interval().as_nanos().max(1)).unwrap_or(u64::MAX)
    }

    /// When the bucket is complete that is being filled.
    pub(crate) fn end_of_bucket(&self) -> Option<Instant> {
        let buckets = u32::try_from(self.now + 1).ok()?;
        self.start.checked_add(self.interval().checked_mul(buckets)?)
    }
}

/// Returns what a mark adds to what all clients share: a finite value, or a time that a transaction can have taken.
/// Clocks that were set back give negative times, which are none.
#[inline]
pub(crate) fn plausible(kind: Kind, value: f64) -> Option<f64> {
    match kind {
        Kind::Transact if (f64::MIN..=LONGEST).contains(&value) => Some(value.max(0.0)),
        Kind::Point => Some(0.0),
        Kind::Observe | Kind::Counter if value.is_finite() => Some(value),
        _ => None,
    }
}

/// Returns what a process's file adds, without what no process can have marked; nothing when it makes no sense at all.
/// `when` is the time of the look, on the clock of the file, and whether it was the first.
pub(crate) fn plausible_change(kind: Kind, change: &Change, now: u64, is_first: bool) -> Option<Change> {
    let Change { count, total, times, last } = *change;
    let is_time = |seconds: f32| (0.0..=LONGEST).contains(&f64::from(seconds));
    let most = MOST_MARKS[usize::from(is_first)];
    let total = if kind == Kind::Transact { total } else { 0.0 };
    ((1..=most).contains(&count) && (0.0..=LONGEST * count as f64).contains(&total)).then(|| Change {
        count,
        total,
        times: times.filter(|(min, max)| is_time(*min) && is_time(*max)),
        last: last.filter(|(_, value)| value.is_finite()).map(|(when, value)| (when.min(now), value)),
    })
}

impl Tag {
    pub(crate) fn new(number: u32, bytes: &[u8], account: Account) -> Tag {
        let shown = shown(bytes);
        let shown = (shown.as_bytes() != bytes).then(|| shown.into());
        let buckets = VecDeque::new();
        let (count, total, last, when) = (0, 0.0, 0.0, 0);
        Tag { number, bytes: bytes.into(), shown, account, active: false, used: 0, count, total, last, when, buckets }
    }

    pub(crate) fn name(&self) -> &str {
        self.shown.as_deref().or_else(|| str::from_utf8(&self.bytes).ok()).unwrap_or_default()
    }

    /// Forgets everything but the name and its number.
    pub(crate) fn clear(&mut self) {
        self.active = false;
        (self.count, self.total, self.last, self.when) = (0, 0.0, 0.0, 0);
        self.buckets = VecDeque::new();
    }

    /// Counts a [`plausible`] value.
    pub(crate) fn add(&mut self, kind: Kind, value: f64, window: &Window) {
        let seconds = if kind == Kind::Transact { value } else { 0.0 };
        self.count = self.count.saturating_add(1);
        self.total += seconds;
        self.last = value;
        self.put(Bucket { number: window.now, count: 1, min: seconds, max: seconds, sum: seconds }, window);
    }

    /// Counts a [`plausible_change`].
    pub(crate) fn change(&mut self, change: &Change, number: Option<u64>, window: &Window) {
        let Change { count, total, times, last } = *change;
        self.count = self.count.saturating_add(count);
        self.total += total;
        if let Some((when, value)) = last.filter(|(when, _)| *when >= self.when) {
            (self.when, self.last) = (when, value);
        }
        if let Some(number) = number {
            let average = total / count as f64;
            let (min, max) = times.map_or((average, average), |(min, max)| (min.into(), max.into()));
            self.put(Bucket { number, count, min, max, sum: total }, window);
        }
    }

    /// Puts something into its bucket, or into the last one if that is later.
    fn put(&mut self, new: Bucket, window: &Window) {
        match self.buckets.back_mut() {
            Some(bucket) if bucket.number >= new.number => *bucket = bucket.with(new),
            _ => {
                while self.buckets.front().is_some_and(|bucket| !bucket.is_recent(window)) {
                    self.buckets.pop_front();
                }
                self.buckets.push_back(new);
            }
        }
    }

    /// What has come in the last complete buckets, if anything has.
    pub(crate) fn recent(&self, window: &Window) -> Option<Bucket> {
        let complete = self.buckets.iter().filter(|bucket| bucket.is_recent(window) && bucket.number < window.now);
        complete.copied().reduce(Bucket::with)
    }
}

impl Bucket {
    fn with(self, other: Bucket) -> Bucket {
        Bucket {
            number: self.number,
            count: self.count.saturating_add(other.count),
            min: if other.min < self.min { other.min } else { self.min },
            max: if other.max > self.max { other.max } else { self.max },
            sum: self.sum + other.sum,
        }
    }

    /// Whether it is looked at, or will be when it is complete.
    fn is_recent(&self, window: &Window) -> bool {
        self.number.saturating_add(window.buckets.into()) >= window.now
    }
}
