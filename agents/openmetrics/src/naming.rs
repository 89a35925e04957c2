//! Names of instances, from labels.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use exposition::Sample;
use pcp_base::escape::{Escaped, is_control};
use pmapi::LabelSet;

use crate::metric::{Labels, Likeness, NO_SLOT, Named, fitting};
use crate::table::Table;
use crate::url_file::{Designation, Filters};

/// A sample with fewer labels is searched without a table of their names.
const FEW: usize = 16;

/// The labels of a sample after the filters.
pub(crate) struct Naming<'a> {
    /// Exported labels. `None` for a sample without labels, whose metric is singular.
    pub(crate) included: Option<Vec<Label<'a>>>,
}

/// A label that is exported.
pub(crate) struct Label<'a> {
    name: &'a str,
    value: Cow<'a, str>,
    /// Whether the label is left out of instance names.
    optional: bool,
}

/// Returns whether the name of a sample's metric is in quotes.
pub(crate) fn is_quoted(sample: &Sample<'_>) -> bool {
    sample.key().starts_with('{')
}

/// Returns a number for all labels of a sample, whatever their order. It is not 0 or 1.
pub(crate) fn series(sample: &Sample<'_>) -> u64 {
    let mut labels: Vec<(&str, Cow<'_, str>)> = sample.labels().map(|label| (label.name, label.value.text())).collect();
    labels.sort_unstable();
    let mut hasher = DefaultHasher::new();
    labels.hash(&mut hasher);
    hasher.finish().max(2)
}

/// Returns the name of a sample's metric. A quoted name may have any characters: those that PCP does not allow in names
/// become `_`.
pub(crate) fn exported<'a>(sample: &Sample<'a>) -> Cow<'a, str> {
    let name = sample.name();
    let is_odd = |c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | ':'));
    if is_quoted(sample) && name.contains(is_odd) { Cow::Owned(name.replace(is_odd, "_")) } else { Cow::Borrowed(name) }
}

impl Label<'_> {
    fn texts(&self) -> (&str, &str) {
        (self.name, &self.value)
    }
}

impl<'a> Naming<'a> {
    pub(crate) fn new(sample: &Sample<'a>, filters: &Filters) -> Naming<'a> {
        let mut included: Vec<Label<'a>> = Vec::new();
        // Places by name, for a sample with many labels.
        let mut places: HashMap<&str, usize> = HashMap::new();
        for label in sample.labels() {
            let value = label.value.text();
            let place = if included.len() < FEW {
                included.iter().position(|before| before.name == label.name)
            } else {
                places.extend(included.iter().enumerate().skip(places.len()).map(|(place, label)| (label.name, place)));
                places.get(label.name).copied()
            };
            if let Some(before) = place.and_then(|place| included.get_mut(place)) {
                before.value = value;
                continue;
            }
            let optional = match filters.label(label.name) {
                Designation::Include => false,
                Designation::Optional => true,
                Designation::Exclude => continue,
            };
            included.push(Label { name: label.name, value, optional });
        }
        Naming { included: Some(included).filter(|included| !included.is_empty()) }
    }

    /// Returns the labels and notes of a metric whose first sample is this one.
    pub(crate) fn of_metric(&self) -> (Labels, Labels) {
        let (notes, labels): (Vec<&Label<'a>>, _) = self.included.iter().flatten().partition(|label| label.optional);
        let copied = |labels: Vec<&Label<'a>>| Labels::new(fitting(labels.into_iter().map(Label::texts)));
        (copied(labels), copied(notes))
    }

    /// Returns the labels of the instance; `None` for a sample without labels.
    pub(crate) fn naming(&self) -> Option<Labels> {
        let included = self.included.as_ref()?.iter().filter(|label| !label.optional);
        Some(Labels::new(fitting(included.map(Label::texts))))
    }

    /// Returns the name of the instance, without a number, and whether the name consists of all labels and therefore
    /// has spaces. Such names are exported with a number in front, because instance names must differ up to their first
    /// space.
    pub(crate) fn instance_name(&self, by_pcp: bool) -> (Cow<'_, str>, bool) {
        let labels = || self.included.iter().flatten().filter(|label| !label.optional);
        let named = |name: &str| labels().find(|label| label.name == name);
        if let Some(label) = named("instname").or_else(|| named("instance")).filter(|_| by_pcp) {
            return (Cow::Borrowed(label.value.as_ref()), false);
        }
        let mut labels: Vec<&Label<'a>> = labels().collect();
        labels.sort_unstable_by_key(|label| label.name);
        let words: Vec<String> = labels.iter().map(|label| format!("{}:{}", label.name, label.value)).collect();
        (Cow::Owned(words.join(" ")), true)
    }
}

/// Adds the names of a table that are not exported yet. If the names begin with their number from now on, replaces all.
pub(crate) fn show(table: &Table, instances: &mut Named, likeness: Likeness) {
    if instances.prefixed != table.is_prefixed() {
        instances.names.clear();
        instances.prefixed = table.is_prefixed();
    }
    let from = instances.names.len();
    for (number, name) in (from..).zip(table.names(from)) {
        let name = if table.is_prefixed() { format!("{number} {name}").into() } else { Arc::clone(name) };
        instances.names.push(shown(name, likeness));
    }
    instances.slots.resize(instances.names.len(), NO_SLOT);
    instances.labels.resize(instances.names.len(), None);
}

/// Returns the exported name of an instance. Control characters are escaped, because PCP's tools print names as they
/// are, and the source chooses them. PCP's agent does not escape them. The table keeps the name of the document.
fn shown(name: Arc<str>, likeness: Likeness) -> Arc<str> {
    let strange = |c| if likeness == Likeness::Better { is_control(c) } else { c == '\0' };
    if name.chars().any(strange) { Escaped(&name).to_string().into() } else { name }
}

/// Adds labels to those of a metric. They replace labels of the same name. Stops when the labels exceed the size of a
/// label set.
pub(crate) fn merge<'a>(of: &mut Vec<(&'a str, &'a str)>, labels: &'a Labels) {
    for (name, value) in labels.iter() {
        let has_room = of.len() <= LabelSet::MAX_LABELS;
        match of.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = value,
            None if has_room => of.push((name, value)),
            None => {}
        }
    }
}
