//! How labels name the instances of a metric.

use std::borrow::Cow;
use std::sync::Arc;

use exposition::Sample;

use crate::filter::{Designation, Filters};
use crate::labels::Labels;
use crate::metric::{NO_SLOT, Named, Pair};
use crate::table::Table;

/// The labels of a sample after the filters.
pub(crate) struct Naming<'a> {
    /// Labels that are exported. `None` without any, which makes a metric singular.
    pub(crate) included: Option<Vec<Label<'a>>>,
}

/// A label that is exported.
pub(crate) struct Label<'a> {
    name: &'a str,
    value: Cow<'a, str>,
    /// Whether it is no part of the names of instances.
    optional: bool,
}

/// Returns the name of a sample's metric. In a name in quotes, which may have any characters, `_` takes the place of those
/// that names of PCP cannot have.
pub(crate) fn exported<'a>(sample: &Sample<'a>) -> Cow<'a, str> {
    let name = sample.name();
    let is_odd = |c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | ':'));
    if sample.key().starts_with('{') && name.contains(is_odd) {
        Cow::Owned(name.replace(is_odd, "_"))
    } else {
        Cow::Borrowed(name)
    }
}

impl Label<'_> {
    fn pair(&self) -> Pair {
        (self.name.into(), self.value.as_ref().into())
    }
}

impl<'a> Naming<'a> {
    pub(crate) fn new(sample: &Sample<'a>, filters: &Filters) -> Naming<'a> {
        let mut included: Vec<Label<'a>> = Vec::new();
        for label in sample.labels() {
            let value = label.value.text();
            if let Some(before) = included.iter_mut().find(|before| before.name == label.name) {
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

    /// Returns the labels and notes of a metric whose first sample this is.
    pub(crate) fn of_metric(&self) -> (Vec<Pair>, Vec<Pair>) {
        let (notes, labels): (Vec<&Label<'a>>, _) = self.included.iter().flatten().partition(|label| label.optional);
        let pairs = |labels: Vec<&Label<'a>>| labels.into_iter().map(Label::pair).collect();
        (pairs(labels), pairs(notes))
    }

    /// Returns the labels of the instance; `None` for a sample without labels.
    pub(crate) fn naming(&self) -> Option<Labels> {
        let included = self.included.as_ref()?.iter().filter(|label| !label.optional);
        Some(Labels::new(included.map(|label| (label.name, &*label.value))))
    }

    /// Returns the name of the instance, without a number, and whether the name has all labels and thus spaces. The names of
    /// such a domain get numbers before them, because names must differ up to their first space.
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

/// Replaces the names of all instances by those of a table.
pub(crate) fn show_all(table: &Table, instances: &mut Named) {
    instances.names.clear();
    instances.prefixed = table.is_prefixed();
    show_new(table, instances);
}

/// Adds the names of a table that are not shown yet.
pub(crate) fn show_new(table: &Table, instances: &mut Named) {
    if instances.prefixed != table.is_prefixed() {
        return show_all(table, instances);
    }
    let from = instances.names.len();
    if table.is_prefixed() {
        instances.names.extend(table.numbered(from).cloned());
    } else {
        instances.names.extend(table.names(from).map(Arc::from));
    }
    instances.slots.resize(instances.names.len(), NO_SLOT);
    instances.labels.resize(instances.names.len(), None);
}
