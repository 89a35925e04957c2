//! Time windows: the options `-S`, `-T`, `-A` and `-O` of PCP's commands (PCPIntro(1)).

use pcp_pdu::event::Stamp;
use pmapi::spec::SpecError;

use crate::when::{self, Bounds};
use pmapi::zone::Zone;

/// Arguments of the options for a time window.
///
/// ```text
/// 30min    +30min     from the start of the archive or now    -1hour    before the end of the archive
/// @10:30   @ 16 Apr 10:30:00 2018   @2018-04-16T10:30:00Z     a time of the calendar
/// ```
/// Fields that a calendar time leaves out on its left are those of the start. If the result would be before the start,
/// the next day or hour is used.
///
/// ```text
/// yesterday 5pm    monday    3 days ago    next month    16-Apr-2018 10:30 EST    4/16/2018
/// ```
///
/// Dates in words are those of libpcp. Words that count units, such as "3 days ago", are relative to the end of the
/// window if "last" or "ago" is among them, otherwise to its start. Other words, such as "yesterday", are relative to
/// the present. There are three differences from libpcp: the `T` in an ISO 8601 time is not a time zone, a day that the
/// month does not have is an error, and 2100 is not a leap year.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WindowOptions<'t> {
    /// Start of the window (`-S`).
    pub start: Option<&'t str>,
    /// End of the window (`-T`).
    pub end: Option<&'t str>,
    /// Interval to whose multiples start and origin are aligned (`-A`).
    pub align: Option<&'t str>,
    /// Time of the first sample (`-O`).
    pub origin: Option<&'t str>,
}

/// Result of [`WindowOptions::parse`]: the times between which values are requested.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TimeWindow {
    /// Start of the window.
    pub start: Stamp,
    /// End of the window, or `None` for live values without an end.
    pub end: Option<Stamp>,
    /// Time of the first sample.
    pub origin: Stamp,
    /// Reason why a time could not be aligned. The time is then unchanged.
    pub warning: Option<SpecError>,
}

const SECOND: i128 = 1_000_000_000;
/// Later than any time: the end of an open window.
const NEVER: Stamp = Stamp { seconds: i64::MAX, nanoseconds: 999_999_999 };

fn nanoseconds(time: Stamp) -> i128 {
    i128::from(time.seconds) * SECOND + i128::from(time.nanoseconds)
}

fn stamp(nanoseconds: i128) -> Stamp {
    let seconds = i64::try_from(nanoseconds.div_euclid(SECOND)).unwrap_or(i64::MAX);
    Stamp { seconds, nanoseconds: nanoseconds.rem_euclid(SECOND) as u32 }
}

impl WindowOptions<'_> {
    /// Computes the window within `start` and `end` of an archive, or from the present time on without an end
    /// (pmParseTimeWindow(3)).
    ///
    /// # Errors
    /// [`SpecError`] for an invalid time or interval, and for an alignment of 0.
    pub fn parse(&self, start: Stamp, end: Option<Stamp>, zone: &Zone) -> Result<TimeWindow, SpecError> {
        self.parse_at(Stamp::now(), start, end, zone)
    }

    /// Computes the window as [`WindowOptions::parse`] does, with `now` as the current time. Words such as "yesterday"
    /// count from it.
    ///
    /// # Errors
    /// Those of [`WindowOptions::parse`].
    pub fn parse_at(&self, now: Stamp, start: Stamp, end: Option<Stamp>, zone: &Zone) -> Result<TimeWindow, SpecError> {
        let log = Bounds { start, end, now };
        let mut window = TimeWindow { start, end, origin: start, warning: None };
        if let Some(text) = self.start {
            window.start = when::parse(text, log, zone)?.max(start);
        }
        let align = self.align.map(|text| Ok((text, interval(text)?))).transpose()?;
        if let Some((text, delta)) = align {
            let aligned = stamp(up(nanoseconds(window.start), delta));
            if aligned >= start && aligned <= end.unwrap_or(NEVER) {
                window.start = aligned
            } else {
                window.warning = Some(not_aligned(text))
            }
        }
        if let Some(text) = self.end {
            let bounds = Bounds { start: window.start, end, now };
            window.end = Some(when::parse(text, bounds, zone)?.min(end.unwrap_or(NEVER)));
        }
        window.origin = window.start;
        if let Some(text) = self.origin {
            let last = window.end.unwrap_or(NEVER);
            let origin = when::parse(text, Bounds { start: window.start, end: window.end, now }, zone)?;
            // If the window's end is before its start, the end becomes the origin.
            window.origin = if origin < window.start { window.start } else { origin.min(last) };
            if let (Some((text, delta)), Some(end)) = (align, window.end) {
                let mut at = up(nanoseconds(window.origin), delta);
                if at > nanoseconds(end) {
                    at -= delta;
                }
                if stamp(at) >= window.start && stamp(at) <= end {
                    window.origin = stamp(at)
                } else {
                    window.warning = Some(not_aligned(text))
                }
            }
        }
        Ok(window)
    }
}

/// Returns the multiple of an interval at or after a time.
fn up(time: i128, delta: i128) -> i128 {
    -((-time).div_euclid(delta) * delta)
}

fn interval(text: &str) -> Result<i128, SpecError> {
    match pmapi::interval::parse(text)?.as_nanos() {
        0 => Err(not_aligned(text)),
        interval => Ok(i128::try_from(interval).unwrap_or(i128::MAX / 4)),
    }
}

fn not_aligned(text: &str) -> SpecError {
    SpecError::new(text, 0, "no aligned time is within the window")
}
