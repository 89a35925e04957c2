//! Tags: totals, and the last buckets of a period.

use std::collections::VecDeque;
use std::str;
use std::time::{Duration, Instant};

use crate::sums::Change;
use trace::protocol::Kind;

use crate::limits::Account;
use crate::names::shown;

/// Longest duration of a transaction, in seconds: 366 days. A longer one would make the total of all clients useless.
const LONGEST: f64 = 366.0 * 24.0 * 3600.0;
/// Largest number of trace events of a tag in one process: between two reads of its file, and before the first read.
const MOST_MARKS: [u64; 2] = [1 << 40, 1 << 53];

/// A tag with its totals since the agent's start, or the last reset.
#[derive(Debug)]
pub(crate) struct Tag {
    pub(crate) number: u32,
    /// The name as clients send it.
    pub(crate) bytes: Box<[u8]>,
    /// The exported name, if it differs from `bytes`.
    shown: Option<Box<str>>,
    /// Account that introduced the tag, and is charged for its name.
    pub(crate) account: Account,
    /// Time of the last trace event, in seconds since the agent's start.
    pub(crate) used: u32,
    /// Whether the tag has had a trace event since the last reset.
    pub(crate) active: bool,
    pub(crate) count: u64,
    /// Total duration of transactions, in seconds.
    pub(crate) total: f64,
    /// Compensation of `total` (Kahan's sum): amounts too small to change `total` yet. So a client's short transactions
    /// count even after very long ones of other clients.
    rest: f64,
    /// The last value of an observation or a counter.
    pub(crate) last: f64,
    /// Time of the last value from a file, in nanoseconds of `CLOCK_MONOTONIC`.
    when: u64,
    /// Buckets of the period that are not empty, the current one last.
    pub(super) buckets: VecDeque<Bucket>,
}

/// Sums of a part of the period.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    number: u64,
    pub(crate) count: u64,
    /// Durations of transactions, in seconds: shortest, longest, and total.
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) sum: f64,
}

/// The period of rates and times, in equal buckets. Buckets are identified by numbers, so beginning a new one takes no
/// work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    start: Instant,
    pub(crate) period: Duration,
    pub(crate) buckets: u32,
    /// Number of the current bucket, which is not complete, and its end. `None` for an end beyond the range of
    /// `Instant`.
    now: u64,
    end: Option<Instant>,
}

impl Window {
    pub(crate) fn new(period: Duration, buckets: u32) -> Window {
        let start = Instant::now();
        Window { start, period, buckets, now: 0, end: start.checked_add(period / buckets) }
    }

    /// Begins a new period.
    pub(crate) fn restart(&mut self) {
        *self = Window::new(self.period, self.buckets);
    }

    /// Length of a bucket.
    pub(crate) fn interval(&self) -> Duration {
        self.period / self.buckets
    }

    pub(crate) fn advance(&mut self, now: Instant) {
        if self.end.is_none_or(|end| end <= now) {
            self.now = self.number(now);
            let buckets = u32::try_from(self.now + 1).ok();
            let end = buckets.and_then(|buckets| self.start.checked_add(self.interval().checked_mul(buckets)?));
            self.end = end;
        }
    }

    pub(crate) fn number(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.start).as_nanos();
        u64::try_from(since / self.interval().as_nanos().max(1)).unwrap_or(u64::MAX)
    }

    /// End of the current bucket.
    pub(crate) fn end_of_bucket(&self) -> Option<Instant> {
        self.end
    }
}

/// Returns the value to count for a trace event of a TCP client, or `None` if the value is not valid.
///
/// Values must be finite, and transactions not longer than 366 days. A negative duration comes from a clock that was
/// set back, and counts as 0.
#[inline]
pub(crate) fn plausible(kind: Kind, value: f64) -> Option<f64> {
    match kind {
        Kind::Transact if (f64::MIN..=LONGEST).contains(&value) => Some(value.max(0.0)),
        Kind::Point => Some(0.0),
        Kind::Observe | Kind::Counter if value.is_finite() => Some(value),
        _ => None,
    }
}

/// Returns the change to count for a file, without its invalid parts, or `None` if it is not valid.
///
/// `now` is the time in nanoseconds of `CLOCK_MONOTONIC`. `is_first` is true for a file from before the agent's start.
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
    pub(crate) fn new(account: Account, bytes: &[u8]) -> Tag {
        let shown = shown(bytes);
        let shown = (shown.as_bytes() != bytes).then(|| shown.into());
        let buckets = VecDeque::new();
        let (count, total, rest, last, when) = (0, 0.0, 0.0, 0.0, 0);
        let bytes = bytes.into();
        Tag { number: 0, bytes, shown, account, used: 0, active: false, count, total, rest, last, when, buckets }
    }

    pub(crate) fn name(&self) -> &str {
        self.shown.as_deref().or_else(|| str::from_utf8(&self.bytes).ok()).unwrap_or_default()
    }

    /// Resets everything except the name and its number.
    pub(crate) fn clear(&mut self) {
        self.active = false;
        (self.count, self.total, self.rest, self.last, self.when) = (0, 0.0, 0.0, 0.0, 0);
        self.buckets = VecDeque::new();
    }

    /// Counts a [`plausible`] value.
    pub(crate) fn add(&mut self, kind: Kind, value: f64, window: &Window) {
        let seconds = if kind == Kind::Transact { value } else { 0.0 };
        self.count = self.count.saturating_add(1);
        self.add_time(seconds);
        self.last = value;
        self.put(Bucket { number: window.now, count: 1, min: seconds, max: seconds, sum: seconds }, window);
    }

    fn add_time(&mut self, seconds: f64) {
        let new = seconds + self.rest;
        let total = self.total + new;
        self.rest = new - (total - self.total);
        self.total = total;
    }

    /// Counts a [`plausible_change`].
    pub(crate) fn change(&mut self, change: &Change, number: Option<u64>, window: &Window) {
        let Change { count, total, times, last } = *change;
        self.count = self.count.saturating_add(count);
        self.add_time(total);
        if let Some((when, value)) = last.filter(|(when, _)| *when >= self.when) {
            (self.when, self.last) = (when, value);
        }
        if let Some(number) = number {
            let average = total / count as f64;
            let (min, max) = times.map_or((average, average), |(min, max)| (min.into(), max.into()));
            self.put(Bucket { number, count, min, max, sum: total }, window);
        }
    }

    /// Adds sums to their bucket, or to the last bucket if that is a later one.
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

    /// Returns the sums of the complete buckets of the period. Returns `None` if all are empty.
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

    /// Returns whether the bucket is in the period, or is the current one.
    fn is_recent(&self, window: &Window) -> bool {
        self.number.saturating_add(window.buckets.into()) >= window.now
    }
}
