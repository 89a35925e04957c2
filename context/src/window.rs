//! Time windows: what the options `-S`, `-T`, `-A` and `-O` of PCP's commands mean (PCPIntro(1)).

use pcp_pdu::event::Stamp;
use pmapi::spec::SpecError;

use crate::when::{self, Bounds};
use crate::zone::Zone;

/// Arguments of the options for a time window.
///
/// ```text
/// 30min    +30min     from the start of the archive or now    -1hour    before the end of the archive
/// @10:30   @ 16 Apr 10:30:00 2018   @2018-04-16T10:30:00Z     a time of the calendar
/// ```
/// What a time of the calendar leaves out on its left is that of the start, or of the next day or hour if it would be
/// before it. The words that pmParseTimeWindow(3) accepts beside these, as "yesterday", are not supported.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WindowOptions<'t> {
    /// Start (`-S`).
    pub start: Option<&'t str>,
    /// End (`-T`).
    pub end: Option<&'t str>,
    /// Interval that start and origin are multiples of (`-A`).
    pub align: Option<&'t str>,
    /// Time of the first sample (`-O`).
    pub origin: Option<&'t str>,
}

/// Time window.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TimeWindow {
    /// Start.
    pub start: Stamp,
    /// End; `None` for one that is open, of live values.
    pub end: Option<Stamp>,
    /// Time of the first sample.
    pub origin: Stamp,
    /// Why a time could not be aligned, which is then as it was.
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
    /// Computes the window within `start` and `end` of an archive, or from now on without an end (pmParseTimeWindow(3)).
    ///
    /// # Errors
    /// [`SpecError`] for a text that is no time or no interval, and for an interval of 0 to align with.
    pub fn parse(&self, start: Stamp, end: Option<Stamp>, zone: &Zone) -> Result<TimeWindow, SpecError> {
        let log = Bounds { start, end };
        let mut window = TimeWindow { start, end, origin: start, warning: None };
        if let Some(text) = self.start {
            window.start = when::parse(text, log, zone)?.max(start);
        }
        let align = self.align.map(|text| Ok((text, interval(text)?))).transpose()?;
        if let Some((text, delta)) = align {
            let aligned = stamp(up(nanoseconds(window.start), delta));
            match aligned >= start && aligned <= end.unwrap_or(NEVER) {
                true => window.start = aligned,
                false => window.warning = Some(not_aligned(text)),
            }
        }
        if let Some(text) = self.end {
            let bounds = Bounds { start: window.start, end };
            window.end = Some(when::parse(text, bounds, zone)?.min(end.unwrap_or(NEVER)));
        }
        window.origin = window.start;
        if let Some(text) = self.origin {
            let last = window.end.unwrap_or(NEVER);
            let origin = when::parse(text, Bounds { start: window.start, end: window.end }, zone)?;
            // A window whose end is before its start has the end as the origin.
            window.origin = if origin < window.start { window.start } else { origin.min(last) };
            if let (Some((text, delta)), Some(end)) = (align, window.end) {
                let mut at = up(nanoseconds(window.origin), delta);
                if at > nanoseconds(end) {
                    at -= delta;
                }
                match stamp(at) >= window.start && stamp(at) <= end {
                    true => window.origin = stamp(at),
                    false => window.warning = Some(not_aligned(text)),
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
