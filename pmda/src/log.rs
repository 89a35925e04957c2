//! The log file, as PCP's daemons write it: pmOpenLog(3) and pmNotifyErr(3).
//!
//! Each event of `tracing` is a line: `[time] program(pid) Severity: message name=value`. Its text may contain strings
//! that other users choose. Characters that would end the line or control a terminal are [escaped](pcp_base::escape), and
//! a line is cut after 1 KiB.
//!
//! The number of lines is limited, so that the log does not fill the disk. Each call site in the program may log 20 lines
//! at once, and then one in ten seconds. A later line has the number of lines left out, and names the call site that has
//! left out most of them.
//!
//! An event that another user causes should name that user in the field `source`, which is printed only with the number
//! of lines left out.
//!
//! ```
//! # let (path, uid) = ("x", 1000);
//! tracing::warn!(source = %format_args!("uid {uid}"), "{path}: no MMV file, left alone");
//! ```
//!
//! An agent needs no dependency for that: [`pmda::tracing`](crate::tracing) is the crate `tracing`.
//!
//! An agent adds layers of `tracing-subscriber` with [`Agent::layers`](crate::Agent::layers), for instance one that writes
//! JSON or sends spans elsewhere. They get all events and spans, and have their own filters: debug options and limits are
//! those of the log file.
//!
//! The field `critical` marks the reason why the agent ends, which is always written. Debug output that `-D` requests
//! is not limited. The output of options that are set while the agent runs is limited to 50 KiB a second, unless stderr
//! is a terminal.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::ffi::OsStr;
use std::fmt;
use std::io::{IsTerminal as _, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{OnceLock, PoisonError, RwLock};

use pcp_base::escape::Escaped;
use pmapi::debug::{Debug, OPTIONS};
use pmapi::zone::LocalTime;
use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::registry::Registry;

use crate::log_file;
use crate::user::UserIds;

use lines::{Lines, Shown};

mod limit;
mod lines;

#[cfg(test)]
pub(crate) mod testing;

/// The log of this process, unless the process has its own subscriber.
static LINES: OnceLock<Lines> = OnceLock::new();

/// Debug options of `-D`, or those set since. Not used in a process that has its own subscriber.
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

/// Returns whether these debug options show a message. The target of a DEBUG or TRACE message is an option, or several
/// separated by commas, all of which must be set. An agent's own messages, whose target is a module, belong to `appl0`.
fn shows(options: Debug, metadata: &Metadata<'_>) -> bool {
    if *metadata.level() <= Level::INFO {
        return true;
    }
    let of_options = || metadata.target().split(',');
    if of_options().all(|name| OPTIONS.contains(&name)) {
        of_options().all(|name| options.has(name))
    } else {
        options.has("appl0")
    }
}

/// Redirects stderr to a log file, keeps the previous file as `FILE.prev`, and writes the header. When the file cannot
/// be written, logs a message and keeps stderr. The path `-` is stderr. `user` is the user that the process will change
/// to.
pub(crate) fn open(program: &str, path: &Path, user: Option<UserIds>) {
    let redirected = if path.as_os_str() == "-" {
        Ok(())
    } else {
        log_file::open(path, user).and_then(|file| Ok(nix::unistd::dup2_stderr(file)?))
    };
    if let Err(e) = redirected {
        let reason =
            e.raw_os_error().map_or_else(|| e.to_string(), |errno| pmapi::Error::from_errno(errno).to_string());
        let failed = format_args!("{program}: cannot open log \"{}\" for writing : {reason}", path.display());
        put(&format!("{}\n", Escaped(failed)));
    }
    let host = nix::unistd::gethostname().unwrap_or_default();
    put(&format!("{} started {}\n\n", head(program, &host), LocalTime::now()));
}

/// Returns the beginning of the first line. The host's name may come from a server in the network.
fn head(program: &str, host: &OsStr) -> String {
    Escaped(format_args!("Log for {program} on {}", host.to_string_lossy())).to_string()
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
    put(&format!("\nLog finished {}\n", LocalTime::now()));
}

/// Writes to stderr with one system call, so that threads do not mix their lines. Errors are ignored: the agent
/// continues without its log.
fn put(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// A layer that gets the events and spans of the agent, beside the log file.
pub type Layer = Box<dyn tracing_subscriber::Layer<Registry> + Send + Sync>;

/// Writes the events of `tracing` to stderr, a line each: `[time] program(pid) Severity: message`. They go to these layers,
/// too.
///
/// A subscriber that the process already has stays, as in a test or an embedding program.
pub(crate) fn subscribe(program: &str, debug: Debug, layers: Vec<Layer>) {
    set(debug);
    let lines = Lines::new(program, put);
    if tracing::subscriber::set_global_default(subscriber(lines.clone(), layers)).is_ok() {
        let _ = LINES.set(lines);
    }
}

fn subscriber(lines: Lines, mut layers: Vec<Layer>) -> impl Subscriber + Send + Sync {
    layers.push(Box::new(lines.with_filter(Shown)));
    tracing_subscriber::registry().with(layers)
}

/// Writes the number of lines left out, when that is due. This is cheap enough for frequent calls.
pub(crate) fn tick() {
    if let Some(lines) = LINES.get() {
        lines.report(false);
    }
}

thread_local! {
    /// Whether a caller of [`catch`] on this thread reports panics.
    static CATCHES: Cell<bool> = const { Cell::new(false) };
    /// Place of the last panic of this thread.
    static PANICKED_AT: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Logs a line for each panic that no caller of [`catch`] reports. The panic then continues as usual.
pub(crate) fn panics() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(|place| format!(" at {place}")).unwrap_or_default();
        // Thread-locals of an exiting thread no longer exist.
        if cfg!(panic = "abort") || !CATCHES.try_with(Cell::get).unwrap_or(false) {
            tracing::error!(source = place, "panic{place}: {}", panic_message(panic.payload()));
        }
        let _ = PANICKED_AT.try_with(|at| at.replace(place));
    }));
}

