//! A layer for `tracing-subscriber`: spans are transactions, events are points.
//!
//! ```
//! use pcp_trace::{Options, State, Trace, layer::PcpLayer};
//! use tracing_subscriber::layer::SubscriberExt;
//!
//! // Should there be no agent that takes files, nothing is waited for either.
//! let trace = Trace::new(Options { state: State::ASYNC, ..Options::from_env()? });
//! let subscriber = tracing_subscriber::registry().with(PcpLayer::new(trace));
//! # _ = subscriber;
//! # Ok::<(), pcp_trace::EnvError>(())
//! ```
//!
//! A span's tag is its name; it counts when it closes, with the time since it was made. An event's tag is the
//! name that it was given, as in `info!(name: "order refused", …)`, or else its target. Messages and fields
//! are not part of a tag: there would be any number of them. They are fields of event records, in which the span's parent,
//! or the event's span, is the parent.

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
use crate::transaction::Span;
use crate::{Fields, Tag, Trace};

/// Traces spans and events. [`Trace`] should be light or asynchronous: an application is not to wait for the agent at
/// each of its spans. A subscriber has one: spans are the last one's.
pub struct PcpLayer {
    trace: Trace,
    /// By their place in the program.
    tags: RwLock<HashMap<Identifier, Option<Tag>>>,
}

/// A span that has not closed.
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

impl PcpLayer {
    /// A layer that traces to this agent.
    pub fn new(trace: Trace) -> PcpLayer {
        PcpLayer { trace, tags: RwLock::default() }
    }

    fn tag(&self, metadata: &Metadata<'_>) -> Option<Tag> {
        let place = metadata.callsite();
        // Never waited for: at a fork another thread may have the lock, which the child would wait for in vain.
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
            // Nothing is locked meanwhile: what is recorded may trace, too.
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

/// The identifier of a span's transaction.
fn number(running: Option<&Running>) -> u64 {
    running.map_or(0, |running| running.span.id)
}
