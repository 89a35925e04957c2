//! Signals that interrupt Install and Remove.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::outcome::{Outcome, Stop};
use super::task::Task;
use super::text;

/// Effect of a signal during the current step.
pub(crate) enum Stage {
    /// A signal ends the program at once, with this message about the state.
    Ends(String),
    /// A signal ends the program after the current step, and the change is undone.
    Undoes,
    /// A signal is ignored, because the step must be completed.
    Ignored,
}

static STAGE: Mutex<Stage> = Mutex::new(Stage::Ignored);
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

fn stage() -> MutexGuard<'static, Stage> {
    STAGE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets what a signal does from now on.
pub(crate) fn set(new: Stage) {
    *stage() = new;
}

/// Returns whether a change has begun that must be completed or undone.
pub(crate) fn must_go_on() -> bool {
    !matches!(*stage(), Stage::Ends(_))
}

/// Returns the signals that the caller of the program does not ignore, as nohup(1) does.
fn not_ignored() -> impl Iterator<Item = i32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    let ignored = mask.unwrap_or_default();
    [SIGHUP, SIGINT, SIGTERM].into_iter().filter(move |signal| ignored & (1 << (signal - 1)) == 0)
}

/// Starts to handle signals. `clean_up` runs before one ends the program.
pub(crate) fn handle(task: Task, clean_up: impl Fn() + Send + 'static) -> std::io::Result<()> {
    let mut signals = Signals::new(not_ignored())?;
    thread::Builder::new().name("signals".into()).spawn(move || {
        for _ in signals.forever() {
            // The stage does not change while the program ends.
            match &*stage() {
                Stage::Ends(state) => {
                    clean_up();
                    text::say(task, format!("interrupted; {state}."));
                    std::process::exit(1);
                }
                Stage::Undoes => INTERRUPTED.store(true, Ordering::SeqCst),
                Stage::Ignored => {}
            }
        }
    })?;
    Ok(())
}

/// Returns whether a signal has interrupted a change.
pub(crate) fn is_interrupted() -> bool {
    INTERRUPTED.load(Ordering::SeqCst)
}

/// Ends a change that a signal has interrupted.
pub(crate) fn check() -> Outcome<()> {
    if is_interrupted() { Err(Stop::new("interrupted")) } else { Ok(()) }
}