/// A panic that was caught. Its text follows the word panicked: ` at FILE:LINE:COLUMN: MESSAGE`. The place is missing in
/// a process whose panics this log does not report.
pub(crate) struct Panic {
    place: String,
    payload: Box<dyn Any + Send>,
}

impl fmt::Display for Panic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, panic_message(&*self.payload))
    }
}

/// Runs code, and catches its panic, which the caller logs. The caller is responsible for the state that a panic leaves
/// behind.
pub(crate) fn catch<T>(run: impl FnOnce() -> T) -> Result<T, Panic> {
    let outer = CATCHES.replace(true);
    let outcome = catch_unwind(AssertUnwindSafe(run));
    CATCHES.set(outer);
    outcome.map_err(|payload| Panic { place: PANICKED_AT.take(), payload })
}

/// Returns the message of a panic.
fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::layer::Context;

    use super::*;

    /// Counts the events of each level.
    #[derive(Clone, Default)]
    struct Counts(Arc<Mutex<Vec<Level>>>);

    impl<S: Subscriber> tracing_subscriber::Layer<S> for Counts {
        fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
            self.0.lock().unwrap().push(*event.metadata().level());
        }
    }

    #[test]
    fn a_layer_of_the_agent_gets_what_the_log_leaves_out() {
        static WRITTEN: Mutex<Vec<String>> = Mutex::new(Vec::new());
        let lines = Lines::new("pmdatest", |line| WRITTEN.lock().unwrap().push(line.to_owned()));
        let counts = Counts::default();
        testing::second();
        let layers: Vec<Layer> = vec![Box::new(counts.clone())];
        tracing::subscriber::with_default(subscriber(lines, layers), || {
            for n in 0..100 {
                tracing::warn!("line {n}");
                tracing::debug!("shown by -D only");
            }
        });
        let counted = counts.0.lock().unwrap();
        let of = |level: Level| counted.iter().filter(|counted| **counted == level).count();
        assert_eq!((of(Level::WARN), of(Level::DEBUG)), (100, 100));
        let written = WRITTEN.lock().unwrap();
        assert!(written.len() < 100 && written.iter().all(|line| line.contains(" Warning: line ")), "{written:?}");
    }

    #[test]
    fn the_first_line_is_one_line() {
        let host = OsStr::new("\x1b[2J\nforged: \u{202e}x");
        assert_eq!(head("pmdax", host), r"Log for pmdax on \u{1b}[2J\nforged: \u{202e}x");
        assert_eq!(head("pmda\nx", OsStr::new("häst.example")), r"Log for pmda\nx on häst.example");
    }
}
