//! Writes events as lines: `[time] program(pid) Severity: message`.

use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use pcp_base::escape::{Escaped, Escaping};
use pmapi::zone::LocalTime;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Filter};

use super::limit::Limit;
use super::{debug_options, shows};
use crate::fixed_limit::FixedLimit;

/// Longest text of a line after its severity, in bytes. A line that is cut ends with a mark.
const LONGEST: usize = 1024;
/// Longest text of a critical line, in bytes.
const LONGEST_OF_CRITICAL: usize = 16 << 10;
/// Longest text of a source, in bytes.
const SOURCE: usize = 128;

/// A log that writes events as lines. A clone is another handle to the same log.
#[derive(Clone)]
pub(super) struct Lines(Arc<Log>);

struct Log {
    program: String,
    limit: Mutex<Limit>,
    put: fn(&str),
    /// Lines have been left out since the last report.
    left_out: AtomicBool,
    /// Debug output is limited.
    limits_debug: AtomicBool,
}

impl Lines {
    pub(super) fn new(program: &str, put: fn(&str)) -> Lines {
        Lines(Arc::new(Log {
            program: Escaped(program).to_string(),
            limit: Mutex::new(Limit::new(Instant::now())),
            put,
            left_out: AtomicBool::new(false),
            limits_debug: AtomicBool::new(false),
        }))
    }

    /// Limits debug output from now on.
    pub(super) fn limit_debug(&self) {
        self.0.limits_debug.store(true, Ordering::Relaxed);
    }

    /// Writes the number of lines left out, if that is due or `at_once` is true.
    pub(super) fn report(&self, at_once: bool) {
        if !self.0.left_out.load(Ordering::Relaxed) {
            return;
        }
        let mut limit = self.limit();
        let report = limit.report(Instant::now(), at_once);
        if report.is_some() {
            self.0.left_out.store(false, Ordering::Relaxed);
        }
        drop(limit);
        if let Some(report) = report {
            let mut text = String::new();
            let _ = write!(Escaping(Cut(&mut text, LONGEST)), "{report}");
            self.write("Warning", &text);
        }
    }

    fn limit(&self) -> MutexGuard<'_, Limit> {
        self.0.limit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn admits(&self, place: &'static Metadata<'static>, source: &str) -> bool {
        let now = Instant::now();
        let admitted = match *place.level() {
            Level::DEBUG | Level::TRACE => {
                !self.0.limits_debug.load(Ordering::Relaxed) || self.limit().admits_debug(now)
            }
            _ => self.limit().admits(now, place, source),
        };
        if !admitted {
            self.0.left_out.store(true, Ordering::Relaxed);
            let is_debug = *place.level() >= Level::DEBUG;
            if is_debug { FixedLimit::LogDebug } else { FixedLimit::LogLines }.count();
        }
        admitted
    }

    fn write(&self, severity: &str, text: &str) -> usize {
        let time = LocalTime::now().of_log();
        let line = format!("[{time}] {}({}) {severity}: {text}\n", self.0.program, std::process::id());
        (self.0.put)(&line);
        line.len()
    }
}

/// Selects the messages that the debug options show. Other layers have filters of their own.
pub(super) struct Shown;

impl<S: Subscriber> Filter<S> for Shown {
    fn enabled(&self, metadata: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        shows(debug_options(), metadata)
    }

    /// Asked again whenever the debug options change, so that a message that is not shown costs nothing.
    fn callsite_enabled(&self, metadata: &'static Metadata<'static>) -> Interest {
        if shows(debug_options(), metadata) { Interest::always() } else { Interest::never() }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        let most = if debug_options().is_empty() { Level::INFO } else { Level::TRACE };
        Some(most.into())
    }
}

impl<S: Subscriber> tracing_subscriber::Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        self.report(false);
        let mut about = About::default();
        event.record(&mut about);
        // The reason why the agent ends is always written.
        if !about.critical && !self.admits(event.metadata(), &about.source) {
            return;
        }
        let text = text(event, if about.critical { LONGEST_OF_CRITICAL } else { LONGEST });
        let severity = match *event.metadata().level() {
            Level::ERROR if about.critical => "Critical",
            Level::ERROR => "Error",
            Level::WARN => "Warning",
            Level::INFO => "Info",
            _ => "Debug",
        };
        let written = self.write(severity, &text);
        if *event.metadata().level() >= Level::DEBUG {
            self.limit().take_debug(Instant::now(), written);
        }
    }
}

/// The fields of an event that decide whether it is written.
#[derive(Default)]
struct About {
    /// The field `source` names the user or client that has caused the line.
    source: String,
    /// The field `critical` marks the reason why the agent ends.
    critical: bool,
}

