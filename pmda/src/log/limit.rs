//! The limits of the log: lines of each place in the program about each source, and lines in total.

use std::collections::{BTreeMap, btree_map};
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::time::{Duration, Instant};

use tracing::Metadata;

/// Rate of lines of one place about one source.
const LINES: Rate = Rate { at_once: 20, every: Duration::from_secs(10) };
/// Rate of lines of all places without a source, and separately of those with a source, so that other users cannot
/// suppress the agent's own lines.
const ALL: Rate = Rate { at_once: 500, every: Duration::from_millis(500) };
/// Rate of pieces of debug output. It is limited because a client may have set the debug options.
const DEBUG: Rate = Rate { at_once: 256, every: Duration::from_millis(20) };
/// Bytes of one piece of debug output.
pub(super) const PIECE: usize = 1024;
/// Largest number of pairs of place and source with a separate count. All others share one. A place without a source
/// always has a separate count: there are few such places, and other users must not suppress the agent's own lines.
const ENTRIES: usize = 1024;
/// Time after which the number of lines left out is logged.
const REPORT: Duration = Duration::from_secs(30);

/// A rate: `at_once` at first, and then one more after each period `every`.
#[derive(Debug)]
struct Rate {
    at_once: u32,
    every: Duration,
}

/// The used part of a rate.
#[derive(Clone, Copy, Debug)]
struct Used {
    /// Time at which the rate will be unused again.
    until: Instant,
}

impl Used {
    fn nothing(now: Instant) -> Used {
        Used { until: now }
    }

    fn fits(&self, now: Instant, rate: &Rate) -> bool {
        self.until.saturating_duration_since(now) <= rate.every * (rate.at_once - 1)
    }

    fn take(&mut self, now: Instant, rate: &Rate, n: u32) {
        self.until = self.until.max(now) + rate.every * n;
    }
}

/// Lines of one place in the program about one source.
#[derive(Debug)]
struct Entry {
    used: Used,
    left_out: u64,
    place: &'static Metadata<'static>,
    source: Box<str>,
}

/// Decides which lines are written.
#[derive(Debug)]
pub(super) struct Limit {
    /// Entries by a hash of place and source. Not a `HashMap`: valgrind would report the memory of one in a static as
    /// lost.
    entries: BTreeMap<u64, Entry>,
    hasher: RandomState,
    /// The common rate of lines without an entry.
    others: Used,
    all: [Used; 2],
    debug: Used,
    left_out: u64,
    left_out_debug: u64,
    since: Instant,
}

/// The number of lines left out, as the log reports it.
#[derive(Debug)]
pub(super) struct Report {
    lines: u64,
    debug: u64,
    seconds: u64,
    most: Option<(u64, &'static Metadata<'static>, Box<str>)>,
}

impl Limit {
    pub(super) fn new(now: Instant) -> Limit {
        Limit {
            entries: BTreeMap::new(),
            hasher: RandomState::new(),
            others: Used::nothing(now),
            all: [Used::nothing(now); 2],
            debug: Used::nothing(now),
            left_out: 0,
            left_out_debug: 0,
            since: now,
        }
    }

    /// Returns whether a line about `source` may be written, and counts it.
    pub(super) fn admits(&mut self, now: Instant, place: &'static Metadata<'static>, source: &str) -> bool {
        let key = self.hasher.hash_one((place.callsite(), source));
        if self.entries.len() >= ENTRIES && !self.entries.contains_key(&key) {
            self.entries.retain(|_, entry| entry.left_out > 0 || entry.used.until > now);
        }
        let room = self.entries.len() < ENTRIES || source.is_empty();
        let mut entry = match self.entries.entry(key) {
            btree_map::Entry::Occupied(known) => Some(known.into_mut()),
            btree_map::Entry::Vacant(new) if room => {
                Some(new.insert(Entry { used: Used::nothing(now), left_out: 0, place, source: source.into() }))
            }
            btree_map::Entry::Vacant(_) => None,
        };
        let used = entry.as_mut().map_or(&mut self.others, |entry| &mut entry.used);
        let all = &mut self.all[usize::from(source.is_empty())];
        if used.fits(now, &LINES) && all.fits(now, &ALL) {
            used.take(now, &LINES, 1);
            all.take(now, &ALL, 1);
            return true;
        }
        if let Some(entry) = entry {
            entry.left_out += 1;
        }
        self.begin(now);
        self.left_out += 1;
        false
    }

    /// Returns whether a line of debug output may be written.
    pub(super) fn admits_debug(&mut self, now: Instant) -> bool {
        let fits = self.debug.fits(now, &DEBUG);
        if !fits {
            self.begin(now);
            self.left_out_debug += 1;
        }
        fits
    }

    /// Counts a line of debug output of this length.
    pub(super) fn take_debug(&mut self, now: Instant, bytes: usize) {
        self.debug.take(now, &DEBUG, u32::try_from(bytes / PIECE + 1).unwrap_or(u32::MAX));
    }

    fn begin(&mut self, now: Instant) {
        if self.left_out == 0 && self.left_out_debug == 0 {
            self.since = now;
        }
    }

