//! The limits of the log: lines of each call site in the program, and debug output.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use tracing::Metadata;

/// Rate of lines of one call site. The program has a fixed number of call sites, so the log has a limited rate.
const LINES: Rate = Rate { at_once: 20, every: Duration::from_secs(10) };
/// Rate of pieces of debug output. It is limited because a client may have set the debug options.
const DEBUG: Rate = Rate { at_once: 256, every: Duration::from_millis(20) };
/// Bytes of one piece of debug output.
pub(super) const PIECE: usize = 1024;
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

/// Lines of one call site.
#[derive(Debug)]
struct Entry {
    used: Used,
    left_out: u64,
    place: &'static Metadata<'static>,
    /// Source of the last line that was left out.
    source: String,
}

/// Decides which lines are written.
#[derive(Debug)]
pub(super) struct Limit {
    /// Entries by the address of the call site. Not a `HashMap`: valgrind would report the memory of one in a static as
    /// lost.
    entries: BTreeMap<usize, Entry>,
    debug: Used,
    left_out_debug: u64,
    /// Time of the first line that was left out since the last report.
    since: Option<Instant>,
}

/// The number of lines left out, as the log reports it.
#[derive(Debug)]
pub(super) struct Report {
    lines: u64,
    debug: u64,
    seconds: u64,
    most: Option<(u64, &'static Metadata<'static>, String)>,
}

impl Limit {
    pub(super) fn new(now: Instant) -> Limit {
        Limit { entries: BTreeMap::new(), debug: Used::nothing(now), left_out_debug: 0, since: None }
    }

    /// Returns whether a line of a call site may be written, and counts it.
    pub(super) fn admits(&mut self, now: Instant, place: &'static Metadata<'static>, source: &str) -> bool {
        let entry = self.entries.entry(std::ptr::from_ref(place).addr()).or_insert_with(|| Entry {
            used: Used::nothing(now),
            left_out: 0,
            place,
            source: String::new(),
        });
        let admitted = entry.used.fits(now, &LINES);
        if admitted {
            entry.used.take(now, &LINES, 1);
        } else {
            entry.left_out += 1;
            source.clone_into(&mut entry.source);
            self.since.get_or_insert(now);
        }
        admitted
    }

    /// Returns whether a line of debug output may be written.
    pub(super) fn admits_debug(&mut self, now: Instant) -> bool {
        let fits = self.debug.fits(now, &DEBUG);
        if !fits {
            self.left_out_debug += 1;
            self.since.get_or_insert(now);
        }
        fits
    }

    /// Counts a line of debug output of this length.
    pub(super) fn take_debug(&mut self, now: Instant, bytes: usize) {
        self.debug.take(now, &DEBUG, u32::try_from(bytes / PIECE + 1).unwrap_or(u32::MAX));
    }

    /// If a report is due, or `at_once` is true, returns the number of lines left out, and resets it.
    pub(super) fn report(&mut self, now: Instant, at_once: bool) -> Option<Report> {
        let passed = now.saturating_duration_since(self.since?);
        if !at_once && passed < REPORT {
            return None;
        }
        self.since = None;
        let mut report =
            Report { lines: 0, debug: std::mem::take(&mut self.left_out_debug), seconds: passed.as_secs(), most: None };
        for entry in self.entries.values_mut() {
            let (n, source) = (std::mem::take(&mut entry.left_out), std::mem::take(&mut entry.source));
            report.lines += n;
            if n > report.most.as_ref().map_or(0, |(most, ..)| *most) {
                report.most = Some((n, entry.place, source));
            }
        }
        Some(report)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { lines, debug, seconds, .. } = self;
        f.write_str("too many log lines: left out ")?;
        match (lines, debug) {
            (_, 0) => write!(f, "{}", counted(*lines, "line"))?,
            (0, _) => write!(f, "{} of debug output", counted(*debug, "piece"))?,
            _ => write!(f, "{} and {} of debug output", counted(*lines, "line"), counted(*debug, "piece"))?,
        }
        write!(f, " in {}", counted((*seconds).max(1), "second"))?;
        let Some((n, place, source)) = &self.most else { return Ok(()) };
        let most = if n == lines { "all".to_owned() } else { format!("{n} of the lines") };
        write!(f, "; {most} from {}:{}", place.file().unwrap_or(place.target()), place.line().unwrap_or_default())?;
        if source.is_empty() { Ok(()) } else { write!(f, ", the last about {source}") }
    }
}

/// Returns a number with its noun.
fn counted(n: u64, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the metadata of two call sites.
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
    fn each_call_site_has_a_rate_of_its_own_whatever_the_sources() {
        let [one, two] = places();
        let now = Instant::now();
        let mut limit = Limit::new(now);
        let sum: u32 = (0..1000).map(|n| written(&mut limit, now, one, &format!("uid {n}"), 1)).sum();
        assert_eq!((sum, written(&mut limit, now, two, "", 1000)), (LINES.at_once, LINES.at_once));
        let later = now + LINES.every * 2;
        assert_eq!(written(&mut limit, later, one, "uid 7", 1000), 2);
        // The full burst is available again only after the time for it.
        assert_eq!(written(&mut limit, later + LINES.every * 100, one, "uid 7", 1000), LINES.at_once);
        assert_eq!(limit.entries.len(), 2);
    }

    #[test]
    fn what_was_left_out_is_told_once_without_what_is_zero() {
        let [one, two] = places();
        let now = Instant::now();
        let mut limit = Limit::new(now);
        assert!(limit.report(now + REPORT, true).is_none());
        written(&mut limit, now, one, "uid 7", 120);
        written(&mut limit, now, two, "uid 8", 30);
        let debug = |limit: &mut Limit, now| {
            while limit.admits_debug(now) {
                limit.take_debug(now, 3000);
            }
        };
        debug(&mut limit, now);
        assert!(limit.report(now + REPORT / 2, false).is_none());
        let report = |limit: &mut Limit, now| limit.report(now, true).unwrap().to_string();
        let from = |place: &Metadata<'_>| format!("{}:{}", file!(), place.line().unwrap());
        assert_eq!(
            report(&mut limit, now + REPORT),
            format!(
                "too many log lines: left out 110 lines and 1 piece of debug output in 30 seconds; 100 of the lines \
                 from {}, the last about uid 7",
                from(one)
            )
        );
        assert!(limit.report(now + REPORT * 9, true).is_none());
        let later = now + REPORT * 100;
        written(&mut limit, later, two, "", LINES.at_once + 1);
        let expected = format!("too many log lines: left out 1 line in 1 second; all from {}", from(two));
        assert_eq!(report(&mut limit, later + Duration::from_secs(1)), expected);
        debug(&mut limit, later);
        assert!(!limit.admits_debug(later));
        let expected = "too many log lines: left out 2 pieces of debug output in 1 second";
        assert_eq!(report(&mut limit, later), expected);
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
