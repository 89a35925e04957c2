//! Screen: its head, the list or another page in its place, and its foot.

use std::time::Duration;

use pcp_pdu::event::Stamp;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;

use super::arrange::{Arrangement, Folds, Key, Place, Sort, shown};
use super::keys::{Action, Direction, KEYS};
use super::row::{Numbers, Row, columns, line};
use super::{about, history};
use crate::fleet::Agent;
use crate::time::local;

/// Page below the head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Page {
    List,
    Keys,
    /// Help of a metric.
    About(Key),
    /// History of a value.
    History(Key),
}

/// Purpose of a text that is typed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Prompt {
    Search,
    Filter,
}

/// State of the screen.
#[derive(Debug)]
pub(super) struct View {
    pub(super) sample: u64,
    pub(super) paused: bool,
    /// Whether the mouse is the view's, not the terminal's.
    pub(super) mouse: bool,
    /// Whether the samples are recorded.
    pub(super) recorded: bool,
    interval: Duration,
    /// Direction and speed of a replay.
    course: Option<String>,
    /// Time of the sample.
    time: Stamp,
    arrangement: Arrangement,
    numbers: Numbers,
    /// Lines of the list when it was last drawn.
    lines: Vec<Place>,
    /// Number of the selected line. [`View::selected`] identifies the line.
    cursor: usize,
    selected: Option<Key>,
    /// Number of the first shown line of the list.
    top: usize,
    /// Number of lines of the list that were last shown.
    height: usize,
    page: Page,
    /// Number of the first shown line of a help text.
    scrolled: u16,
    prompt: Option<Prompt>,
    /// Text to search for.
    sought: String,
    /// Answer to the last key, in place of the hint.
    note: Option<String>,
}

impl View {
    pub(super) fn new(interval: Duration) -> View {
        View {
            sample: 0,
            paused: false,
            mouse: true,
            recorded: false,
            interval,
            course: None,
            time: Stamp::now(),
            arrangement: Arrangement { filter: String::new(), sort: Sort::Agent, folds: Folds::default() },
            numbers: Numbers::Rates,
            lines: Vec::new(),
            cursor: 0,
            selected: None,
            top: 0,
            height: 0,
            page: Page::List,
            scrolled: 0,
            prompt: None,
            sought: String::new(),
            note: None,
        }
    }

    /// Sets the text of the head: direction and speed of a replay, and the time of the sample.
    pub(super) fn set_course(&mut self, course: Option<String>, time: Stamp) {
        (self.course, self.time) = (course, time);
    }

    /// Returns whether keys are letters of a text.
    pub(super) fn is_typing(&self) -> bool {
        self.prompt.is_some()
    }

    /// Returns the metric whose help is shown but has not arrived, as the indexes of agent and metric.
    pub(super) fn needs_help(&self, agents: &[Agent]) -> Option<(usize, usize)> {
        let Page::About(key) = self.page else { return None };
        let shown = shown(agents, key.agent, key.metric)?;
        if shown.metric.help.is_some() { None } else { Some((key.agent, key.metric?)) }
    }

    /// Executes the action of a key or of the mouse. Returns false to end the view.
    #[must_use]
    pub(super) fn act(&mut self, action: Action, agents: &[Agent]) -> bool {
        self.note = None;
        match action {
            Action::Quit => return false,
            // A key that closes pages and filters must not end a recording, if it is typed once too often.
            Action::Back if self.page == Page::List && self.arrangement.filter.is_empty() => {
                self.note = Some(" q or Ctrl-C ends".to_owned());
            }
            Action::Back => self.back(),
            Action::Pause => self.paused = !self.paused,
            Action::Move(by) => self.step(by),
            Action::Page(pages) => {
                let page = i32::try_from(self.height.saturating_sub(1)).unwrap_or(i32::MAX);
                self.step(pages.saturating_mul(page));
            }
            Action::Top => self.step(i32::MIN),
            Action::Bottom => self.step(i32::MAX),
            Action::Scroll(by) if self.page == Page::List => self.scroll(by),
            Action::Scroll(by) => self.step(by.signum()),
            Action::NextAgent => self.next_agent(),
            Action::Keys => self.show(Page::Keys),
            Action::Help | Action::History => self.open(action, agents),
            Action::Fold => self.fold(true, agents),
            Action::Unfold => self.fold(false, agents),
            Action::FoldAll => self.arrangement.folds.toggle_all(),
            Action::Sort => self.arrangement.sort = self.arrangement.sort.next(),
            Action::Rates => {
                self.numbers = if self.numbers == Numbers::Rates { Numbers::Raw } else { Numbers::Rates };
            }
            Action::Mouse => self.mouse = !self.mouse,
            Action::Steer(_) => {}
            Action::Search | Action::Filter => self.begin_typing(action),
            Action::Next(direction) => self.search(direction, agents),
            Action::Click(row) => self.click(row, agents),
            Action::Type(_) | Action::Erase | Action::Accept | Action::Cancel => self.type_text(action, agents),
        }
        true
    }

