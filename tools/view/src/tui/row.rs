//! Lines of the list.

use std::borrow::Cow;
use std::collections::VecDeque;

use pmapi::cnum::general;
use pmapi::{Desc, Semantics};
use ratatui::buffer::Buffer;
use ratatui::layout::Constraint::{Fill, Length};
use ratatui::layout::{Layout, Rect};
use ratatui::style::{Color, Style, Stylize as _};
use ratatui::text::Line;
use ratatui::widgets::{Block, Borders, RenderDirection, Sparkline, Widget};
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use super::arrange::Place;
use crate::fleet::{Agent, Status};
use crate::model::{Change, Kind, Metric, Series, Shown, Value};
use crate::plain::{self, difference};

/// Whether rates of counters are shown, or their values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Numbers {
    Rates,
    Raw,
}

/// Line of the list, with the data that it shows.
#[derive(Debug)]
pub(super) enum Row<'a> {
    Agent(&'a Agent),
    Metric(&'a Metric),
    /// Metric in one line.
    Folded(&'a Shown),
    Value(&'a Desc, &'a Series),
    /// Reason why an agent or a metric has no values.
    NoValue(Cow<'a, str>, Color),
}

impl<'a> Row<'a> {
    /// Returns the line at a place, unless the list has changed meanwhile.
    pub(super) fn at(place: Place, agents: &'a [Agent]) -> Option<Row<'a>> {
        let (agent, metric, value) = place.numbers();
        let agent = agents.get(agent)?;
        let shown = metric.and_then(|metric| agent.board.metrics.get(metric));
        Some(match place {
            Place::Agent(_) => Row::Agent(agent),
            Place::NoMetrics(_) => Row::NoValue(agent.problem()?.into(), Color::Red),
            Place::Metric(..) => Row::Metric(&shown?.metric),
            Place::Folded(..) => Row::Folded(shown?),
            Place::NoValues(..) => Row::NoValue(no_values(shown?), Color::Yellow),
            Place::Value(..) => {
                let Shown { metric, values, .. } = shown?;
                Row::Value(metric.desc.as_ref().ok()?, values.as_ref().ok()?.get(value?)?)
            }
        })
    }

    pub(super) fn draw(&self, numbers: Numbers, area: Rect, buf: &mut Buffer) {
        match self {
            Row::Agent(agent) => heading(agent).render(area, buf),
            Row::Metric(metric) => draw_metric(metric, area, buf),
            Row::Folded(shown) => draw_folded(shown, numbers, area, buf),
            Row::Value(desc, series) => draw_value(desc, series, numbers, area, buf),
            Row::NoValue(reason, color) => {
                let [_, area, _] = Layout::horizontal([Length(3), Fill(1), Length(1)]).areas(area);
                line(reason, Style::new().fg(*color), area).render(area, buf);
            }
        }
    }
}

/// Returns the reason why a metric has no values.
fn no_values(shown: &Shown) -> Cow<'static, str> {
    match (&shown.metric.desc, &shown.values) {
        (Err(code), _) | (_, Err(code)) => shown.text_of(*code).into(),
        _ => "no values".into(),
    }
}

/// Returns a line that fits into an area. An ellipsis replaces the truncated part.
pub(super) fn line(text: &str, style: Style, area: Rect) -> Line<'static> {
    Line::styled(cut(text, area.width.into()), style)
}

fn cut(text: &str, columns: usize) -> String {
    if text.width() <= columns {
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

/// Returns the number of columns of a text in a layout.
pub(super) fn columns(text: &str) -> u16 {
    text.width().try_into().unwrap_or(u16::MAX)
}

fn heading(agent: &Agent) -> Block<'_> {
    let metrics = agent.board.metrics.len();
    let (mark, color, state) = match &agent.status {
        Status::Running => {
            ("●", Color::Green, format!("{metrics} {}", if metrics == 1 { "metric" } else { "metrics" }))
        }
        Status::Starting => ("○", Color::Yellow, "starting".to_owned()),
        Status::NotReady => ("○", Color::Yellow, "not ready".to_owned()),
        Status::NoPmcd(_) => ("✖", Color::Red, "no connection".to_owned()),
        Status::Failed(_) => ("✖", Color::Red, "ended".to_owned()),
    };
    let domain = agent.domain.map(|domain| format!("domain {domain} · ")).unwrap_or_default();
    let pid = agent.pid().map(|pid| format!("pid {pid} · ")).unwrap_or_default();
    Block::new()
        .borders(Borders::TOP)
        .border_style(Style::new().fg(color).dim())
        .title_style(Style::new().not_dim())
        .title(Line::raw(format!(" {mark} {} ", agent.name)).bold())
        .title(Line::raw(format!(" {domain}{pid}{state} ")).right_aligned())
}

fn draw_metric(metric: &Metric, area: Rect, buf: &mut Buffer) {
    let desc = metric.desc.as_ref().map(|desc| desc_words(desc, area.width)).unwrap_or_default();
    // With too few columns, the name stays.
    let name = columns(&metric.name).min(area.width.saturating_sub(2));
    let words = columns(&desc).min(area.width.saturating_sub(name + 3));
    let widths = [Length(1), Length(name), Length(2), Fill(1), Length(2), Length(words), Length(1)];
    let [_, name, _, help, _, words, _] = Layout::horizontal(widths).areas(area);
    line(&metric.name, Style::new().bold(), name).render(name, buf);
    line(&metric.oneline, Style::new().italic(), help).render(help, buf);
    line(&desc, Style::new().fg(Color::Cyan), words).render(words, buf);
}

/// Draws a metric in one line: with its only value, or with the number of its instances.
fn draw_folded(shown: &Shown, numbers: Numbers, area: Rect, buf: &mut Buffer) {
    let name = area.width / 2;
    let [_, name, rest] = Layout::horizontal([Length(1), Length(name), Fill(1)]).areas(area);
    line(&shown.metric.name, Style::new().bold(), name).render(name, buf);
    match (&shown.metric.desc, &shown.values) {
        (Ok(desc), Ok(values)) if desc.indom.is_none() && values.len() == 1 => {
            draw_numbers(desc, &values[0], numbers, rest, buf);
        }
        (Ok(_), Ok(values)) if !values.is_empty() => {
            let text = format!("  {} {}", values.len(), if values.len() == 1 { "instance" } else { "instances" });
            line(&text, Style::new().dim(), rest).render(rest, buf);
        }
        _ => line(&format!("  {}", no_values(shown)), Style::new().fg(Color::Yellow), rest).render(rest, buf),
    }
}

/// Formats type, semantics and units. The type has a short name if there are few columns.
pub(super) fn desc_words(desc: &Desc, columns: u16) -> String {
    let ty = match desc.ty {
        ty if columns >= 100 => ty.description().to_owned(),
        ty => ty.word().to_lowercase(),
    };
    let units = desc.units.to_string();
    let units = if units.is_empty() { "none" } else { &units };
    format!("{ty} · {} · {units}", desc.semantics)
}

fn draw_value(desc: &Desc, series: &Series, numbers: Numbers, area: Rect, buf: &mut Buffer) {
    let instance = match area.width {
        ..60 => 8,
        60..100 => 12,
        _ => 24,
    };
    let [_, instance, rest] = Layout::horizontal([Length(3), Length(instance), Fill(1)]).areas(area);
    line(&instance_name(series), Style::new(), instance).render(instance, buf);
    draw_numbers(desc, series, numbers, rest, buf);
}

/// Returns the name of an instance, or its number if it has none.
pub(super) fn instance_name(series: &Series) -> Cow<'_, str> {
    match (series.inst, &*series.instance) {
        (Some(inst), "") => format!("inst {inst}").into(),
        (_, name) => name.into(),
    }
}

/// Draws a value, its rate or change, and its course.
fn draw_numbers(desc: &Desc, series: &Series, numbers: Numbers, area: Rect, buf: &mut Buffer) {
    let [value, change] = match area.width {
        ..49 => [12, 10],
        49..74 => [20, 15],
        _ => [22, 20],
    };
    let widths = [1, 1, 1, value, 2, change, 2].map(Length).into_iter().chain([Fill(1), Length(1)]);
    let [_, mark, _, value, _, change, _, course, _] = Layout::horizontal(widths).areas(area);
    let (sign, color) = match series.change {
        Some(Change::Up) => ("▲", Color::Green),
        Some(Change::Down) => ("▼", Color::Red),
        Some(Change::Other) => ("●", Color::Yellow),
        None => (" ", Color::Reset),
    };
    let style = if series.change.is_some() { Style::new().fg(color).bold() } else { Style::new() };
    line(sign, Style::new().fg(color), mark).render(mark, buf);
    if matches!(series.value.kind, Kind::Text(_) | Kind::Event(_) | Kind::Opaque) {
        let rest = value.union(course);
        return line(&series.value.text, style, rest).render(rest, buf);
    }
    let difference = match numbers {
        Numbers::Rates => difference(desc, series),
        Numbers::Raw => plain::change(series),
    };
    line(&short(&series.value), style, value).right_aligned().render(value, buf);
    line(&difference.unwrap_or_default(), Style::new().dim(), change).right_aligned().render(change, buf);
    let (numbers, floor) = course_of(desc, series, numbers);
    sparkline(numbers, course, floor).fg(Color::LightBlue).render(course, buf);
}

/// Returns the text of a value. A floating point number has six significant digits, as with `%g`, or all digits of its
/// integer part. The page of its history has all.
fn short(value: &Value) -> Cow<'_, str> {
    let Kind::Float(number) = value.kind else { return Cow::Borrowed(&value.text) };
    let integer = if number.abs() < 1e15 { number.abs().ceil().max(1.0).log10().floor() as usize + 1 } else { 0 };
    general(number, integer.max(6)).into()
}

/// Returns the numbers of a course, and an upper limit for its lowest bar. The bars of rates begin at zero.
pub(super) fn course_of<'s>(desc: &Desc, series: &'s Series, numbers: Numbers) -> (&'s VecDeque<Option<f64>>, f64) {
    match (desc.semantics, numbers) {
        (Semantics::Counter, Numbers::Rates) => (&series.course, 0.0),
        (_, Numbers::Raw) => (series.values(), f64::INFINITY),
        _ => (&series.course, f64::INFINITY),
    }
}

