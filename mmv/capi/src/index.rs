//! Finds values by the names of their metric and instance.

use std::hash::{BuildHasher, RandomState};

use crate::layout::Layout;

/// Values by names.
#[derive(Debug)]
pub(crate) struct Index {
    metrics: Names,
    /// Values of each name's metrics, in the order of the file. If several metrics cannot be distinguished, only the
    /// first one is included.
    values: Vec<Vec<Values>>,
    /// Instances of each instance domain.
    instances: Vec<Instances>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Values {
    first: usize,
    indom: Option<usize>,
}

#[derive(Debug)]
struct Instances {
    names: Names,
    /// Position of the first instance of each name.
    positions: Vec<usize>,
}

impl Index {
    /// Indexes a file. `name` returns the name at an offset, whose length is at most its second argument.
    pub(crate) fn new(layout: &Layout, name: impl Fn(usize, usize) -> Box<[u8]>) -> Index {
        let instances = layout.spans.iter().map(|(first, count)| {
            let mut all = Instances { names: Names::new(*count), positions: Vec::with_capacity(*count) };
            for position in 0..*count {
                let (at, room) = layout.instance_name(first + position);
                // Of several equal names, the first counts.
                if all.names.add(&name(at, room)) == all.positions.len() {
                    all.positions.push(position);
                }
            }
            all
        });
        let instances = instances.collect();
        let count = layout.metrics.count;
        let (mut metrics, mut all) = (Names::new(count), Vec::with_capacity(count));
        for (metric, (first, indom)) in layout.groups().enumerate() {
            if indom.and_then(|indom| layout.spans.get(indom)).is_some_and(|(_, count)| *count == 0) {
                continue;
            }
            let (at, room) = layout.metric_name(metric);
            let number = metrics.add(&name(at, room));
            if number == all.len() {
                all.push(Vec::new());
            }
            let Some(values) = all.get_mut(number) else { continue };
            if !values.iter().any(|other: &Values| other.indom.is_none() || other.indom == indom) {
                values.push(Values { first, indom });
            }
        }
        Index { metrics, values: all, instances }
    }

    /// Returns the index of the value that C's library would find first. The instance selects a value of a metric with
    /// instances, and is ignored for a metric without.
    pub(crate) fn find(&self, metric: &[u8], instance: Option<&[u8]>) -> Option<usize> {
        for values in self.values.get(self.metrics.find(metric)?)? {
            let Some(indom) = values.indom else { return Some(values.first) };
            let instances = self.instances.get(indom)?;
            if let Some(number) = instances.names.find(instance?) {
                return Some(values.first + instances.positions.get(number)?);
            }
        }
        None
    }
}

/// Names, numbered from 0 in the order of their addition.
///
/// The tables of the standard library have pointers into the middle of their memory. valgrind would report the memory
/// as lost when a program ends.
#[derive(Debug)]
struct Names {
    hasher: RandomState,
    /// Hash table of names: each slot has the number of a name plus one, or 0 if it is free. At most half of the slots
    /// are used.
    slots: Box<[u32]>,
    bytes: Vec<u8>,
    /// End of each name in `bytes`.
    ends: Vec<usize>,
}

impl Names {
    /// Creates a table for at most `most` names.
    fn new(most: usize) -> Names {
        let slots = vec![0; (2 * most).next_power_of_two()].into();
        Names { hasher: RandomState::new(), slots, bytes: Vec::new(), ends: Vec::with_capacity(most) }
    }

    /// Returns the slots in which a name may be, in the order of probing.
    fn slots(&self, name: &[u8]) -> impl Iterator<Item = usize> + use<> {
        let (mask, start) = (self.slots.len() - 1, self.hasher.hash_one(name) as usize);
        (0..=mask).map(move |step| start.wrapping_add(step) & mask)
    }

    fn name(&self, number: usize) -> Option<&[u8]> {
        let start = number.checked_sub(1).map_or(Some(0), |before| self.ends.get(before).copied())?;
        self.bytes.get(start..*self.ends.get(number)?)
    }

    /// Returns the number of a name, and adds the name if it is new.
    fn add(&mut self, name: &[u8]) -> usize {
        if let Some(number) = self.find(name) {
            return number;
        }
        let number = self.ends.len();
        let free = self.slots(name).find(|slot| self.slots.get(*slot) == Some(&0));
        if let Some(slot) = free.and_then(|slot| self.slots.get_mut(slot)) {
            *slot = number as u32 + 1;
        }
        self.bytes.extend_from_slice(name);
        self.ends.push(self.bytes.len());
        number
    }

    /// Returns the number of a name.
    fn find(&self, name: &[u8]) -> Option<usize> {
        for slot in self.slots(name) {
            let number = self.slots.get(slot)?.checked_sub(1)? as usize;
            if self.name(number) == Some(name) {
                return Some(number);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_numbers() {
        let mut names = Names::new(1000);
        let texts: Vec<String> = (0..1000).map(|i| format!("name{i}")).collect();
        for (number, text) in texts.iter().enumerate() {
            assert_eq!((names.find(text.as_bytes()), names.add(text.as_bytes())), (None, number));
        }
        for (number, text) in texts.iter().enumerate() {
            assert_eq!((names.find(text.as_bytes()), names.add(text.as_bytes())), (Some(number), number));
        }
        assert_eq!([names.find(b""), names.find(b"name"), Names::new(0).find(b"")], [None; 3]);
        assert_eq!((names.add(b""), names.find(b"")), (1000, Some(1000)));
    }
}
