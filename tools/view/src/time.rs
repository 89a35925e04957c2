//! Arithmetic on the times of samples.

use std::time::Duration;

use pcp_pdu::event::Stamp;
use pmapi::zone::Zone;

/// Returns the date and the time in the zone of this process: `2026-11-28` and `15:04:05`.
pub(crate) fn local(time: Stamp) -> (String, String) {
    let local = Zone::system().local(time.seconds);
    (format!("{}-{:02}-{:02}", local.year, local.month, local.day), local.clock())
}

/// Returns the time after a while.
pub(crate) fn plus(time: Stamp, by: Duration) -> Stamp {
    let nanoseconds = time.nanoseconds.saturating_add(by.subsec_nanos());
    let carry = nanoseconds / 1_000_000_000;
    let seconds = i64::try_from(by.as_secs()).unwrap_or(i64::MAX).saturating_add(carry.into());
    Stamp { seconds: time.seconds.saturating_add(seconds), nanoseconds: nanoseconds % 1_000_000_000 }
}

/// Returns the time a while before.
pub(crate) fn minus(time: Stamp, by: Duration) -> Stamp {
    let seconds = i64::try_from(by.as_secs()).unwrap_or(i64::MAX);
    let (seconds, nanoseconds) = match time.nanoseconds.checked_sub(by.subsec_nanos()) {
        Some(nanoseconds) => (time.seconds.saturating_sub(seconds), nanoseconds),
        None => (
            time.seconds.saturating_sub(seconds).saturating_sub(1),
            time.nanoseconds + 1_000_000_000 - by.subsec_nanos(),
        ),
    };
    Stamp { seconds, nanoseconds }
}

/// Returns the time from one stamp to a later one, at most a thousand years.
pub(crate) fn between(from: Stamp, to: Stamp) -> Duration {
    const MOST: i128 = 1000 * 366 * 86400;
    let nanoseconds = |time: Stamp| i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanoseconds);
    let nanoseconds = (nanoseconds(to) - nanoseconds(from)).clamp(0, MOST * 1_000_000_000);
    Duration::new((nanoseconds / 1_000_000_000) as u64, (nanoseconds % 1_000_000_000) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        let (early, late) = (Stamp { seconds: 5, nanoseconds: 1 }, Stamp { seconds: 7, nanoseconds: 0 });
        assert_eq!(between(early, late), Duration::new(1, 999_999_999));
        assert_eq!((plus(early, between(early, late)), minus(late, between(early, late))), (late, early));
        assert_eq!(between(late, early), Duration::ZERO);
    }
}
