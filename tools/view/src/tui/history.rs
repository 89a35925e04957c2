//! History of one value, as wide as the screen.

use pmapi::Desc;
use ratatui::Frame;
use ratatui::layout::Constraint::{Fill, Length};
use ratatui::layout::{Layout, Rect};
use ratatui::style::{Color, Style, Stylize as _};
use ratatui::text::Line;

use super::row::{Numbers, columns, course_of, desc_words, instance_name, line, sparkline};
use crate::model::{Metric, Series};
use crate::plain::{change, difference, round};

/// Draws the name, the value and the course of a value, with the smallest and the largest number.
pub(super) fn draw(metric: &Metric, desc: &Desc, series: &Series, numbers: Numbers, area: Rect, frame: &mut Frame<'_>) {
    let areas = Layout::vertical([Length(1), Length(1), Length(1), Length(1), Fill(1), Length(1)]).areas(area);
    let [name, about, value, _, chart, foot] = areas.map(inner);
    let instance = instance_name(series);
    let title = if instance.is_empty() { metric.name.clone() } else { format!("{}  {instance}", metric.name) };
    frame.render_widget(line(&title, Style::new().bold(), name), name);
    let words = desc_words(desc, area.width);
    let about_text = if metric.oneline.is_empty() { words } else { format!("{}  ({words})", metric.oneline) };
    frame.render_widget(line(&about_text, Style::new(), about), about);
    let difference = match numbers {
        Numbers::Rates => difference(desc, series),
        Numbers::Raw => change(series),
    };
    let now = format!("now {}  {}", series.value.text, difference.unwrap_or_default());
    frame.render_widget(line(&now, Style::new(), value), value);

    let (course, floor) = course_of(desc, series, numbers);
    let labels = Labels::new(course.iter().flatten().copied().filter(|v| v.is_finite()), floor);
    let width = labels.width().min(chart.width / 2);
    let [left, _, bars] = Layout::horizontal([Length(width), Length(1), Fill(1)]).areas(chart);
    let ends = [(&labels.high, 0), (&labels.low, chart.height.saturating_sub(1))];
    for (label, below) in ends.into_iter().filter(|_| chart.height > 1) {
        let at = Rect { y: left.y + below, height: 1, ..left };
        frame.render_widget(line(label, Style::new().dim(), at).right_aligned(), at);
    }
    frame.render_widget(sparkline(course, bars, floor).fg(Color::LightBlue), bars);
    let samples = course.len().min(bars.width.into());
    let text = format!("{} · the last {samples} samples", labels.summary());
    frame.render_widget(line(&text, Style::new().dim(), foot), foot);
}

/// Draws a message that there is no history.
pub(super) fn draw_nothing(area: Rect, frame: &mut Frame<'_>) {
    let area = inner(area);
    frame.render_widget(Line::raw("The value has no history: it is gone, or no number."), area);
}

/// Leaves a column free on both sides.
fn inner(area: Rect) -> Rect {
    let [_, area, _] = Layout::horizontal([Length(1), Fill(1), Length(1)]).areas(area);
    area
}

/// Numbers beside the graph of a value.
struct Labels {
    low: String,
    high: String,
    least: String,
    mean: String,
}

impl Labels {
    fn new(numbers: impl Iterator<Item = f64>, floor: f64) -> Labels {
        let (mut n, mut sum, mut low, mut high) = (0_u32, 0.0, f64::INFINITY, f64::NEG_INFINITY);
        for v in numbers {
            (n, sum, low, high) = (n + 1, sum + v, v.min(low), v.max(high));
        }
        let text = |v: f64| if n == 0 { String::new() } else { round(v) };
        Labels { low: text(low.min(floor)), high: text(high), least: text(low), mean: text(sum / f64::from(n.max(1))) }
    }

    fn width(&self) -> u16 {
        columns(&self.low).max(columns(&self.high))
    }

    fn summary(&self) -> String {
        if self.mean.is_empty() {
            return "no numbers yet".to_owned();
        }
        format!("least {} · mean {} · most {}", self.least, self.mean, self.high)
    }
}
