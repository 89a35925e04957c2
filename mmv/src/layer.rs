//! A layer for `tracing-subscriber`: counts events by level, and times spans.
//!
//! ```no_run
//! use tracing_subscriber::layer::SubscriberExt;
//!
//! # fn main() -> Result<(), mmv::Error> {
//! let pcp = mmv::Registry::new("shop")?;
//! let subscriber = tracing_subscriber::registry().with(mmv::layer::MmvLayer::new(&pcp)?);
//! pcp.start();
//! # _ = subscriber;
//! # Ok(())
//! # }
//! ```
//!
//! | metric | instances | |
//! |---|---|---|
//! | `tracing.events` | levels | number of events |
//! | `tracing.spans.count` | spans, `target::name` | number of spans that have ended |
//! | `tracing.spans.active` | spans | number of spans that have not ended |
//! | `tracing.spans.time` | spans | time from the beginning to the end |
//! | `tracing.spans.busy` | spans | time in which spans were entered |

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use tracing::callsite::Identifier;
use tracing::span::{Attributes, Id};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use crate::os::forks::Process;
use crate::{Counter, Error, Family, Gauge, Registry, Timer, Units};

/// A layer that counts events by level, and times spans.
#[derive(Debug)]
pub struct MmvLayer {
    levels: [Counter; LEVELS.len()],
    families: Families,
    spans: Arc<Spans>,
}

type Known = HashMap<Identifier, Option<Arc<SpanMetrics>>>;

/// The metrics of all spans seen so far.
#[derive(Debug)]
struct Spans {
    known: RwLock<Known>,
    /// The process that may wait for the lock: in a forked child, it may stay locked.
    process: Process,
    /// Whether the log already says that there is no memory for the metrics of spans.
    warned: AtomicBool,
}

const LEVELS: [(Level, &str); 5] = [
    (Level::ERROR, "error"),
    (Level::WARN, "warn"),
    (Level::INFO, "info"),
    (Level::DEBUG, "debug"),
    (Level::TRACE, "trace"),
];

#[derive(Debug)]
struct Families {
    count: Family<Counter>,
    active: Family<Gauge<i64>>,
    time: Family<Timer>,
    busy: Family<Timer>,
}

/// The metrics of the spans with one callsite.
#[derive(Debug)]
struct SpanMetrics {
    count: Counter,
    active: Gauge<i64>,
    time: Timer,
    busy: Timer,
}

/// Data of a span that has not ended.
struct Running {
    layer: usize,
    metrics: Arc<SpanMetrics>,
    start: Instant,
    entered: Option<Instant>,
    busy: Duration,
}

/// Data of a span for each layer: a subscriber may have several layers, each with its own registry.
struct Timings {
    first: Option<Running>,
    more: Vec<Running>,
}

impl Timings {
    fn of(&mut self, layer: usize) -> Option<&mut Running> {
        self.first.iter_mut().chain(&mut self.more).find(|running| running.layer == layer)
    }

    fn take(&mut self, layer: usize) -> Option<Running> {
        let at = self.more.iter().position(|running| running.layer == layer);
        at.map(|at| self.more.swap_remove(at)).or_else(|| self.first.take_if(|running| running.layer == layer))
    }
}

impl MmvLayer {
    /// Creates a layer whose metrics belong to this registry.
    ///
    /// # Errors
    /// [`Error::InUse`] if the registry has such a layer already, and the errors of
    /// [`MetricBuilder::over`](crate::MetricBuilder::over).
    pub fn new(registry: &Registry) -> Result<MmvLayer, Error> {
        let _batch = registry.batch();
        let indom = registry.indom("tracing.levels").help("levels of events");
        let indom = indom.numbered((0..).zip(LEVELS.map(|(_, name)| name))).register()?;
        let events = registry.counter("tracing.events").help("events by level").over(&indom)?;
        let [a, b, c, d, e] = LEVELS.map(|(_, name)| events.instance(name));
        let spans = registry.indom("tracing.spans").help("spans by their place in the program").register()?;
        let families = Families {
            count: registry.counter("tracing.spans.count").help("spans that have ended").over(&spans)?,
            active: registry
                .metric("tracing.spans.active")
                .units(Units::COUNT)
                .help("spans that have not ended")
                .over(&spans)?,
            time: registry.timer("tracing.spans.time").help("time from beginning to end").over(&spans)?,
            busy: registry.timer("tracing.spans.busy").help("time in which spans were entered").over(&spans)?,
        };
        let (known, process, warned) = (RwLock::default(), Process::own(), AtomicBool::new(false));
        Ok(MmvLayer { levels: [a?, b?, c?, d?, e?], families, spans: Arc::new(Spans { known, process, warned }) })
    }

    /// Returns a number that no other layer of this process has.
    fn id(&self) -> usize {
        Arc::as_ptr(&self.spans).addr()
    }

