//! Text in the columns of a terminal.

use std::collections::VecDeque;

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// Returns the number of columns that a text takes.
pub(super) fn width(text: &str) -> usize {
    text.width()
}

/// Cuts a text to at most `columns`. An ellipsis replaces what is cut off.
pub(super) fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let Some(room) = columns.checked_sub(1) else { return String::new() };
    let mut used = 0;
    let kept = text.chars().take_while(|c| {
        used += c.width().unwrap_or(0);
        used <= room
    });
    kept.chain(['…']).collect()
}

/// Cuts or pads a text to exactly `columns`, with the text at the left.
pub(super) fn left(text: &str, columns: usize) -> String {
    let mut text = cut(text, columns);
    let pad = columns.saturating_sub(width(&text));
    text.extend(std::iter::repeat_n(' ', pad));
    text
}

/// Cuts or pads a text to exactly `columns`, with the text at the right.
pub(super) fn right(text: &str, columns: usize) -> String {
    let text = cut(text, columns);
    let pad = columns.saturating_sub(width(&text));
    std::iter::repeat_n(' ', pad).chain(text.chars()).collect()
}

/// Draws the latest numbers as bars in exactly `columns`, with the last number at the right. The lowest bar is the
/// smallest number, or zero if `from_zero` is true. Equal numbers are a line in the middle.
pub(super) fn sparkline(course: &VecDeque<Option<f64>>, columns: usize, from_zero: bool) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let shown = course.range(course.len().saturating_sub(columns)..);
    let numbers = || shown.clone().flatten().copied().filter(|v| v.is_finite());
    let high = numbers().fold(f64::NEG_INFINITY, f64::max);
    let low = numbers().fold(f64::INFINITY, f64::min);
    let low = if from_zero { low.min(0.0) } else { low };
    let bar = |v: f64| {
        let level = match high - low {
            // Differences within rounding errors do not count.
            span if span <= 1e-9 * high.abs().max(low.abs()) => {
                if high == 0.0 {
                    0.0
                } else {
                    3.0
                }
            }
            span => (v - low) / span * 7.0,
        };
        BARS.get(level.round() as usize).copied().unwrap_or(' ')
    };
    let bars: String = shown.clone().map(|v| v.filter(|v| v.is_finite()).map_or(' ', bar)).collect();
    right(&bars, columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns() {
        assert_eq!(left("abc", 5), "abc  ");
        assert_eq!(right("abc", 5), "  abc");
        assert_eq!(left("abcdef", 4), "abc…");
        assert_eq!(right("数数数", 4), " 数…");
        assert_eq!(left("abc", 0), "");
    }

    #[test]
    fn courses() {
        let course = |v: &[f64]| v.iter().map(|v| Some(*v)).collect::<VecDeque<_>>();
        assert_eq!(sparkline(&course(&[0.0, 1.0, 2.0, 7.0]), 6, false), "  ▁▂▃█");
        assert_eq!(sparkline(&course(&[9.0, 10.0]), 2, true), "▇█");
        assert_eq!(sparkline(&course(&[9.0, 10.0]), 2, false), "▁█");
        assert_eq!(sparkline(&course(&[5.0, 5.0]), 3, false), " ▄▄");
        assert_eq!(sparkline(&course(&[0.0, 0.0]), 2, true), "▁▁");
        assert_eq!(sparkline(&[Some(1.0), None, Some(f64::NAN), Some(2.0)].into(), 3, false), "  ▄");
        assert_eq!(sparkline(&VecDeque::new(), 2, true), "  ");
    }
}
