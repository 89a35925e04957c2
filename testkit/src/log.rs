//! The log of code under test.

use std::fmt::Debug;
use std::sync::{Arc, LazyLock, Mutex};

use tracing::field::{Field, Visit};
use tracing::subscriber::{NoSubscriber, with_default};
use tracing::{Dispatch, Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

/// A second subscriber. With only one, tracing asks a thread without a subscriber whether an event is enabled, and
/// caches the answer for all threads.
static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(NoSubscriber::default()));

struct Lines {
    least: Level,
    lines: Arc<Mutex<Vec<String>>>,
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.0.push_str(&format!("{value:?}"));
        }
    }
}

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let level = *event.metadata().level();
        if level <= self.least {
            let mut line = Line(format!("{level}: "));
            event.record(&mut line);
            self.lines.lock().unwrap().push(line.0);
        }
    }
}

/// Returns the lines of level `least` or above that `run` logs in this thread, each as `LEVEL: message`.
///
/// # Panics
/// When a message panics while it is formatted.
pub fn logged(least: Level, run: impl FnOnce()) -> Vec<String> {
    LazyLock::force(&SECOND);
    let lines = Arc::default();
    with_default(tracing_subscriber::registry().with(Lines { least, lines: Arc::clone(&lines) }), run);
    std::mem::take(&mut *lines.lock().unwrap())
}
