//! Sums of a process's trace events: an MMV file (mmv(5)) like that of any application.
//!
//! Each tag is an instance of its kind, with the tag's number as identifier. The item of a metric is 16 times the kind,
//! counted from 0, plus the number of the [word](Word) of the sums.
//!
//! | metric | |
//! |---|---|
//! | `KIND.count` | number of trace events (`transact`, `point`, `observe`, `counter`) |
//! | `transact.total` | total duration, in nanoseconds |
//! | `transact.shortest_E`, `transact.longest_E` | shortest and longest duration in each of the last four epochs |
//! | `KIND.value`, `KIND.time` | last value, and its time in nanoseconds of `CLOCK_MONOTONIC` (`observe`, `counter`) |
//!
//! An epoch is 2^30 ns of `CLOCK_MONOTONIC`. The durations of epoch e are in the metrics with E = e mod 4. The upper half
//! of each value has e, the lower half the duration in seconds, a float, with all bits inverted for the shortest one. So
//! both only grow, each is valid without the other one, and a reader that reads once in four epochs misses none.

use std::path::Path;
use std::sync::Arc;

use mmv::{Counter, Family, Gauge, InstanceDomain, Registry, Units};

use super::format::MAX_TAGS;
use crate::protocol::Kind;

/// Number of epochs for which a file has shortest and longest durations.
pub const EPOCHS: usize = 4;

/// A word of the sums of a tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Word {
    /// Number of trace events.
    Count,
    /// Total duration of transactions, in nanoseconds.
    Total,
    /// Last value of an observation or a counter, a double.
    Last,
    /// Time of the last value, in nanoseconds of `CLOCK_MONOTONIC`.
    When,
    /// Shortest duration in an epoch with this number modulo [`EPOCHS`].
    Shortest(usize),
    /// Longest duration in an epoch with this number modulo [`EPOCHS`].
    Longest(usize),
}

impl Word {
    const fn number(self) -> u16 {
        match self {
            Word::Count => 0,
            Word::Total => 1,
            Word::Last => 2,
            Word::When => 3,
            Word::Shortest(epoch) => 4 + 2 * epoch as u16,
            Word::Longest(epoch) => 5 + 2 * epoch as u16,
        }
    }

    /// Returns the kind of trace events and the word that a metric with this item has.
    pub fn of_item(item: u32) -> Option<(Kind, Word)> {
        let kind = Kind::from_number(u8::try_from(item / WORDS + 1).ok()?)?;
        let word = match item % WORDS {
            0 => Word::Count,
            1 => Word::Total,
            2 => Word::Last,
            3 => Word::When,
            more => {
                let (epoch, is_longest) = ((more as usize - 4) / 2, more % 2 == 1);
                let epoch = Some(epoch).filter(|epoch| *epoch < EPOCHS)?;
                if is_longest { Word::Longest(epoch) } else { Word::Shortest(epoch) }
            }
        };
        Some((kind, word))
    }
}

/// Items of each kind.
const WORDS: u32 = 16;

/// A shortest or longest duration, as it is in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extreme(pub u64);

impl Extreme {
    fn shortest(time: u64, nanoseconds: u64) -> u64 {
        epoch(time) | u64::from(!bits(nanoseconds))
    }

    fn longest(time: u64, nanoseconds: u64) -> u64 {
        epoch(time) | u64::from(bits(nanoseconds))
    }

    /// Returns the duration in seconds of a shortest duration.
    pub fn as_shortest(self) -> f32 {
        f32::from_bits(!(self.0 as u32))
    }

    /// Returns the duration in seconds of a longest duration.
    pub fn as_longest(self) -> f32 {
        f32::from_bits(self.0 as u32)
    }
}

/// Returns the epoch of a time, in the upper half of a word.
fn epoch(time: u64) -> u64 {
    time >> 30 << 32
}

/// Returns a duration in seconds. Non-negative floats compare like their bits.
fn bits(nanoseconds: u64) -> u32 {
    (seconds(nanoseconds) as f32).to_bits()
}

/// Converts nanoseconds to seconds.
pub fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

/// The metrics of the process.
#[derive(Debug)]
pub(crate) struct Sums {
    registry: Registry,
    transact: Of<TransactFamilies>,
    point: Of<Family<Counter>>,
    observe: Of<LastFamilies>,
    counter: Of<LastFamilies>,
}

/// The metrics of a kind, and their instances.
#[derive(Debug)]
struct Of<F> {
    tags: InstanceDomain,
    families: F,
}

#[derive(Debug)]
struct TransactFamilies {
    count: Family<Counter>,
    total: Family<Counter>,
    /// Shortest and longest durations of each epoch.
    extremes: Vec<[Family<Gauge<u64>>; 2]>,
}

#[derive(Debug)]
struct LastFamilies {
    count: Family<Counter>,
    value: Family<Gauge>,
    time: Family<Gauge<u64>>,
}

