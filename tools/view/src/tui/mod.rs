//! Live view in a terminal.

mod about;
mod arrange;
mod ascii;
mod history;
mod keys;
mod row;
#[cfg(test)]
mod tests;
mod view;

use std::fs::File;
use std::io::{self, IsTerminal as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::termios::{FlushArg, tcflush};
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
    // The terminal may be gone, which the outcome reports.
    let _ = mouse(false);
    let _ = ratatui::try_restore();
    if outcome.is_err() {
        // Dropping it would print an error to a terminal that may be closed, which would panic.
        std::mem::forget(terminal);
    }
    outcome
}

/// Takes control of the mouse from the terminal, or returns control to the terminal, in which the mouse then selects
/// text.
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
    let is_utf8 = ascii::is_utf8();
    let mut view = View::new(interval);
    view.recorded = stage.is_recorded();
    let input = input()?;
    // An end of input that was typed before the view would block crossterm's first read. Without this the view still
    // works.
    let _ = tcflush(&input, FlushArg::TCIFLUSH);
    let mut next = Instant::now();
    let mut size = terminal.size()?;
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
        if stage.failure().is_some() || have_never_begun(stage) {
            break;
        }
        // A list of many lines takes time, and changes only with a sample or a key.
        if stage.take_changed() || has_input {
            view.set_course(stage.state(), stage.time());
            terminal.draw(|frame| {
                view.draw(frame, stage.agents());
                if !is_utf8 {
                    ascii::replace(frame.buffer_mut());
                }
            })?;
        }
        let due = if view.paused { SLICE } else { next.saturating_duration_since(Instant::now()) };
        let is_readable = wait_for_input(&input, SLICE.min(due))?;
        // Crossterm is asked only if there is input, and not for changes of the size: it would not return if the terminal
        // has just been closed.
        let before = std::mem::replace(&mut size, terminal.size()?);
        has_input = is_readable || before != size;
        while is_readable && event::poll(Duration::ZERO)? {
            if !handle(event::read()?, &mut view, stage)? {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Returns whether all agents have ended without any metrics.
fn have_never_begun(stage: &dyn Stage) -> bool {
    stage.agents().iter().all(|agent| agent.failure().is_some() && agent.board.metrics.is_empty())
}

/// Returns the terminal that crossterm reads.
fn input() -> io::Result<OwnedFd> {
    let stdin = io::stdin();
    if stdin.is_terminal() { stdin.as_fd().try_clone_to_owned() } else { File::open("/dev/tty").map(OwnedFd::from) }
}

/// Waits for input on the terminal, or for the time. Returns whether there is input.
///
/// # Errors
/// `UnexpectedEof` if the terminal has been closed: crossterm would read its end forever, and use a whole core.
fn wait_for_input(terminal: &OwnedFd, time: Duration) -> io::Result<bool> {
    let mut terminal = [PollFd::new(terminal.as_fd(), PollFlags::POLLIN)];
    match poll(&mut terminal, PollTimeout::try_from(time).unwrap_or(PollTimeout::ZERO)) {
        Ok(_) | Err(Errno::EINTR) => {}
        Err(errno) => return Err(errno.into()),
    }
    let events = terminal[0].revents().unwrap_or(PollFlags::empty());
    if events.intersects(PollFlags::POLLHUP | PollFlags::POLLERR) {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the terminal has been closed"));
    }
    Ok(!events.is_empty())
}

/// Handles a key, or the mouse. Returns false to end the view.
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