    /// If a report is due, or `at_once` is true, returns the number of lines left out, and resets it.
    pub(super) fn report(&mut self, now: Instant, at_once: bool) -> Option<Report> {
        let due = at_once || now.saturating_duration_since(self.since) >= REPORT;
        if !due || (self.left_out == 0 && self.left_out_debug == 0) {
            return None;
        }
        let most = self.entries.values().max_by_key(|entry| entry.left_out).filter(|entry| entry.left_out > 0);
        let most = most.map(|entry| (entry.left_out, entry.place, entry.source.clone()));
        self.entries.values_mut().for_each(|entry| entry.left_out = 0);
        Some(Report {
            lines: std::mem::take(&mut self.left_out),
            debug: std::mem::take(&mut self.left_out_debug),
            seconds: now.saturating_duration_since(self.since).as_secs(),
            most,
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { lines, debug, seconds, .. } = self;
        write!(f, "too many log lines: left out {lines} and {debug} of debug output in {seconds} s")?;
        let Some((n, place, source)) = &self.most else { return Ok(()) };
        let file = place.file().unwrap_or(place.target());
        write!(f, ", most of them ({n}) by {file}:{}", place.line().unwrap_or_default())?;
        if source.is_empty() { Ok(()) } else { write!(f, " about {source}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the metadata of two callsites.
    fn places() -> [&'static Metadata<'static>; 2] {
        macro_rules! place {
            () => {{
                use tracing::Callsite as _;
                static CALLSITE: tracing::callsite::DefaultCallsite = tracing::callsite::DefaultCallsite::new({
                    static META: Metadata<'static> = tracing::metadata! {
                        name: "test",
                        target: "test",
                        level: tracing::Level::WARN,
                        fields: &[],
                        callsite: &CALLSITE,
                        kind: tracing::metadata::Kind::EVENT
                    };
                    &META
                });
                CALLSITE.metadata()
            }};
        }
        [place!(), place!()]
    }

    /// Returns how many of `n` lines are written.
    fn written(limit: &mut Limit, now: Instant, place: &'static Metadata<'static>, source: &str, n: u32) -> u32 {
        (0..n).map(|_| u32::from(limit.admits(now, place, source))).sum()
    }

    #[test]
    fn each_place_and_source_has_a_rate_of_its_own() {
        let [one, two] = places();
        let now = Instant::now();
        let mut limit = Limit::new(now);
        for (place, source) in [(one, "uid 7"), (one, "uid 8"), (two, "uid 7"), (one, "")] {
            assert_eq!(written(&mut limit, now, place, source, 1000), LINES.at_once);
        }
        let later = now + LINES.every * 2;
        assert_eq!(written(&mut limit, later, one, "uid 7", 1000), 2);
        // The full burst is available again only after the time for it.
        assert_eq!(written(&mut limit, later + LINES.every * 100, one, "uid 7", 1000), LINES.at_once);
    }

    #[test]
    fn sources_without_number_leave_room_for_the_agents_own_lines() {
        let [one, two] = places();
        let now = Instant::now();
        let mut limit = Limit::new(now);
        let sum: u32 = (0..10_000).map(|n| written(&mut limit, now, one, &format!("uid {n}"), 1)).sum();
        assert_eq!(sum, ALL.at_once);
        assert_eq!(limit.entries.len(), ENTRIES);
        assert_eq!(written(&mut limit, now, two, "", 5), 5);
        // The same holds in the long run.
        let mut sum = 0;
        for second in 1..=100 {
            let now = now + Duration::from_secs(second);
            sum += (0..1000).map(|n| written(&mut limit, now, one, &format!("uid {second}.{n}"), 1)).sum::<u32>();
        }
        assert!(sum <= 200, "{sum}");
        assert_eq!(limit.entries.len(), ENTRIES);
        // The sources without an entry have used up what they share.
        let now = now + Duration::from_secs(100);
        assert_eq!(written(&mut limit, now, one, "uid 0.0", 1000), 0);
        assert_eq!(written(&mut limit, now, one, "", 5), 5);
    }

    #[test]
    fn what_was_left_out_is_told_once() {
        let [one, two] = places();
        let now = Instant::now();
        let mut limit = Limit::new(now);
        assert!(limit.report(now + REPORT, true).is_none());
        written(&mut limit, now, one, "uid 7", 120);
        written(&mut limit, now, two, "uid 8", 30);
        while limit.admits_debug(now) {
            limit.take_debug(now, 3000);
        }
        assert!(limit.report(now + REPORT / 2, false).is_none());
        let report = limit.report(now + REPORT, false).unwrap().to_string();
        let line = one.line().unwrap();
        assert_eq!(
            report,
            format!(
                "too many log lines: left out 110 and 1 of debug output in 30 s, most of them (100) by {}:{line} about uid 7",
                file!()
            )
        );
        assert!(limit.report(now + REPORT * 9, true).is_none());
    }

    #[test]
    fn debug_output_is_limited_in_bytes() {
        let now = Instant::now();
        let bytes = |seconds: u64, len: usize| {
            let mut limit = Limit::new(now);
            let mut sum = 0;
            for ms in 0..=seconds * 1000 {
                let now = now + Duration::from_millis(ms);
                while limit.admits_debug(now) {
                    limit.take_debug(now, len);
                    sum += len;
                }
            }
            sum
        };
        assert!(bytes(10, 100) <= (256 + 500) * 1024 && bytes(10, 100_000) <= (256 + 500 + 100) * 1024);
        assert!(bytes(0, 1000) > 200_000);
    }
}
