//! A recorder for the `metrics` facade: what a program and its libraries count is exported to PCP.
//!
//! ```no_run
//! # fn main() -> Result<(), mmv::Error> {
//! let _exported = mmv::recorder::Recorder::new("shop")?.install()?;
//!
//! metrics::counter!("sales", "kind" => "books").increment(1);
//! # Ok(())
//! # }
//! ```
//!
//! A metric keeps its name, with underscores for what no name in PCP can have. Labels make an
//! instance domain: `method=GET+status=200` is an instance, which has them as labels too, as long as
//! the file has room for labels. A metric with and without labels becomes two: the one that comes
//! second is called `…_labelled` or `…_unlabelled`. Of a histogram there are `count`, `sum`, `p50`,
//! `p90`, `p95`, `p99`, `p999` and `max`. What is described before it is first used has the
//! description as help, and the unit as far as PCP has it.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use metrics::{CounterFn, GaugeFn, HistogramFn, Key, KeyName, Metadata, SharedString, Unit, set_global_recorder};

use crate::handle::{Output, Recorder as Values};
use crate::model::{Label, Subject};
use crate::names::{MAX_TEXT, sanitize, sanitize_instance, truncated};
use crate::{Builder, Counter, Error, Gauge, Handle, InDom, Quantiles, Registry, Units};

/// Exports what is recorded through the `metrics` facade.
#[derive(Debug)]
pub struct Recorder {
    registry: Registry,
    state: Mutex<State>,
    /// Held while a counter is set, because that is a read and an addition.
    setting: Arc<Mutex<()>>,
}

/// Ends the export when dropped.
#[derive(Debug)]
#[must_use = "the export ends when this is dropped"]
pub struct Exported(Registry);

#[derive(Debug, Default)]
struct State {
    /// By the facade's name.
    descriptions: HashMap<String, (Units, String)>,
    /// PCP's names for the facade's, without and with labels.
    names: HashMap<(String, bool), String>,
    used: HashSet<String>,
    /// The domains of labels, by PCP's name.
    domains: HashMap<String, (InDom, HashSet<String>)>,
    counters: HashMap<Key, metrics::Counter>,
    gauges: HashMap<Key, metrics::Gauge>,
    histograms: HashMap<Key, metrics::Histogram>,
}

/// Where a metric of the facade is in PCP.
struct Place<'a> {
    registry: &'a Registry,
    name: String,
    /// The instance of its labels.
    instance: Option<(InDom, String)>,
    units: Units,
    help: String,
}

const QUANTILES: [(f64, &str); 5] = [(0.5, ".p50"), (0.9, ".p90"), (0.95, ".p95"), (0.99, ".p99"), (0.999, ".p999")];
/// How long values count for the quantiles, at least.
const WINDOW: Duration = Duration::from_secs(60);
/// The smallest value that quantiles tell from 0.
const RESOLUTION: f64 = 1e-6;

impl Recorder {
    /// A recorder whose metrics are called `mmv.<name>.…`; errors as from [`Registry::new`].
    pub fn new(name: &str) -> Result<Recorder, Error> {
        Self::of(Registry::builder(name))
    }

    /// A recorder with options; errors as from [`Builder::build`].
    pub fn of(builder: Builder) -> Result<Recorder, Error> {
        // Metrics are registered when they are first used, on paths where time may matter.
        let registry = builder.lazy().build()?;
        Ok(Recorder { registry, state: Mutex::default(), setting: Arc::default() })
    }

    /// The registry, for metrics of one's own beside those of the facade.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Begins to export, and makes this the program's recorder; [`Error::InUse`] when there is one.
    pub fn install(self) -> Result<Exported, Error> {
        let exported = Exported(self.registry.clone());
        let in_use = |_| Error::InUse { what: "the recorder of the", name: "metrics facade".to_owned() };
        set_global_recorder(self).map_err(in_use)?;
        exported.0.start();
        Ok(exported)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn describe(&self, name: &KeyName, unit: Option<Unit>, text: &str) {
        let help = truncated(text, MAX_TEXT).replace('\0', " ");
        self.state().descriptions.insert(name.as_str().to_owned(), (unit.map_or(Units::NONE, units), help));
    }

    /// What there is for a key, or something new. What cannot be exported is logged, and does nothing.
    fn handle<T: Clone>(
        &self,
        key: &Key,
        handles: fn(&mut State) -> &mut HashMap<Key, T>,
        new: impl FnOnce(&mut State, &Key) -> Result<T, Error>,
        nothing: T,
    ) -> T {
        let key = sorted(key);
        let mut state = self.state();
        if let Some(known) = handles(&mut state).get(&key) {
            return known.clone();
        }
        let new = new(&mut state, &key);
        let handle = new.as_ref().unwrap_or(&nothing).clone();
        handles(&mut state).insert(key.clone(), handle.clone());
        // The log may be counted through the facade.
        drop(state);
        if let Err(e) = new {
            tracing::warn!(target: "mmv", "{} is not exported to PCP: {e}", key.name());
        }
        handle
    }
}

impl Exported {
    /// The registry, for metrics of one's own beside those of the facade.
    pub fn registry(&self) -> &Registry {
        &self.0
    }
}

impl Drop for Exported {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl metrics::Recorder for Recorder {
    fn describe_counter(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        self.describe(&key, unit.or(Some(Unit::Count)), &description);
    }