    fn back(&mut self) {
        if self.page == Page::List {
            self.arrangement.filter.clear();
        }
        self.page = Page::List;
    }

    /// Shows a page, or the list if the page is shown already.
    fn show(&mut self, page: Page) {
        self.scrolled = 0;
        self.page = if self.page == page { Page::List } else { page };
    }

    /// Scrolls the list. The cursor stays among the lines that are shown.
    fn scroll(&mut self, by: i32) {
        let most = self.lines.len().saturating_sub(self.height);
        self.top = self.top.saturating_add_signed(by as isize).min(most);
        let (first, last) = (self.top + usize::from(self.top > 0), self.top + self.height.saturating_sub(1));
        if self.cursor < first || self.cursor > last {
            self.select(self.cursor.clamp(first, last.max(first)));
        }
    }

    /// Moves the cursor, or scrolls a text.
    fn step(&mut self, by: i32) {
        if matches!(self.page, Page::About(_)) {
            let by = by.clamp(-10_000, 10_000) as i16;
            self.scrolled = self.scrolled.saturating_add_signed(by).min(10_000);
            return;
        }
        let last = self.lines.len().saturating_sub(1);
        self.select(self.cursor.saturating_add_signed(by as isize).min(last));
        // In the history, the next line with a value.
        if let Page::History(_) = self.page {
            let is_value = |at: &usize| matches!(self.lines.get(*at), Some(Place::Value(..) | Place::Folded(..)));
            let found =
                if by < 0 { (0..=self.cursor).rev().find(is_value) } else { (self.cursor..=last).find(is_value) };
            if let Some(at) = found {
                self.select(at);
            }
        }
    }

    /// Selects a line. Its subject is determined when the list is drawn.
    fn select(&mut self, line: usize) {
        self.cursor = line;
        self.selected = None;
    }

    fn next_agent(&mut self) {
        let agents = || (0..self.lines.len()).filter(|at| matches!(self.lines[*at], Place::Agent(_)));
        let next = agents().find(|at| *at > self.cursor).or_else(|| agents().next()).unwrap_or(0);
        self.page = Page::List;
        self.select(next);
        // `draw` limits this to the last page.
        self.top = next;
    }

    fn open(&mut self, action: Action, agents: &[Agent]) {
        if let Page::About(_) | Page::History(_) = self.page {
            self.page = Page::List;
            return;
        }
        let Some(place) = self.lines.get(self.cursor).copied() else { return };
        let key = place.key(agents);
        let (_, Some(metric), _) = place.numbers() else { return };
        let values = shown(agents, key.agent, Some(metric)).and_then(|shown| shown.values.as_ref().ok());
        let is_single = values.is_some_and(|values| values.len() == 1);
        match place {
            _ if action == Action::Help => self.show(Page::About(key)),
            Place::Metric(..) if !is_single => self.fold(true, agents),
            Place::Folded(..) if !is_single => self.fold(false, agents),
            _ => self.show(Page::History(key)),
        }
    }

    fn fold(&mut self, folded: bool, agents: &[Agent]) {
        let Some(place) = self.lines.get(self.cursor) else { return };
        let (agent, metric, _) = place.numbers();
        if let Some(shown) = shown(agents, agent, metric) {
            self.arrangement.folds.set(agent, &shown.metric.name, folded);
            // The cursor goes to the line of the metric.
            self.selected = Some(Key { agent, metric, inst: None });
        }
    }

    fn begin_typing(&mut self, action: Action) {
        self.page = Page::List;
        if action == Action::Search {
            self.sought.clear();
            self.prompt = Some(Prompt::Search);
        } else {
            self.prompt = Some(Prompt::Filter);
        }
    }

