//! Captures the messages that code under test logs.

use std::sync::{Arc, LazyLock, Mutex};

use tracing::field::{Field, Visit};
use tracing::subscriber::{NoSubscriber, with_default};
use tracing::{Dispatch, Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

/// A second subscriber. With only one, tracing asks a thread without a subscriber whether an event is enabled, and
/// caches the answer for all threads.
static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(NoSubscriber::default()));

#[derive(Clone, Default)]
struct Messages(Arc<Mutex<Vec<String>>>);

struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

impl<S: Subscriber> Layer<S> for Messages {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut message = Message(String::new());
        event.record(&mut message);
        self.0.lock().unwrap().push(message.0);
    }
}

/// Creates the second subscriber.
pub(crate) fn second() {
    LazyLock::force(&SECOND);
}

/// Returns the messages that `run` logs in this thread.
pub(crate) fn lines(run: impl FnOnce()) -> Vec<String> {
    second();
    let messages = Messages::default();
    with_default(tracing_subscriber::registry().with(messages.clone()), run);
    std::mem::take(&mut *messages.0.lock().unwrap())
}
