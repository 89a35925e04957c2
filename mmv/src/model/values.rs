//! Which value is whose.

use std::ops::Range;

/// Values of one metric for consecutive instances.
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

/// All values, in the order of the file. A new instance's values come behind all others, so that
/// nothing that is there changes its place.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    runs: Vec<Run>,
    len: usize,
}

impl Runs {
    /// How many values there are.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds values of a metric, and gives the index of their run.
    pub(super) fn add(&mut self, metric: usize, instance: usize, count: usize) -> usize {
        let first = self.len;
        self.len += count;
        match self.runs.last_mut() {
            Some(last) if last.metric == metric && last.instance + last.count == instance => last.count += count,
            _ => self.runs.push(Run { first, count, metric, instance }),
        }
        self.runs.len() - 1
    }

    pub(super) fn get(&self, run: usize) -> Option<Run> {
        self.runs.get(run).copied()
    }

    /// The runs of a range of values, cut to it.
    pub(crate) fn within(&self, range: Range<usize>) -> impl Iterator<Item = Run> {
        let first = self.runs.partition_point(|run| run.first + run.count <= range.start);
        let runs = self.runs.iter().skip(first).take_while(move |run| run.first < range.end);
        runs.map(move |run| {
            let start = run.first.max(range.start);
            let end = (run.first + run.count).min(range.end);
            let (count, instance) = (end.saturating_sub(start), run.instance + start - run.first);
            Run { first: start, count, instance, ..*run }
        })
    }

    /// All runs.
    pub(crate) fn all(&self) -> impl Iterator<Item = Run> {
        self.runs.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs() {
        let mut runs = Runs::default();
        assert_eq!([runs.add(0, 0, 1), runs.add(1, 0, 5), runs.add(2, 0, 0)], [0, 1, 2]);
        // An instance more: of metric 1, and of metric 2, which had none.
        assert_eq!([runs.add(1, 5, 1), runs.add(2, 0, 1), runs.add(2, 1, 2)], [3, 4, 4]);
        let expected = [(0, 1, 0, 0), (1, 5, 1, 0), (6, 0, 2, 0), (6, 1, 1, 5), (7, 3, 2, 0)];
        let run = |(first, count, metric, instance)| Run { first, count, metric, instance };
        assert_eq!(runs.all().collect::<Vec<_>>(), expected.map(run));
        assert_eq!(runs.len(), 10);
        let within = |range| runs.within(range).filter(|run| run.count > 0).collect::<Vec<_>>();
        assert_eq!(within(0..10), expected.map(run).into_iter().filter(|r| r.count > 0).collect::<Vec<_>>());
        assert_eq!(within(3..9), [(3, 3, 1, 2), (6, 1, 1, 5), (7, 2, 2, 0)].map(run));
        assert_eq!(within(4..4), []);
        assert_eq!(within(10..20), []);
    }
}
