//! The metrics and instances of the facade's keys, and the limits on their number.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use metrics::Key;
use pcp_base::backoff::Backoff;
use pmapi::LabelFlags;

use super::Limits;
use crate::format::MAX_METRICS;
use crate::handle::Output;
use crate::model::{Label, Subject};
use crate::names::{MAX_TEXT, sanitize, sanitize_instance, truncated};
use crate::registry::LONGEST_WAIT;
use crate::sync::Held;
use crate::{Counter, Error, Handle, InstanceDomain, Quantiles, Registry, Units, ids};

/// Instance of the label sets beyond the limits. Names of other label sets contain an equals sign.
const OTHER: &str = "other";
/// Longest name and labels, in bytes, of a key with its own instance. Such keys are kept in memory.
pub(super) const MAX_KEY: usize = 4096;
/// Part of the total limit that each metric has for its first label sets, whatever other metrics use.
const SHARES: usize = 100;
/// Largest number of metrics that can be described.
const MAX_DESCRIPTIONS: usize = 4096;
/// Largest number of log lines about metrics that cannot be exported, and of those about label sets beyond the limits.
const MAX_LINES: u32 = 10;

#[derive(Debug, Default)]
pub(super) struct State {
    /// Units and help texts, by the facade's names.
    descriptions: HashMap<String, (Units, String)>,
    /// PCP's names, by the facade's names and whether they have labels.
    names: HashMap<(String, bool), String>,
    used: Names,
    /// Instance domains of labels, by PCP's names.
    domains: HashMap<String, Domain>,
    /// Counts uses of label sets beyond the limits. `None` before the first one, and if it cannot be registered.
    left_out: Option<Counter>,
    /// Names of metrics with keys beyond the limits, for which there was a log line.
    left_out_of: HashSet<String>,
    /// Pauses between attempts to get memory for values, and to wait for the disk.
    room: Backoff,
    /// Number of log lines about metrics that cannot be exported.
    lines: u32,
}

/// The handles of all known keys.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub counters: Handles<metrics::Counter>,
    pub gauges: Handles<metrics::Gauge>,
    pub histograms: Handles<metrics::Histogram>,
}

impl Known {
    /// Returns the number of keys.
    pub(super) fn len(&self) -> usize {
        self.counters.known.len() + self.gauges.known.len() + self.histograms.known.len()
    }
}

/// The handles of one kind.
#[derive(Debug)]
pub(super) struct Handles<T> {
    pub known: HashMap<Key, T>,
    /// Shared handles of the label sets beyond the limits, by the facade's names.
    pub others: HashMap<String, T>,
}

impl<T> Default for Handles<T> {
    fn default() -> Self {
        Handles { known: HashMap::new(), others: HashMap::new() }
    }
}

#[derive(Debug)]
struct Domain {
    indom: InstanceDomain,
    names: Names,
}

/// The instance of a label set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Instance {
    Own,
    /// Instance of all label sets beyond the limits.
    Other,
}

/// The metric and instance of a key.
pub(super) struct Target<'a> {
    registry: &'a Registry,
    name: String,
    /// The instance, for keys with labels.
    instance: Option<(InstanceDomain, String)>,
    units: Units,
    help: String,
}

pub(super) const QUANTILES: [(f64, &str); 5] =
    [(0.5, ".p50"), (0.9, ".p90"), (0.95, ".p95"), (0.99, ".p99"), (0.999, ".p999")];
/// Number of values of a key, with room for metrics of another kind with the same name.
const MOST_VALUES: usize = 16;
/// Shortest time for which values count for the quantiles.
const WINDOW: Duration = Duration::from_secs(60);
/// The smallest value that quantiles distinguish from 0.
const RESOLUTION: f64 = 1e-6;

impl State {
    /// Returns whether a metric was described.
    pub(super) fn describes(&self) -> bool {
        !self.descriptions.is_empty()
    }

    pub(super) fn describe(&mut self, name: &str, units: Units, text: &str) {
        if self.descriptions.len() < MAX_DESCRIPTIONS || self.descriptions.contains_key(name) {
            let help = truncated(text, MAX_TEXT).replace('\0', " ");
            self.descriptions.insert(truncated(name, MAX_KEY).to_owned(), (units, help));
        }
    }

