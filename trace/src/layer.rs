//! A layer for `tracing-subscriber`: spans are transactions, events are points.
//!
//! ```
//! use pcp_trace::{Options, State, Trace, layer::TraceLayer};
//! use tracing_subscriber::layer::SubscriberExt;
//!
//! // Asynchronous: without the shared-memory transport no span waits for the agent either.
//! let trace = Trace::new(Options::from_env()?.state(State::ASYNC));
//! let subscriber = tracing_subscriber::registry().with(TraceLayer::new(trace));
//! # _ = subscriber;
//! # Ok::<(), pcp_trace::EnvError>(())
//! ```
//!
//! A span's tag is its name. The transaction ends when the span closes, and lasts from the span's creation until then.
//! An event's tag is its explicit name, as in `info!(name: "order refused", …)`, or else its target. Messages and
//! fields are not part of a tag, because the number of tags must be small. They become fields of the event record.
//! The record's parent is the parent span, or the span in which the event occurred.

use std::collections::HashMap;
use std::fmt;
use std::mem;
use std::sync::RwLock;

use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use crate::protocol::MAX_TAG;
use crate::shared_memory::Fields;
use crate::tag::Tag;
use crate::trace::Trace;
use crate::transaction::Span;

/// Layer that traces spans as transactions and events as points.
///
/// Its [`Trace`] should use shared memory or asynchronous TCP, so that no span waits for the agent. A subscriber should
/// have one such layer: with several, only one of them traces each span.
pub struct TraceLayer {
    trace: Trace,
    /// Tags by callsite; `None` where the name is no valid tag.
    tags: RwLock<HashMap<Identifier, Option<Tag>>>,
}

/// An open span: an extension of the registry's span data.
struct Running {
    tag: Tag,
    span: Span,
    fields: Fields,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field.name(), format_args!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field.name(), value);
    }
}

impl TraceLayer {
    /// Creates a layer that traces with this handle.
    pub fn new(trace: Trace) -> TraceLayer {
        TraceLayer { trace, tags: RwLock::default() }
    }

    fn tag(&self, metadata: &Metadata<'_>) -> Option<Tag> {
        let place = metadata.callsite();
        // `try_read` and `try_write` never wait: a forked child would block forever on a lock that another thread of
        // its parent held.
        let known = self.tags.try_read().ok().and_then(|tags| tags.get(&place).cloned());
        known.unwrap_or_else(|| {
            let tag = tag_of(metadata);
            if let Ok(mut tags) = self.tags.try_write() {
                tags.insert(place, tag.clone());
            }
            tag
        })
    }
}

/// Returns the tag of a callsite. `tracing` names events without a name `event FILE:LINE`; their tag is the target.
fn tag_of(metadata: &Metadata<'_>) -> Option<Tag> {
    let named = !metadata.is_event() || !metadata.name().starts_with("event ");
    let name = if named { metadata.name() } else { metadata.target() };
    let end = (0..=name.len().min(MAX_TAG)).rfind(|at| name.is_char_boundary(*at))?;
    Tag::new(name.get(..end)?).ok()
}

impl fmt::Debug for TraceLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TraceLayer").field("trace", &self.trace).finish_non_exhaustive()
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for TraceLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let (Some(span), Some(tag)) = (context.span(id), self.tag(attributes.metadata())) else { return };
        let parent = span.parent().map_or(0, |parent| number(parent.extensions().get()));
        let mut fields = Fields::new();
        if self.trace.has_records() {
            attributes.record(&mut fields);
        }
        let running = Running { span: self.trace.start(&tag, parent), tag, fields };
        span.extensions_mut().replace(running);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let own = |f: &mut dyn FnMut(&mut Fields)| {
            if let Some(running) = span.extensions_mut().get_mut::<Running>() {
                f(&mut running.fields);
            }
        };
        if self.trace.has_records() {
            // The extensions are not locked while `record` runs, because a value's `Debug` or `Display` may trace.
            let mut fields = Fields::new();
            own(&mut |running| fields = mem::take(running));
            values.record(&mut fields);
            own(&mut |running| *running = mem::take(&mut fields));
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        let running = span.extensions_mut().remove::<Running>();
        if let Some(Running { tag, span, fields }) = running {
            self.trace.finish(&tag, span, &fields, true);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let Some(tag) = self.tag(event.metadata()) else { return };
        let mut fields = Fields::new();
        let mut parent = 0;
        if self.trace.has_records() {
            event.record(&mut fields);
            parent = context.event_span(event).map_or(0, |span| number(span.extensions().get()));
        }
        self.trace.point_in(&tag, parent, &fields);
    }
}

/// Returns the identifier of a span's transaction, or 0.
fn number(running: Option<&Running>) -> u64 {
    running.map_or(0, |running| running.span.id)
}
