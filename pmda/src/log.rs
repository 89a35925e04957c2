//! The log file, as PCP's daemons write it: pmOpenLog(3) and pmNotifyErr(3).
//!
//! Each event of `tracing` is a line: `[time] program(pid) Severity: message name=value`. Its text may contain strings
//! that other users choose. Characters that would end the line or control a terminal are [escaped](pmapi::escape), and
//! a line is cut after 1 KiB.
//!
//! The number of lines is limited, so that the log does not fill the disk. Each place in the program may log 20 lines
//! at once, and then one in ten seconds. All places together may log 500 lines at once, and then two a second. A later
//! line has the number of lines left out.
//!
//! An event that another user causes should name that user in the field `source`, which is not printed. Each source has
//! a limit of its own, and all sources together have a limit apart from that of the agent's own lines.
//!
//! ```
//! # let (path, uid) = ("x", 1000);
//! tracing::warn!(source = %format_args!("uid {uid}"), "{path}: no MMV file, left alone");
//! ```
//!
//! An agent needs no dependency for that: [`pmda::tracing`](crate::tracing) is the crate `tracing`.
//!
//! The field `critical` marks the reason why the agent ends, which is always written. Debug output that `-D` requests
//! is not limited. Options that are set while the agent runs log at most 50 KiB a second, unless stderr is a terminal.

use std::any::Any;
use std::cell::RefCell;
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
use crate::user::UserIds;

use lines::Lines;

mod limit;
mod lines;

#[cfg(test)]
pub(crate) mod testing;

/// The log of this process, unless the process has a subscriber of its own.
static LINES: OnceLock<Lines> = OnceLock::new();

/// Debug options of `-D`, or those set since. Not used in a process that has a subscriber of its own.
static OPTIONS_SET: RwLock<Debug> = RwLock::new(Debug::NONE);

/// Returns the debug options that are set (pmGetDebug(3)).
pub fn debug_options() -> Debug {
    *OPTIONS_SET.read().unwrap_or_else(PoisonError::into_inner)
}

/// Replaces the debug options (pmClearDebug(3), pmSetDebug(3)). Their output is limited from now on, since a client may
/// have set them.
pub fn set_debug_options(options: Debug) {
    if let Some(lines) = LINES.get().filter(|_| !std::io::stderr().is_terminal()) {
        lines.limit_debug();
    }
    set(options);
}

fn set(options: Debug) {
    *OPTIONS_SET.write().unwrap_or_else(PoisonError::into_inner) = options;
    tracing::callsite::rebuild_interest_cache();
}

/// Returns whether these debug options show a message. Each option is the target of the DEBUG and TRACE messages that
/// it shows. An agent's own messages, whose target is a module, belong to `appl0`.
fn shows(options: Debug, metadata: &Metadata<'_>) -> bool {
    if *metadata.level() <= Level::INFO {
        return true;
    }
    options.has(if OPTIONS.contains(&metadata.target()) { metadata.target() } else { "appl0" })
}

/// Redirects stderr to a log file, keeps the previous file as `FILE.prev`, and writes the header. When the file cannot
/// be written, stderr stays, with a message. The path `-` is stderr. `user` is the user that the process will change
/// to.
pub(crate) fn open(program: &str, path: &Path, user: Option<UserIds>) {
    let redirect = || Ok(nix::unistd::dup2_stderr(log_file::open(path, user)?)?);
    let redirected: std::io::Result<()> = if path.as_os_str() == "-" { Ok(()) } else { redirect() };
    if let Err(e) = redirected {
        let reason =
            e.raw_os_error().map_or_else(|| e.to_string(), |errno| pmapi::Error::from_errno(errno).to_string());
        put(&format!("{program}: cannot open log \"{}\" for writing : {reason}\n", path.display()));
    }
    let host = nix::unistd::gethostname().unwrap_or_default();
    put(&format!("Log for {program} on {} started {}\n\n", Path::new(&host).display(), now()));
}

/// Writes the number of lines left out, before the log ends.
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

/// Writes to stderr with one system call, so that threads do not mix their lines. Errors are ignored: the agent goes on
/// without its log.
fn put(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// The process runs its exit functions (atexit(3)).
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
    // chrono keeps the time zone in a thread-local, and those of the exiting thread are gone by now. Its use would
    // panic, the log line of that panic would panic again, and the process would abort. A new thread has its own.
    let thread = std::thread::Builder::new().spawn(text);
    thread.ok().and_then(|thread| thread.join().ok()).unwrap_or_default()
}

/// Returns the local time in the format of ctime(3), without the newline.
fn now() -> String {
    local_time("%a %b %e %H:%M:%S %Y")
}

/// Writes the events of `tracing` to stderr, a line each: `[time] program(pid) Severity: message`.
///
/// A subscriber that the process already has stays, as in a test or an embedding program.
pub(crate) fn subscribe(program: &str, debug: Debug) {
    set(debug);
    let lines = Lines::new(program, put);
    if tracing_subscriber::registry().with(lines.clone()).try_init().is_ok() {
        let _ = LINES.set(lines);
    }
}

/// Writes the number of lines left out, when that is due. This is cheap enough for frequent calls.
pub(crate) fn tick() {
    if let Some(lines) = LINES.get() {
        lines.report(false);
    }
}

thread_local! {
    /// Place of the last panic of this thread.
    static PANICKED_AT: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Logs a line for each panic. The panic then continues as usual.
pub(crate) fn panics() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(|place| format!(" at {place}")).unwrap_or_default();
        tracing::error!(source = place, "panic{place}: {}", panic_message(panic.payload()));
        // Thread-locals of an exiting thread are gone, and nothing reads this one then.
        let _ = PANICKED_AT.try_with(|at| at.replace(place));
    }));
}

/// Returns the place of the last panic of this thread, as ` at FILE:LINE:COLUMN`, and forgets it. It is empty in a
/// process whose panics this log does not report.
pub(crate) fn take_panic_place() -> String {
    PANICKED_AT.take()
}

/// Returns the message of a panic.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