    /// Returns the limit that a new key exceeds, or `None` if it gets its own metric or instance. `keys` is the number of
    /// known keys.
    ///
    /// Label sets often come from requests. So they never use up the place of a key without labels, nor that of the first
    /// label sets of a metric. Names of metrics come from the program: their number is limited by that of a file.
    pub(super) fn excess(&self, key: &Key, keys: usize, limits: Limits) -> Option<String> {
        // Equals signs and separators count as well, because any number of labels may be empty.
        let len = key.labels().fold(key.name().len(), |len, label| len + label.key().len() + label.value().len() + 2);
        if len > MAX_KEY {
            return Some(format!("a name with labels of more than {MAX_KEY} bytes"));
        }
        let labelled = key.labels().len() > 0;
        let name = self.names.get(&(key.name().to_owned(), labelled));
        let sets = name.filter(|_| labelled).and_then(|name| self.domains.get(name));
        let sets = sets.map_or(0, |domain| domain.names.len());
        if labelled && sets >= limits.metric {
            return Some(format!("more than {} label sets of the metric", limits.metric));
        }
        let is_first = sets < (limits.all / SHARES).max(1) && (name.is_some() || self.names.len() < MAX_METRICS);
        (keys >= limits.all && !is_first).then(|| format!("more than {} metrics and label sets in all", limits.all))
    }

    /// Counts a use of a key beyond the limits. Returns whether a line about its metric may be logged (`Some`), and
    /// whether that is the last one.
    pub(super) fn leave_out(&mut self, registry: &Registry, key: &Key) -> Option<bool> {
        if self.left_out_of.is_empty() {
            let counter = registry.counter("recorder.left_out");
            let counter = counter.help("Uses of label sets beyond the limits of the recorder");
            self.left_out = counter.register().ok().or_else(|| registry.find("recorder.left_out"));
        }
        if let Some(counter) = &self.left_out {
            counter.inc();
        }
        let more = self.left_out_of.len() < MAX_LINES as usize;
        let new = more && self.left_out_of.insert(truncated(key.name(), MAX_TEXT).to_owned());
        new.then_some(self.left_out_of.len() == MAX_LINES as usize)
    }

    /// Allocates memory for the values of another key. While the caller keeps the returned guard, no thread writes the
    /// registry's file, so that the registration of the key waits for no disk.
    ///
    /// Returns `None` or an error if the key cannot be registered now. A shortage, for example of descriptors, may pass:
    /// the key must not be registered before, or it would be left out for ever. An error comes once a second at most.
    pub(super) fn room<'r>(&mut self, registry: &'r Registry) -> Result<Option<Held<'r, ()>>, Error> {
        if !self.room.is_due() {
            return Ok(None);
        }
        let inner = registry.inner();
        let disk = inner.lock_disk_within(LONGEST_WAIT).ok_or_else(|| Error::Io {
            path: PathBuf::from("disk"),
            source: io::Error::new(io::ErrorKind::TimedOut, "the file of metrics is still being written"),
        });
        match disk.and_then(|disk| inner.reserve(MOST_VALUES).map(|()| disk)) {
            Ok(disk) => {
                self.room.succeeded();
                Ok(Some(disk))
            }
            Err(e) => {
                self.room.failed(&[Duration::from_secs(1)]);
                Err(e)
            }
        }
    }

    /// Returns whether another line may be logged (`Some`), and whether that is the last one.
    pub(super) fn line(&mut self) -> Option<bool> {
        self.lines = self.lines.saturating_add(1);
        (self.lines <= MAX_LINES).then_some(self.lines == MAX_LINES)
    }

    pub(super) fn target<'a>(
        &mut self,
        registry: &'a Registry,
        key: &Key,
        units: Units,
        kind: Instance,
    ) -> Result<Target<'a>, Error> {
        let name = self.name(key);
        let (units, help) = self.descriptions.get(key.name()).cloned().unwrap_or((units, String::new()));
        let instance = match key.labels().len() {
            0 => None,
            _ => Some(self.instance(registry, &name, key, kind)?),
        };
        Ok(Target { registry, name, instance, units, help })
    }

    /// Returns the unique PCP name of a key's metric.
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
        // Leaves room for the endings of a histogram's parts.
        let name = self.used.unique(&name, key.name(), MAX_TEXT - 8, '_');
        self.names.insert((key.name().to_owned(), labelled), name.clone());
        name
    }

    /// Returns the instance of a label set, or the shared one of the label sets beyond the limits.
    fn instance(
        &mut self,
        registry: &Registry,
        name: &str,
        key: &Key,
        kind: Instance,
    ) -> Result<(InstanceDomain, String), Error> {
        if !self.domains.contains_key(name) {
            let indom = registry.indom(name).help("labels of the metric").register()?;
            self.domains.insert(name.to_owned(), Domain { indom, names: Names::default() });
        }
        let Some(Domain { indom, names }) = self.domains.get_mut(name) else {
            return Err(Error::InUse { what: "instance domain", name: name.to_owned() });
        };
        if kind == Instance::Other {
            return Ok((indom.clone(), OTHER.to_owned()));
        }
        let labels: Vec<(&str, &str)> = key.labels().map(|label| (label.key(), label.value())).collect();
        let parts: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let instance = names.unique(&sanitize_instance(&parts.join("+")), &parts.join("\0"), MAX_TEXT, '~');
        // Without room for labels, the instance's name still contains them.
        let labels = labels.iter().map(|(name, value)| {
            let name = sanitize(name).replace('.', "_");
            Label::new(Subject::Registry, LabelFlags::empty(), &name, value)
        });
        _ = indom.label_instance_all(&instance, labels.collect());
        Ok((indom.clone(), instance))
    }
}

