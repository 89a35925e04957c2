//! Transactions that have begun.

use std::fmt::Display;
use std::time::Duration;

use crate::light::{self, ABORTED, END, Mark};
use crate::options::State;
use crate::protocol::Kind;
use crate::{Fields, Tag, Trace};

/// A transaction in progress: it counts when it is [ended](Transaction::end), and not when it is dropped
/// without that.
#[derive(Debug)]
#[must_use = "a transaction that is dropped is aborted"]
pub struct Transaction<'a> {
    trace: &'a Trace,
    tag: &'a Tag,
    span: Span,
    fields: Fields,
    counts: bool,
}

/// When a transaction began, and its event record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    start: u64,
    pub(crate) id: u64,
    parent: u64,
}

impl Trace {
    /// A transaction begins, as a part of another one.
    pub(crate) fn start(&self, tag: &Tag, parent: u64) -> Span {
        let shared = &self.0.shared;
        shared.say(State::API, || format!("transaction {tag} begins"));
        let start = light::now();
        let light = if shared.state().has(State::NOAGENT) { None } else { self.light() };
        Span { start, id: light.map_or(0, |light| light.begin(shared, tag, start, parent)), parent }
    }

    /// It has ended, and counts or is aborted.
    pub(crate) fn finish(&self, tag: &Tag, span: Span, fields: &Fields, counts: bool) {
        let Span { start, id, parent } = span;
        let time = light::now();
        let value = if counts { time.saturating_sub(start) } else { ABORTED };
        // Without a record of its beginning there is none of an aborted one.
        if counts || id != 0 {
            self.end(tag, Mark { time, flags: END, value, id, parent, fields: fields.bytes() }, counts);
        }
    }

    /// Whether marks have event records.
    #[cfg(feature = "tracing")]
    pub(crate) fn has_records(&self) -> bool {
        self.light().is_some()
    }

    /// A point, as a part of a transaction.
    pub(crate) fn point_in(&self, tag: &Tag, parent: u64, fields: &Fields) {
        self.mark(Kind::Point, tag, -1.0, Mark { parent, fields: fields.bytes(), ..Mark::default() });
    }
}

impl<'a> Transaction<'a> {
    pub(crate) fn begin(trace: &'a Trace, tag: &'a Tag, parent: u64) -> Transaction<'a> {
        Transaction { trace, tag, span: trace.start(tag, parent), fields: Fields::new(), counts: false }
    }

    /// Begins a transaction that is a part of this one: its event records say so.
    pub fn begin_part<'b>(&'b self, tag: &'b Tag) -> Transaction<'b> {
        Transaction::begin(self.trace, tag, self.span.id)
    }

    /// A point that is a part of this one.
    pub fn point(&self, tag: &Tag) {
        self.trace.point_in(tag, self.span.id, &Fields::new());
    }

    /// Adds a field for the event record; false when there is no room.
    pub fn field(&mut self, key: &str, value: impl Display) -> bool {
        self.fields.add(key, value)
    }

    /// Ends the transaction: it counts, with the time since it began (pmtraceend(3)).
    pub fn end(mut self) {
        self.counts = true;
    }

    /// Ends the transaction without counting it, as dropping it does (pmtraceabort(3)).
    pub fn abort(self) {}

    /// The time since it began.
    pub fn elapsed(&self) -> Duration {
        light::since(self.span.start)
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        self.trace.finish(self.tag, self.span, &self.fields, self.counts);
    }
}
