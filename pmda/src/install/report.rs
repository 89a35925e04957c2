//! Messages of Install and Remove, how they end, and the signals that interrupt them.

use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Why Install or Remove ends before it is complete: a message, empty if it has been printed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Stop(pub(crate) String);

/// The result of a step of Install or Remove.
pub(crate) type Outcome<T> = Result<T, Stop>;

impl Stop {
    pub(crate) fn new(text: impl Into<String>) -> Stop {
        Stop(text.into())
    }

    /// Returns the end after a message that has been printed.
    pub(crate) fn silent() -> Stop {
        Stop::new("")
    }

    /// Returns what makes an error the end, with `what` before its reason.
    pub(crate) fn at(what: impl std::fmt::Display) -> impl FnOnce(io::Error) -> Stop {
        move |e| Stop(format!("{what}: {e}."))
    }

    pub(crate) fn print(&self) {
        if !self.0.is_empty() {
            say(&self.0);
        }
    }
}

impl From<io::Error> for Stop {
    fn from(e: io::Error) -> Stop {
        Stop(e.to_string())
    }
}

/// Name of the script, which precedes messages.
static SCRIPT: OnceLock<&'static str> = OnceLock::new();

/// Sets the name of the script that this process is.
pub(crate) fn set_script(name: &'static str) {
    let _ = SCRIPT.set(name);
}

/// Returns a text in one line of printable ASCII: other bytes, which could control a terminal or hide what is there, become
/// `\ooo`.
pub(crate) fn show(text: impl AsRef<[u8]>) -> String {
    let mut shown = String::new();
    for byte in text.as_ref() {
        match byte {
            b'\n' => shown.push(' '),
            b'\\' => shown.push_str("\\\\"),
            b'\t' => shown.push_str("\\t"),
            b' '..=b'~' => shown.push(char::from(*byte)),
            _ => shown.push_str(&format!("\\{byte:03o}")),
        }
    }
    shown
}

/// Prints a message to stderr, after the name of the script. A closed stderr does not end the program.
pub(crate) fn say(text: impl AsRef<[u8]>) {
    let _ = writeln!(io::stderr(), "{}: {}", SCRIPT.get().unwrap_or(&"Install"), show(text));
}

/// Prints a line to stdout. A closed stdout does not end the program.
pub(crate) fn tell(text: impl AsRef<[u8]>) {
    part(&format!("{}\n", show(text)));
}

/// Prints a part of a line to stdout, as it is.
pub(crate) fn part(text: &str) {
    let mut out = io::stdout();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Prints what a program has said to stderr, each line with its control characters as `\ooo`.
pub(crate) fn said(text: &[u8]) {
    for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let _ = writeln!(io::stderr(), "{}", show(line));
    }
}

/// What a signal does: it ends the program with a message about the state, after it has removed a directory; or if there is
/// none, it is noted, because the current step must be completed.
static ENDS: Mutex<Option<(String, Option<PathBuf>)>> = Mutex::new(None);
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

fn ends() -> MutexGuard<'static, Option<(String, Option<PathBuf>)>> {
    ENDS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets a signal end the program from now on, with this message. `scratch` is removed then.
pub(crate) fn signals_end(state: impl Into<String>, scratch: Option<PathBuf>) {
    *ends() = Some((state.into(), scratch));
}

/// Makes signals wait from now on until [`check`].
pub(crate) fn signals_wait() {
    *ends() = None;
}

/// Returns whether signals wait.
pub(crate) fn do_signals_wait() -> bool {
    ends().is_none()
}

/// Starts to handle signals, but for those that the caller of the program ignores, as nohup(1) does.
pub(crate) fn handle_signals() -> io::Result<()> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    let ignored = mask.unwrap_or_default();
    let handled = [SIGHUP, SIGINT, SIGTERM].into_iter().filter(|signal| ignored & (1 << (signal - 1)) == 0);
    let mut signals = Signals::new(handled)?;
    thread::Builder::new().name("signals".into()).spawn(move || {
        for _ in signals.forever() {
            // The state does not change while the program ends.
            match &*ends() {
                Some((state, scratch)) => {
                    let _ = scratch.as_ref().map(fs::remove_dir_all);
                    say(format!("interrupted; {state}."));
                    std::process::exit(1);
                }
                None => INTERRUPTED.store(true, Ordering::SeqCst),
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

#[cfg(test)]
mod tests {
    use super::show;

    #[test]
    fn a_text_is_one_line_of_ascii() {
        assert_eq!(show("a\nb\\c\x1b[31m\u{202e}"), "a b\\\\c\\033[31m\\342\\200\\256");
    }
}