    fn describe_gauge(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        self.describe(&key, unit, &description);
    }

    fn describe_histogram(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        self.describe(&key, unit, &description);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> metrics::Counter {
        let new = |state: &mut State, key: &Key| {
            let counter = state.place(&self.registry, key, Units::COUNT)?.handle("")?;
            let setting = Arc::clone(&self.setting);
            Ok(metrics::Counter::from_arc(Arc::new(FacadeCounter { counter, setting })))
        };
        self.handle(key, |state| &mut state.counters, new, metrics::Counter::noop())
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> metrics::Gauge {
        let new = |state: &mut State, key: &Key| {
            let gauge = state.place(&self.registry, key, Units::NONE)?.handle("")?;
            Ok(metrics::Gauge::from_arc(Arc::new(FacadeGauge(gauge))))
        };
        self.handle(key, |state| &mut state.gauges, new, metrics::Gauge::noop())
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> metrics::Histogram {
        let new = |state: &mut State, key: &Key| {
            let values = state.place(&self.registry, key, Units::NONE)?.histogram()?;
            Ok(metrics::Histogram::from_arc(Arc::new(FacadeHistogram(values))))
        };
        self.handle(key, |state| &mut state.histograms, new, metrics::Histogram::noop())
    }
}

impl State {
    fn place<'a>(&mut self, registry: &'a Registry, key: &Key, units: Units) -> Result<Place<'a>, Error> {
        let name = self.name(key);
        let (units, help) = self.descriptions.get(key.name()).cloned().unwrap_or((units, String::new()));
        let instance = match key.labels().len() {
            0 => None,
            _ => Some(self.instance(registry, &name, key)?),
        };
        Ok(Place { registry, name, instance, units, help })
    }

    /// A name in PCP, none that another metric has.
    fn name(&mut self, key: &Key) -> String {
        let labelled = key.labels().len() > 0;
        let known = |labelled| self.names.get(&(key.name().to_owned(), labelled));
        if let Some(name) = known(labelled) {
            return name.clone();
        }
        let mut name = sanitize(key.name());
        if known(!labelled).is_some() {
            name.push_str(if labelled { "_labelled" } else { "_unlabelled" });
        }
        while !self.used.insert(name.clone()) {
            name.push('_');
        }
        self.names.insert((key.name().to_owned(), labelled), name.clone());
        name
    }

    /// The instance for a set of labels, one that no other set has.
    fn instance(&mut self, registry: &Registry, name: &str, key: &Key) -> Result<(InDom, String), Error> {
        if !self.domains.contains_key(name) {
            let indom = registry.indom(name).help("labels of the metric").register()?;
            self.domains.insert(name.to_owned(), (indom, HashSet::new()));
        }
        let Some((indom, used)) = self.domains.get_mut(name) else {
            return Err(Error::InUse { what: "instance domain", name: name.to_owned() });
        };
        let labels: Vec<(&str, &str)> = key.labels().map(|label| (label.key(), label.value())).collect();
        let parts: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let mut instance = sanitize_instance(&parts.join("+"));
        while !used.insert(instance.clone()) {
            instance = truncated(&instance, MAX_TEXT - 1).to_owned() + "~";
        }
        // Its name says it all the same when there is no room for labels.
        let label = |(name, value): &(&str, &str)| {
            let name = sanitize(name).replace('.', "_");
            Label::new(Subject::Registry, false, &name, value)
        };
        _ = indom.label_instance_all(&instance, labels.iter().map(label).collect());
        Ok((indom.clone(), instance))
    }
}

impl Place<'_> {
    /// The handle of a part of the metric.
    fn handle<H: Handle>(&self, part: &str) -> Result<H, Error> {
        let name = format!("{}{part}", self.name);
        let metric = || self.registry.metric::<H>(&name).units(self.units).help(&self.help);
        match &self.instance {
            None => metric().register(),
            Some((indom, instance)) => {
                let known = self.registry.find_family::<H>(&name);
                known.map_or_else(|| metric().over(indom), Ok)?.instance(instance)
            }
        }
    }

