//! Layout of the screen.

use std::time::Duration;

use chrono::Local;
use pmapi::{Desc, Semantics, Type};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style, Stylize as _};
use ratatui::text::{Line, Span};

use super::Action;
use super::text::{cut, left, right, sparkline, width};
use crate::fleet::{Agent, Status};
use crate::model::{Change, Kind, Series, Shown};
use crate::plain::difference;

/// State of the screen.
#[derive(Debug)]
pub(super) struct View {
    pub(super) sample: u64,
    pub(super) paused: bool,
    interval: Duration,
    /// First line of the body that is shown.
    top: usize,
    /// Number of body lines that were shown last.
    page: usize,
}

/// Widths of the columns in a line with a value.
#[derive(Clone, Copy, Debug)]
struct Columns {
    instance: usize,
    value: usize,
    difference: usize,
    course: usize,
}

impl Columns {
    const INDENT: usize = 3;

    fn new(columns: usize) -> Columns {
        let (instance, value, difference) = match columns {
            ..60 => (8, 12, 10),
            60..100 => (12, 20, 15),
            _ => (24, 22, 20),
        };
        let used = Self::INDENT + instance + 3 + value + 2 + difference + 2 + 1;
        Columns { instance, value, difference, course: columns.saturating_sub(used) }
    }
}

/// Line of the body.
#[derive(Debug)]
struct Row {
    line: Line<'static>,
    /// Whether the line is a heading of the lines below it.
    is_heading: bool,
}

impl Row {
    fn heading(line: Line<'static>) -> Row {
        Row { line, is_heading: true }
    }

    fn below(line: Line<'static>) -> Row {
        Row { line, is_heading: false }
    }
}

impl View {
    pub(super) fn new(interval: Duration) -> View {
        View { sample: 0, paused: false, interval, top: 0, page: 0 }
    }

    pub(super) fn act(&mut self, action: Action) {
        let page = i32::try_from(self.page.saturating_sub(1)).unwrap_or(i32::MAX);
        match action {
            Action::Quit => {}
            Action::Pause => self.paused = !self.paused,
            Action::Scroll(lines) => self.scroll(lines),
            Action::Page(pages) => self.scroll(pages.saturating_mul(page)),
            Action::Top => self.top = 0,
            // `draw` limits this to the last page.
            Action::Bottom => self.top = usize::MAX,
        }
    }

    fn scroll(&mut self, lines: i32) {
        self.top = self.top.saturating_add_signed(lines as isize);
    }

    pub(super) fn draw(&mut self, frame: &mut Frame<'_>, agents: &[Agent]) {
        let areas = Layout::vertical([Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)]);
        let [head, body, foot] = areas.areas(frame.area());
        let columns = usize::from(body.width);
        let rows: Vec<Row> = agents.iter().flat_map(|agent| agent_rows(agent, columns)).collect();
        self.page = body.height.into();
        self.top = self.top.min(rows.len().saturating_sub(self.page));
        let end = rows.len().min(self.top + self.page);
        let hidden = match rows.len() > self.page {
            true => format!("{}–{end} of {} ", self.top + 1, rows.len()),
            false => String::new(),
        };

        frame.render_widget(self.head(columns), head);
        // The heading of the first value stays visible.
        let heading = rows.iter().take(self.top + 1).rposition(|row| row.is_heading);
        let shown = heading.and_then(|at| rows.get(at)).into_iter().chain(rows.iter().skip(self.top + 1));
        for (row, area) in shown.zip(body.rows()) {
            frame.render_widget(&row.line, area);
        }
        frame.render_widget(foot_line(&hidden, columns), foot);
    }

    fn head(&self, columns: usize) -> Line<'static> {
        let state = match self.paused {
            true => "paused".to_owned(),
            false => format!("every {:?}", self.interval),
        };
        let right = format!("{state} · sample {} · {} ", self.sample, Local::now().format("%H:%M:%S"));
        bar(" PCP agents", &right, columns)
    }
}

fn foot_line(hidden: &str, columns: usize) -> Line<'static> {
    bar(" q quit · space pause · ↑ ↓ PgUp PgDn scroll", hidden, columns)
}

/// Returns a line in reverse video.
fn bar(at_left: &str, at_right: &str, columns: usize) -> Line<'static> {
    let room = columns.saturating_sub(width(at_right));
    let text = left(at_left, room) + &cut(at_right, columns);
    Line::styled(text, Style::new().add_modifier(Modifier::REVERSED))
}

