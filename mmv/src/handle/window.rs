//! Histograms of values with a relative error below 1 %.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Counts of values, grouped by their highest seven bits.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// Octaves with values, in ascending order of their numbers.
    octaves: Vec<Octave>,
    count: u64,
    max: u64,
}

/// The counts of values from a power of two up to the next. Octave 0 has all values below [`PARTS`].
#[derive(Debug)]
struct Octave {
    number: u32,
    counts: Counts,
}

#[derive(Debug)]
enum Counts {
    Parts(Parts),
    /// One count for the whole octave, because the memory of the process for finer counts is used up.
    All(u64),
}

/// Counts of an octave's parts. At most [`MOST`] exist in the process.
#[derive(Debug)]
struct Parts(Box<[u32; PARTS as usize]>);

const PARTS: u64 = 64;
const BITS: u32 = PARTS.ilog2();

/// Largest number of octaves with parts in the process: 64 MiB in total.
const MOST: usize = (64 << 20) / size_of::<[u32; PARTS as usize]>();
static THERE_ARE: AtomicUsize = AtomicUsize::new(0);

impl Parts {
    fn new() -> Option<Parts> {
        let room = THERE_ARE.fetch_update(Relaxed, Relaxed, |count| (count < MOST).then_some(count + 1));
        room.ok().map(|_| Parts(Box::new([0; PARTS as usize])))
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        THERE_ARE.fetch_sub(1, Relaxed);
    }
}

/// Returns the octave of a value, and the part of that octave.
fn place(value: u64) -> (u32, usize) {
    let octave = value.checked_ilog2().unwrap_or_default().saturating_sub(BITS - 1);
    let shift = octave.saturating_sub(1);
    (octave, (value >> shift & (PARTS - 1)) as usize)
}

/// Returns the value in the middle of a part.
fn middle(octave: u32, part: usize) -> u64 {
    let shift = octave.saturating_sub(1);
    let first = if octave == 0 { part as u64 } else { (PARTS + part as u64) << shift };
    first + ((1 << shift) - 1) / 2
}

impl Window {
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) fn add(&mut self, value: u64) {
        self.count += 1;
        self.max = self.max.max(value);
        let (number, part) = place(value);
        let index = match self.octaves.binary_search_by_key(&number, |octave| octave.number) {
            Ok(index) => index,
            Err(index) => {
                let counts = Parts::new().map_or(Counts::All(0), Counts::Parts);
                self.octaves.insert(index, Octave { number, counts });
                index
            }
        };
        match self.octaves.get_mut(index).map(|octave| &mut octave.counts) {
            Some(Counts::Parts(Parts(counts))) => counts[part] = counts[part].saturating_add(1),
            Some(Counts::All(count)) => *count += 1,
            None => {}
        }
    }

    /// Returns the largest value of both windows.
    pub(super) fn max(windows: [&Window; 2]) -> u64 {
        windows[0].max.max(windows[1].max)
    }

    /// Returns the quantiles for `parts` (0 to 1, ascending) of the values in both windows.
    pub(super) fn quantiles(windows: [&Window; 2], parts: impl Iterator<Item = f64>) -> impl Iterator<Item = u64> {
        let (count, max) = (windows[0].count + windows[1].count, Self::max(windows));
        let mut counts = Self::counts(windows).peekable();
        let mut passed = 0;
        parts.map(move |part| {
            let rank = ((part * count as f64).ceil() as u64).clamp(1, count);
            while let Some((value, count)) = counts.peek() {
                if passed + count >= rank {
                    return max.min(*value);
                }
                passed += count;
                counts.next();
            }
            max
        })
    }

    /// Iterates over the values of both windows in ascending order, with their counts. A value may come more than once,
    /// each time with a part of its count.
    fn counts(windows: [&Window; 2]) -> impl Iterator<Item = (u64, u64)> {
        let mut octaves = windows.map(|window| window.octaves.iter().peekable());
        std::iter::from_fn(move || {
            let [a, b] = &mut octaves;
            let number = [a.peek(), b.peek()].into_iter().flatten().map(|octave| octave.number).min()?;
            let mut parts = [0; PARTS as usize];
            for octaves in [a, b] {
                match octaves.next_if(|octave| octave.number == number).map(|octave| &octave.counts) {
                    Some(Counts::Parts(Parts(counts))) => {
                        parts.iter_mut().zip(counts.iter()).for_each(|(all, count)| *all += u64::from(*count));
                    }
                    Some(Counts::All(count)) => parts[PARTS as usize / 2] += count,
                    None => {}
                }
            }
            Some((number, parts))
        })
        .flat_map(|(number, parts)| {
            let counts = parts.into_iter().enumerate().filter(|(_, count)| *count > 0);
            counts.map(move |(part, count)| (middle(number, part), count))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_in_a_part_near_it() {
        let powers = (0..64).flat_map(|bit| [(1u64 << bit) - 1, 1 << bit, (1 << bit) + 1, (1 << bit) + (1 << bit) / 3]);
        for value in (0..10_000).chain(powers).chain([u64::MAX]) {
            let (octave, part) = place(value);
            assert!(part < PARTS as usize && octave <= 64 - BITS, "{value}");
            let middle = middle(octave, part);
            assert!(value.abs_diff(middle) as f64 <= value as f64 / 127.0, "{value}: {middle}");
        }
    }

    #[test]
    fn quantiles_are_those_of_both_windows() {
        let mut windows = [Window::default(), Window::default()];
        (1..=1000).for_each(|value| windows[value % 2].add(value as u64 * 1000));
        let [a, b] = &windows;
        let quantiles: Vec<u64> = Window::quantiles([a, b], [0.0, 0.5, 0.9, 0.99, 1.0].into_iter()).collect();
        for (quantile, expected) in quantiles.iter().zip([1000u64, 500_000, 900_000, 990_000, 1_000_000]) {
            assert!(quantile.abs_diff(expected) as f64 <= expected as f64 / 100.0, "{quantiles:?}");
        }
        assert_eq!((Window::max([a, b]), quantiles.last()), (1_000_000, Some(&1_000_000)));
    }

    #[test]
    fn memory_is_bounded_and_given_back() {
        let mut windows: Vec<Window> = Vec::new();
        while THERE_ARE.load(Relaxed) < MOST {
            let mut window = Window::default();
            (0..64).for_each(|bit| window.add(1 << bit));
            windows.push(window);
        }
        let mut more = Window::default();
        (0..3).for_each(|_| more.add(1000));
        more.add(1_000_000);
        assert!(more.octaves.iter().all(|octave| matches!(octave.counts, Counts::All(_))));
        let median = Window::quantiles([&more, &Window::default()], [0.5].into_iter()).next().unwrap();
        assert!((512..1024).contains(&median), "{median}");
        assert_eq!(Window::max([&more, &Window::default()]), 1_000_000);
        windows.pop();
        let mut again = Window::default();
        again.add(1000);
        assert!(matches!(again.octaves[0].counts, Counts::Parts(_)));
    }
}
