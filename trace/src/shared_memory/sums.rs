//! Sums of a lane: totals of the trace events of each tag, which are exact without reading records.

use std::sync::atomic::Ordering::{Relaxed, Release};

use super::format::{SUM_WORDS, Words};
use crate::protocol::Kind;

const COUNT: usize = 0;
const TOTAL: usize = 1;
const LAST: usize = 2;
const WHEN: usize = 3;
const TIMES: usize = 4;
const EPOCHS: usize = 4;

pub(crate) fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

/// Returns the epoch of a time, in the upper half of a word.
fn epoch(time: u64) -> u64 {
    time >> 30 << 32
}

/// Adds a trace event to the entry that begins at the word `entry`.
///
/// `value` is the duration of a transaction in nanoseconds, or the bits of a double. Only the lane's thread may call
/// this.
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
    // Non-negative floats compare like their bits.
    let word = epoch | u64::from((seconds(value) as f32).to_bits());
    let before = sums.load(shortest, Relaxed);
    if before >> 32 != epoch >> 32 || word < before {
        sums.store(shortest, word, Relaxed);
    }
    if word > sums.load(shortest + 1, Relaxed) {
        sums.store(shortest + 1, word, Relaxed);
    }
}

/// Change of a tag's sums in one lane since they were read last: [`Reader::changes`](super::Reader::changes).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Change {
    /// Number of trace events.
    pub count: u64,
    /// Total duration of transactions, in seconds.
    pub total: f64,
    /// Shortest and longest duration of these transactions, in seconds.
    ///
    /// The file has both for each epoch of about a second, for the last four epochs. So earlier transactions of the
    /// first epoch may count again. `None` if neither changed, or they are not valid.
    pub times: Option<(f32, f32)>,
    /// Time of the last observation or counter value, in nanoseconds of `CLOCK_MONOTONIC`, and this value.
    pub last: Option<(u64, f64)>,
}

/// Compares an entry with its contents `elapsed` nanoseconds earlier.
///
/// The result is plausible for any entry. `None` if the count has not increased, or by more than one in each
/// nanosecond. All values are finite, and no time is later than `now`.
pub(crate) fn change(before: &[u64; SUM_WORDS], entry: &[u64; SUM_WORDS], elapsed: u64, now: u64) -> Option<Change> {
    let count = entry[COUNT].checked_sub(before[COUNT]).filter(|count| (1..=elapsed).contains(count))?;
    let time = |word: u64| f32::from_bits(word as u32);
    let times = (TIMES..TIMES + 2 * EPOCHS).step_by(2).filter(|at| before[*at..at + 2] != entry[*at..at + 2]);
    let times = times.map(|at| (time(entry[at]), time(entry[at + 1])));
    let times = times.filter(|(min, max)| *min >= 0.0 && min <= max && max.is_finite());
    let last = (entry[WHEN] > 0).then(|| (entry[WHEN].min(now), f64::from_bits(entry[LAST])));
    Some(Change {
        count,
        total: seconds(entry[TOTAL].saturating_sub(before[TOTAL])),
        times: times.reduce(|(min, max), (other_min, other_max)| (min.min(other_min), max.max(other_max))),
        last: last.filter(|(_, value)| value.is_finite()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: [u64; SUM_WORDS] = [0; SUM_WORDS];

    fn entry(words: &[(usize, u64)]) -> [u64; SUM_WORDS] {
        let mut entry = NONE;
        words.iter().for_each(|(at, word)| entry[*at] = *word);
        entry
    }

    #[test]
    fn a_change_is_one_that_a_lane_can_have_made() {
        let changed = |words: &[(usize, u64)]| change(&NONE, &entry(words), 1000, 5000);
        assert_eq!(changed(&[(COUNT, 1000)]).unwrap().count, 1000);
        assert_eq!([1001, u64::MAX].map(|count| changed(&[(COUNT, count)])), [None, None]);
        assert_eq!(change(&entry(&[(COUNT, 2)]), &entry(&[(COUNT, 1)]), 1000, 5000), None);
    }

    #[test]
    fn values_are_finite_and_times_have_come() {
        let changed = |words: &[(usize, u64)]| {
            let words: Vec<_> = [(COUNT, 1)].iter().chain(words).copied().collect();
            change(&NONE, &entry(&words), 1000, 5000).unwrap()
        };
        let last = |when, value: f64| changed(&[(WHEN, when), (LAST, value.to_bits())]).last;
        assert_eq!((last(4000, 1.5), last(u64::MAX, 1.5)), (Some((4000, 1.5)), Some((5000, 1.5))));
        assert_eq!([f64::NAN, f64::INFINITY, f64::NEG_INFINITY].map(|value| last(4000, value)), [None; 3]);
        let times = |min: f32, max: f32| {
            let word = |seconds: f32| 7 << 32 | u64::from(seconds.to_bits());
            changed(&[(TIMES, word(min)), (TIMES + 1, word(max))]).times
        };
        assert_eq!(times(0.5, 2.0), Some((0.5, 2.0)));
        let bad = [(0.5, f32::INFINITY), (f32::INFINITY, f32::INFINITY), (f32::NAN, 1.0), (0.5, f32::NAN), (-1.0, 1.0)];
        assert_eq!(bad.map(|(min, max)| times(min, max)), [None; 5]);
    }
}