    fn histogram(mut self) -> Result<Quantiles, Error> {
        let _batch = self.registry.batch();
        let quantiles = QUANTILES.iter().map(|(quantile, part)| Ok((*quantile, self.handle(part)?)));
        let quantiles = quantiles.collect::<Result<_, Error>>()?;
        let (max, sum) = (self.handle(".max")?, self.handle(".sum")?);
        self.units = Units::COUNT;
        let output = Output { quantiles, max, count: self.handle(".count")?, sum };
        let refused = |_| Error::Histogram { name: self.name.clone(), reason: "hdrhistogram refuses its precision" };
        let values = Arc::new(Values::new(WINDOW, RESOLUTION, output).map_err(refused)?);
        self.registry.inner().add_flush(&values);
        Ok(Quantiles::new(values))
    }
}

/// The facade tells labels apart by their order.
fn sorted(key: &Key) -> Key {
    let (name, mut labels) = key.clone().into_parts();
    labels.sort_by(|a, b| (a.key(), a.value()).cmp(&(b.key(), b.value())));
    Key::from_parts(name, labels)
}

/// The units of PCP for those of the facade. PCP has no bits and no percent.
fn units(unit: Unit) -> Units {
    match unit {
        Unit::Count => Units::COUNT,
        Unit::Seconds => Units::SECONDS,
        Unit::Milliseconds => Units::MILLISECONDS,
        Unit::Microseconds => Units::MICROSECONDS,
        Unit::Nanoseconds => Units::NANOSECONDS,
        Unit::Tebibytes => Units::TBYTES,
        Unit::Gibibytes => Units::GBYTES,
        Unit::Mebibytes => Units::MBYTES,
        Unit::Kibibytes => Units::KBYTES,
        Unit::Bytes => Units::BYTES,
        Unit::CountPerSecond => Units::COUNT.per(Units::SECONDS),
        Unit::Percent
        | Unit::TerabitsPerSecond
        | Unit::GigabitsPerSecond
        | Unit::MegabitsPerSecond
        | Unit::KilobitsPerSecond
        | Unit::BitsPerSecond => Units::NONE,
    }
}

struct FacadeCounter {
    counter: Counter,
    setting: Arc<Mutex<()>>,
}

impl CounterFn for FacadeCounter {
    fn increment(&self, n: u64) {
        self.counter.add(n);
    }

    fn absolute(&self, value: u64) {
        let _held = self.setting.lock().unwrap_or_else(PoisonError::into_inner);
        self.counter.add(value.saturating_sub(self.counter.get()));
    }
}

struct FacadeGauge(Gauge);

impl GaugeFn for FacadeGauge {
    fn increment(&self, n: f64) {
        self.0.add(n);
    }

    fn decrement(&self, n: f64) {
        self.0.sub(n);
    }

    fn set(&self, value: f64) {
        self.0.set(value);
    }
}

struct FacadeHistogram(Quantiles);

impl HistogramFn for FacadeHistogram {
    fn record(&self, value: f64) {
        self.0.record(value);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use metrics::{counter, describe_counter, describe_histogram, gauge, histogram, with_local_recorder};

    use super::*;
    use crate::collection::{Collection, Help};

    /// Values by metric and instance, and help by metric.
    fn seen(dir: &Path) -> (BTreeMap<String, String>, BTreeMap<String, String>) {
        let mut collection = Collection::new("mmv", dir);
        collection.refresh();
        let (mut values, mut help) = (BTreeMap::new(), BTreeMap::new());
        let metrics: Vec<_> = collection.metrics().map(|(name, desc)| (name.to_owned(), desc)).collect();
        for (name, desc) in metrics {
            let name = name.trim_start_matches("mmv.test.");
            if let Ok(text) = collection.help(desc.item, Help::Short) {
                help.insert(name.to_owned(), format!("{} [{}]", String::from_utf8_lossy(text), desc.units));
            }
            let names: BTreeMap<_, _> = desc.indom.map_or_else(BTreeMap::new, |indom| {
                let instances = collection.instances(indom).unwrap();
                instances.map(|(id, name)| (id, String::from_utf8_lossy(name).into_owned())).collect()
            });
            let mut put = |inst: Option<_>, value: pmapi::Result<pmapi::Atom<'_>>| {
                let instance = inst.map_or(String::new(), |inst| format!("[{}]", names[&inst]));
                values.insert(format!("{name}{instance}"), value.unwrap().print(0).to_string());
            };
            collection.fetch(desc.item, |_| true, &mut put).unwrap();
        }
        (values, help)
    }

