//! What is known of each tag: totals, and the last buckets of time.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use pmda::prelude::*;
use trace::light::Change;
use trace::protocol::{Data, Kind};
use tracing::warn;

/// As many names may come, of all kinds. A client that makes up more is not counted with those.
const MOST: usize = 1 << 20;

/// The tags of all kinds.
#[derive(Debug)]
pub(crate) struct Tags {
    kinds: [Tagged; 4],
    window: Window,
    names: usize,
    full: bool,
}

/// The tags of one kind: an instance domain.
#[derive(Debug, Default)]
pub(crate) struct Tagged {
    /// By the bytes that clients send.
    by_bytes: HashMap<Box<[u8]>, usize>,
    /// In the order of their numbers, which begin with 1.
    tags: Vec<Tag>,
    active: usize,
}

/// A tag with what has come since the start, or the last reset.
#[derive(Debug)]
pub(crate) struct Tag {
    name: Box<str>,
    /// Something has come.
    active: bool,
    pub(crate) count: u64,
    /// Of all values.
    pub(crate) total: f64,
    pub(crate) last: f64,
    /// When the last value was marked that a process has put into its file.
    when: u64,
    /// Those in which something has come, of those that are looked at and the one that is being filled.
    buckets: VecDeque<Bucket>,
}

/// What has come in a part of the period.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    number: u64,
    pub(crate) count: u64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) sum: f64,
}

/// The period over which rates are calculated, in equal parts. The parts have numbers, so that nothing
/// has to be done when one begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    start: Instant,
    pub(crate) period: Duration,
    pub(crate) buckets: u32,
    /// The bucket that is being filled.
    now: u64,
}

impl Window {
    pub(crate) fn new(period: Duration, buckets: u32) -> Window {
        Window { start: Instant::now(), period, buckets, now: 0 }
    }

    /// How long a bucket is.
    pub(crate) fn interval(&self) -> Duration {
        self.period / self.buckets
    }

    fn advance(&mut self, now: Instant) {
        self.now = self.number(now);
    }

    fn number(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.start).as_nanos();
        u64::try_from(since / self.interval().as_nanos().max(1)).unwrap_or(u64::MAX)
    }

    /// When the bucket is complete that is being filled.
    pub(crate) fn end_of_bucket(&self) -> Option<Instant> {
        let buckets = u32::try_from(self.now + 1).ok()?;
        self.start.checked_add(self.interval().checked_mul(buckets)?)
    }
}

impl Tags {
    pub(crate) fn new(window: Window) -> Tags {
        Tags { kinds: Default::default(), window, names: 0, full: false }
    }

    pub(crate) fn window(&self) -> &Window {
        &self.window
    }

    /// The time, for what is added and asked from now on.
    pub(crate) fn set_now(&mut self, now: Instant) {
        self.window.advance(now);
    }

    pub(crate) fn of(&self, kind: Kind) -> &Tagged {
        let [transact, point, observe, counter] = &self.kinds;
        match kind {
            Kind::Transact => transact,
            Kind::Point => point,
            Kind::Observe => observe,
            Kind::Counter => counter,
        }
    }

    fn of_mut(&mut self, kind: Kind) -> &mut Tagged {
        let [transact, point, observe, counter] = &mut self.kinds;
        match kind {
            Kind::Transact => transact,
            Kind::Point => point,
            Kind::Observe => observe,
            Kind::Counter => counter,
        }
    }

    /// Counts what a client has sent.
    pub(crate) fn add(&mut self, data: &Data<'_>) {
        let window = self.window;
        if let Some(tag) = self.tag(data.kind, data.tag) {
            tag.add(data.value, &window);
        }
    }

    /// Counts what a process has marked at about a time, or before the agent has started.
    pub(crate) fn change(&mut self, kind: Kind, tag: &[u8], change: &Change, when: Option<Instant>) {
        let window = self.window;
        if let Some(tag) = self.tag(kind, tag) {
            tag.change(change, when.map(|when| window.number(when)), &window);
        }
    }