    fn metrics(&self, metadata: &Metadata<'_>) -> Option<Arc<SpanMetrics>> {
        let place = metadata.callsite();
        if let Some(known) = self.spans.read(|spans| spans.get(&place).cloned())? {
            return known;
        }
        let name = crate::names::sanitize_instance(&format!("{}::{}", metadata.target(), metadata.name()));
        let metrics = self.families.instance(&name);
        if let Err(e @ Error::Io { .. }) = &metrics {
            // There is no memory or descriptor at present. The next span with this callsite tries again.
            if !self.spans.warned.swap(true, Relaxed) {
                tracing::warn!(target: "mmv", "span {name} and others are not timed: {e}");
            }
            return None;
        }
        let (is_new, known) = self.spans.write(|spans| match spans.entry(place) {
            Entry::Occupied(known) => (false, known.get().clone()),
            Entry::Vacant(new) => (true, new.insert(metrics.as_ref().ok().cloned()).clone()),
        })?;
        // Nothing is locked while this is logged, because a consumer of the log may begin the same span.
        if let (true, Err(e)) = (is_new, metrics) {
            tracing::warn!(target: "mmv", "span {name} is not timed: {e}");
        }
        known
    }
}

impl Spans {
    /// Reads the known spans. Returns `None` in a forked child if they are locked.
    fn read<T>(&self, read: impl FnOnce(&Known) -> T) -> Option<T> {
        if self.process.is_own() {
            return Some(read(&self.known.read().unwrap_or_else(PoisonError::into_inner)));
        }
        self.known.try_read().ok().map(|known| read(&known))
    }

    /// Changes the known spans. Returns `None` in a forked child.
    fn write<T>(&self, write: impl FnOnce(&mut Known) -> T) -> Option<T> {
        self.process.is_own().then(|| write(&mut self.known.write().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl Families {
    fn instance(&self, name: &str) -> Result<Arc<SpanMetrics>, Error> {
        Ok(Arc::new(SpanMetrics {
            count: self.count.instance(name)?,
            active: self.active.instance(name)?,
            time: self.time.instance(name)?,
            busy: self.busy.instance(name)?,
        }))
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for MmvLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let level = event.metadata().level();
        for ((known, _), counter) in LEVELS.iter().zip(&self.levels) {
            if known == level {
                counter.inc();
            }
        }
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let (Some(span), Some(metrics)) = (context.span(id), self.metrics(attributes.metadata())) else { return };
        metrics.active.inc();
        let running = Running { layer: self.id(), metrics, start: Instant::now(), entered: None, busy: Duration::ZERO };
        let mut extensions = span.extensions_mut();
        match extensions.get_mut::<Timings>() {
            Some(timings) => timings.more.push(running),
            None => extensions.insert(Timings { first: Some(running), more: Vec::new() }),
        }
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(running) = span.extensions_mut().get_mut::<Timings>().and_then(|timings| timings.of(self.id())) {
            running.entered = Some(Instant::now());
        }
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(running) = span.extensions_mut().get_mut::<Timings>().and_then(|timings| timings.of(self.id())) {
            running.busy += running.entered.take().map_or(Duration::ZERO, |entered| entered.elapsed());
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let running = context.span(&id).and_then(|span| span.extensions_mut().get_mut::<Timings>()?.take(self.id()));
        if let Some(Running { metrics, start, busy, .. }) = running {
            metrics.active.dec();
            metrics.count.inc();
            metrics.time.observe(start.elapsed());
            metrics.busy.observe(busy);
        }
    }
}

#[cfg(test)]
mod tests {
    use tracing::{Level, debug, error, info, span};
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    #[test]
    fn two_layers_in_one_subscriber() {
        let dir = tempfile::tempdir().unwrap();
        let layer = |name: &str| {
            let registry = Registry::builder(name).directory(dir.path()).build().unwrap();
            MmvLayer::new(&registry).unwrap()
        };
        let (one, two) = (layer("one"), layer("two"));
        let counts = [&one, &two].map(|layer| (layer.families.count.clone(), layer.families.active.clone()));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(one).with(two), || {
            (0..3).for_each(|_| span!(Level::INFO, "both").in_scope(|| info!("inside")));
        });
        for (count, active) in counts {
            let name = format!("{}::both", module_path!());
            assert_eq!((count.instance(&name).unwrap().get(), active.instance(&name).unwrap().get()), (3, 0));
        }
    }

    #[test]
    fn events_and_spans() {
        let dir = tempfile::tempdir().unwrap();
        let registry = Registry::builder("test").directory(dir.path()).build().unwrap();
        let layer = MmvLayer::new(&registry).unwrap();
        let levels = layer.levels.clone();
        let families = layer.families.count.clone();
        let times = layer.families.time.clone();
        let busy = layer.families.busy.clone();
        let active = layer.families.active.clone();
        registry.try_start().unwrap();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            error!("1");
            info!("2");
            info!("3");
            debug!("4");
            for _ in 0..3 {
                let span = span!(Level::INFO, "work");
                std::thread::sleep(Duration::from_millis(2));
                let inside = "mmv::layer::tests::work";
                assert_eq!(active.get(inside).unwrap().get(), 1);
                span.in_scope(|| std::thread::sleep(Duration::from_millis(1)));
            }
        });
        assert_eq!(levels.map(|level| level.get()), [1, 0, 2, 1, 0]);
        let name = "mmv::layer::tests::work";
        assert_eq!((families.get(name).unwrap().get(), active.get(name).unwrap().get()), (3, 0));
        let (time, busy) = (times.get(name).unwrap().get(), busy.get(name).unwrap().get());
        assert!(time >= Duration::from_millis(9) && busy >= Duration::from_millis(3) && busy < time);
    }
}