    fn type_text(&mut self, action: Action, agents: &[Agent]) {
        let prompt = self.prompt;
        let text = if prompt == Some(Prompt::Search) { &mut self.sought } else { &mut self.arrangement.filter };
        match action {
            Action::Type(c) => text.push(c),
            Action::Erase => _ = text.pop(),
            Action::Accept => {
                self.prompt = None;
                if prompt == Some(Prompt::Search) {
                    self.search(Direction::Forward, agents);
                }
            }
            _ => {
                text.clear();
                self.prompt = None;
            }
        }
    }

    /// Moves the cursor to another line with the sought text. At the end, continues from the start.
    fn search(&mut self, direction: Direction, agents: &[Agent]) {
        let lines = self.lines.len();
        if self.sought.is_empty() || lines == 0 {
            return;
        }
        let has_text = |at: &usize| self.lines[*at].name(agents).contains(&self.sought);
        let distances = 1..=lines;
        let found = match direction {
            Direction::Forward => distances.map(|by| (self.cursor + by) % lines).find(has_text),
            Direction::Backward => distances.map(|by| (self.cursor + lines - by) % lines).find(has_text),
        };
        match found {
            Some(at) => {
                self.page = Page::List;
                self.select(at);
            }
            None => self.note = Some(format!(" no line with \"{}\"", self.sought)),
        }
    }

    fn click(&mut self, row: u16, agents: &[Agent]) {
        let line = (self.top + usize::from(row)).checked_sub(1).filter(|_| usize::from(row) <= self.height);
        match line {
            _ if self.page != Page::List => self.page = Page::List,
            Some(line) if line == self.cursor => self.open(Action::History, agents),
            Some(line) if line < self.lines.len() => self.select(line),
            _ => {}
        }
    }

