//! The log file, as PCP's daemons write it: pmOpenLog(3) and pmNotifyErr(3).

use std::any::Any;
use std::fmt::{self, Write as _};
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::sync::{PoisonError, RwLock};

use chrono::Local;
use pmapi::debug::{Debug, OPTIONS};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

/// What `-D` said, or was set since; unknown in a process that has a subscriber of its own.
static OPTIONS_SET: RwLock<Debug> = RwLock::new(Debug::NONE);

/// The debug options that are set (pmGetDebug(3)).
pub fn debug_options() -> Debug {
    OPTIONS_SET.read().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Sets debug options in place of those that were set (pmClearDebug(3), pmSetDebug(3)).
pub fn set_debug_options(options: Debug) {
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
/// When the file cannot be written, stderr stays and says so. `-` is stderr.
pub(crate) fn open(program: &str, path: &Path) {
    if path.as_os_str() != "-"
        && let Err(e) = redirect(path)
    {
        eprintln!("{program}: cannot open log \"{}\" for writing : {e}", path.display());
    }
    let host = nix::unistd::gethostname().unwrap_or_default();
    put(&format!("Log for {program} on {} started {}\n\n", host.display(), now()));
}

fn redirect(path: &Path) -> Result<(), pmapi::Error> {
    // A terminal or /dev/null is written to where it is: root could move it away.
    let file = if fs::metadata(path).is_ok_and(|m| !m.is_file()) {
        File::options().append(true).open(path)?
    } else {
        let mut previous = path.as_os_str().to_owned();
        previous.push(".prev");
        // Neither matters if it fails: then there is no file, or the new one takes the place of the old.
        let _ = fs::remove_file(&previous);
        if fs::rename(path, &previous).is_err() {
            let _ = fs::remove_file(path);
        }
        File::create(path)?
    };
    nix::unistd::dup2_stderr(&file).map_err(|e| pmapi::Error::from_errno(e as i32))
}

/// Writes the last line of the log.
pub(crate) fn close() {
    put(&format!("\nLog finished {}\n", now()));
}

/// Writes to stderr with one system call, so that threads do not mix their lines. A log that cannot
/// be written is no reason to stop.
fn put(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Local time as ctime(3) writes it, without the newline.
fn now() -> impl fmt::Display {
    Local::now().format("%a %b %e %H:%M:%S %Y")
}

/// Sends tracing's events to stderr, a line each: `[time] program(pid) Severity: message`.
///
/// When the process has a subscriber already, as a test or an embedding program may, that one stays.
pub(crate) fn subscribe(program: &str, debug: Debug) {
    set_debug_options(debug);
    let _ = tracing_subscriber::registry().with(Lines { program: program.to_owned() }).try_init();
}

/// Gives each panic a line in the log. What goes on after it is decided elsewhere.
pub(crate) fn panics() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(|place| format!(" at {place}")).unwrap_or_default();
        tracing::error!("panic{place}: {}", panic_message(panic.payload()));
    }));
}

/// What a panic says.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

struct Lines {
    program: String,
}

impl<S: Subscriber> Layer<S> for Lines {
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        shows(&debug_options(), metadata)
    }

    fn max_level_hint(&self) -> Option<tracing::level_filters::LevelFilter> {
        let most = if debug_options().is_empty() { Level::INFO } else { Level::TRACE };
        Some(most.into())
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut line = Line::default();
        event.record(&mut line);
        let severity = match *event.metadata().level() {
            Level::ERROR if line.critical => "Critical",
            Level::ERROR => "Error",
            Level::WARN => "Warning",
            Level::INFO => "Info",
            _ => "Debug",
        };
        let time = Local::now().format("%a %b %e %H:%M:%S");
        let text =
            format!("[{time}] {}({}) {severity}: {}{}\n", self.program, std::process::id(), line.message, line.fields);
        put(&text);
    }
}

/// The message, and the fields behind it as `name=value`.
#[derive(Default)]
struct Line {
    message: String,
    fields: String,
    /// The field `critical` marks what ends the agent.
    critical: bool,
}

impl Visit for Line {
    fn record_bool(&mut self, field: &Field, value: bool) {
        if field.name() == "critical" { self.critical = value } else { self.record_debug(field, &value) }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}
