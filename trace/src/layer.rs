//! A layer for `tracing-subscriber`: spans are transactions, events are points.
//!
//! ```
//! use pcp_trace::{Options, State, Trace, layer::PcpLayer};
//! use tracing_subscriber::layer::SubscriberExt;
//!
//! let trace = Trace::new(Options { state: State::ASYNC, ..Options::from_env()? });
//! let subscriber = tracing_subscriber::registry().with(PcpLayer::new(trace));
//! # _ = subscriber;
//! # Ok::<(), pcp_trace::EnvError>(())
//! ```
//!
//! A span's tag is its name; it counts when it closes, with the time since it was made. An event's tag is the
//! name that it was given, as in `info!(name: "order refused", …)`, or else its target. Messages and fields
//! are not part of a tag: there would be any number of them.

use std::collections::HashMap;
use std::fmt;
use std::sync::{PoisonError, RwLock};
use std::time::Instant;

use tracing::callsite::Identifier;
use tracing::span::{Attributes, Id};
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use crate::protocol::MAX_TAG;
use crate::{Tag, Trace};

/// Traces spans and events. [`Trace`] should be asynchronous: an application is not to wait for the agent at
/// each of its spans.
pub struct PcpLayer {
    trace: Trace,
    /// By their place in the program.
    tags: RwLock<HashMap<Identifier, Option<Tag>>>,
}

/// A span that has not closed.
struct Running {
    tag: Tag,
    start: Instant,
}

impl PcpLayer {
    /// A layer that traces to this agent.
    pub fn new(trace: Trace) -> PcpLayer {
        PcpLayer { trace, tags: RwLock::default() }
    }

    fn tag(&self, metadata: &Metadata<'_>) -> Option<Tag> {
        let place = metadata.callsite();
        let known = self.tags.read().unwrap_or_else(PoisonError::into_inner).get(&place).cloned();
        known.unwrap_or_else(|| {
            let tag = tag_of(metadata);
            self.tags.write().unwrap_or_else(PoisonError::into_inner).entry(place).or_insert(tag).clone()
        })
    }
}

/// An event without a name has its place in the file as one.
fn tag_of(metadata: &Metadata<'_>) -> Option<Tag> {
    let named = !metadata.is_event() || !metadata.name().starts_with("event ");
    let name = if named { metadata.name() } else { metadata.target() };
    Tag::new(name.get(..name.floor_char_boundary(MAX_TAG))?).ok()
}

impl fmt::Debug for PcpLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PcpLayer").field("trace", &self.trace).finish_non_exhaustive()
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for PcpLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let (Some(span), Some(tag)) = (context.span(id), self.tag(attributes.metadata())) else { return };
        span.extensions_mut().insert(Running { tag, start: Instant::now() });
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        let running = span.extensions_mut().remove::<Running>();
        if let Some(running) = running {
            self.trace.transact(&running.tag, running.start.elapsed());
        }
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if let Some(tag) = self.tag(event.metadata()) {
            self.trace.point(&tag);
        }
    }
}