    pub(super) fn draw(&mut self, frame: &mut Frame<'_>, agents: &[Agent]) {
        let areas = Layout::vertical([Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)]);
        let [head, body, foot] = areas.areas(frame.area());
        self.arrange(agents, body.height.into());
        match self.page {
            Page::List => {
                self.draw_list(frame, agents, body);
                self.draw_no_hit(frame, body);
            }
            Page::Keys => {
                for (text, area) in KEYS.iter().zip(body.rows()) {
                    frame.render_widget(line(&format!("   {text}"), Style::new(), area), area);
                }
            }
            Page::About(key) => match shown(agents, key.agent, key.metric) {
                Some(shown) => frame.render_widget(about::page(shown).scroll((self.scrolled, 0)), body),
                None => self.page = Page::List,
            },
            Page::History(_) => self.draw_history(frame, agents, body),
        }
        let title = if self.course.is_some() { " PCP recording" } else { " PCP agents" };
        draw_bar(title, &self.state(), head, frame);
        let (first, last, all) = (self.top + 1, self.lines.len().min(self.top + self.height), self.lines.len());
        let hidden = if self.page == Page::List && all > self.height {
            format!("{first}–{last} of {all} ")
        } else {
            String::new()
        };
        draw_bar(&self.hint(), &hidden, foot, frame);
    }

    /// Determines the lines of the list, the selected one among them, and the first shown one.
    fn arrange(&mut self, agents: &[Agent], height: usize) {
        self.lines = self.arrangement.lines(agents);
        self.height = height;
        let last = self.lines.len().saturating_sub(1);
        self.cursor = self.cursor.min(last);
        if let Some(key) = self.selected {
            let is_it = |place: &Place| place.key(agents) == key;
            // In most cases it has not moved.
            if !self.lines.get(self.cursor).is_some_and(is_it) {
                self.cursor = self.lines.iter().position(is_it).unwrap_or(self.cursor);
            }
        }
        let key = self.lines.get(self.cursor).map(|place| place.key(agents));
        // While a filter is typed, it may temporarily leave out the selected line.
        if self.prompt.is_none() || self.selected.is_none() {
            self.selected = key;
        }
        // The heading above replaces the first line, so the selected line is not the first one unless it is a heading.
        let is_heading = self.lines.get(self.cursor).is_some_and(|place| place.is_heading());
        let above = if is_heading { self.cursor } else { self.cursor.saturating_sub(1) };
        self.top = self.top.min(above).max((self.cursor + 1).saturating_sub(height));
        self.top = self.top.min(self.lines.len().saturating_sub(height));
    }

    fn draw_list(&self, frame: &mut Frame<'_>, agents: &[Agent], body: Rect) {
        let first = self.lines.get(self.top);
        // The heading of the first value stays visible.
        let heading = match first {
            Some(first) if !first.is_heading() => self.lines[..self.top].iter().rfind(|place| place.is_heading()),
            _ => first,
        };
        let hides_cursor = self.top == self.cursor;
        let first = if hides_cursor { first } else { heading.or(first) };
        let places = first.into_iter().chain(self.lines.iter().skip(self.top + 1));
        for ((at, place), area) in (self.top..).zip(places).zip(body.rows()) {
            if let Some(row) = Row::at(*place, agents) {
                row.draw(self.numbers, area, frame.buffer_mut());
            }
            if at == self.cursor {
                frame.buffer_mut().set_style(area, Style::new().reversed());
            }
        }
    }

    /// Draws a line about a filter that no metric passes.
    fn draw_no_hit(&self, frame: &mut Frame<'_>, body: Rect) {
        let has_hit = self.lines.iter().any(|place| !matches!(place, Place::Agent(_) | Place::NoMetrics(_)));
        let filter = &self.arrangement.filter;
        if let Some(area) = body.rows().nth(self.lines.len()).filter(|_| !has_hit && !filter.is_empty()) {
            let text = format!("   No name of a metric or an instance has \"{filter}\".");
            frame.render_widget(line(&text, Style::new(), area), area);
        }
    }

    fn draw_history(&self, frame: &mut Frame<'_>, agents: &[Agent], body: Rect) {
        let key = self.selected;
        let found = key.and_then(|key| {
            let shown = shown(agents, key.agent, key.metric)?;
            let values = shown.values.as_ref().ok()?;
            let series = values.iter().find(|series| key.inst.is_none() || key.inst == Some(series.inst))?;
            series.value.number()?;
            Some((shown, shown.metric.desc.as_ref().ok()?, series))
        });
        match found {
            Some((shown, desc, series)) => history::draw(&shown.metric, desc, series, self.numbers, body, frame),
            None => history::draw_nothing(body, frame),
        }
    }

    /// Returns the text at the right of the head.
    fn state(&self) -> String {
        let state = match (self.paused, &self.course) {
            (true, _) => "paused".to_owned(),
            (false, Some(course)) => course.clone(),
            (false, None) => format!("every {:?}", self.interval),
        };
        let raw = if self.numbers == Numbers::Raw { "raw" } else { "" };
        let recorded = if self.recorded { "recording" } else { "" };
        let words = [self.arrangement.sort.words(), raw, recorded].into_iter().filter(|words| !words.is_empty());
        let words: String = words.flat_map(|words| [words, " · "]).collect();
        let (date, clock) = local(self.time);
        match self.course {
            Some(_) => format!("{words}{state} · {date} {clock} "),
            None => format!("{words}{state} · sample {} · {clock} ", self.sample),
        }
    }

    /// Returns the text of the foot: the keys, or the text that is typed.
    fn hint(&self) -> String {
        if let Some(note) = &self.note {
            return note.clone();
        }
        match (self.prompt, self.page, self.arrangement.filter.as_str()) {
            (Some(Prompt::Search), ..) => format!(" search: {}▏ Enter · Esc", self.sought),
            (Some(Prompt::Filter), _, filter) => format!(" names with: {filter}▏ Enter · Esc shows all"),
            (None, Page::List, "") if self.course.is_some() => {
                " q quit · space pause · < > back, forward · [ ] speed · ? keys".to_owned()
            }
            (None, Page::List, "") => " q quit · space pause · Enter history · / search · f filter · ? keys".to_owned(),
            (None, Page::List, filter) => format!(" names with \"{filter}\" · f Esc shows all · ? keys"),
            (None, Page::History(_), _) => " Esc back · ↑ ↓ other values · r rates or values · space pause".to_owned(),
            _ => " Esc back · ↑ ↓ scroll".to_owned(),
        }
    }
}

/// Draws a line in reverse video.
fn draw_bar(at_left: &str, at_right: &str, area: Rect, frame: &mut Frame<'_>) {
    let gap = u16::from(!at_right.is_empty());
    let widths = [Constraint::Fill(1), Constraint::Length(gap), Constraint::Length(columns(at_right))];
    let [left, _, right] = Layout::horizontal(widths).areas(area);
    for (text, area) in [(at_left, left), (at_right, right)] {
        frame.render_widget(line(text, Style::new(), area), area);
    }
    frame.buffer_mut().set_style(area, Style::new().reversed());
}
