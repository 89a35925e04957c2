//! Keys and the mouse.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};

use crate::stage::Steer;

/// Effect of a key or of the mouse.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Action {
    Quit,
    /// Leaves the page shown in place of the list, or shows all metrics again.
    Back,
    Pause,
    /// Moves the cursor by lines.
    Move(i32),
    /// Scrolls by lines.
    Scroll(i32),
    /// Moves the cursor by pages.
    Page(i32),
    Top,
    Bottom,
    /// Moves the cursor to the next agent.
    NextAgent,
    /// Shows the keys, or the list again.
    Keys,
    /// Shows the help of the selected metric, or the list again.
    Help,
    /// Shows the history of the selected value, or the list again.
    History,
    /// Folds the instances of the selected metric.
    Fold,
    Unfold,
    /// Folds the instances of all metrics, or unfolds them.
    FoldAll,
    /// Sorts in the next order.
    Sort,
    /// Changes between rates of counters and their values.
    Rates,
    /// Gives control of the mouse to the terminal, or takes it back.
    Mouse,
    /// Begins to type the text to search for.
    Search,
    /// Begins to type a text that the shown names must contain.
    Filter,
    /// Moves the cursor to the next line with the text, or the previous one.
    Next(Direction),
    /// Selects a line of the screen. A click on the line that is already selected acts like Enter.
    Click(u16),
    /// Changes the direction or the speed of a replay.
    Steer(Steer),
    Type(char),
    Erase,
    /// Ends the typing of a text.
    Accept,
    /// Ends typing, and drops the text.
    Cancel,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Direction {
    Forward,
    Backward,
}

/// Descriptions of all keys.
pub(super) const KEYS: [&str; 22] = [
    "q             end",
    "Esc           back to the list; show all metrics",
    "space p       pause, and go on",
    "up down k j   a line up, down",
    "PgUp PgDn     a page up, down",
    "Home End g G  to the first line, to the last one",
    "Tab           to the next agent, and from the last to the first",
    "Enter         history of the selected value; of a metric with instances: fold",
    "left right    fold, unfold the instances of the selected metric (also - +)",
    "z             fold all metrics, a line for each, or unfold them",
    "h i F2        help of the selected metric",
    "/             search for a text in names of metrics and instances",
    "n N           to the next line with this text, to the previous one",
    "f F4          show only names that contain a text",
    "s             sort: as the agent has it, by name, by value, by change",
    "r             rates of counters, or their values",
    "< > , .       a replay goes back, forward",
    "[ ] F7 F8     a replay goes half as fast, twice as fast",
    "m             leave the mouse to the terminal, to select text; take it back",
    "mouse         wheel: scroll; click: select, and in the selected line as Enter",
    "? F1          show the keys, and the list again",
    "Ctrl-C        end",
];

/// Returns the action of a key in the list.
pub(super) fn action(key: KeyEvent) -> Option<Action> {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    Some(match key.code {
        KeyCode::Char('c' | 'C') if control => Action::Quit,
        KeyCode::Char('q' | 'Q') => Action::Quit,
        KeyCode::Esc => Action::Back,
        KeyCode::Char(' ' | 'p') => Action::Pause,
        KeyCode::Up | KeyCode::Char('k') => Action::Move(-1),
        KeyCode::Down | KeyCode::Char('j') => Action::Move(1),
        KeyCode::PageUp => Action::Page(-1),
        KeyCode::PageDown => Action::Page(1),
        KeyCode::Home | KeyCode::Char('g') => Action::Top,
        KeyCode::End | KeyCode::Char('G') => Action::Bottom,
        KeyCode::Tab => Action::NextAgent,
        KeyCode::Enter => Action::History,
        KeyCode::Left | KeyCode::Char('-') => Action::Fold,
        KeyCode::Right | KeyCode::Char('+') => Action::Unfold,
        KeyCode::Char('z') => Action::FoldAll,
        KeyCode::Char('h' | 'i') | KeyCode::F(2) => Action::Help,
        KeyCode::Char('/') | KeyCode::F(3) => Action::Search,
        KeyCode::Char('n') => Action::Next(Direction::Forward),
        KeyCode::Char('N') => Action::Next(Direction::Backward),
        KeyCode::Char('f') | KeyCode::F(4) => Action::Filter,
        KeyCode::Char('s') => Action::Sort,
        KeyCode::Char('r') => Action::Rates,
        KeyCode::Char('<' | ',') => Action::Steer(Steer::Back),
        KeyCode::Char('>' | '.') => Action::Steer(Steer::Forward),
        KeyCode::Char('[') | KeyCode::F(7) => Action::Steer(Steer::Slower),
        KeyCode::Char(']') | KeyCode::F(8) => Action::Steer(Steer::Faster),
        KeyCode::Char('m') => Action::Mouse,
        KeyCode::Char('?') | KeyCode::F(1) => Action::Keys,
        _ => return None,
    })
}

/// Returns the action of a key while a text is typed.
pub(super) fn typed(key: KeyEvent) -> Option<Action> {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    Some(match key.code {
        KeyCode::Char('c' | 'C') if control => Action::Quit,
        KeyCode::Char(c) if !control => Action::Type(c),
        KeyCode::Backspace => Action::Erase,
        KeyCode::Enter => Action::Accept,
        KeyCode::Esc => Action::Cancel,
        KeyCode::Up => Action::Move(-1),
        KeyCode::Down => Action::Move(1),
        _ => return None,
    })
}

/// Returns the action of the mouse.
pub(super) fn clicked(event: MouseEvent) -> Option<Action> {
    Some(match event.kind {
        MouseEventKind::ScrollUp => Action::Scroll(-3),
        MouseEventKind::ScrollDown => Action::Scroll(3),
        MouseEventKind::Down(MouseButton::Left) => Action::Click(event.row),
        _ => return None,
    })
}
