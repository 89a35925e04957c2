//! Transactions in progress.

use std::fmt::Display;
use std::time::Duration;

use crate::options::State;
use crate::protocol::Kind;
use crate::shared_memory::{self, ABORTED, END, Fields, Mark};
use crate::tag::Tag;
use crate::trace::Trace;

/// Transaction in progress. Dropping it without [`end`](Transaction::end) aborts it: it is not counted.
#[derive(Debug)]
#[must_use = "a transaction that is dropped is aborted"]
pub struct Transaction<'a> {
    trace: &'a Trace,
    tag: &'a Tag,
    span: Span,
    fields: Fields,
    counts: bool,
}

/// Start time and identifiers of a transaction. `id` is 0 without an event record of the start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    start: u64,
    pub(crate) id: u64,
    parent: u64,
}

impl Trace {
    /// Begins a transaction (pmtracebegin(3)). Any number of transactions with the same tag may be in progress.
    pub fn begin<'a>(&'a self, tag: &'a Tag) -> Transaction<'a> {
        Transaction::begin(self, tag, 0)
    }

    /// Begins a transaction. `parent` is the transaction that contains it, or 0.
    pub(crate) fn start(&self, tag: &Tag, parent: u64) -> Span {
        let shared = &self.0.shared;
        shared.say(State::API, || format!("transaction {tag} begins"));
        let start = shared_memory::now();
        let shared_memory = if shared.state().contains(State::NOAGENT) { None } else { self.shared_memory() };
        Span {
            start,
            id: shared_memory.map_or(0, |shared_memory| shared_memory.begin(shared, tag, start, parent)),
            parent,
        }
    }

    /// Ends a transaction. It is aborted unless it `counts`.
    pub(crate) fn finish(&self, tag: &Tag, span: Span, fields: &Fields, counts: bool) {
        let Span { start, id, parent } = span;
        let time = shared_memory::now();
        let value = if counts { time.saturating_sub(start) } else { ABORTED };
        // An aborted transaction leaves a record of its end only if there is one of its start.
        if counts || id != 0 {
            self.end(tag, Mark { time, flags: END, value, id, parent, fields: fields.bytes() }, counts);
        }
    }

    /// Returns whether trace events have event records with fields: the shared-memory transport is in use.
    #[cfg(feature = "tracing-layer")]
    pub(crate) fn has_records(&self) -> bool {
        self.shared_memory().is_some()
    }

    /// Traces a point. `parent` is the transaction that contains it, or 0.
    pub(crate) fn point_in(&self, tag: &Tag, parent: u64, fields: &Fields) {
        self.mark(Kind::Point, tag, -1.0, Mark { parent, fields: fields.bytes(), ..Mark::default() });
    }
}

impl<'a> Transaction<'a> {
    pub(crate) fn begin(trace: &'a Trace, tag: &'a Tag, parent: u64) -> Transaction<'a> {
        Transaction { trace, tag, span: trace.start(tag, parent), fields: Fields::new(), counts: false }
    }

    /// Begins a transaction within this one. Its event records have this transaction as their parent.
    pub fn begin_part<'b>(&'b self, tag: &'b Tag) -> Transaction<'b> {
        Transaction::begin(self.trace, tag, self.span.id)
    }

    /// Counts a point. Its event record has this transaction as its parent.
    pub fn point(&self, tag: &Tag) {
        self.trace.point_in(tag, self.span.id, &Fields::new());
    }

    /// Adds a field to the event record of the transaction's end. Returns false when it does not fit: [`Fields`].
    pub fn field(&mut self, key: &str, value: impl Display) -> bool {
        self.fields.add(key, value)
    }

    /// Ends the transaction, and counts it with the time since its beginning (pmtraceend(3)).
    pub fn end(mut self) {
        self.counts = true;
    }

    /// Aborts the transaction: it is not counted (pmtraceabort(3)). Dropping it does the same.
    pub fn abort(self) {}

    /// Returns the time since the transaction began.
    pub fn elapsed(&self) -> Duration {
        shared_memory::since(self.span.start)
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        self.trace.finish(self.tag, self.span, &self.fields, self.counts);
    }
}