/// Draws the latest numbers, with the last one at the right. The lowest bar is the smallest number, or `floor` if that
/// is less. Equal numbers are a line in the middle.
pub(super) fn sparkline(course: &VecDeque<Option<f64>>, area: Rect, floor: f64) -> Sparkline<'static> {
    let shown = || course.iter().rev().take(area.width.into()).map(|v| v.filter(|v| v.is_finite()));
    let highest = u64::from(area.height.max(1)) * 8;
    let high = shown().flatten().fold(f64::NEG_INFINITY, f64::max);
    let low = shown().flatten().fold(floor, f64::min);
    let span = high - low;
    // Differences within rounding errors do not count.
    let is_flat = span <= 1e-9 * high.abs().max(low.abs());
    let bars = shown().map(|v| {
        v.map(|v| match is_flat {
            true if high == 0.0 => 1,
            true => highest / 2,
            false => 1 + ((v - low) / span * (highest - 1) as f64).round() as u64,
        })
    });
    Sparkline::default().data(bars).max(highest).direction(RenderDirection::RightToLeft)
}

#[cfg(test)]
mod tests {
    use pcp_pdu::result::RawValue;
    use pmapi::Type;

    use super::*;

    #[test]
    fn texts_are_cut() {
        assert_eq!(cut("abc", 5), "abc");
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(cut("数数数", 4), "数…");
        assert_eq!(cut("abc", 0), "");
    }