fn agent_rows(agent: &Agent, columns: usize) -> Vec<Row> {
    let metrics = agent.board.metrics.len();
    let (mark, color, state) = match &agent.status {
        Status::Running => {
            ("●", Color::Green, format!("{metrics} {}", if metrics == 1 { "metric" } else { "metrics" }))
        }
        Status::Starting => ("○", Color::Yellow, "starting".to_owned()),
        Status::NotReady => ("○", Color::Yellow, "not ready".to_owned()),
        Status::Failed(_) => ("✖", Color::Red, "ended".to_owned()),
    };
    let domain = agent.domain.map(|domain| format!("domain {domain} · ")).unwrap_or_default();
    let pid = agent.pid().map(|pid| format!("pid {pid} · ")).unwrap_or_default();
    let facts = format!(" {domain}{pid}{state} ");
    let name = format!(" {mark} {} ", agent.name);
    let rule = columns.saturating_sub(width(&name) + width(&facts));
    let mut rows = vec![Row::heading(Line::from(vec![
        Span::styled(name, Style::new().fg(color).bold()),
        Span::styled("─".repeat(rule), Style::new().fg(color).dim()),
        Span::styled(facts, Style::new().fg(color)),
    ]))];
    match agent.failure() {
        Some(reason) => {
            let reason = cut(reason, columns.saturating_sub(4));
            rows.push(Row::below(Line::styled(format!("   {reason}"), Style::new().fg(Color::Red))));
        }
        None => rows.extend(agent.board.metrics.iter().flat_map(|shown| metric_rows(shown, columns))),
    }
    rows
}

fn metric_rows(Shown { metric, values }: &Shown, columns: usize) -> Vec<Row> {
    let desc = match &metric.desc {
        Ok(desc) => desc_words(desc, columns),
        Err(_) => String::new(),
    };
    let name = cut(&metric.name, columns.saturating_sub(2));
    let room = columns.saturating_sub(width(&name) + 2);
    let desc = cut(&desc, room.saturating_sub(1));
    let help = left(&format!("  {}", metric.oneline), room.saturating_sub(width(&desc) + 2));
    let mut rows = vec![Row::heading(Line::from(vec![
        Span::raw(" "),
        Span::styled(name, Style::new().bold()),
        Span::styled(help, Style::new().italic()),
        Span::styled(format!("  {desc}"), Style::new().fg(Color::Cyan)),
    ]))];
    let none = |reason: String| Row::below(Line::styled(format!("   {reason}"), Style::new().fg(Color::Yellow)));
    match (&metric.desc, values) {
        (Err(code), _) | (_, Err(code)) => rows.push(none(code.to_string())),
        (_, Ok(values)) if values.is_empty() => rows.push(none("no values".to_owned())),
        (Ok(desc), Ok(values)) => {
            rows.extend(values.iter().map(|series| Row::below(value_line(desc, series, columns))));
        }
    }
    rows
}

/// Formats type, semantics and units. The type has a short name if there are few columns.
fn desc_words(desc: &Desc, columns: usize) -> String {
    let ty = match desc.ty {
        ty if columns >= 100 => ty.description().to_owned(),
        Type::I32 => "i32".to_owned(),
        Type::I64 => "i64".to_owned(),
        ty => ty.to_string().to_lowercase(),
    };
    let units = desc.units.to_string();
    let units = if units.is_empty() { "none" } else { &units };
    format!("{ty} · {} · {units}", desc.semantics)
}

fn value_line(desc: &Desc, series: &Series, columns: usize) -> Line<'static> {
    let widths = Columns::new(columns);
    let (mark, color) = match series.change {
        Some(Change::Up) => ("▲", Color::Green),
        Some(Change::Down) => ("▼", Color::Red),
        Some(Change::Other) => ("●", Color::Yellow),
        None => (" ", Color::Reset),
    };
    let value = match series.change {
        Some(_) => Style::new().fg(color).bold(),
        None => Style::new(),
    };
    let instance = match (series.inst, series.instance.as_str()) {
        (Some(inst), "") => format!("inst {inst}"),
        (_, name) => name.to_owned(),
    };
    let mut spans = vec![
        Span::raw(" ".repeat(Columns::INDENT)),
        Span::raw(left(&instance, widths.instance)),
        Span::styled(format!(" {mark} "), Style::new().fg(color)),
    ];
    if matches!(series.value.kind, Kind::Text(_) | Kind::Opaque) {
        let room = columns.saturating_sub(Columns::INDENT + widths.instance + 4);
        spans.push(Span::styled(cut(&series.value.text, room), value));
        return Line::from(spans);
    }
    let counter = desc.semantics == Semantics::Counter;
    let difference = difference(desc, series).unwrap_or_default();
    spans.extend([
        Span::styled(right(&series.value.text, widths.value), value),
        Span::raw(format!("  {}  ", right(&difference, widths.difference))).dim(),
        Span::styled(sparkline(&series.course, widths.course, counter), Style::new().fg(Color::LightBlue)),
    ]);
    Line::from(spans)
}