/// The sums of a tag. Clones share them.
#[derive(Clone, Debug)]
pub(crate) enum Entry {
    Transact(Arc<Transact>),
    Point(Counter),
    Last(Arc<Last>),
}

#[derive(Debug)]
pub(crate) struct Transact {
    count: Counter,
    total: Counter,
    extremes: [[Gauge<u64>; 2]; EPOCHS],
}

#[derive(Debug)]
pub(crate) struct Last {
    count: Counter,
    value: Gauge,
    time: Gauge<u64>,
}

impl Sums {
    /// Makes the file `name` in a directory.
    ///
    /// # Errors
    /// Errors of [`mmv`]: the file cannot be written.
    pub(crate) fn create(directory: &Path, name: &str) -> Result<Sums, mmv::Error> {
        // Without a cluster of its own, each process would read the files of all others. The agent ignores it.
        let builder = Registry::builder(name).directory(directory).persistent().group_only().cluster(1);
        let registry = builder.room(MAX_TAGS as u32).build()?;
        let last = |kind: Kind, name: &str| {
            let tags = registry.indom(name).register()?;
            let families = LastFamilies {
                count: count(&registry, kind, name, &tags)?,
                value: registry.metric(&format!("{name}.value")).item(item(kind, Word::Last)).over(&tags)?,
                time: registry
                    .metric(&format!("{name}.time"))
                    .item(item(kind, Word::When))
                    .units(Units::NANOSECONDS)
                    .over(&tags)?,
            };
            Ok::<_, mmv::Error>(Of { tags, families })
        };
        let batch = registry.batch();
        let transact = transact(&registry)?;
        let tags = registry.indom("point").register()?;
        let point = Of { families: count(&registry, Kind::Point, "point", &tags)?, tags };
        let (observe, counter) = (last(Kind::Observe, "observe")?, last(Kind::Counter, "counter")?);
        drop(batch);
        registry.try_start()?;
        Ok(Sums { registry, transact, point, observe, counter })
    }

    /// Adds a tag.
    ///
    /// # Errors
    /// Errors of [`mmv`]: the name with its escapes is too long, or the file has no room.
    pub(crate) fn add(&self, kind: Kind, number: u32, name: &str) -> Result<Entry, mmv::Error> {
        let name = &*instance_of(name);
        let entry = match kind {
            Kind::Transact => self.transact.add(number, name)?.transact(name),
            Kind::Point => self.point.add(number, name)?.get(name).map(Entry::Point),
            Kind::Observe => self.observe.add(number, name)?.last(name),
            Kind::Counter => self.counter.add(number, name)?.last(name),
        };
        entry.ok_or_else(|| mmv::Error::InUse { what: "instance", name: name.to_owned() })
    }

    /// Writes values to the file that are not in it yet, because the disk had no room.
    pub(crate) fn flush(&self) {
        self.registry.flush();
    }
}

impl<F> Of<F> {
    fn add(&self, number: u32, name: &str) -> Result<&F, mmv::Error> {
        self.tags.add_numbered(number, name)?;
        Ok(&self.families)
    }
}

impl TransactFamilies {
    fn transact(&self, name: &str) -> Option<Entry> {
        let [a, b, c, d] = &self.extremes[..] else { return None };
        let both = |[shortest, longest]: &[Family<Gauge<u64>>; 2]| Some([shortest.get(name)?, longest.get(name)?]);
        let extremes = [both(a)?, both(b)?, both(c)?, both(d)?];
        let (count, total) = (self.count.get(name)?, self.total.get(name)?);
        Some(Entry::Transact(Arc::new(Transact { count, total, extremes })))
    }
}

impl LastFamilies {
    fn last(&self, name: &str) -> Option<Entry> {
        let (count, value, time) = (self.count.get(name)?, self.value.get(name)?, self.time.get(name)?);
        Some(Entry::Last(Arc::new(Last { count, value, time })))
    }
}

const fn item(kind: Kind, word: Word) -> u16 {
    (kind as u16 - 1) * WORDS as u16 + word.number()
}

fn count(registry: &Registry, kind: Kind, name: &str, tags: &InstanceDomain) -> Result<Family<Counter>, mmv::Error> {
    registry.counter(&format!("{name}.count")).item(item(kind, Word::Count)).over(tags)
}

fn transact(registry: &Registry) -> Result<Of<TransactFamilies>, mmv::Error> {
    let tags = registry.indom("transact").register()?;
    let total = registry.counter("transact.total").item(item(Kind::Transact, Word::Total));
    let extreme = |name: &str, word: Word| {
        registry.metric(&format!("transact.{name}")).item(item(Kind::Transact, word)).over(&tags)
    };
    let extremes = (0..EPOCHS).map(|epoch| {
        Ok([
            extreme(&format!("shortest_{epoch}"), Word::Shortest(epoch))?,
            extreme(&format!("longest_{epoch}"), Word::Longest(epoch))?,
        ])
    });
    let families = TransactFamilies {
        count: count(registry, Kind::Transact, "transact", &tags)?,
        total: total.units(Units::NANOSECONDS).over(&tags)?,
        extremes: extremes.collect::<Result<_, mmv::Error>>()?,
    };
    Ok(Of { tags, families })
}

