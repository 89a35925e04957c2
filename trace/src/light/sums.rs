//! What a lane's thread has marked with each tag: counts that need no record to be read.

use std::sync::atomic::Ordering::{Relaxed, Release};

use super::format::{SUM_WORDS, Words};
use crate::protocol::Kind;

const COUNT: usize = 0;
const TOTAL: usize = 1;
const LAST: usize = 2;
const WHEN: usize = 3;
const TIMES: usize = 4;
const EPOCHS: usize = 4;

/// Of nanoseconds.
pub(crate) fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

/// The epoch of a time, in the upper half of a word.
fn epoch(time: u64) -> u64 {
    time >> 30 << 32
}

/// Counts a mark in the entry that begins there, with its time and its value: nanoseconds, or the bits of a double.
#[inline]
pub(crate) fn add(sums: &(impl Words + ?Sized), entry: usize, kind: Kind, time: u64, value: u64) {
    let count = sums.load(entry + COUNT, Relaxed) + 1;
    match kind {
        Kind::Transact => {
            let total = sums.load(entry + TOTAL, Relaxed).wrapping_add(value);
            sums.store(entry + TOTAL, total, Relaxed);
            add_time(sums, entry, time, value);
        }
        Kind::Point => {}
        Kind::Observe | Kind::Counter => {
            sums.store(entry + LAST, value, Relaxed);
            sums.store(entry + WHEN, time, Relaxed);
        }
    }
    sums.store(entry + COUNT, count, Release);
}

#[inline]
fn add_time(sums: &(impl Words + ?Sized), entry: usize, time: u64, value: u64) {
    let epoch = epoch(time);
    let shortest = entry + TIMES + 2 * ((epoch >> 32) as usize % EPOCHS);
    // Floats that are not negative have the order of their bits.
    let word = epoch | u64::from((seconds(value) as f32).to_bits());
    let before = sums.load(shortest, Relaxed);
    if before >> 32 != epoch >> 32 || word < before {
        sums.store(shortest, word, Relaxed);
    }
    if word > sums.load(shortest + 1, Relaxed) {
        sums.store(shortest + 1, word, Relaxed);
    }
}

/// What has come to an entry since it was looked at before.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Change {
    /// How often the tag has come.
    pub count: u64,
    /// Seconds of transactions.
    pub total: f64,
    /// The shortest and the longest transaction of these, to within an epoch (a second); none if they were not looked at
    /// for longer than they are kept.
    pub times: Option<(f32, f32)>,
    /// The last value of observations and counters, and when that was.
    pub last: Option<(u64, f64)>,
}

/// Compares an entry with what it was; a count that goes back is none.
pub(crate) fn change(before: &[u64; SUM_WORDS], now: &[u64; SUM_WORDS]) -> Option<Change> {
    let count = now[COUNT].checked_sub(before[COUNT]).filter(|count| *count > 0)?;
    let time = |word: u64| f32::from_bits(word as u32);
    let times = (TIMES..TIMES + 2 * EPOCHS).step_by(2).filter(|at| before[*at..at + 2] != now[*at..at + 2]);
    let times = times.map(|at| (time(now[at]), time(now[at + 1]))).filter(|(min, max)| *min >= 0.0 && min <= max);
    Some(Change {
        count,
        total: seconds(now[TOTAL].saturating_sub(before[TOTAL])),
        times: times.reduce(|(min, max), (other_min, other_max)| (min.min(other_min), max.max(other_max))),
        last: (now[WHEN] > 0).then(|| (now[WHEN], f64::from_bits(now[LAST]))),
    })
}
