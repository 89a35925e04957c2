//! The metric and instance of each value.

use std::collections::HashMap;
use std::ops::Range;

/// Consecutive values of one metric, for consecutive instances.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    /// Index of the first value.
    pub first: usize,
    pub count: usize,
    /// Index of the metric.
    pub metric: usize,
    /// Index of the first value's instance.
    pub instance: usize,
}

/// All values, in the order of the file. The values of a new instance come last, so existing values keep their offsets.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    runs: Vec<Run>,
    len: usize,
    /// The first run of each metric.
    first: Vec<u32>,
    /// Further runs of metrics that have several, in the order of the instances.
    more: HashMap<usize, Vec<u32>>,
}

impl Runs {
    /// Returns the number of values.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds values: of a new metric, whose index is the next one, or of further instances of a metric.
    pub(super) fn add(&mut self, metric: usize, instance: usize, count: usize) {
        let first = self.len;
        self.len += count;
        if let Some(last) = self.runs.last_mut() {
            if last.metric == metric && last.instance + last.count == instance {
                last.count += count;
                return;
            }
        }
        let index = self.runs.len() as u32;
        if metric == self.first.len() {
            self.first.push(index);
        } else {
            self.more.entry(metric).or_default().push(index);
        }
        self.runs.push(Run { first, count, metric, instance });
    }

    /// Returns the index of a metric's value for an instance. `instance` is 0 for a singular metric.
    pub(crate) fn find(&self, metric: usize, instance: usize) -> Option<usize> {
        let run = |index: &u32| self.runs.get(*index as usize).copied();
        let more = self.more.get(&metric).map_or(&[][..], Vec::as_slice);
        let before = more.partition_point(|index| run(index).is_some_and(|run| run.instance <= instance));
        let index = before.checked_sub(1).and_then(|last| more.get(last)).or_else(|| self.first.get(metric))?;
        let run = run(index).filter(|run| (run.instance..run.instance + run.count).contains(&instance))?;
        Some(run.first + instance - run.instance)
    }

    /// Returns the runs of a range of values, cut to the range.
    pub(crate) fn within(&self, range: Range<usize>) -> impl Iterator<Item = Run> {
        let first = self.runs.partition_point(|run| run.first + run.count <= range.start);
        let runs = self.runs.iter().skip(first).copied().take_while(move |run| run.first < range.end);
        runs.map(move |run| {
            let start = run.first.max(range.start);
            let end = (run.first + run.count).min(range.end);
            let (count, instance) = (end.saturating_sub(start), run.instance + start - run.first);
            Run { first: start, count, instance, ..run }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs() {
        let mut runs = Runs::default();
        [(0, 0, 1), (1, 0, 5), (2, 0, 0)].iter().for_each(|run| runs.add(run.0, run.1, run.2));
        // Another instance: of metric 1, and of metric 2, which had none.
        [(1, 5, 1), (2, 0, 1), (2, 1, 2)].iter().for_each(|run| runs.add(run.0, run.1, run.2));
        let found = |metric| (0..7).filter_map(|instance| runs.find(metric, instance)).collect::<Vec<_>>();
        assert_eq!([found(0), found(1), found(2), found(3)], [vec![0], vec![1, 2, 3, 4, 5, 6], vec![7, 8, 9], vec![]]);
        let expected = [(0, 1, 0, 0), (1, 5, 1, 0), (6, 1, 1, 5), (7, 3, 2, 0)];
        let run = |(first, count, metric, instance)| Run { first, count, metric, instance };
        assert_eq!(runs.within(0..10).filter(|run| run.count > 0).collect::<Vec<_>>(), expected.map(run));
        assert_eq!(runs.len(), 10);
        let within = |range| runs.within(range).filter(|run| run.count > 0).collect::<Vec<_>>();
        assert_eq!(within(3..9), [(3, 3, 1, 2), (6, 1, 1, 5), (7, 2, 2, 0)].map(run));
        assert_eq!(within(4..4), []);
        assert_eq!(within(10..20), []);
    }
}