impl Entry {
    /// Adds a trace event. `value` is the duration of a transaction in nanoseconds, or the bits of a double.
    #[inline]
    pub(crate) fn add(&self, time: u64, value: u64) {
        match self {
            Entry::Point(count) => count.inc(),
            Entry::Transact(sums) => {
                sums.total.add(value);
                let [shortest, longest] = &sums.extremes[(time >> 30) as usize % EPOCHS];
                shortest.raise(Extreme::shortest(time, value));
                longest.raise(Extreme::longest(time, value));
                sums.count.inc();
            }
            Entry::Last(sums) => {
                sums.value.set(f64::from_bits(value));
                sums.time.set(time);
                sums.count.inc();
            }
        }
    }

    /// Returns the number of trace events.
    pub(crate) fn count(&self) -> u64 {
        match self {
            Entry::Point(count) => count.get(),
            Entry::Transact(sums) => sums.count.get(),
            Entry::Last(sums) => sums.count.get(),
        }
    }
}

/// Returns the name of a tag's instance: its text, with `\xHH` for each byte of a control character, of a space at the
/// start, and of a backslash that begins such a sequence. [`tag_of`] returns the tag.
fn instance_of(tag: &str) -> std::borrow::Cow<'_, str> {
    let is_fit = |at: usize, c: char| match c {
        '\\' => !is_sequence(&tag.as_bytes()[at..]),
        ' ' => at > 0,
        _ => !c.is_control(),
    };
    if tag.char_indices().all(|(at, c)| is_fit(at, c)) {
        return tag.into();
    }
    let mut name = String::new();
    for (at, c) in tag.char_indices() {
        if is_fit(at, c) {
            name.push(c);
        } else {
            tag.as_bytes()[at..at + c.len_utf8()].iter().for_each(|byte| name.push_str(&format!("\\x{byte:02x}")));
        }
    }
    name.into()
}

fn is_sequence(text: &[u8]) -> bool {
    matches!(text, [b'\\', b'x', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit())
}

/// Returns the tag with an instance name in the file of a process.
pub fn tag_of(mut instance: &[u8]) -> Vec<u8> {
    let mut tag = Vec::with_capacity(instance.len());
    while let [first, rest @ ..] = instance {
        let digits = instance.get(2..4).filter(|_| is_sequence(instance)).and_then(|hex| std::str::from_utf8(hex).ok());
        match digits.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                tag.push(byte);
                instance = instance.get(4..).unwrap_or_default();
            }
            None => {
                tag.push(*first);
                instance = rest;
            }
        }
    }
    tag
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tag_has_an_instance_name_of_its_own() {
        let tags =
            ["order", " order", "\\x20order", "\\x5cx20", "a\nb", "a\\x0ab", "größe", "\\", "\\x", "\\x4", "x\u{85}"];
        let names = tags.map(|tag| instance_of(tag).into_owned());
        for (tag, name) in tags.iter().zip(&names) {
            assert!(!name.starts_with(' ') && !name.chars().any(char::is_control), "{name}");
            assert_eq!(tag_of(name.as_bytes()), tag.as_bytes());
        }
        assert_eq!(names.iter().collect::<std::collections::BTreeSet<_>>().len(), tags.len());
    }

    #[test]
    fn items_are_those_of_words() {
        for (kind, word) in [
            (Kind::Transact, Word::Count),
            (Kind::Transact, Word::Longest(3)),
            (Kind::Point, Word::Count),
            (Kind::Counter, Word::When),
        ] {
            assert_eq!(Word::of_item(item(kind, word).into()), Some((kind, word)));
        }
        assert_eq!([12, 15, 64, u32::MAX].map(Word::of_item), [None; 4]);
    }

    #[test]
    fn extremes_grow_within_an_epoch_and_begin_anew() {
        let (first, next) = (5 << 30, 9 << 30);
        let times = [20, 10, 30].map(|ms| ms * 1_000_000);
        let shortest = times.iter().map(|ns| Extreme::shortest(first, *ns)).max().unwrap();
        let longest = times.iter().map(|ns| Extreme::longest(first, *ns)).max().unwrap();
        assert_eq!((Extreme(shortest).as_shortest(), Extreme(longest).as_longest()), (0.01, 0.03));
        assert!(Extreme::shortest(next, u64::MAX) > shortest && Extreme::longest(next, 0) > longest);
    }
}