    /// The tag of a name, which becomes active; nothing when there is no room for it.
    fn tag(&mut self, kind: Kind, name: &[u8]) -> Option<&mut Tag> {
        let room = self.names < MOST;
        let tagged = self.of_mut(kind);
        let (at, new) = match tagged.by_bytes.get(name) {
            Some(at) => (*at, false),
            None if room => (tagged.insert(name), true),
            None => {
                self.warn_full();
                return None;
            }
        };
        self.names += usize::from(new);
        let tagged = self.of_mut(kind);
        let tag = tagged.tags.get_mut(at)?;
        tagged.active += usize::from(!tag.active);
        tag.active = true;
        Some(tag)
    }

    fn warn_full(&mut self) {
        if !std::mem::replace(&mut self.full, true) {
            warn!("there are {MOST} tags: new ones are ignored");
        }
    }

    /// Forgets everything but the names' numbers, and begins a new period.
    pub(crate) fn reset(&mut self) {
        self.window.start = Instant::now();
        self.window.now = 0;
        self.full = false;
        for tagged in &mut self.kinds {
            tagged.active = 0;
            tagged.tags.iter_mut().for_each(Tag::clear);
        }
    }
}

impl Tagged {
    /// Where a new name is. Bytes that are no UTF-8 may stand for a name that is there.
    fn insert(&mut self, bytes: &[u8]) -> usize {
        let name = String::from_utf8_lossy(bytes);
        let at = self.by_bytes.get(name.as_bytes()).copied().unwrap_or_else(|| {
            self.tags.push(Tag::new(&name));
            self.tags.len() - 1
        });
        if name.as_bytes() != bytes {
            self.by_bytes.insert(name.as_bytes().into(), at);
        }
        self.by_bytes.insert(bytes.into(), at);
        at
    }

    /// The instances, in the order of their numbers.
    pub(crate) fn each(&self) -> impl Iterator<Item = (Inst, &Tag)> {
        (1..).map(Inst::new).zip(&self.tags).filter(|(_, tag)| tag.active)
    }
}

impl Instances for Tagged {
    fn len(&self) -> usize {
        self.active
    }

    fn each(&self, f: &mut dyn FnMut(Inst, &str)) {
        Tagged::each(self).for_each(|(inst, tag)| f(inst, &tag.name));
    }

    fn name(&self, inst: Inst) -> Option<&str> {
        let tag = self.tags.get((inst.word() as usize).checked_sub(1)?)?;
        tag.active.then_some(&*tag.name)
    }

    fn lookup(&self, name: &str) -> Option<Inst> {
        let whole = self.by_bytes.get(name.as_bytes()).filter(|at| self.tags.get(**at).is_some_and(|tag| tag.active));
        match whole {
            Some(at) => u32::try_from(at + 1).ok().and_then(Inst::from_word),
            None => Tagged::each(self).find(|(_, tag)| tag.name.split(' ').next() == Some(name)).map(|(inst, _)| inst),
        }
    }
}

impl Tag {
    fn new(name: &str) -> Tag {
        Tag { name: name.into(), active: false, count: 0, total: 0.0, last: 0.0, when: 0, buckets: VecDeque::new() }
    }

    fn clear(&mut self) {
        *self = Tag::new(&self.name);
    }

    fn add(&mut self, value: f64, window: &Window) {
        self.count += 1;
        self.total += value;
        self.last = value;
        self.put(Bucket { number: window.now, count: 1, min: value, max: value, sum: value }, window);
    }

    fn change(&mut self, change: &Change, number: Option<u64>, window: &Window) {
        let Change { count, total, times, last } = *change;
        self.count = self.count.saturating_add(count);
        self.total += total;
        if let Some((when, value)) = last.filter(|(when, _)| *when >= self.when) {
            (self.when, self.last) = (when, value);
        }
        if let Some(number) = number {
            let average = total / count as f64;
            let (min, max) = times.map_or((average, average), |(min, max)| (min.into(), max.into()));
            self.put(Bucket { number, count, min, max, sum: total }, window);
        }
    }

    /// Puts something into its bucket, or into the last one if that is later.
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

    /// What has come in the last complete buckets, if anything has.
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

    /// Whether it is looked at, or will be when it is complete.
    fn is_recent(&self, window: &Window) -> bool {
        self.number.saturating_add(window.buckets.into()) >= window.now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(kind: Kind, tag: &[u8], value: f64) -> Data<'_> {
        Data { kind, reply: false, value, tag }
    }

    fn names(tagged: &Tagged) -> Vec<(u32, String)> {
        let mut names = Vec::new();
        Instances::each(tagged, &mut |inst, name| names.push((inst.word(), name.to_owned())));
        assert_eq!(names.len(), tagged.len());
        names
    }

