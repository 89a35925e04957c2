//! Changes of the sums of a process since they were read last.

use hashbrown::HashMap;
use mmv_reader::collection::CollectedFile;
use trace::protocol::{Kind, MAX_TAG};
use trace::shared_memory::now;
use trace::shared_memory::sums::{EPOCHS, Extreme, Word, seconds, tag_of};

/// Change of a tag's sums since they were read last.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Change {
    /// Number of trace events.
    pub(crate) count: u64,
    /// Total duration of transactions, in seconds.
    pub(crate) total: f64,
    /// Shortest and longest duration of these transactions, in seconds.
    ///
    /// The file has both for each epoch of about a second, for the last four epochs. So earlier transactions of the
    /// first epoch may count again. `None` if neither changed, or they are not valid.
    pub(crate) times: Option<(f32, f32)>,
    /// Time of the last observation or counter value, in nanoseconds of `CLOCK_MONOTONIC`, and this value.
    pub(crate) last: Option<(u64, f64)>,
}

/// The sums of one tag, as they are in a file.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
struct Words {
    count: u64,
    total: u64,
    last: u64,
    when: u64,
    /// Shortest and longest duration of each epoch.
    extremes: [[u64; 2]; EPOCHS],
}

impl Words {
    fn set(&mut self, word: Word, value: u64) {
        match word {
            Word::Count => self.count = value,
            Word::Total => self.total = value,
            Word::Last => self.last = value,
            Word::When => self.when = value,
            Word::Shortest(epoch) => self.extremes[epoch][0] = value,
            Word::Longest(epoch) => self.extremes[epoch][1] = value,
        }
    }

    /// Compares the sums with those of `elapsed` nanoseconds earlier.
    ///
    /// The result is plausible for any words. `None` if the count has not increased, or by more than one in each
    /// nanosecond. All values are finite, and no time is later than `now`.
    fn since(&self, before: &Words, elapsed: u64, now: u64) -> Option<Change> {
        let count = self.count.checked_sub(before.count).filter(|count| (1..=elapsed).contains(count))?;
        let extremes = self.extremes.iter().zip(&before.extremes).filter(|(now, before)| now != before);
        let times = extremes.map(|([min, max], _)| (Extreme(*min).as_shortest(), Extreme(*max).as_longest()));
        let times = times.filter(|(min, max)| *min >= 0.0 && min <= max && max.is_finite());
        let last = (self.when > 0).then(|| (self.when.min(now), f64::from_bits(self.last)));
        Some(Change {
            count,
            total: seconds(self.total.saturating_sub(before.total)),
            times: times.reduce(|(min, max), (other_min, other_max)| (min.min(other_min), max.max(other_max))),
            last: last.filter(|(_, value)| value.is_finite()),
        })
    }
}

/// A tag of a process.
#[derive(Debug)]
struct Tag {
    kind: Kind,
    name: Box<[u8]>,
    before: Words,
    now: Words,
}

/// The sums of a process.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    /// Tags by their numbers.
    tags: HashMap<i32, Tag>,
    /// The contents in which the tags were found.
    contents: Option<CollectedFile>,
    /// Time of the last read, in nanoseconds of `CLOCK_MONOTONIC`, or 0.
    read: u64,
}

impl Sums {
    /// Returns the kind and the name of a tag.
    pub(crate) fn tag(&self, number: u32) -> Option<(Kind, &[u8])> {
        let tag = self.tags.get(&i32::try_from(number).ok()?)?;
        Some((tag.kind, &tag.name))
    }

    /// Finds the tags of a file, unless the contents are those of the previous call.
    fn find_tags(&mut self, file: &CollectedFile) {
        if self.contents.as_ref().is_some_and(|known| known.is_same(file)) {
            return;
        }
        let contents = file.contents();
        for metric in contents.metrics() {
            let Some((kind, Word::Count)) = Word::of_item(metric.item) else { continue };
            let Some(indom) = contents.indoms().iter().find(|indom| Some(indom.serial) == metric.indom) else {
                continue;
            };
            for instance in indom.instances() {
                self.tags.entry(instance.id).or_insert_with(|| {
                    let name = tag_of(contents.instance_name(instance)).into();
                    Tag { kind, name, before: Words::default(), now: Words::default() }
                });
            }
        }
        self.tags.retain(|_, tag| (1..=MAX_TAG).contains(&tag.name.len()) && !tag.name.contains(&0));
        self.contents = Some(file.clone());
    }

    /// Calls `out` with the change of each tag since the last call. If `if_current`, this is only done if the application
    /// has no tags beside those of the contents. Returns whether it has none.
    ///
    /// # Errors
    /// The file cannot be read, or has become shorter.
    pub(crate) fn changes(
        &mut self,
        file: &CollectedFile,
        if_current: bool,
        mut out: impl FnMut(Kind, &[u8], Change),
    ) -> std::io::Result<bool> {
        let start = now();
        let (values, is_current) = file.read()?;
        if if_current && !is_current {
            return Ok(false);
        }
        self.find_tags(file);
        for metric in file.contents().metrics() {
            let Some((kind, word)) = Word::of_item(metric.item) else { continue };
            for value in metric.values() {
                if let Some(tag) = self.tags.get_mut(&value.instance).filter(|tag| tag.kind == kind) {
                    tag.now.set(word, values.get(*value).map_or(0, |value| value.word));
                }
            }
        }
        let now = now();
        for tag in self.tags.values_mut() {
            if let Some(change) = tag.now.since(&tag.before, now.saturating_sub(self.read), now) {
                tag.before = tag.now;
                out(tag.kind, &tag.name, change);
            }
        }
        self.read = start;
        Ok(is_current)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(words: Words) -> Option<Change> {
        words.since(&Words::default(), 1000, 5000)
    }

    #[test]
    fn a_change_is_one_that_a_process_can_have_made() {
        let counted = |count| change(Words { count, ..Words::default() });
        assert_eq!(counted(1000).unwrap().count, 1000);
        assert_eq!([1001, u64::MAX].map(counted), [None, None]);
        let before = Words { count: 2, ..Words::default() };
        assert_eq!(Words { count: 1, ..Words::default() }.since(&before, 1000, 5000), None);
    }

    #[test]
    fn values_are_finite_and_times_have_come() {
        let last = |when, value: f64| {
            change(Words { count: 1, when, last: value.to_bits(), ..Words::default() }).unwrap().last
        };
        assert_eq!((last(4000, 1.5), last(u64::MAX, 1.5)), (Some((4000, 1.5)), Some((5000, 1.5))));
        assert_eq!([f64::NAN, f64::INFINITY, f64::NEG_INFINITY].map(|value| last(4000, value)), [None; 3]);
        let times = |min: f32, max: f32| {
            let mut words = Words { count: 1, ..Words::default() };
            words.extremes[1] = [7 << 32 | u64::from(!min.to_bits()), 7 << 32 | u64::from(max.to_bits())];
            change(words).unwrap().times
        };
        assert_eq!(times(0.5, 2.0), Some((0.5, 2.0)));
        let bad = [(0.5, f32::INFINITY), (f32::INFINITY, f32::INFINITY), (f32::NAN, 1.0), (0.5, f32::NAN), (-1.0, 1.0)];
        assert_eq!(bad.map(|(min, max)| times(min, max)), [None; 5]);
    }
}
