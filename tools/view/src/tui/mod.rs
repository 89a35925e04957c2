//! Live view in a terminal.

mod about;
mod arrange;
mod history;
mod keys;
mod row;
#[cfg(test)]
mod tests;
mod view;

use std::io;
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, DisableMouseCapture, EnableMouseCapture, Event, KeyEventKind};
use ratatui::crossterm::execute;

use crate::signals::Signals;
use crate::stage::Stage;
use keys::Action;
use view::View;

/// Longest time that a sample delays the view, and time between checks for signals.
const SLICE: Duration = Duration::from_millis(100);

/// Shows the agents until a key, a signal or the last sample ends the view.
pub(crate) fn run(
    stage: &mut dyn Stage,
    interval: Duration,
    samples: Option<u64>,
    signals: &Signals,
) -> io::Result<()> {
    // Switches to the alternate screen. A panic switches back, too.
    let mut terminal = ratatui::try_init()?;
    let restore = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let _ = mouse(false);
        restore(panic);
    }));
    let samples = samples.filter(|samples| *samples != 0);
    let outcome = mouse(true).and_then(|()| refresh(&mut terminal, stage, interval, samples, signals));
    // The terminal may be gone, which the outcome says.
    let _ = mouse(false);
    ratatui::restore();
    outcome
}

/// Takes the mouse from the terminal, or leaves it to the terminal, which selects text with it.
fn mouse(is_ours: bool) -> io::Result<()> {
    if is_ours { execute!(io::stdout(), EnableMouseCapture) } else { execute!(io::stdout(), DisableMouseCapture) }
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
    let mut has_input = true;
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
        // A list of many lines takes time, and changes only with a sample or a key.
        if stage.take_changed() || has_input {
            view.set_course(stage.state(), stage.time());
            terminal.draw(|frame| view.draw(frame, stage.agents()))?;
        }
        let due = if view.paused { SLICE } else { next.saturating_duration_since(Instant::now()) };
        has_input = false;
        let mut wait = SLICE.min(due);
        while event::poll(wait)? {
            wait = Duration::ZERO;
            has_input = true;
            if !handle(event::read()?, &mut view, stage)? {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Handles a key, or the mouse. Returns false for the end of the view.
fn handle(event: Event, view: &mut View, stage: &mut dyn Stage) -> io::Result<bool> {
    let action = match event {
        Event::Key(key) if key.kind == KeyEventKind::Release => None,
        Event::Key(key) if view.is_typing() => keys::typed(key),
        Event::Key(key) => keys::action(key),
        Event::Mouse(event) => keys::clicked(event),
        _ => None,
    };
    let Some(action) = action else { return Ok(true) };
    let goes_on = view.act(action, stage.agents());
    if let Action::Steer(steer) = action {
        stage.steer(steer);
    }
    if action == Action::Mouse {
        mouse(view.mouse)?;
    }
    if let Some((agent, metric)) = view.needs_help(stage.agents()) {
        stage.ask_help(agent, metric);
    }
    Ok(goes_on)
}