    /// A window of 5 buckets of a second, at this second.
    fn at(tags: &mut Tags, second: u64) {
        let start = tags.window.start;
        tags.set_now(start + Duration::from_secs(second));
    }

    #[test]
    fn the_last_complete_buckets_count() {
        let mut tags = Tags::new(Window::new(Duration::from_secs(5), 5));
        for (second, value) in [(0, 4.0), (0, 2.0), (2, 8.0), (9, 1.0)] {
            at(&mut tags, second);
            tags.add(&data(Kind::Transact, b"tag", value));
        }
        let mut seen = Vec::new();
        for second in [9, 10, 14, 15] {
            at(&mut tags, second);
            let tag = Tagged::each(tags.of(Kind::Transact)).next().unwrap().1;
            seen.push(tag.recent(&tags.window).map(|b| (b.count, b.min, b.max, b.sum)));
        }
        assert_eq!(seen, [None, Some((1, 1.0, 1.0, 1.0)), Some((1, 1.0, 1.0, 1.0)), None]);

        let mut tags = Tags::new(Window::new(Duration::from_secs(5), 5));
        let mut seen = Vec::new();
        for (second, value) in [(0, 4.0), (0, 2.0), (2, 8.0), (5, 0.5), (6, 0.5)] {
            at(&mut tags, second);
            tags.add(&data(Kind::Transact, b"tag", value));
            let tag = Tagged::each(tags.of(Kind::Transact)).next().unwrap().1;
            seen.push(tag.recent(&tags.window).map(|b| (b.count, b.min, b.max, b.sum)));
        }
        let all = Some((3, 2.0, 8.0, 14.0));
        assert_eq!(seen, [None, None, Some((2, 2.0, 4.0, 6.0)), all, Some((2, 0.5, 8.0, 8.5))]);
        let tag = Tagged::each(tags.of(Kind::Transact)).next().unwrap().1;
        assert_eq!((tag.count, tag.total, tag.last), (5, 15.0, 0.5));
        assert!(tag.buckets.len() <= 6);
    }

    #[test]
    fn numbers_outlive_a_reset() {
        let mut tags = Tags::new(Window::new(Duration::from_secs(60), 5));
        ["foo", "bar", "eek"].iter().for_each(|tag| tags.add(&data(Kind::Point, tag.as_bytes(), -1.0)));
        tags.add(&data(Kind::Observe, b"foo", 1.0));
        tags.reset();
        assert_eq!(names(tags.of(Kind::Point)), []);
        assert_eq!(tags.of(Kind::Point).lookup("foo"), None);
        ["eek", "new", "bar"].iter().for_each(|tag| tags.add(&data(Kind::Point, tag.as_bytes(), -1.0)));
        let point = tags.of(Kind::Point);
        assert_eq!(names(point), [(2, "bar".into()), (3, "eek".into()), (4, "new".into())]);
        assert_eq!((point.name(Inst::new(1)), point.name(Inst::new(4))), (None, Some("new")));
        assert_eq!((point.lookup("new"), point.lookup("foo")), (Some(Inst::new(4)), None));
        assert_eq!(Tagged::each(point).map(|(_, tag)| tag.count).collect::<Vec<_>>(), [1, 1, 1]);
    }

    #[test]
    fn names_are_found_by_their_first_word() {
        let mut tags = Tags::new(Window::new(Duration::from_secs(60), 5));
        for tag in ["third sleep", "third"] {
            tags.add(&data(Kind::Point, tag.as_bytes(), -1.0));
            assert_eq!(
                tags.of(Kind::Point).lookup("third").map(Inst::word),
                Some(names(tags.of(Kind::Point)).len() as u32)
            );
        }
    }

    #[test]
    fn bytes_that_are_no_text_have_a_name() {
        let mut tags = Tags::new(Window::new(Duration::from_secs(60), 5));
        for tag in [&b"a\xff"[..], b"a\xfe", "a\u{fffd}".as_bytes(), b"a\xff"] {
            tags.add(&data(Kind::Point, tag, -1.0));
        }
        assert_eq!(names(tags.of(Kind::Point)), [(1, "a\u{fffd}".into())]);
        assert_eq!(Tagged::each(tags.of(Kind::Point)).next().unwrap().1.count, 4);
    }
}