impl Target<'_> {
    /// Returns the handle of a part of the metric.
    pub(super) fn handle<H: Handle>(&self, part: &str) -> Result<H, Error> {
        let name = format!("{}{part}", self.name);
        let metric = || self.registry.metric::<H>(&name).units(self.units).help(&self.help);
        match &self.instance {
            None => metric().register(),
            Some((indom, instance)) => {
                let known = self.registry.find_family::<H>(&name);
                // The limits of the recorder apply here, not the limit of families.
                known.map_or_else(|| metric().over(indom), Ok)?.instance_up_to(instance, usize::MAX)
            }
        }
    }

    pub(super) fn histogram(mut self) -> Result<Quantiles, Error> {
        let _batch = self.registry.batch();
        let quantiles = QUANTILES.iter().map(|(quantile, part)| Ok((*quantile, self.handle(part)?)));
        let quantiles = quantiles.collect::<Result<_, Error>>()?;
        let (max, sum) = (self.handle(".max")?, self.handle(".sum")?);
        self.units = Units::COUNT;
        let output = Output { quantiles, max, count: self.handle(".count")?, sum };
        Ok(self.registry.inner().add_distribution(WINDOW, RESOLUTION, output))
    }
}

/// A set of names in use.
#[derive(Debug, Default)]
struct Names {
    used: HashSet<String>,
    /// Number of numeric endings tried so far.
    endings: u64,
}

impl Names {
    fn len(&self) -> usize {
        self.used.len()
    }

    /// Returns an unused name of at most `max` bytes for the object that `text` identifies, and adds it. Tries the name
    /// itself, then with `mark` appended, then with `mark` and the hash of `text`, and then with numbers. No number is
    /// tried twice, so the total number of attempts is proportional to the number of names.
    fn unique(&mut self, name: &str, text: &str, max: usize, mark: char) -> String {
        let hash = ids::hash(text);
        let mut endings = ["".to_owned(), mark.to_string(), format!("{mark}{hash:016x}")].into_iter();
        loop {
            let ending = endings.next().unwrap_or_else(|| {
                self.endings += 1;
                format!("{mark}{hash:016x}{mark}{}", self.endings)
            });
            let start = truncated(name, max - ending.len());
            let unique = format!("{}{ending}", if ending.is_empty() { start } else { start.trim_end_matches('.') });
            if self.used.insert(unique.clone()) {
                return unique;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::check_metric;

    #[test]
    fn unique_names_are_found_in_few_tries() {
        let mut names = Names::default();
        for (name, max) in [("a".repeat(300), 247), (".é~_".repeat(80), 255), ("x".to_owned(), 255)] {
            for n in 0..2000 {
                let unique = names.unique(&name, &n.to_string(), max, '~');
                assert!(unique.len() <= max && unique.starts_with(name.get(..1).unwrap()), "{unique}");
            }
            // This also holds if all texts have the same hash.
            (0..2000).for_each(|_| assert!(names.unique(&name, "the same", max, '~').len() <= max));
        }
        assert_eq!(names.len(), 12_000);
        assert!(names.endings < 6_000, "{}", names.endings);
    }

    #[test]
    fn a_name_that_is_made_unique_is_valid() {
        let mut names = Names::default();
        // The name is truncated after a dot.
        let name = format!("{}.{}", "a".repeat(229), "b".repeat(20));
        (0..5).for_each(|_| check_metric(&names.unique(&name, "the same", 247, '_')).unwrap());
    }
}
