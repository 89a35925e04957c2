//! Live view in a terminal.

mod row;
#[cfg(test)]
mod tests;
mod view;

use std::io;
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::signals::Signals;
use crate::stage::{Stage, Steer};
use view::View;

/// Longest time that a sample delays the view, and time between checks for signals.
const SLICE: Duration = Duration::from_millis(100);

/// Action of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Action {
    Quit,
    Pause,
    Scroll(i32),
    Page(i32),
    Top,
    Bottom,
    /// The next agent goes to the top.
    NextAgent,
    /// Shows the keys, or hides them.
    Keys,
    /// Begins to type a text that the shown names must contain.
    Filter,
    Type(char),
    Erase,
    /// Ends typing. The filter stays.
    Accept,
    /// Ends typing, and shows all metrics.
    Clear,
    /// Changes the course of a recording.
    Steer(Steer),
}

fn action(key: KeyEvent) -> Option<Action> {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    Some(match key.code {
        KeyCode::Char('c' | 'C') if control => Action::Quit,
        KeyCode::Char('q' | 'Q') | KeyCode::Esc => Action::Quit,
        KeyCode::Char(' ' | 'p') => Action::Pause,
        KeyCode::Up | KeyCode::Char('k') => Action::Scroll(-1),
        KeyCode::Down | KeyCode::Char('j') => Action::Scroll(1),
        KeyCode::PageUp => Action::Page(-1),
        KeyCode::PageDown => Action::Page(1),
        KeyCode::Home | KeyCode::Char('g') => Action::Top,
        KeyCode::End | KeyCode::Char('G') => Action::Bottom,
        KeyCode::Tab => Action::NextAgent,
        KeyCode::Char('/') => Action::Filter,
        KeyCode::Char('?' | 'h') | KeyCode::F(1) => Action::Keys,
        KeyCode::Right => Action::Steer(Steer::Forward),
        KeyCode::Left => Action::Steer(Steer::Back),
        KeyCode::Char('+') => Action::Steer(Steer::Faster),
        KeyCode::Char('-') => Action::Steer(Steer::Slower),
        _ => return None,
    })
}

/// Returns the action of a key while a filter is typed.
fn typed(key: KeyEvent) -> Option<Action> {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    Some(match key.code {
        KeyCode::Char('c' | 'C') if control => Action::Quit,
        KeyCode::Char(c) if !control => Action::Type(c),
        KeyCode::Backspace => Action::Erase,
        KeyCode::Enter => Action::Accept,
        KeyCode::Esc => Action::Clear,
        _ => return action(key),
    })
}

/// Shows the agents until a key, a signal or the last sample ends the view.
pub(crate) fn run(
    stage: &mut dyn Stage,
    interval: Duration,
    samples: Option<u64>,
    signals: &Signals,
) -> io::Result<()> {
    // Switches to the alternate screen. A panic switches back, too.
    let mut terminal = ratatui::try_init()?;
    let outcome = refresh(&mut terminal, stage, interval, samples.filter(|samples| *samples != 0), signals);
    ratatui::restore();
    outcome
}

fn refresh(
    terminal: &mut ratatui::DefaultTerminal,
    stage: &mut dyn Stage,
    interval: Duration,
    samples: Option<u64>,
    signals: &Signals,
) -> io::Result<()> {
    let mut view = View::new(interval);
    let mut next = Instant::now();
    while signals.received().is_none() {
        let now = Instant::now();
        if now >= next && !view.paused {
            if samples.is_some_and(|samples| view.sample >= samples) {
                break;
            }
            view.sample += 1;
            next = (next + interval).max(now);
            stage.tick();
        }
        stage.gather(SLICE);
        if stage.failure().is_some() {
            break;
        }
        view.set_course(stage.state(), stage.time());
        terminal.draw(|frame| view.draw(frame, stage.agents()))?;
        let due = if view.paused { SLICE } else { next.saturating_duration_since(Instant::now()) };
        let mut wait = SLICE.min(due);
        while event::poll(wait)? {
            wait = Duration::ZERO;
            match event::read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release => {
                    match if view.typing { typed(key) } else { action(key) } {
                        Some(Action::Quit) => return Ok(()),
                        Some(Action::Steer(steer)) => stage.steer(steer),
                        Some(action) => view.act(action),
                        None => {}
                    }
                }
                _ => {}
            }
        }
    }
    Ok(())
}