impl Visit for About {
    fn record_bool(&mut self, field: &Field, value: bool) {
        if field.name() == "critical" {
            self.critical = value;
        } else {
            self.record_debug(field, &value);
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "source" {
            let _ = write!(Cut(&mut self.source, SOURCE), "{value:?}");
        }
    }
}

/// Returns the message, followed by the fields as `name=value`.
fn text(event: &Event<'_>, longest: usize) -> String {
    let mut text = Text { text: String::new(), longest, of_message: true, cut: false };
    event.record(&mut text);
    text.of_message = false;
    event.record(&mut text);
    if text.cut {
        text.text.push_str(" ... (cut)");
        FixedLimit::LogCut.count();
    }
    text.text
}

struct Text {
    text: String,
    longest: usize,
    /// The message is recorded, not the fields.
    of_message: bool,
    cut: bool,
}

impl Text {
    fn push(&mut self, value: fmt::Arguments<'_>) {
        if !self.cut {
            self.cut = Escaping(Cut(&mut self.text, self.longest)).write_fmt(value).is_err();
        }
    }
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" if self.of_message => self.push(format_args!("{value:?}")),
            "message" | "source" | "critical" => {}
            name if !self.of_message => self.push(format_args!(" {name}={value:?}")),
            _ => {}
        }
    }
}

/// Appends text up to a length in bytes.
struct Cut<'a>(&'a mut String, usize);

impl fmt::Write for Cut<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.1.saturating_sub(self.0.len());
        let end = (0..=room.min(text.len())).rfind(|at| text.is_char_boundary(*at)).unwrap_or(0);
        self.0.push_str(&text[..end]);
        if end < text.len() { Err(fmt::Error) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use tracing::{debug, error, warn};
    use tracing_subscriber::layer::SubscriberExt as _;

    thread_local! {
        static WRITTEN: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    }

    /// Returns the lines that `run` logs through the handle.
    fn log(run: impl FnOnce(&Lines)) -> Vec<String> {
        let lines = Lines::new("pmdatest", |line| WRITTEN.with_borrow_mut(|written| written.push(line.to_owned())));
        // Without the filter: debug options of the process do not matter here.
        crate::log::testing::second();
        let subscriber = tracing_subscriber::registry().with(lines.clone());
        tracing::subscriber::with_default(subscriber, || run(&lines));
        WRITTEN.take()
    }

    /// Returns the texts of lines, without time and process.
    fn texts(lines: &[String]) -> Vec<&str> {
        lines.iter().map(|line| line.split_once(") ").unwrap().1.strip_suffix('\n').unwrap()).collect()
    }

    #[test]
    fn names_of_strangers_make_no_lines_and_steer_no_terminal() {
        let name = "x\n[Sun Nov  1 00:00:00] pmdatest(1) Info: forged\r\x1b[2J\u{9b}\u{202e}\u{7f}é";
        let lines = log(|_| {
            warn!("{name}: left alone");
            warn!(file = name, shown = %name, "a file");
            error!(critical = true, "{name}");
        });
        let plain = r"x\n[Sun Nov  1 00:00:00] pmdatest(1) Info: forged\r\u{1b}[2J\u{9b}\u{202e}\u{7f}é";
        assert_eq!(
            texts(&lines),
            [
                format!("Warning: {plain}: left alone"),
                format!("Warning: a file file={:?} shown={plain}", name),
                format!("Critical: {plain}"),
            ]
        );
        assert!(lines.iter().all(|line| line.matches('\n').count() == 1));
    }

    #[test]
    fn a_line_has_a_limited_length() {
        let name = "\x1b".repeat(1 << 20);
        let lines = log(|_| {
            warn!(name, "{name}");
            error!(critical = true, "{name}");
        });
        let texts = texts(&lines);
        assert!(texts[0].len() <= LONGEST + 30 && texts[0].ends_with(" ... (cut)"), "{}", texts[0]);
        assert!(texts[1].len() > LONGEST && texts[1].len() <= LONGEST_OF_CRITICAL + 30);
        assert!(FixedLimit::LogCut.exceeded() >= 2);
    }

    #[test]
    fn a_flood_is_a_few_lines_and_one_that_counts_the_rest() {
        let lines = log(|lines| {
            for n in 0..1_000 {
                warn!(source = %format_args!("uid {}", n % 2), "file {n}");
                debug!("debug output that was asked for");
            }
            // The end of the agent is always logged.
            error!(critical = true, "over");
            lines.report(true);
            lines.report(true);
        });
        let all = texts(&lines);
        let warnings: Vec<_> = all.iter().filter(|text| text.starts_with("Warning: file")).collect();
        assert!((20..40).contains(&warnings.len()), "{}", warnings.len());
        assert!(!warnings.iter().any(|text| text.contains("uid")));
        let of_debug = all.iter().filter(|text| text.starts_with("Debug: ")).count();
        let rest: Vec<_> = all.iter().filter(|text| !text.contains("output that") && !text.contains("file ")).collect();
        assert_eq!(of_debug, 1_000);
        assert_eq!(*rest[0], "Critical: over");
        assert!(rest[1].contains("too many log lines: left out 9"), "{rest:?}");
        assert!(rest[1].contains("lines.rs:") && rest[1].contains(", the last about uid "), "{rest:?}");
        assert_eq!(rest.len(), 2);
        assert!(FixedLimit::LogLines.exceeded() >= 900);
    }

    #[test]
    fn debug_output_that_a_client_has_switched_on_is_limited() {
        let lines = log(|lines| {
            lines.limit_debug();
            (0..1_000).for_each(|_| debug!("{}", "x".repeat(500)));
        });
        assert!((256..900).contains(&lines.len()), "{}", lines.len());
        assert!(FixedLimit::LogDebug.exceeded() >= 100);
    }
}
