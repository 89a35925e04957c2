//! The log file, as PCP's daemons write it: pmOpenLog(3) and pmNotifyErr(3).
//!
//! An event of `tracing` is a line: `[time] program(pid) Severity: message name=value`. What strangers choose may be in
//! it as it is: characters that would end the line or steer a terminal are [escaped](pmapi::escape), and a line is cut
//! after 1 KiB.
//!
//! Lines are limited, too, so that nobody fills the disk: of each place in the program 20 at once and then one in ten
//! seconds; in all 500 at once and then two a second. A later line says how many were left out. An event whose cause is
//! a stranger names it in the field `source`, which is not printed: each source has a limit of its own then, and
//! together they have one apart from that of the agent's own lines.
//!
//! ```
//! # let (path, uid) = ("x", 1000);
//! tracing::warn!(source = %format_args!("uid {uid}"), "{path}: no MMV file, left alone");
//! ```
//!
//! The field `critical` marks why the agent ends: that line is always written. So is the debug output that `-D` asks
//! for; options that are set while the agent runs make at most 50 KiB a second, unless stderr is a terminal.

use std::any::Any;
use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{OnceLock, PoisonError, RwLock};

use chrono::Local;
use pmapi::debug::{Debug, OPTIONS};
use tracing::{Level, Metadata};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::log_file;
use crate::user::Ids;

use lines::Lines;

mod limit;
mod lines;

#[cfg(test)]
pub(crate) mod testing;

/// The log of this process, unless it has a subscriber of its own.
static LINES: OnceLock<Lines> = OnceLock::new();

/// What `-D` said, or was set since; unknown in a process that has a subscriber of its own.
static OPTIONS_SET: RwLock<Debug> = RwLock::new(Debug::NONE);

/// The debug options that are set (pmGetDebug(3)).
pub fn debug_options() -> Debug {
    OPTIONS_SET.read().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Sets debug options in place of those that were set (pmClearDebug(3), pmSetDebug(3)). Their output is limited from now
/// on, since it may be a client that sets them.
pub fn set_debug_options(options: Debug) {
    if let Some(lines) = LINES.get()
        && !std::io::stderr().is_terminal()
    {
        lines.limit_debug();
    }
    set(options);
}

fn set(options: Debug) {
    *OPTIONS_SET.write().unwrap_or_else(PoisonError::into_inner) = options;
    tracing::callsite::rebuild_interest_cache();
}

/// Whether a message is to be seen with these options of `-D`. Each option is the target of the DEBUG
/// and TRACE messages that it lets through; an agent's own, which have a module as their target, go
/// with `appl0`.
fn shows(options: &Debug, metadata: &Metadata<'_>) -> bool {
    if *metadata.level() <= Level::INFO {
        return true;
    }
    options.has(if OPTIONS.contains(&metadata.target()) { metadata.target() } else { "appl0" })
}

/// Points stderr to a log file, keeping the previous one as `FILE.prev`, and writes the header.
/// When the file cannot be written, stderr stays and says so. `-` is stderr. `user`: the user that the process is going
/// to be.
pub(crate) fn open(program: &str, path: &Path, user: Option<Ids>) {
    if path.as_os_str() != "-"
        && let Err(e) = log_file::open(path, user).and_then(|file| Ok(nix::unistd::dup2_stderr(&file)?))
    {
        let reason =
            e.raw_os_error().map_or_else(|| e.to_string(), |errno| pmapi::Error::from_errno(errno).to_string());
        eprintln!("{program}: cannot open log \"{}\" for writing : {reason}", path.display());
    }
    let host = nix::unistd::gethostname().unwrap_or_default();
    put(&format!("Log for {program} on {} started {}\n\n", host.display(), now()));
}

/// Writes how many lines have been left out, at the end of what logs.
pub(crate) fn finish() {
    if let Some(lines) = LINES.get() {
        lines.report(true);
    }
}

/// Writes the last line of the log.
pub(crate) fn close() {
    finish();
    put(&format!("\nLog finished {}\n", now()));
}

/// Writes to stderr with one system call, so that threads do not mix their lines. A log that cannot
/// be written is no reason to stop.
fn put(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Whether the process runs its exit functions (atexit(3)).
static IS_EXITING: AtomicBool = AtomicBool::new(false);

/// Makes the log usable in an exit function of the process.
pub(crate) fn begin_exit() {
    IS_EXITING.store(true, Ordering::Relaxed);
}

/// Returns the local time in a format of strftime(3).
fn local_time(format: &'static str) -> String {
    let text = move || Local::now().format(format).to_string();
    if !IS_EXITING.load(Ordering::Relaxed) {
        return text();
    }
    // chrono keeps the time zone in a thread-local. Those of the thread that exits are gone by now, and one that is used
    // nevertheless panics, the log line of that panic panics again, and that aborts the process. A new thread has its own.
    let thread = std::thread::Builder::new().spawn(text);
    thread.ok().and_then(|thread| thread.join().ok()).unwrap_or_default()
}

/// Local time as ctime(3) writes it, without the newline.
fn now() -> String {
    local_time("%a %b %e %H:%M:%S %Y")
}

/// Sends tracing's events to stderr, a line each: `[time] program(pid) Severity: message`.
///
/// When the process has a subscriber already, as a test or an embedding program may, that one stays.
pub(crate) fn subscribe(program: &str, debug: Debug) {
    set(debug);
    let lines = Lines::new(program, put);
    if tracing_subscriber::registry().with(lines.clone()).try_init().is_ok() {
        let _ = LINES.set(lines);
    }
}

/// Writes how many lines have been left out, when that is due: called often, and cheap.
pub(crate) fn tick() {
    if let Some(lines) = LINES.get() {
        lines.report(false);
    }
}

/// Gives each panic a line in the log. What goes on after it is decided elsewhere.
pub(crate) fn panics() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(|place| format!(" at {place}")).unwrap_or_default();
        tracing::error!(source = place, "panic{place}: {}", panic_message(panic.payload()));
    }));
}

/// What a panic says.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
