//! Screen: its head, the part of the body that is shown, and its foot.

use std::time::Duration;

use chrono::Local;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;

use super::Action;
use super::row::{Row, columns, line};
use crate::fleet::Agent;

/// State of the screen.
#[derive(Debug)]
pub(super) struct View {
    pub(super) sample: u64,
    pub(super) paused: bool,
    interval: Duration,
    /// First line of the body that is shown.
    top: usize,
    /// Largest value of `top` when the screen was drawn last.
    bottom: usize,
    /// Number of body lines that were shown last.
    page: usize,
    /// Lines of the body with the name of an agent.
    agents_at: Vec<usize>,
    /// Text that the names of the shown metrics contain.
    filter: String,
    /// Keys change the filter.
    pub(super) typing: bool,
    /// The keys are shown in place of the metrics.
    keys: bool,
}

const KEYS: [&str; 9] = [
    "q Esc         end",
    "space p       pause, and go on",
    "up down k j   a line up, down",
    "PgUp PgDn     a page up, down",
    "Home g        to the first line",
    "End G         to the last line",
    "Tab           to the next agent, and from the last to the first",
    "/             show metrics whose names contain a text; Esc shows all again",
    "? h F1        show the keys, and the metrics again",
];

impl View {
    pub(super) fn new(interval: Duration) -> View {
        View {
            sample: 0,
            paused: false,
            interval,
            top: 0,
            bottom: 0,
            page: 0,
            agents_at: Vec::new(),
            filter: String::new(),
            typing: false,
            keys: false,
        }
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
            Action::NextAgent => {
                let next = self.agents_at.iter().copied().find(|at| *at > self.top);
                self.top = next.filter(|_| self.top < self.bottom).unwrap_or(0);
            }
            Action::Keys => self.keys = !self.keys,
            Action::Filter => (self.typing, self.keys) = (true, false),
            Action::Type(c) => self.filter.push(c),
            Action::Erase => _ = self.filter.pop(),
            Action::Accept => self.typing = false,
            Action::Clear => {
                self.typing = false;
                self.filter.clear();
            }
        }
    }

    fn scroll(&mut self, lines: i32) {
        self.top = self.top.saturating_add_signed(lines as isize);
    }

    pub(super) fn draw(&mut self, frame: &mut Frame<'_>, agents: &[Agent]) {
        let areas = Layout::vertical([Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)]);
        let [head, body, foot] = areas.areas(frame.area());
        let rows: Vec<Row<'_>> = match self.keys {
            true => KEYS.iter().copied().map(Row::Key).collect(),
            false => agents.iter().flat_map(|agent| Row::of(agent, &self.filter)).collect(),
        };
        self.agents_at = (0..).zip(&rows).filter(|(_, row)| matches!(row, Row::Agent(_))).map(|(at, _)| at).collect();
        self.page = body.height.into();
        self.bottom = rows.len().saturating_sub(self.page);
        self.top = self.top.min(self.bottom);
        // The heading of the first value stays visible.
        let heading = rows.iter().take(self.top + 1).rposition(Row::is_heading);
        let shown = heading.and_then(|at| rows.get(at)).into_iter().chain(rows.iter().skip(self.top + 1));
        for (row, area) in shown.zip(body.rows()) {
            frame.render_widget(row, area);
        }
        let state = match self.paused {
            true => "paused".to_owned(),
            false => format!("every {:?}", self.interval),
        };
        let state = format!("{state} · sample {} · {} ", self.sample, Local::now().format("%H:%M:%S"));
        draw_bar(" PCP agents", &state, head, frame);
        let hidden = match rows.len() > self.page {
            true => format!("{}–{} of {} ", self.top + 1, rows.len().min(self.top + self.page), rows.len()),
            false => String::new(),
        };
        draw_bar(&self.hint(), &hidden, foot, frame);
    }

    /// Returns the text of the foot: the keys, or the filter.
    fn hint(&self) -> String {
        match (self.typing, self.filter.as_str()) {
            (true, filter) => format!(" names with: {filter}▏ Enter · Esc shows all"),
            (false, "") => " q quit · space pause · ↑ ↓ PgUp PgDn Tab scroll · / filter · ? keys".to_owned(),
            (false, filter) => format!(" names with \"{filter}\" · / Esc shows all · ? keys"),
        }
    }
}

/// Draws a line in reverse video.
fn draw_bar(at_left: &str, at_right: &str, area: Rect, frame: &mut Frame<'_>) {
    let widths = [Constraint::Fill(1), Constraint::Length(columns(at_right))];
    for (text, area) in [at_left, at_right].into_iter().zip(Layout::horizontal(widths).areas::<2>(area)) {
        frame.render_widget(line(text, Style::new(), area), area);
    }
    frame.buffer_mut().set_style(area, Style::new().reversed());
}