    #[test]
    fn floats_have_few_digits() {
        let drawn = |number: f64| {
            let bytes = number.to_be_bytes();
            short(&Value::new(RawValue::Block(5, &bytes), Type::Double)).into_owned()
        };
        for (number, text) in [
            (6.878306878306878, "6.87831"),
            (0.1, "0.1"),
            (3.0, "3"),
            (-0.000012345678, "-1.23457e-05"),
            (1234567.891, "1234568"),
            (123456789012.5, "123456789012"),
            (999999.5, "999999.5"),
            (1.5e300, "1.5e+300"),
            (f64::NAN, "nan"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(drawn(number), text);
        }
    }

    #[test]
    fn courses() {
        let drawn = |course: &[Option<f64>], columns, floor| {
            let area = Rect::new(0, 0, columns, 1);
            let mut buf = Buffer::empty(area);
            sparkline(&course.iter().copied().collect(), area, floor).render(area, &mut buf);
            (0..columns).map(|x| buf[(x, 0)].symbol()).collect::<String>()
        };
        assert_eq!(drawn(&[0.0, 1.0, 2.0, 7.0].map(Some), 6, f64::INFINITY), "  ▁▂▃█");
        assert_eq!(drawn(&[9.0, 10.0].map(Some), 2, 0.0), "▇█");
        assert_eq!(drawn(&[9.0, 10.0].map(Some), 2, f64::INFINITY), "▁█");
        assert_eq!(drawn(&[5.0, 5.0].map(Some), 3, f64::INFINITY), " ▄▄");
        assert_eq!(drawn(&[0.0, 0.0].map(Some), 2, 0.0), "▁▁");
        assert_eq!(drawn(&[Some(1.0), None, Some(f64::NAN), Some(2.0)], 3, f64::INFINITY), "  ▄");
        assert_eq!(drawn(&[], 2, 0.0), "  ");
    }
}