    fn recorder(dir: &Path) -> Recorder {
        let builder = Registry::builder("test").directory(dir).flush_every(Duration::ZERO);
        let recorder = Recorder::of(builder).unwrap();
        recorder.registry().try_start().unwrap();
        recorder
    }

    #[test]
    fn what_is_recorded_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let recorder = recorder(dir.path());
        with_local_recorder(&recorder, || {
            describe_counter!("http_requests_total", "Requests served");
            describe_histogram!("latency", Unit::Milliseconds, "Time to serve");
            counter!("http_requests_total", "method" => "GET", "status" => "200").increment(3);
            counter!("http_requests_total", "status" => "200", "method" => "GET").increment(1);
            counter!("http_requests_total", "method" => "a b,c", "status" => "404").absolute(7);
            counter!("http_requests_total", "method" => "a b,c", "status" => "404").absolute(5);
            counter!("http_requests_total").increment(1);
            gauge!("queue::depth").set(4.0);
            gauge!("queue::depth").increment(1.5);
            gauge!("queue::depth").decrement(2.0);
            for i in 1..=100 {
                histogram!("latency", "path" => "/").record(f64::from(i));
            }
        });
        recorder.registry().flush();
        let (values, help) = seen(dir.path());
        let expected = [
            ("http_requests_total[method=GET+status=200]", "4"),
            ("http_requests_total[method=a_b_c+status=404]", "7"),
            ("http_requests_total_unlabelled", "1"),
            ("latency.count[path=/]", "100"),
            ("latency.sum[path=/]", "5050"),
            ("queue__depth", "3.5"),
        ];
        for (name, value) in expected {
            assert_eq!(values.get(name).map(String::as_str), Some(value), "{name}");
        }
        assert_eq!(values.len(), expected.len() + QUANTILES.len() + 1);
        let p90: f64 = values["latency.p90[path=/]"].parse().unwrap();
        assert!((p90 / 90.0 - 1.0).abs() < 0.01, "{p90}");
        assert_eq!(help["http_requests_total"], "Requests served [count]");
        assert_eq!(help["latency.max"], "Time to serve [millisec]");
        assert_eq!(help["latency.count"], "Time to serve [count]");
    }

    #[test]
    fn labels_are_labels() {
        let dir = tempfile::tempdir().unwrap();
        let recorder = recorder(dir.path());
        with_local_recorder(&recorder, || {
            counter!("c", "tier" => "web", "2nd" => "x\"y").increment(1);
        });
        recorder.registry().flush();
        let file = crate::reader::File::open(dir.path().join("test")).unwrap();
        let labels: Vec<_> = file.labels().iter().map(|label| (file.payload(label), label.flags)).collect();
        assert_eq!(labels, [(&br#"{"m2nd":"x\"y"}"#[..], 32), (&br#"{"tier":"web"}"#[..], 32)]);
    }

    #[test]
    fn more_labels_than_fit_are_instances_all_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let recorder = recorder(dir.path());
        with_local_recorder(&recorder, || {
            for i in 0..300 {
                counter!("c", "id" => i.to_string()).increment(i);
            }
        });
        recorder.registry().flush();
        let (values, _) = seen(dir.path());
        assert_eq!(values.len(), 300);
        assert_eq!(values["c[id=299]"], "299");
    }

    #[test]
    fn names_that_become_the_same_stay_apart() {
        let dir = tempfile::tempdir().unwrap();
        let recorder = recorder(dir.path());
        with_local_recorder(&recorder, || {
            counter!("a-b").increment(1);
            counter!("a_b").increment(2);
            counter!("l", "k" => "a b").increment(3);
            counter!("l", "k" => "a_b").increment(4);
            // A gauge of the name of a counter is logged and does nothing.
            gauge!("a_b").set(9.0);
        });
        recorder.registry().flush();
        let (values, _) = seen(dir.path());
        let expected = [("a_b", "1"), ("a_b_", "2"), ("l[k=a_b]", "3"), ("l[k=a_b~]", "4")];
        assert_eq!(values, expected.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
    }
}
