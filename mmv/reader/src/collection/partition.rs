//! Assignment of files to groups.

use hashbrown::HashMap;

use super::source::Source;

/// Returns the number of each file's group. Groups are numbered in the order in which they appear.
pub(super) fn partition(sources: &[&Source]) -> Vec<usize> {
    let mut sets = Sets::new(sources.len());
    let (mut classes, mut heads) = (HashMap::new(), HashMap::new());
    for (index, source) in sources.iter().enumerate() {
        let uid = source.uid;
        source.classes().for_each(|class| sets.join(*classes.entry((uid, class)).or_insert(index), index));
        source.heads().for_each(|head| sets.join(*heads.entry((uid, head)).or_insert(index), index));
    }
    let mut numbers: Vec<usize> = Vec::with_capacity(sources.len());
    let mut groups = 0..;
    for index in 0..sources.len() {
        let number = numbers.get(sets.first(index)).copied().or_else(|| groups.next());
        numbers.extend(number);
    }
    numbers
}

/// Disjoint sets of numbers. Each element refers to a smaller element of its set. The smallest one refers to itself.
struct Sets(Vec<usize>);

impl Sets {
    /// Creates a set for each number below `count`.
    fn new(count: usize) -> Sets {
        Sets((0..count).collect())
    }

    /// Returns the smallest number of the set that contains `number`.
    fn first(&mut self, mut number: usize) -> usize {
        while self.0[number] != number {
            self.0[number] = self.0[self.0[number]];
            number = self.0[number];
        }
        number
    }

    fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.first(a), self.first(b));
        self.0[a.max(b)] = a.min(b);
    }
}
